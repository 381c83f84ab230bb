# Databases, caches, queues and file services. README.md describes the format.

protocol redis data
source Redis serialization protocol (RESP)
tcp initiator 90 certain \*[1-9][0-9]{0,5}\r\n\$[1-9][0-9]{0,5}\r\n[A-Za-z]
tcp responder 90 certain (\+PONG\r\n|-(NOAUTH|WRONGPASS|DENIED|LOADING|MISCONF|READONLY|NOPERM|WRONGTYPE) |\$[0-9]{1,6}\r\n# Server\r\n)
match tcp initiator "*1\r\n$4\r\nPING\r\n"
match tcp responder "+PONG\r\n"
match tcp responder "-NOAUTH Authentication required.\r\n"
miss tcp responder "+OK\r\n"
miss tcp initiator "PING\r\n"

protocol nats messages
source NATS client protocol
tcp responder 90 certain INFO \{ ?"
tcp initiator 90 certain CONNECT \{ ?"
match tcp responder "INFO {\"server_id\":\"a\",\"version\":\"2.10\"}\r\n"
match tcp initiator "CONNECT {\"verbose\":false}\r\nPING\r\n"
miss tcp initiator "CONNECT example.org:443 HTTP/1.1\r\n\r\n"

protocol memcached
tcp initiator 90 certain (set|add|replace|append|prepend|cas) [^ \r\n]+ [0-9]{1,10} -?[0-9]{1,10} [0-9]{1,8}( [0-9]+)?( noreply)?\r\n
tcp initiator 90 likely (gets?|gat|touch|delete|incr|decr) [^ \r\n/]+( [^ \r\n/]+){0,3}\r\n
tcp initiator 90 likely (stats|version|flush_all|stats (items|slabs|sizes|settings|cachedump [0-9]+ [0-9]+))\r\n
tcp responder 90 likely (STAT [a-z_:0-9]{2,} [^\r\n]+\r\n|VALUE [^ \r\n]+ [0-9]{1,10} [0-9]{1,8}( [0-9]+)?\r\n)
match tcp initiator "set key 0 60 5\r\nvalue\r\n"
match tcp initiator "get key\r\n"
match tcp initiator "stats\r\n"
match tcp responder "VALUE key 0 5\r\nvalue\r\nEND\r\n"
miss tcp initiator "set up the table\r\n"
miss tcp initiator "get /index.html HTTP/1.0\r\n"

protocol amqp messages
source AMQP 0-9-1, section 4.2.2, and AMQP 1.0, section 2.2
tcp either 90 certain AMQP([\x00\x02\x03]\x01\x00\x00|\x00\x00\x09\x01|\x01\x01[\x00-\x0a][\x00-\x0a])
match tcp initiator "AMQP" 00 00 09 01
match tcp initiator "AMQP" 03 01 00 00

protocol stomp messages
source STOMP 1.2
tcp initiator 90 certain (CONNECT|STOMP)\r?\n(login|accept-version|host|passcode|heart-beat|client-id):
tcp responder 90 certain CONNECTED\r?\n(version|session|heart-beat|server|user-name):
match tcp initiator "CONNECT\naccept-version:1.2\nhost:example.org\n\n" 00
match tcp responder "CONNECTED\nversion:1.2\n\n" 00

protocol zeromq messages
source ZMTP 3.1, section 3.1 (23/ZMTP)
tcp either 90 certain \xff\x00{7}[\x00-\xff]\x7f[\x01-\x03]
match tcp initiator ff 00*7 01 7f 03 00 "NULL" 00*16

protocol tarantool data
source Tarantool's binary protocol: the greeting
tcp responder 90 certain Tarantool [0-9]\.
match tcp responder "Tarantool 2.11.0 (Binary) 7170b4dc-72ab\n"

protocol bolt data
source Neo4j Bolt protocol: the handshake
tcp initiator 90 certain \x60\x60\xb0\x17\x00
match tcp initiator 60 60 b0 17 00 03 03 04 00 00 00 00

protocol rethinkdb data
source RethinkDB client driver specification
tcp initiator 90 certain (\xc3\xbd\xc2\x34|\x3f\x61\xba\x36|\x20\x2d\x0c\x40|\x3e\xe8\x75\x5f)[\x00-\xff]{4}
match tcp initiator c3 bd c2 34 "{\"pro"

protocol clickhouse data
source ClickHouse native protocol: the client's hello
tcp initiator 90 certain \x00[\x04-\x40](?i:ClickHouse )
match tcp initiator 00 11 "ClickHouse client" 17

protocol firebird data
source Firebird wire protocol: op_connect
tcp initiator 90 certain \x00\x00\x00\x01\x00\x00\x00\x13\x00\x00\x00[\x02\x03]\x00\x00\x00.\x00\x00
match tcp initiator 00 00 00 01 00 00 00 13 00 00 00 02 00 00 00 24 00 00 00 0b "/data/my.fdb"

protocol couchbase data
source Couchbase views and cluster streaming over memcached: HELLO
tcp initiator 91 certain \x80\x1f..\x00\x00\x00\x00\x00\x00..[\x00-\xff]{12}\{"
match tcp initiator 80 1f 00 04 00 00 00 00 00 00 00 24 00*12 "{\"a\":\"cb\"}"

protocol ceph files
source Ceph messenger, versions 1 and 2: banners
tcp either 90 certain ceph v(0[0-9]{2}|2\n)
match tcp initiator "ceph v027" 00*8
match tcp responder "ceph v2\n" 10 00

protocol nbd files
source NBD protocol, proto.md: the server's greeting
tcp responder 90 certain NBDMAGIC(IHAVEOPT|\x00\x00\x42\x02\x81\x86\x12\x53)
match tcp responder "NBDMAGICIHAVEOPT" 00 03

protocol elastic-beats management
source Lumberjack protocol, versions 1 and 2
tcp initiator 90 certain (1W\x00\x00..1[DC]|2W\x00\x00..2[JC])
match tcp initiator "2W" 00 00 00 01 "2J" 00 00 00 01

protocol relp management
source RELP: the offer of a session
tcp initiator 90 certain [01] open [0-9]{1,4} relp_version=
match tcp initiator "1 open 85 relp_version=0\nrelp_software=a\n"

protocol zabbix management
source Zabbix protocols: header
tcp either 90 certain ZBXD[\x01-\x07]
match tcp initiator "ZBXD" 01 0a 00*7 "agent.ping"

protocol checkmk management
source Checkmk agent: the first section
tcp responder 90 certain <<<(check_mk|cmk_[a-z_]+)>>>\n
match tcp responder "<<<check_mk>>>\nVersion: 2.2\n"

protocol munin management
source Munin node protocol
tcp responder 90 certain # munin node at\x20
match tcp responder "# munin node at example.org\n"

protocol tibco-rv messages
source TIBCO Rendezvous: the daemon's greeting, as described by its users
tcp responder 90 likely \x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00[\x00-\xff]{4}\x99\x55\xee\xaa
match tcp responder 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 00 99 55 ee aa

protocol hazelcast data
source Hazelcast open binary client protocol
tcp initiator 90 certain (HZC|CP2|CB2)[\x00-\xff]\x00\x00\x00
match tcp initiator "CP2" 78 00 00 00 00

protocol gelf management
source GELF over UDP: the head of a chunk
udp initiator 90 certain len=13.. \x1e\x0f[\x00-\xff]{8}[\x00-\x7f][\x02-\x80](\x1f\x8b\x08|\x78[\x01\x5e\x9c\xda]|\{")
match udp initiator 1e 0f 01 02 03 04 05 06 07 08 00 02 1f 8b 08 00

protocol collectd management
source collectd binary protocol: the host part comes first
udp initiator 90 certain \x00\x00\x00[\x06-\x50][a-zA-Z0-9][a-zA-Z0-9.\-]+\x00\x00(\x01\x00\x0c|\x08\x00\x0c)
match udp initiator 00 00 00 0b "example" 00*2 08 00 0c 12 34 56 78

protocol postgresql
tcp initiator 90 certain Q\x00\x00.[\x00-\xff](?i:SELECT|INSERT|UPDATE|DELETE|BEGIN|COMMIT|SET|SHOW|CREATE|DROP|START) ?
match tcp initiator "Q" 00 00 00 12 "SELECT 1 + 1" 00

protocol netbios
tcp responder 90 certain \x83\x00\x00\x01[\x80-\x83\x8f]
match tcp responder 83 00 00 01 8f
