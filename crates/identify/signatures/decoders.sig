# Examples for protocols that decoders tell. README.md describes the format.

protocol tls
match tcp initiator 16 03 01 00 80 01 00 00 7c 03 03 aa*32
match tcp initiator 16 03 01 00 02 01 00 16 03 01 00 7e 00 7c 03 03 aa*32
match tcp responder 15 03 03 00 02 02 28
match tcp initiator 17 03 03 00 20 5a*32 17 03 03 00 20 5a*32
match tcp initiator 80 2e 01 03 01 00 15 00 00 00 10 aa*37
miss tcp initiator 16 03 01 00 80 0b 00 00 7c 03 03
miss tcp initiator 16 09 01 00 80 01 00 00 7c 03 03

protocol http
match tcp initiator "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"
match tcp responder "HTTP/1.1 200 OK\r\nServer: a\r\n\r\n"
match tcp initiator "GET /index.html\r\n"
miss tcp initiator "GET up, stand up\r\n"
miss tcp responder "HTTP/1.1 is a protocol\r\n"

protocol websocket
match tcp initiator "GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
miss tcp initiator "GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n\r\n"

protocol http-connect
match tcp initiator "CONNECT example.org:443 HTTP/1.1\r\n\r\n"

protocol rtsp
match tcp initiator "OPTIONS rtsp://example.org/a RTSP/1.0\r\nCSeq: 1\r\n\r\n"
match tcp responder "RTSP/1.0 200 OK\r\nCSeq: 1\r\n\r\n"

protocol sip
match udp initiator "INVITE sip:bob@example.org SIP/2.0\r\nVia: SIP/2.0/UDP a\r\n\r\n"
match udp responder "SIP/2.0 180 Ringing\r\n\r\n"
match tcp initiator "REGISTER sip:example.org SIP/2.0\r\n\r\n"

protocol ssdp
match udp initiator "M-SEARCH * HTTP/1.1\r\nHOST: 239.255.255.250:1900\r\n\r\n"

protocol quic
match udp initiator c3 00 00 00 01 08 11 22 33 44 55 66 77 88 00 00 44 9e aa*40
match udp responder c0 00 00 00 00 04 01 02 03 04 04 05 06 07 08 00 00 00 01 6b 33 43 cf
miss udp initiator c3 00 00 00 03 08 11 22 33 44 55 66 77 88 00 00 44 9e aa*40

protocol gquic
match udp initiator 09 01 02 03 04 05 06 07 08 "Q043" 01 aa*16
match udp initiator c3 "Q046" 50 01 02 03 04 05 06 07 08 00 00 00 01 aa*16

protocol dtls
match udp initiator 16 fe fd 00 00 00 00 00 00 00 00 00 44 01 00 00 38 00 00 00 00 00 00 00 38 fe fd aa*54
match udp initiator 17 fe fd 00 01 00 00 00 00 00 07 00 10 5a*16
miss udp initiator 17 fe fd 00 01 00 00 00 00 00 07 00 20 5a*16

protocol dns
match udp initiator 12 34 01 00 00 01 00 00 00 00 00 00 07 "example" 03 "org" 00 00 01 00 01
match tcp initiator 00 1d 12 34 01 00 00 01 00 00 00 00 00 00 07 "example" 03 "org" 00 00 01 00 01
match udp initiator 12 34 00 00 00 01 00 00 00 00 00 01 07 "example" 03 "org" 00 00 01 00 01 00 00 29 10 00 00 00 00 00 00 00
miss udp initiator 00*40
miss udp initiator 12 34 01 00 00 01 00 00 00 00 00 00 07 "example" 03 "org" 00 00 01 00 09

protocol mdns
match udp initiator 00 00 00 00 00 01 00 00 00 00 00 00 04 "host" 05 "local" 00 00 01 80 01
match udp initiator 00 00 84 00 00 00 00 01 00 00 00 00 04 "host" 05 "local" 00 00 01 80 01 00 00 00 78 00 04 0a 00 00 01

protocol llmnr
match udp initiator 12 34 00 00 00 01 00 00 00 00 00 00 04 "wpad" 00 00 01 00 01
miss udp initiator 12 34 01 00 00 01 00 00 00 00 00 00 04 "wpad" 00 00 01 00 01

protocol netbios
match udp initiator 12 34 01 10 00 01 00 00 00 00 00 00 20 "CKAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" 00 00 21 00 01
match tcp initiator 81 00 00 44 20 "CKAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" 00 20 "CKAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" 00

protocol xmpp
match tcp initiator "<?xml version='1.0'?><stream:stream xmlns='jabber:client' to='example.org'>"
miss tcp initiator "<?xml version='1.0'?><html></html>"

