# Tunnels, routing, names, management. README.md describes the format.

protocol pptp
tcp either 90 certain \x00[\x0c-\xff]\x00\x01\x1a\x2b\x3c\x4d\x00[\x01-\x0f]\x00\x00
match tcp initiator 00 9c 00 01 1a 2b 3c 4d 00 01 00 00 01 00
miss tcp initiator 00 9c 00 01 1a 2b 3c 4e 00 01 00 00

protocol citrix desktop
source Citrix ICA and CGP, as described by their users
tcp either 90 certain (\x7f\x7fICA\x00|\x1aCGP/01|\x07\x07\x07TcpProxyService)
match tcp initiator 7f 7f "ICA" 00 7f 7f "ICA" 00
match tcp initiator 1a "CGP/01"

protocol vnc desktop
source RFC 6143, section 7.1.1
tcp either 90 certain RFB 00[345]\.[0-9]{3}\n
match tcp responder "RFB 003.008\n"

protocol spice desktop
source SPICE protocol: link message
tcp either 90 certain REDQ[\x01\x02]\x00\x00\x00[\x00-\x09]\x00\x00\x00
match tcp initiator "REDQ" 02 00 00 00 02 00 00 00

protocol nomachine desktop
source NX protocol, as described by its users
tcp either 90 certain NX(D|SH|SSH|SERVER)-[0-9.]{1,10}
udp either 90 likely len=16.. \x01[\x00-\x0f]..[\x00-\xff]{2}\x00\x00NXUDP
match tcp initiator "NXSH-6.4.6\n"

protocol teamviewer desktop
source TeamViewer, as described by its users: commands behind a mark
tcp either 90 likely \x17\x24[\x0a-\x7f]\x20..[\x00-\x02]\x00
tcp either 90 likely \x11\x30[\x01-\x7f]\x00..\x00\x00
udp either 90 certain len=12.. \x00\x17\x24[\x00-\xff]{8}\x17\x24
udp either 90 certain len=20.. \x00[\x00-\xff]{10}\x17\x24[\x0a-\x7f]\x20
match tcp initiator 17 24 0a 20 10 00 00 00 a0
miss tcp initiator 17 24 00 00 10 00 00 00

protocol radmin desktop
source Radmin 3, as described by its users: the first message and its answer
tcp initiator 90 likely \x01\x00\x00\x00\x01\x00\x00\x00\x08\x08
tcp responder 90 likely \x01\x00\x00\x00\x25\x00\x00[\x00-\xff]{2}
match tcp initiator 01 00 00 00 01 00 00 00 08 08

protocol dnscrypt names
source DNSCrypt version 2: certificates and answers
udp responder 90 certain len=48.. r6fnvWj8[\x00-\xff]{24}
udp initiator 90 certain \x7cTBG[\x00-\xff]{8}
match udp responder "r6fnvWj8" 01*48

protocol roughtime time
source draft-ietf-ntp-roughtime; Google's first version by its padded request
udp either 90 certain size=le32@8+12 ROUGHTIM[\x00-\xff]{4}[\x01-\x20]\x00\x00\x00
udp initiator 90 certain len=1024 \x02\x00\x00\x00\x40\x00\x00\x00NONCPAD\xff
udp responder 90 certain \x05\x00\x00\x00\x40\x00\x00\x00\x40\x00\x00\x00\xa4\x00\x00\x00\x3c\x01\x00\x00SIG\x00
match udp initiator 02 00 00 00 40 00 00 00 "NONC" "PAD" ff 07*1008
miss udp initiator 02 00 00 00 40 00 00 00 "NONC" "PAD" ff 07*100

