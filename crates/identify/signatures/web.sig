# The web and what grew around it. README.md describes the format.

protocol http2 web
source RFC 9113, section 3.4
tcp initiator 90 certain PRI \* HTTP/2\.0\r\n\r\nSM\r\n\r\n
match tcp initiator "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" 00 00 00 04 00
miss tcp initiator "PRI * HTTP/1.1\r\n\r\n"

protocol ajp web
source Apache JServ Protocol 1.3
# A request: its mark, a length, "forward request", a method, "HTTP/1.1" as a string; or a ping. A container's answers.
tcp initiator 90 certain \x12\x34..(\x02[\x01-\x1b]\x00\x08HTTP/1\.|\x0a|\x07)
tcp responder 90 certain AB..(\x04\x00[\xc8-\xff]|\x04\x01.|\x09|\x06\x00|\x05[\x00\x01])
match tcp initiator 12 34 00 80 02 02 00 08 "HTTP/1.1" 00
match tcp responder "AB" 00 40 04 00 c8 00 02 "OK"
miss tcp initiator 12 34 00 80 03 02

protocol icecast media
source SHOUTcast and Icecast streaming over HTTP
tcp responder 90 certain ICY (200|40[0-9])\x20
match tcp responder "ICY 200 OK\r\nicy-name: radio\r\n"

protocol jrmi calls
source Java RMI specification, section 10.2
tcp initiator 90 certain JRMI\x00[\x01\x02][KLM]
match tcp initiator "JRMI" 00 02 "K"
miss tcp initiator "JRMI" 00 09 "K"

protocol ssh shell
source RFC 4253, section 4.2
tcp either 90 certain SSH-(2\.0|1\.[0-9]{1,2})-
match tcp initiator "SSH-2.0-OpenSSH_9.6\r\n"
match tcp responder "SSH-1.99-Cisco-1.25\n"
miss tcp initiator "SSH-3.0-x\r\n"

protocol adb shell
source Android Debug Bridge protocol.txt
tcp either 90 certain (CNXN\x00\x00\x00\x01|CNXN\x01\x00\x00\x01)\x00.[\x00-\x10]\x00
tcp either 90 certain (AUTH)[\x01-\x03]\x00\x00\x00\x00\x00\x00\x00
tcp either 90 certain STLS\x00\x00\x00\x01\x00\x00\x00\x00
match tcp initiator "CNXN" 00 00 00 01 00 10 00 00 07 00 00 00
miss tcp initiator "CNXN" 05 00 00 01 00 10 00 00

protocol rsync files
source rsync, man page of rsyncd and clientserver.c's greeting
tcp either 90 certain @RSYNCD: [0-9]{1,2}(\.[0-9]+)?[ \n]
match tcp initiator "@RSYNCD: 31.0\n"

protocol git files
source Git protocol, pack-protocol.txt
tcp initiator 90 certain [0-9a-f]{4}git-(upload-pack|receive-pack|upload-archive) /
match tcp initiator "0033git-upload-pack /project.git" 00 "host=example.org" 00

protocol subversion files
source Subversion's ra_svn protocol
tcp responder 90 certain \( success \( [0-9] [0-9] \(
match tcp responder "( success ( 2 2 ( ) ( edit-pipeline ) ) ) "

protocol elasticsearch data
source Elasticsearch transport protocol: the head of a message
tcp either 90 certain ES\x00[\x00-\x0f]..[\x00-\xff]{8}[\x00-\x0f]
match tcp initiator "ES" 00 00 00 40 00 00 00 00 00 00 00 01 00 00