protocol ldap
match tcp initiator 30 0c 02 01 01 60 07 02 01 03 04 00 80 00
match tcp responder 30 0c 02 01 01 61 07 0a 01 00 04 00 04 00
match udp initiator 30 19 02 01 01 63 14 04 00 0a 01 00 0a 01 00 02 01 00 02 01 00 01 01 00 87 00 30 00
miss tcp initiator 30 0c 02 01 01 60 07 02 01 09 04 00 80 00

protocol kerberos
match udp initiator 6a 81 20 30 81 1d a1 03 02 01 05 a2 03 02 01 0a a4 0f 30*16
match tcp initiator 00 00 00 23 6a 81 20 30 81 1d a1 03 02 01 05 a2 03 02 01 0a a4 0f 30*16
miss udp initiator 6a 81 20 30 81 1d a1 03 02 01 05 a2 03 02 01 0b a4 0f 30*16

protocol snmp
match udp initiator 30 26 02 01 01 04 06 "public" a0 19 02 01 01 02 01 00 02 01 00 30 0e 30 0c 06 08 2b 06 01 02 01 01 01 00 05 00
miss udp initiator 30 27 02 01 01 04 06 "public" a0 19 02 01 01 02 01 00 02 01 00 30 0e 30 0c 06 08 2b 06 01 02 01 01 01 00 05 00

protocol mysql
match tcp responder 4a 00 00 00 0a "8.0.36" 00 08 00 00 00 "abcdefgh" 00 ff f7 08 02 00 ff c7
match tcp initiator 54 00 00 01 85 a6 ff 01 00 00 00 01 21 00*23 "root" 00
match tcp responder 10 00 00 00 ff 6a 04 "Host is not allowed"

protocol postgresql
match tcp initiator 00 00 00 13 00 03 00 00 "user" 00 "postgres" 00 00
match tcp initiator 00 00 00 08 04 d2 16 2f
match tcp responder "R" 00 00 00 0c 00 00 00 05 01 02 03 04
match tcp responder "E" 00 00 00 40 "SFATAL" 00 "C28P01" 00

protocol mongodb
match tcp initiator 3f 00 00 00 01 00 00 00 00 00 00 00 d4 07 00 00 00 00 00 00 "admin.$cmd" 00 00*8
match tcp initiator 30 00 00 00 01 00 00 00 00 00 00 00 dd 07 00 00 00 00 00 00 00 1b 00 00 00

protocol tds
match tcp initiator 12 01 00 2f 00 00 01 00 00 00 1a 00 06 01 00 20 00 01 ff aa*20
match tcp initiator 01 01 00 1e 00 00 01 00 "s" 00 "e" 00 "l" 00 "e" 00 "c" 00 "t" 00
match tcp initiator 03 09 00 58 00 00 01 00 16 00 00 00 12 00 00 00 02 00 00*8 01 00 00 00 1b 00 "p" 00
match tcp initiator 03 09 04 3a 00 00 01 00 0d 00 "s" 00 "p" 00 "_" 00 "e" 00
miss tcp initiator 03 09 00 58 00 00 01 00 16 00 00 00 12 00 00 00 05 00 00*8 01 00 00 00 1b 00 "p" 00
match tcp responder 04 01 00 15 00 33 01 00 fd 10 00 c1 00 01 00 00 00 00 00 00 00
miss tcp initiator 10 01 00 90 00 00 01 00 ff ff ff ff 04 00 00 74 00 10 00 00
miss tcp initiator 12 01 00 2f 00 00 01 00 00 00 1b 00 06 01 00 20 00 01 ff aa*20

protocol cassandra
match tcp initiator 04 00 00 00 05 00 00 00 00
match tcp initiator 03 00 00 00 01 00 00 00 16 00 01 00 0b "CQL_VERSION" 00 05 "3.0.0"
miss tcp initiator 05 02 00 02
miss tcp initiator 04 00 00 00 07 00 00 00 10 ff ff ff ff "SELECT"

protocol memcached
match tcp initiator 80 00 00 03 00 00 00 00 00 00 00 03 00*12 "key"

protocol oracle
match tcp initiator 00 3a 00 00 01 00 00 00 01 38 01 2c 00 00 08 00 7f ff 7f 08 00 00 00 01 00 00 00 3a 00 00 08 00 41 41 aa*24
match tcp responder 00 20 00 00 02 00 00 00 01 38 00 00 08 00 7f ff

protocol drda
match tcp initiator 00 32 d0 01 00 01 00 2c 10 41 00 08 11 5e "prog"

