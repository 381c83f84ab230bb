# Services of systems. README.md describes the format.

protocol rsh
tcp initiator 90 certain \x00[a-z_][a-z0-9_\-]*\x00[a-z_][a-z0-9_\-]*\x00(xterm|vt[0-9]{3}|linux|ansi|dumb|screen|rxvt|sun)[a-z0-9\-]{0,16}/[0-9]{1,6}\x00
match tcp initiator 00 "user" 00 "user" 00 "xterm/38400" 00

protocol lpd printing
source RFC 1179, section 5
tcp initiator 60 likely \x02[a-zA-Z0-9_\-]+\n\x02[0-9]{1,6} cfA
tcp initiator 60 likely \x02[a-zA-Z0-9_\-]+\n\x03[0-9]{1,9} dfA
match tcp initiator 02 "lp\n" 02 "83 cfA001host\n"

protocol pjl printing
source HP Printer Job Language, and PostScript
tcp initiator 90 certain (\x1b%-12345X@PJL|@PJL |%!PS-Adobe-)
match tcp initiator 1b "%-12345X@PJL JOB\r\n"

protocol ident directory
source RFC 1413
tcp responder 60 likely [0-9]{1,5} ?, ?[0-9]{1,5} ?: ?(USERID|ERROR) ?: ?
match tcp responder "6193, 23 : USERID : UNIX : guest\r\n"

protocol whois directory
source RFC 3912, and the words of the registries
tcp responder 60 certain (% (This is the [A-Z]{4,12}|IANA|\[whois|Information related)|Domain Name: |   Domain Name: |# *\n# ARIN WHOIS|\[ JPRS database)
match tcp responder "% This is the RIPE Database query service.\n"

protocol x2go desktop
source NX proxy sessions
tcp either 90 certain NXPROXY-[0-9.]{3,12}
match tcp initiator "NXPROXY-3.5.0-3.5.99"

protocol chargen shell
source RFC 864
tcp responder 60 certain \x20!"#\$%&'\(\)\*\+,-\./0123456789:;<=>\?@ABCDEFG
match tcp responder " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJ"
