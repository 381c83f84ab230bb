# Mail and news, files and chat in lines of text: what one line tells. README.md describes the format.

protocol smtp
tcp responder 90 certain (?i:220[ \-][^\r\n]*SMTP)
tcp initiator 90 certain (?i:(EHLO|HELO|LHLO) ?[^\r\n]*\r?\n|MAIL FROM: ?<|RCPT TO: ?<)
match tcp responder "220 mx.example.org ESMTP ready\r\n"
match tcp initiator "EHLO client.example.org\r\n"
match tcp initiator "mail from:<a@example.org>\r\n"
miss tcp responder "220 ftp.example.org FTP server ready\r\n"
miss tcp initiator "HELLO world\r\n"

protocol ftp
tcp responder 90 certain (?i:220[ \-][^\r\n]*FTP)
tcp initiator 90 certain (?i:(PASV|EPSV|FEAT|AUTH (TLS|SSL)|TYPE [IA])\r\n)
match tcp responder "220 (vsFTPd 3.0.3)\r\n"
match tcp initiator "AUTH TLS\r\n"
miss tcp initiator "TYPE of what follows\r\n"

protocol pop3
tcp responder 90 certain (?i:\+OK [^\r\n]*(POP3?|Dovecot|Qpopper|Cyrus))
tcp responder 90 certain \+OK [^\r\n]*<[^\r\n>@]+@[^\r\n>]+>
tcp initiator 90 certain (?i:STLS\r\n|CAPA\r\n|APOP [^ \r\n]+ [0-9a-f]{32}\r\n)
match tcp responder "+OK POP3 server ready\r\n"
match tcp responder "+OK <1896.697170952@dbc.example.org>\r\n"
match tcp initiator "CAPA\r\n"
miss tcp responder "+OK\r\n"

protocol imap
tcp responder 90 certain (?i:\* (OK|PREAUTH|BYE)[^\r\n]*(IMAP|Dovecot|Courier|Cyrus|Gimap|ready|server))
tcp responder 90 certain \* (OK|PREAUTH|BYE) \[[A-Z]
match tcp responder "* OK [CAPABILITY IMAP4rev1 STARTTLS] ready\r\n"
match tcp responder "* OK IMAP4 ready\r\n"
miss tcp responder "* list of things\r\n"

protocol nntp
tcp initiator 90 certain (?i:MODE READER\r\n|AUTHINFO (USER|PASS|SASL) |XOVER [0-9]|LISTGROUP |XFEATURE )
match tcp initiator "MODE READER\r\n"

protocol managesieve mail
source RFC 5804, section 1.2
tcp responder 90 certain (?i:"IMPLEMENTATION" "[^"\r\n]+"\r\n")
match tcp responder "\"IMPLEMENTATION\" \"Example Sieve\"\r\n\"SIEVE\" \"fileinto\"\r\n"

protocol irc
tcp initiator 90 certain (?i:NICK :?[^ \r\n]+\r?\n|USER [^ \r\n]+ [^ \r\n]+ [^ \r\n]+ :?[^\r\n]|CAP (LS|REQ|END)[ \r\n]|PASS [^\r\n]+\r?\n(NICK|USER|CAP|SERVER) |JOIN [#&]|PRIVMSG [#&])
tcp responder 90 certain :[^ \r\n]+ (NOTICE|CAP|0[0-9]{2}|4[0-9]{2}) [^ \r\n]+\x20
tcp responder 90 certain NOTICE (AUTH|\*) :
match tcp initiator "NICK millrace\r\nUSER m 0 * :Mill Race\r\n"
match tcp initiator "USER guest 0 * :A guest\r\n"
match tcp responder ":irc.example.org NOTICE * :*** Looking up your hostname\r\n"
miss tcp initiator "USER anonymous\r\n"

protocol lmtp mail
source RFC 2033
tcp responder 90 certain (?i:220[ \-][^\r\n]*LMTP)
match tcp responder "220 mx.example.org LMTP ready\r\n"

protocol acap mail
source RFC 2244, section 2.1
tcp responder 90 certain \* ACAP \(
match tcp responder "* ACAP (IMPLEMENTATION \"Example\")\r\n"

protocol dict directory
source RFC 2229, section 3.1
tcp responder 90 certain 220 [^\r\n]+ <[^<>\r\n]*> <[0-9a-zA-Z.]+@[^<>\r\n]+>
match tcp responder "220 dict.example.org dictd 1.12 <auth.mime> <48.7.1@dict.example.org>\r\n"

protocol whatsapp chat
source the hello of WhatsApp's Noise handshake, as described by users of it
tcp initiator 90 certain WA[\x01-\x06][\x00-\x0f]\x00\x00[\x10-\x7f]
tcp initiator 90 certain ED\x00\x01\x00\x00[\x02-\x0f]
match tcp initiator "WA" 06 03 00 00 24 12 22 0a 20
miss tcp initiator "WALK this way, please"

protocol oscar chat
source AOL's OSCAR protocol: FLAP
tcp either 90 certain \x2a\x01..\x00[\x04-\xff]\x00\x00\x00\x01\x00
tcp responder 90 certain \x2a\x01..\x00\x04\x00\x00\x00\x01
match tcp responder 2a 01 27 10 00 04 00 00 00 01

protocol msnp chat
source MSN Messenger Protocol, as described by its users
tcp initiator 90 certain VER [0-9]{1,5} (MSNP[0-9]{1,2} )+(MSNP[0-9]|CVR0)
match tcp initiator "VER 1 MSNP18 MSNP17 CVR0\r\n"

protocol ymsg chat
source Yahoo Messenger protocol, as described by its users
tcp either 90 certain YMSG\x00[\x05-\x20]\x00
match tcp initiator "YMSG" 00 10 00 00 00 14

protocol mumble voice
source Mumble protocol: the version message
# The kind, a length, the version as the first field.
tcp either 90 likely \x00\x00\x00\x00\x00[\x08-\x60](\x08[\x80-\xff]{2}[\x04-\x07]|\x0d..\x01\x00)[\x10\x12\x1a]
match tcp initiator 00 00 00 00 00 20 08 80 8a 04 12 05 "1.2.4"