protocol kafka
match tcp initiator 00 00 00 15 00 12 00 00 00 00 00 01 00 0b "console-con"

protocol zookeeper
match tcp initiator 00 00 00 2d 00 00 00 00 00*8 00 00 75 30 00*8 00 00 00 10 00*16 00

protocol thrift
match tcp initiator 80 01 00 01 00 00 00 04 "ping" 00 00 00 00 00

protocol mqtt
match tcp initiator 10 12 00 04 "MQTT" 04 02 00 3c 00 06 "client"
match tcp initiator 10 14 00 06 "MQIsdp" 03 02 00 3c 00 06 "client"
miss tcp initiator 10 12 00 04 "MQTZ" 04 02 00 3c

protocol smb
match tcp initiator 00 00 00 44 fe "SMB" 40 00*60
match tcp initiator 00 00 00 85 ff "SMB" 72 00*60

protocol nfs
match tcp initiator 80 00 00 28 01 02 03 04 00 00 00 00 00 00 00 02 00 01 86 a3 00 00 00 03 00 00 00 00 00*16
match udp initiator 01 02 03 04 00 00 00 00 00 00 00 02 00 01 86 a3 00 00 00 03 00 00 00 00 00*16

protocol portmap
match udp initiator 01 02 03 04 00 00 00 00 00 00 00 02 00 01 86 a0 00 00 00 02 00 00 00 03 00*16 00 01 86 a3

protocol sun-rpc
match udp responder 01 02 03 04 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 08 01

protocol dce-rpc
match tcp initiator 05 00 0b 03 10 00 00 00 48 00 00 00 01 00 00 00
match udp initiator 04 00 28 00 10 00 00 00 aa*16 bb*16 cc*16 00 00 00 00 01 00 00 00 00 00 00 00 00 00 ff ff ff ff 00 00 00 00 00 00

protocol afp
match tcp initiator 00 04 00 01 00 00 00 00 00 00 00 06 00 00 00 00 01 04 00 00 04 00
match tcp initiator 00 02 22 c6 00 00 00 00 00 00 00 06 00 00 00 00 11 00 00 02 0e 1c

protocol iscsi
match tcp initiator 43 87 00 00 00 00 00 40 aa*40 "InitiatorName=iqn.2001-01.org"

protocol rdp
match tcp initiator 03 00 00 13 0e e0 00 00 00 00 00 01 00 08 00 03 00 00 00
match tcp initiator 03 00 00 2c 27 e0 00 00 00 00 00 "Cookie: mstshash=user\r\n" 01 00 08 00 03 00 00 00
match tcp responder 03 00 00 13 0e d0 00 00 12 34 00 02 00 08 00 02 00 00 00

protocol s7comm
match tcp initiator 03 00 00 16 11 e0 00 00 00 01 00 c0 01 0a c1 02 01 00 c2 02 01 02 03 00 00 19 02 f0 80 32 01 00 00 00 00 00 08 00 00

protocol s7comm-plus
match tcp initiator 03 00 00 16 02 f0 80 72 01 00 07 31 00 00 04 ca

protocol h323
match tcp initiator 03 00 00 a0 08 02 77 f4 05 04 03 80 90 a5
match udp initiator 02 20 00 00 06 00 08 91 4a 00 04 00 11 02 00

protocol x11
match tcp initiator "l" 00 0b 00 00 00 12 00 10 00 00 00 "MIT-MAGIC-COOKIE-1"

protocol telnet
match tcp responder ff fd 18 ff fd 20 ff fd 23
miss tcp responder ff ff ff ff ff ff

protocol openvpn
match udp initiator 38 01 02 03 04 05 06 07 08 00 00 00 00 00
match udp initiator 38 01 02 03 04 05 06 07 08 aa*20 00 00 00 01 65 00 00 00 00 00 00 00 00

protocol wireguard
match udp initiator 01 00 00 00 07 07 07 07 aa*140
match udp responder 02 00 00 00 07 07 07 07 aa*84
miss udp initiator 01 00 00 00 07 07 07 07 aa*139
miss udp initiator 01 00*147

protocol ike
match udp initiator 01 02 03 04 05 06 07 08 00*8 21 20 22 08 00 00 00 00 00 00 00 20 aa*4
match udp initiator 00*4 01 02 03 04 05 06 07 08 00*8 21 20 22 08 00 00 00 00 00 00 00 20 aa*4

protocol l2tp
match udp initiator c8 02 00 14 00 00 00 00 00 00 00 00 80 08 00 00 00 00 00 01

