//! The protocols that decoders tell. Those that patterns alone tell are in the signature files.

use crate::answer::Protocol;

/// Declares the protocols: constant, name, category, source.
macro_rules! protocols {
    ($($constant:ident $name:literal $category:literal $source:literal;)*) => {
        /// The numbers, in order.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy)]
        enum Number { $($constant),* }

        $(#[doc = concat!("The protocol `", $name, "`: ", $source, ".")]
        pub const $constant: Protocol = Protocol(Number::$constant as u16);)*

        /// Name, category and source of each.
        pub(crate) const BUILT_IN: &[(&str, &str, &str)] = &[$(($name, $category, $source)),*];
    };
}

protocols! {
    TLS "tls" "web" "RFC 8446 and its predecessors";
    HTTP "http" "web" "RFC 9112";
    WEBSOCKET "websocket" "web" "RFC 6455";
    HTTP_CONNECT "http-connect" "tunnel" "RFC 9110, section 9.3.6";
    RTSP "rtsp" "media" "RFC 7826 and RFC 2326";
    SIP "sip" "voice" "RFC 3261";
    SSDP "ssdp" "local" "UPnP Device Architecture 2.0, section 1";
    GNUTELLA "gnutella" "peer-to-peer" "Gnutella Protocol Specification 0.6";
    QUIC "quic" "web" "RFC 9000, RFC 9369";
    GQUIC "gquic" "web" "QUIC: A UDP-Based Secure and Reliable Transport, wire specification of Google";
    DTLS "dtls" "web" "RFC 9147, RFC 6347";
    DNS "dns" "names" "RFC 1035, RFC 7766";
    MDNS "mdns" "names" "RFC 6762";
    LLMNR "llmnr" "names" "RFC 4795";
    NETBIOS "netbios" "names" "RFC 1001, RFC 1002";
    SMTP "smtp" "mail" "RFC 5321";
    FTP "ftp" "files" "RFC 959";
    POP3 "pop3" "mail" "RFC 1939";
    IMAP "imap" "mail" "RFC 9051";
    NNTP "nntp" "mail" "RFC 3977";
    IRC "irc" "chat" "RFC 2812";
    XMPP "xmpp" "chat" "RFC 6120";
    LDAP "ldap" "directory" "RFC 4511";
    KERBEROS "kerberos" "directory" "RFC 4120";
    SNMP "snmp" "management" "RFC 3416, RFC 3412";
    MYSQL "mysql" "data" "MySQL Client/Server Protocol";
    POSTGRESQL "postgresql" "data" "PostgreSQL Frontend/Backend Protocol, version 3";
    MONGODB "mongodb" "data" "MongoDB Wire Protocol";
    TDS "tds" "data" "MS-TDS";
    CASSANDRA "cassandra" "data" "CQL Binary Protocol, versions 1 to 5";
    MEMCACHED "memcached" "data" "Memcached protocol.txt, BinaryProtocolRevamped";
    ORACLE "oracle" "data" "Oracle Net packets (TNS), as described for auditors";
    DRDA "drda" "data" "Open Group DRDA, volume 3 (DDM)";
    KAFKA "kafka" "data" "Apache Kafka protocol guide";
    ZOOKEEPER "zookeeper" "data" "Apache ZooKeeper, zookeeper.jute";
    THRIFT "thrift" "data" "Apache Thrift binary protocol";
    MQTT "mqtt" "messages" "MQTT 3.1 to 5.0 (OASIS)";
    SMB "smb" "files" "MS-SMB, MS-SMB2";
    NFS "nfs" "files" "RFC 1813, RFC 7530";
    SUN_RPC "sun-rpc" "calls" "RFC 5531";
    PORTMAP "portmap" "calls" "RFC 1833";
    DCE_RPC "dce-rpc" "calls" "DCE 1.1: RPC (C706), chapter 12; MS-RPCE";
    AFP "afp" "files" "Apple Filing Protocol, Data Stream Interface";
    ISCSI "iscsi" "files" "RFC 7143";
    RDP "rdp" "desktop" "MS-RDPBCGR";
    RDPEUDP "rdpeudp" "desktop" "MS-RDPEUDP";
    TELNET "telnet" "shell" "RFC 854";
    RSH "rsh" "shell" "BSD rshd(8), rlogin: RFC 1282";
    FINGER "finger" "directory" "RFC 1288";
    GOPHER "gopher" "web" "RFC 1436";
    X11 "x11" "desktop" "X Window System Protocol, X11R6, appendix B";
    SOCKS "socks" "tunnel" "RFC 1928; SOCKS 4A";
    OPENVPN "openvpn" "tunnel" "OpenVPN wire protocol (draft-openvpn)";
    WIREGUARD "wireguard" "tunnel" "WireGuard (NDSS '17), section 5.4";
    IKE "ike" "tunnel" "RFC 7296, RFC 2408, RFC 3948";
    L2TP "l2tp" "tunnel" "RFC 2661";
    GTP "gtp" "tunnel" "3GPP TS 29.281, TS 29.274, TS 29.060";
    GENEVE "geneve" "tunnel" "RFC 8926";
    VXLAN "vxlan" "tunnel" "RFC 7348";
    TEREDO "teredo" "tunnel" "RFC 4380";
    LISP "lisp" "tunnel" "RFC 9301";
    CAPWAP "capwap" "tunnel" "RFC 5415";
    AYIYA "ayiya" "tunnel" "draft-massar-v6ops-ayiya";
    STUN "stun" "voice" "RFC 8489, RFC 8656, RFC 3489";
    RTP "rtp" "voice" "RFC 3550";
    RTCP "rtcp" "voice" "RFC 3550, section 6";
    H323 "h323" "voice" "ITU-T H.225.0 over TPKT (RFC 1006)";
    SKINNY "skinny" "voice" "Cisco Skinny Client Control Protocol";
    IAX2 "iax2" "voice" "RFC 5456";
    BITTORRENT "bittorrent" "peer-to-peer" "BEP 3, BEP 5, BEP 15, BEP 29";
    DHCP "dhcp" "local" "RFC 2131";
    DHCPV6 "dhcpv6" "local" "RFC 8415";
    NTP "ntp" "time" "RFC 5905, RFC 1305";
    PTP "ptp" "time" "IEEE 1588-2008";
    RADIUS "radius" "directory" "RFC 2865, RFC 2866, RFC 5176";
    DIAMETER "diameter" "directory" "RFC 6733";
    TACACS "tacacs" "directory" "RFC 8907";
    TFTP "tftp" "files" "RFC 1350, RFC 2347";
    SYSLOG "syslog" "management" "RFC 5424, RFC 3164";
    NETFLOW "netflow" "management" "RFC 3954; NetFlow version 5";
    IPFIX "ipfix" "management" "RFC 7011";
    SFLOW "sflow" "management" "sFlow version 5";
    BGP "bgp" "routing" "RFC 4271";
    LDP "ldp" "routing" "RFC 5036";
    RIP "rip" "routing" "RFC 2453";
    HSRP "hsrp" "routing" "RFC 2281";
    PPTP "pptp" "tunnel" "RFC 2637";
    MODBUS "modbus" "industry" "Modbus Messaging on TCP/IP 1.0b";
    DNP3 "dnp3" "industry" "IEEE 1815";
    S7COMM "s7comm" "industry" "RFC 1006 and the S7 header, as described for Wireshark";
    S7COMM_PLUS "s7comm-plus" "industry" "RFC 1006 and the S7comm-plus header, as described for Wireshark";
    MMS "mms" "industry" "ISO 9506 over RFC 1006";
    IEC104 "iec104" "industry" "IEC 60870-5-104";
    ETHERNET_IP "ethernetip" "industry" "The CIP Networks Library, volume 2: EtherNet/IP";
    C37118 "ieee-c37118" "industry" "IEEE C37.118.2";
    C1222 "c1222" "industry" "ANSI C12.22, RFC 6142";
    COAP "coap" "messages" "RFC 7252";
    SOMEIP "someip" "industry" "AUTOSAR PRS SOME/IP Protocol";
    RX "rx" "files" "AFS-3 RX protocol specification";
    SLP "slp" "local" "RFC 2608";
    PANA "pana" "directory" "RFC 5191";
    RAKNET "raknet" "games" "RakNet offline message identifier";
    FASTCGI "fastcgi" "web" "FastCGI Specification 1.0";
    TPLINK_SHP "tplink_shp" "local" "TP-Link Smart Home Protocol: JSON, each byte XOR the one before";
    DICOM "dicom" "industry" "DICOM PS3.8, section 9.3";
    SMPP "smpp" "chat" "SMPP 3.4";
    RTMP "rtmp" "media" "Adobe RTMP 1.0";
    WSD "wsd" "local" "WS-Discovery 1.1";
    XDMCP "xdmcp" "desktop" "X Display Manager Control Protocol 1.1";
    DOIP "doip" "industry" "ISO 13400-2";
    EAQ "eaq" "management" "the broadband measurement of Brazil's Entidade Aferidora da Qualidade, as described by its users";
    EDONKEY "edonkey" "peer-to-peer" "eDonkey protocol, as described by its users";
    MINECRAFT "minecraft" "games" "Minecraft Java edition, handshake";
}
