//! Names of services, with their ports.

use super::protocols::{TCP, UDP};

/// For which protocols a service has its port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Tcp,
    Udp,
    Both,
}

use Of::{Both, Tcp, Udp};

/// Names, ports and protocols, by name.
#[rustfmt::skip]
const SERVICES: &[(&str, u16, Of)] = &[
    ("Clearcase", 371, Udp), ("acr-nema", 104, Tcp), ("afpovertcp", 548, Tcp), ("afs3-bos", 7007, Udp),
    ("afs3-callback", 7001, Udp), ("afs3-fileserver", 7000, Udp), ("afs3-kaserver", 7004, Udp),
    ("afs3-prserver", 7002, Udp), ("afs3-rmtsys", 7009, Udp), ("afs3-update", 7008, Udp),
    ("afs3-vlserver", 7003, Udp), ("afs3-volser", 7005, Udp), ("amanda", 10080, Tcp), ("amandaidx", 10082, Tcp),
    ("amidxtape", 10083, Tcp), ("amqp", 5672, Tcp), ("amqps", 5671, Tcp), ("asf-rmcp", 623, Udp),
    ("asp", 27374, Both), ("auth", 113, Tcp), ("authentication", 113, Tcp), ("babel", 6696, Udp),
    ("bacula-dir", 9101, Tcp), ("bacula-fd", 9102, Tcp), ("bacula-sd", 9103, Tcp), ("bbs", 7000, Tcp),
    ("bgp", 179, Tcp), ("bgpd", 2605, Tcp), ("biff", 512, Udp), ("binkp", 24554, Tcp), ("bootpc", 68, Udp),
    ("bootps", 67, Udp), ("canna", 5680, Tcp), ("cfengine", 5308, Tcp), ("chargen", 19, Both),
    ("cisco-sccp", 2000, Tcp), ("clc-build-daemon", 8990, Tcp), ("clearcase", 371, Udp), ("cmd", 514, Tcp),
    ("cmip-agent", 164, Both), ("cmip-man", 163, Both), ("codaauth2", 370, Both), ("codasrv", 2432, Both),
    ("codasrv-se", 2433, Both), ("comsat", 512, Udp), ("csync2", 30865, Tcp), ("cvspserver", 2401, Tcp),
    ("daap", 3689, Tcp), ("datametrics", 1645, Both), ("daytime", 13, Both), ("db-lsp", 17500, Tcp),
    ("dcap", 22125, Tcp), ("dhcpv6-client", 546, Udp), ("dhcpv6-server", 547, Udp), ("dicom", 104, Tcp),
    ("dicom", 11112, Tcp), ("dict", 2628, Tcp), ("dircproxy", 57000, Tcp), ("discard", 9, Both),
    ("distcc", 3632, Tcp), ("domain", 53, Both), ("domain-s", 853, Both), ("echo", 7, Both), ("epmap", 135, Tcp),
    ("epmd", 4369, Tcp), ("exec", 512, Tcp), ("f5-globalsite", 2792, Tcp), ("f5-iquery", 4353, Tcp),
    ("fax", 4557, Tcp), ("fido", 60179, Tcp), ("finger", 79, Tcp), ("font-service", 7100, Tcp),
    ("freeciv", 5556, Tcp), ("fsp", 21, Udp), ("fspd", 21, Udp), ("ftp", 21, Tcp), ("ftp-data", 20, Tcp),
    ("ftps", 990, Tcp), ("ftps-data", 989, Tcp), ("gdomap", 538, Both), ("gds-db", 3050, Tcp), ("gds_db", 3050, Tcp),
    ("git", 9418, Tcp), ("gnunet", 2086, Both), ("gnutella-rtr", 6347, Both), ("gnutella-svc", 6346, Both),
    ("gopher", 70, Tcp), ("gpsd", 2947, Tcp), ("gris", 2135, Tcp), ("groupwise", 1677, Tcp), ("gsidcap", 22128, Tcp),
    ("gsiftp", 2811, Tcp), ("gsigatekeeper", 2119, Tcp), ("hkp", 11371, Tcp), ("hprop", 754, Tcp), ("http", 80, Tcp),
    ("http-alt", 8080, Tcp), ("https", 443, Both), ("hylafax", 4559, Tcp), ("iax", 4569, Udp), ("icp", 3130, Udp),
    ("icpv2", 3130, Udp), ("ident", 113, Tcp), ("imap", 143, Tcp), ("imap2", 143, Tcp), ("imaps", 993, Tcp),
    ("ingreslock", 1524, Tcp), ("ipp", 631, Tcp), ("iprop", 2121, Tcp), ("ipsec-nat-t", 4500, Udp), ("ipx", 213, Udp),
    ("ircd", 6667, Tcp), ("ircs-u", 6697, Tcp), ("isakmp", 500, Udp), ("iscsi-target", 3260, Tcp),
    ("isisd", 2608, Tcp), ("isns", 3205, Both), ("iso-tsap", 102, Tcp), ("jabber-client", 5222, Tcp),
    ("jabber-server", 5269, Tcp), ("kamanda", 10081, Tcp), ("kdc", 750, Both), ("kerberos", 88, Both),
    ("kerberos-adm", 749, Tcp), ("kerberos-iv", 750, Both), ("kerberos-master", 751, Both),
    ("kerberos-sec", 88, Both), ("kerberos4", 750, Both), ("kerberos5", 88, Both), ("kerberos_master", 751, Udp),
    ("kermit", 1649, Tcp), ("klogin", 543, Tcp), ("kpasswd", 464, Both), ("krb-prop", 754, Tcp), ("krb5", 88, Both),
    ("krb5_prop", 754, Tcp), ("krb_prop", 754, Tcp), ("krcmd", 544, Tcp), ("kshell", 544, Tcp), ("l2f", 1701, Udp),
    ("l2tp", 1701, Udp), ("ldap", 389, Both), ("ldaps", 636, Both), ("ldp", 646, Both), ("loc-srv", 135, Tcp),
    ("login", 513, Tcp), ("lotusnote", 1352, Tcp), ("lotusnotes", 1352, Tcp), ("lrrd", 4949, Tcp), ("mail", 25, Tcp),
    ("mailq", 174, Tcp), ("mdns", 5353, Udp), ("microsoft-ds", 445, Tcp), ("moira-db", 775, Tcp),
    ("moira-update", 777, Tcp), ("moira-ureg", 779, Udp), ("moira_db", 775, Tcp), ("moira_update", 777, Tcp),
    ("moira_ureg", 779, Udp), ("mon", 2583, Both), ("ms-sql-m", 1434, Udp), ("ms-sql-s", 1433, Tcp),
    ("ms-wbt-server", 3389, Tcp), ("mtn", 4691, Tcp), ("munin", 4949, Tcp), ("mysql", 3306, Tcp),
    ("mysql-proxy", 6446, Tcp), ("nbd", 10809, Tcp), ("netbios-dgm", 138, Udp), ("netbios-ns", 137, Udp),
    ("netbios-ssn", 139, Tcp), ("netstat", 15, Tcp), ("nfs", 2049, Both), ("nicname", 43, Tcp), ("nntp", 119, Tcp),
    ("nntps", 563, Tcp), ("nqs", 607, Tcp), ("nrpe", 5666, Tcp), ("nsca", 5667, Tcp), ("ntalk", 518, Udp),
    ("ntp", 123, Udp), ("ntske", 4460, Tcp), ("null", 9, Both), ("nut", 3493, Both), ("old-radacct", 1646, Both),
    ("old-radius", 1645, Both), ("omniorb", 8088, Tcp), ("openvpn", 1194, Both), ("ospf6d", 2606, Tcp),
    ("ospfapi", 2607, Tcp), ("ospfd", 2604, Tcp), ("passwd-server", 752, Udp), ("passwd_server", 752, Udp),
    ("pawserv", 345, Tcp), ("pop-3", 110, Tcp), ("pop3", 110, Tcp), ("pop3s", 995, Tcp), ("poppassd", 106, Tcp),
    ("portmapper", 111, Both), ("postgres", 5432, Tcp), ("postgresql", 5432, Tcp), ("predict", 1210, Udp),
    ("printer", 515, Tcp), ("proofd", 1093, Tcp), ("ptp-event", 319, Udp), ("ptp-general", 320, Udp),
    ("puppet", 8140, Tcp), ("qmqp", 628, Tcp), ("qmtp", 209, Tcp), ("qotd", 17, Tcp), ("quote", 17, Tcp),
    ("radacct", 1813, Both), ("radius", 1812, Both), ("radius-acct", 1813, Both), ("radmin-port", 4899, Tcp),
    ("readnews", 119, Tcp), ("redis", 6379, Tcp), ("remctl", 4373, Tcp), ("ripd", 2602, Tcp), ("ripngd", 2603, Tcp),
    ("rmiregistry", 1099, Tcp), ("rmtcfg", 1236, Tcp), ("rootd", 1094, Tcp), ("route", 520, Udp),
    ("routed", 520, Udp), ("router", 520, Udp), ("rpc2portmap", 369, Both), ("rplay", 5555, Udp), ("rptp", 5556, Tcp),
    ("rsync", 873, Tcp), ("rtcm-sc104", 2101, Both), ("rtsp", 554, Both), ("sa-msg-port", 1646, Both),
    ("saft", 487, Tcp), ("sane", 6566, Tcp), ("sane-port", 6566, Tcp), ("saned", 6566, Tcp), ("sge-execd", 6445, Tcp),
    ("sge-qmaster", 6444, Tcp), ("sge_execd", 6445, Tcp), ("sge_qmaster", 6444, Tcp), ("sgi-cad", 17004, Tcp),
    ("sgi-cmsd", 17001, Udp), ("sgi-crsd", 17002, Udp), ("sgi-gcd", 17003, Udp), ("shell", 514, Tcp),
    ("sieve", 4190, Tcp), ("silc", 706, Tcp), ("sink", 9, Both), ("sip", 5060, Both), ("sip-tls", 5061, Both),
    ("skkserv", 1178, Tcp), ("smtp", 25, Tcp), ("smtps", 465, Tcp), ("smux", 199, Tcp), ("snmp", 161, Both),
    ("snmp-trap", 162, Both), ("snmptrap", 162, Both), ("snntp", 563, Tcp), ("snpp", 444, Tcp), ("socks", 1080, Tcp),
    ("source", 19, Both), ("spamd", 783, Tcp), ("spooler", 515, Tcp), ("ssh", 22, Tcp), ("ssmtp", 465, Tcp),
    ("submission", 587, Tcp), ("submissions", 465, Tcp), ("subversion", 3690, Tcp), ("sunrpc", 111, Both),
    ("supfiledbg", 1127, Tcp), ("supfilesrv", 871, Tcp), ("suucp", 4031, Tcp), ("svn", 3690, Tcp),
    ("svrloc", 427, Both), ("syslog", 514, Both), ("syslog-tls", 6514, Tcp), ("sysrqd", 4094, Tcp),
    ("systat", 11, Tcp), ("tacacs", 49, Both), ("talk", 517, Udp), ("tap", 113, Tcp), ("tcpmux", 1, Tcp),
    ("telnet", 23, Tcp), ("telnets", 992, Tcp), ("tfido", 60177, Tcp), ("tftp", 69, Udp), ("time", 37, Both),
    ("timserver", 37, Both), ("tinc", 655, Both), ("tproxy", 8081, Tcp), ("tsap", 102, Tcp), ("ttytst", 19, Both),
    ("untp", 119, Tcp), ("urd", 465, Tcp), ("users", 11, Tcp), ("uucp", 540, Tcp), ("uucpd", 540, Tcp),
    ("venus", 2430, Both), ("venus-se", 2431, Both), ("wais", 210, Tcp), ("webcache", 8080, Tcp),
    ("webmin", 10000, Tcp), ("who", 513, Udp), ("whod", 513, Udp), ("whois", 43, Tcp), ("wnn6", 22273, Tcp),
    ("www", 80, Tcp), ("x11", 6000, Tcp), ("x11-0", 6000, Tcp), ("x11-1", 6001, Tcp), ("x11-2", 6002, Tcp),
    ("x11-3", 6003, Tcp), ("x11-4", 6004, Tcp), ("x11-5", 6005, Tcp), ("x11-6", 6006, Tcp), ("x11-7", 6007, Tcp),
    ("xdmcp", 177, Udp), ("xfs", 7100, Tcp), ("xinetd", 9098, Tcp), ("xmms2", 9667, Tcp), ("xmpp-client", 5222, Tcp),
    ("xmpp-server", 5269, Tcp), ("xtel", 1313, Tcp), ("xtelw", 1314, Tcp), ("z3950", 210, Tcp),
    ("zabbix-agent", 10050, Tcp), ("zabbix-trapper", 10051, Tcp), ("zebra", 2601, Tcp), ("zebrasrv", 2600, Tcp),
    ("zephyr-clt", 2103, Udp), ("zephyr-hm", 2104, Udp), ("zephyr-srv", 2102, Udp), ("zope", 9673, Tcp),
    ("zope-ftp", 8021, Tcp), ("zserv", 346, Tcp),
];

/// The port of a service. Without a protocol, or with another than TCP and UDP, a service of any protocol counts.
pub(crate) fn port(name: &str, protocol: Option<u8>) -> Option<u16> {
    let first = SERVICES.partition_point(|(service, ..)| *service < name);
    let found = SERVICES[first..].iter().take_while(|(service, ..)| *service == name);
    let fits = |of: Of| match protocol {
        Some(TCP) => of != Udp,
        Some(UDP) => of != Tcp,
        Some(_) | None => true,
    };
    found.filter(|(_, _, of)| fits(*of)).map(|(_, port, _)| *port).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_sorted_and_found() {
        assert!(SERVICES.is_sorted_by_key(|(name, port, _)| (*name, *port)));
        assert_eq!((port("ssh", Some(TCP)), port("ssh", Some(UDP)), port("ssh", None)), (Some(22), None, Some(22)));
        assert_eq!((port("domain", Some(UDP)), port("nothing", None)), (Some(53), None));
    }
}