protocol gtp
match udp initiator 32 01 00 04 00 00 00 00 12 34 00 00
match udp initiator 30 ff 00 14 00 00 00 01 45 00 00 14 00 00 40 00 40 01 00 00 0a 00 00 01 0a 00 00 02
match udp initiator 48 20 00 0d 00 00 00 00 00 00 01 00 01 00 01 00 12
match udp initiator 40 01 00 09 00 00 01 00 03 00 01 00 05

protocol geneve
match udp initiator 00 00 65 58 00 00 05 00 aa*12 08 00 45 00 00 14 00 00 40 00 40 01 00 00 0a 00 00 01 0a 00 00 02

protocol vxlan
match udp initiator 08 00 00 00 00 00 05 00 aa*12 08 00 45 00 00 14 00 00 40 00 40 01 00 00 0a 00 00 01 0a 00 00 02

protocol teredo
match udp initiator 00 01 00 00 01 02 03 04 05 06 07 08 00 60 00 00 00 00 08 3a ff fe 80 00*6 00*8 ff 02 00*13 02 85 00*7
match udp initiator 60 00 00 00 00 00 3b 15 20 01 00 00 aa*12 20 01 00 00 bb*12

protocol stun
match udp initiator 00 01 00 00 21 12 a4 42 01 02 03 04 05 06 07 08 09 0a 0b 0c
match tcp initiator 00 14 00 01 00 00 21 12 a4 42 01 02 03 04 05 06 07 08 09 0a 0b 0c
match udp initiator 00 01 00 08 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 10 00 03 00 04 00 00 00 06
miss udp initiator 16 fe fd 00 00 00 00 00 00 00 00 00 44 01 00 00 38 00 00 00 00 00 00 00 38 fe fd aa*54

protocol rtcp
match udp initiator 80 c9 00 01 00 00 00 09
match udp initiator 81 c8 00 0c 00 00 00 09 aa*20 bb*24
miss udp initiator 80 c9 00 05 00 00 00 09

protocol skinny
match tcp initiator 34 00 00 00 00 00 00 00 01 00 00 00 "SEP001122334455" 00

protocol iax2
match udp initiator 80 01 00 00 00 00 00 01 00 00 06 01 0b 02 00 02

protocol bittorrent
match udp initiator "d1:ad2:id20:" 61*20 "e1:q4:ping1:t2:aa1:y1:qe"
match udp initiator 00 00 04 17 27 10 19 80 00 00 00 00 12 34 56 78

protocol dhcp
match udp initiator 01 01 06 00 12 34 56 78 00*228 63 82 53 63 35 01 01 ff

protocol dhcpv6
match udp initiator 01 01 02 03 00 01 00 0a 00 03 00 01 00 11 22 33 44 55 00 08 00 02 00 00
miss udp initiator 01 01 02 03 00 01 00 0b 00 03 00 01 00 11 22 33 44 55 00 08 00 02 00 00

protocol ntp
match udp initiator 23 00 06 ec 00*36 e5 00 00 00 00 00 00 00
match udp responder 24 01 06 ec 00 00 00 10 00 00 00 10 "GPS" 00 e5 00*7 e5 00*7 e5 00*7 e5 00*7
miss udp initiator 00*48

protocol ptp
match udp initiator 00 02 00 2c 00 00 02 00 00*12 aa*10 00 01 00 00 00 00 aa*10

protocol radius
match udp initiator 01 01 00 19 aa*16 01 05 "abc"
miss udp initiator 01 01 00 1a aa*16 01 05 "abc"

protocol diameter
match tcp initiator 01 00 00 30 80 00 01 01 00 00 00 00 00 00 00 01 00 00 00 02 00 00 01 08 40 00 00 10 "host.org"

protocol tacacs
match tcp initiator c0 01 01 00 12 34 56 78 00 00 00 20 aa*32

protocol tftp
match udp initiator 00 01 "boot.img" 00 "octet" 00
match udp responder 00 05 00 01 "File not found" 00

protocol syslog
match udp initiator "<34>Oct 11 22:14:15 host su: failed"
miss udp initiator "<345>Oct 11 22:14:15 host su: failed"

protocol netflow
match udp initiator 00 05 00 01 00*20 aa*48
match udp initiator 00 09 00 01 00 00 10 00 65 00 00 00 00 00 00 01 00 00 00 00 00 00 00 0c 01 00 00 01 00 08 00 04

protocol ipfix
match udp initiator 00 0a 00 1c 65 00 00 00 00 00 00 01 00 00 00 00 00 02 00 0c 01 00 00 01 00 08 00 04

