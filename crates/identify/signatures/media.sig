# Media and files between peers. README.md describes the format.

protocol bittorrent
tcp either 90 certain \x13BitTorrent protocol
match tcp initiator 13 "BitTorrent protocol" 00*8
miss tcp initiator 13 "BitTorment protocol" 00*8

protocol gnutella
tcp either 90 certain GNUTELLA( CONNECT)?/0\.[0-9]
match tcp initiator "GNUTELLA CONNECT/0.6\r\n"

protocol direct-connect peer-to-peer
source Neo-Modus Direct Connect, and ADC 1.0
tcp either 90 certain (\$Lock [^ |]{10,} Pk=|\$MyNick [^ |]+\||\$Supports |HSUP ADBAS|CSUP ADBAS|ISUP ADBAS)
match tcp responder "$Lock EXTENDEDPROTOCOLABCABCABCABCABC Pk=DCPLUSPLUS0.674|"

protocol bitcoin money
source Bitcoin developer reference: message headers
tcp either 90 certain (\xf9\xbe\xb4\xd9|\x0b\x11\x09\x07|\xfa\xbf\xb5\xda|\x0a\x03\xcf\x40|\xfb\xc0\xb6\xdb|\xc0\xc0\xc0\xc0|\xe3\xe1\xf3\xe8)[a-z0-9]{3,12}\x00{0,9}
match tcp initiator f9 be b4 d9 "version" 00*5 55 00 00 00
miss tcp initiator f9 be b4 d9 00 00 00

protocol stratum money
source Stratum mining protocol, JSON lines; and its kin of Monero and Ethereum
tcp initiator 90 certain \{ ?("id": ?("?[0-9]{1,6}"?|null), ?)?("jsonrpc": ?"2\.0", ?)?("worker": ?"[^"]*", ?)?("id": ?("?[0-9]{1,6}"?), ?)?("jsonrpc": ?"2\.0", ?)?"method": ?"(mining\.|login"|eth_|eth_submitLogin|getwork|keepalived")
tcp initiator 90 certain \{ ?"(params|method)": ?(\[[^\]\r\n]*\], ?"(id|method)": ?[^,\r\n]+(, ?"method": ?"mining\.)|"(mining\.|eth_submitLogin|login"))
match tcp initiator "{\"id\":1,\"method\":\"mining.subscribe\",\"params\":[]}\n"
match tcp initiator "{\"id\":1,\"jsonrpc\":\"2.0\",\"method\":\"login\",\"params\":{}}\n"

protocol vban media
source VBAN protocol specification
udp either 90 certain len=28.. VBAN[\x00-\xff]{4}[\x20-\x7e\x00]
match udp initiator "VBAN" 00 ff 01 01 "Stream1" 00*9 00*4

protocol srt media
source draft-sharabayko-srt, section 3.2.1: an induction handshake
udp initiator 90 certain len=64.. \x80\x00\x00\x00\x00\x00\x00\x00[\x00-\xff]{4}\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x02
match udp initiator 80 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 04 00 00 00 02 00*40

protocol rdt media
source RealNetworks PNA
tcp initiator 90 certain PNA\x00\x0a[\x00-\xff]
match tcp initiator "PNA" 00 0a 00

protocol mms-streaming media
source MS-MMSP, section 2.2.3
tcp either 90 certain \x01\x00\x00[\x00\x01]\xce\xfa\x0b\xb0..\x00\x00MMS\x20
match tcp initiator 01 00 00 00 ce fa 0b b0 a0 00 00 00 "MMS "

protocol airplay-timing media
source AirPlay: timing requests in the form of RTP, as described by its users
udp either 60 likely len=32 \x80\xd2\x00\x07\x00\x00\x00\x00
udp either 60 likely len=32 \x80\xd3\x00\x07\x00\x00\x00\x00