protocol db-lsp-disc local
source Dropbox LAN sync discovery: JSON to all hosts
udp initiator 90 certain \{"host_int": ?
match udp initiator "{\"host_int\": 4711, \"version\": [2, 0], \"displayname\": \"\"}"

protocol spotify media
source Spotify Connect discovery, as described by its users
udp initiator 90 certain SpotUdp0
tcp initiator 90 likely \x00\x04\x00\x00[\x00-\x02].\x52[\x08-\x20]\x50[\x00-\x20]
match udp initiator "SpotUdp0" 00*32

protocol tivoconnect local
source TiVo Connect automatic machine discovery
udp initiator 90 certain (?i:tivoconnect=[0-9]\n)
tcp either 90 certain (?i:tivoconnect=[0-9]\n)
match udp initiator "TiVoConnect=1\nswversion=9.1\n"

protocol bjnp local
source Canon BJNP, as described in cups-bjnp
udp either 90 certain (BJNP|BJNB|BNJB|MFNP|MFNB)[\x01\x02\x81\x82][\x01-\xff]
match udp initiator "BJNP" 01 01 00 00 00 01 00 00 00 00 00 00

protocol rmcp management
source IPMI 2.0 and ASF 2.0: RMCP
udp either 90 certain len=23.. \x06\x00\xff\x07[\x00\x01\x02\x04\x05\x06]\x00\x00\x00\x00
udp either 90 certain \x06\x00[\x00-\xff](\x06)\x00\x00\x11\xbe[\x40\x80-\x88\xc0-\xc3]
udp either 90 certain len=16.. \x06\x00\xff\x07\x06[\x10-\x15\x50-\x55\xc0]
match udp initiator 06 00 ff 07 00 00 00 00 00 00 00 00 00 09 20 18 c8 81 00 38 8e 04 b5
match udp initiator 06 00 ff 06 00 00 11 be 80 00 00 00

protocol wol local
source Wake on LAN: six bytes of ones, and an address sixteen times
udp either 90 certain len=102..108 \xff{6}[\x00-\xfe]

protocol mgcp voice
source RFC 3435
udp either 90 certain (?i:(EPCF|CRCX|MDCX|DLCX|RQNT|NTFY|AUEP|AUCX|RSIP) [0-9]{1,9} [^ \r\n]+ MGCP 1\.0)
udp responder 90 likely [1-5][0-9]{2} [0-9]{1,9} [A-Za-z ]{2,}\r\n(I:|Z:|A:|R:|L:)
match udp initiator "RSIP 1 aaln/1@example.org MGCP 1.0\r\nRM: restart\r\n"

protocol megaco voice
source RFC 3525 and H.248.1, text encoding
udp either 90 certain (?i:(MEGACO|!)/[123] [\[<][^\r\n]{3,}[\]>](:[0-9]{1,5})?[ \r\n])
match udp initiator "!/1 [192.0.2.1]:2944 T=1{C=-{SC=ROOT}}"

protocol sap media
source RFC 2974
udp initiator 90 certain [\x20\x24][\x00-\x04][\x00-\xff]{6}(application/sdp\x00)?v=0\r?\no=
match udp initiator 20 00 12 34 c0 00 02 01 "application/sdp" 00 "v=0\r\no=a"

protocol zrtp voice
source RFC 6189, section 5
udp either 90 certain \x10\x00..ZRTP[\x00-\xff]{4}\x50\x5a
match udp initiator 10 00 00 01 "ZRTP" 01 02 03 04 50 5a 00 1d "Hello   "

protocol noe voice
source Alcatel-Lucent NOE over UDP, as described by its users
udp either 60 likely len=12 \x00[\x04-\x07\x14]..\x00[\x00-\x02].[\x00-\x7f]\x00\x00\x00\x00

protocol discord voice
source Discord's developer documentation: IP discovery
udp initiator 90 certain len=74 \x00\x01\x00\x46[\x00-\xff]{4}\x00{66}
udp responder 90 certain len=74 \x00\x02\x00\x46[\x00-\xff]{4}[0-9]{1,3}\.[0-9]
match udp initiator 00 01 00 46 12 34 56 78 00*66
miss udp initiator 00 01 00 46 12 34 56 78 00*60

protocol syncthing peer-to-peer
source Syncthing block exchange and local discovery protocols
tcp either 90 certain \x2e\xa7\xd9\x0b[\x00-\x10][\x00-\xff]\x0a
udp either 90 certain \x2e\xa7\xd9\x0b\x0a[\x20-\x28]
match udp initiator 2e a7 d9 0b 0a 20 00*32

protocol slimp3 media
source Logitech SLIMP3 and Slim protocols: discovery
udp initiator 90 certain len=18.. e(IPAD|NAME|JSON|VERS|UUID|JVID)\x00

protocol ubiquiti-discovery local
source Ubiquiti discovery, versions 1 and 2, as described by its users
udp initiator 80 certain size=be16@2+4 [\x01\x02][\x00\x06\x08]..[\x01\x02\x03]\x00[\x04-\x40]
match udp initiator 01 00 00 09 02 00 06 00 11 22 33 44 55

protocol mikrotik-discovery local
source MikroTik neighbour discovery: type-length-value behind a header
udp initiator 90 certain \x00\x00..\x00\x01\x00\x06[\x00-\xff]{6}\x00\x05\x00
match udp initiator 00 00 07 00 00 01 00 06 00 11 22 33 44 55 00 05 00 04 "gate"

protocol ventrilo voice
source Ventrilo, as described by its users
udp initiator 90 likely len=20 \x00\x00\x00\x00\x00[\x01\x02]\x00[\x10\x00]\x00\x10\x00\x10

protocol xiaomi messages
source the head of Xiaomi's push messages, as described by its users
tcp either 90 likely \xc2\xfe\x00\x05\x00\x00
match tcp initiator c2 fe 00 05 00 00 00 a0 00 02