protocol sflow
match udp initiator 00 00 00 05 00 00 00 01 0a 00 00 01 00 00 00 00 00 00 00 07 00 00 10 00 00 00 00 01 00 00 00 01 00 00 00 10 aa*16

protocol bgp
match tcp initiator ff*16 00 1d 01 04 fd e8 00 b4 0a 00 00 01 00
miss tcp initiator ff*16 00 05 01

protocol ldp
match udp initiator 00 01 00 1e 0a 00 00 01 00 00 01 00 00 14 00 00 00 01 04 00 00 04 00 0f 00 00 04 01 00 04 0a 00 00 01

protocol rip
match udp initiator 02 02 00 00 00 02 00 00 0a 00 00 00 ff 00 00 00 00 00 00 00 00 00 00 01

protocol hsrp
match udp initiator 00 00 10 03 0a 64 01 00 "cisco" 00*3 0a 00 00 01

protocol dnp3
match tcp initiator 05 64 05 c0 01 00 00 04 e9 21

protocol iec104
match tcp initiator 68 04 07 00 00 00 68 04 43 00 00 00

protocol ethernetip
match tcp initiator 65 00 04 00 00*20 01 00 00 00
match udp initiator 63 00 00 00 00*20

protocol ieee-c37118
match tcp initiator aa 41 00 12 00 f1 00 00 00 00 00 00 00 00 00 05 d7 d0

protocol coap
match udp initiator 40 01 12 34 bb ".well-known" 04 "core"

protocol someip
match udp initiator 12 34 00 01 00 00 00 0c 00 01 00 01 01 01 00 00 de ad be ef

protocol rx
match udp initiator 5a 5a 5a 5a 00 00 10 04 00 00 00 01 00 00 00 01 00 00 00 01 01 05 00 00 00 00 00 01 00 00 01 f8

protocol slp
match udp initiator 02 01 00 00 29 00 00 00 00 00 00 01 00 02 "en" 00 00 00 0f "service:printer" 00 00 00 00 00 00
miss udp initiator 02 01 00 00 2b 00 00 00 00 00 00 01 00 02 "en" 00 00

protocol pana
match udp initiator 00 00 00 10 80 00 00 01 00 00 00 00 00 00 00 07

protocol raknet
match udp initiator 01 00*7 2a 00 ff ff 00 fe fe fe fe fd fd fd fd 12 34 56 78 00*8

protocol fastcgi
match tcp initiator 01 01 00 01 00 08 00 00 00 01 00 00 00 00 00 00

protocol tplink_shp
match udp initiator d0 f2 81 f8 8b ff 9a f7 d5 ef 94 b6

protocol dicom
match tcp initiator 01 00 00 00 00 cd 00 01 00 00 "ANY-SCP         ECHOSCU         " 00*32

protocol smpp
match tcp initiator 00 00 00 27 00 00 00 09 00 00 00 00 00 00 00 01 "user" 00 "secret" 00 00 34 00 00 00

protocol wsd
match udp initiator "<?xml version=\"1.0\"?><s:Envelope xmlns:d=\"http://schemas.xmlsoap.org/ws/2005/04/discovery\">"

protocol xdmcp
match udp initiator 00 01 00 02 00 01 00

protocol doip
match udp initiator 02 fd 00 01 00 00 00 00

protocol edonkey
match tcp initiator e3 29 00 00 00 01 10 01 02 03 04 05 0e 07 08 09 0a 0b 0c 0d 0e 6f 10 0a 00 00 01

protocol minecraft
match tcp initiator 0f 00 2f 09 "localhost" 63 dd 01 01 00

protocol gnutella
match tcp initiator "GNUTELLA CONNECT/0.6\r\n"

protocol capwap
match udp initiator 00 10 02 00 00 00 00 00 00 00 00 01 00 00 0c 00 00 14 00 05 01 02 03 04 05

protocol lisp
match udp initiator 30 00 00 01 00 00 00 00 00 00 00 01 00 00 00 00 00 00 05 a0 01 20 10 00 00 00 00 01 0a 00 00 01

protocol rdpeudp
match udp initiator ff ff ff ff 00 40 18 01 bb ff 56 87 04 d0 04 d0 00*1216

protocol gopher
match tcp responder "iWelcome\tfake\t(NULL)\t0\r\n"
match tcp responder "1Files\t/files\tgopher.example.org\t70\r\n0About\t/a\tgopher.example.org\t70\r\n"
miss tcp responder "220 ftp.example.org ready\r\n"
miss tcp responder "iWelcome\tfake\t(NULL)\t70000000\r\n"
miss tcp responder "0\t\t\t70\r\n"
