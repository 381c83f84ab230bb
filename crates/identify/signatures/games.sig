# Games. README.md describes the format.

protocol steam games
source Valve developer wiki: server queries; the Steam client's discovery and VS01 datagrams, as described by its users
udp initiator 90 certain \xff\xff\xff\xff(TSource Engine Query\x00|[UV][\x00-\xff]{4}|W|q[0-9a-z]{1,12}|getchallenge|connect)
udp responder 90 certain \xff\xff\xff\xff(A[\x00-\xff]{4}|I[\x02-\x20][\x20-\x7e]{2}|E[\x00-\xff]\x00|D[\x00-\xff]\x00|m[\x20-\x7e]{3})
udp either 90 certain VS01[\x00-\xff]{2}[\x00-\x0a]
udp either 90 certain \xff\xff\xff\xff\x21L_\xa0
match udp initiator ff ff ff ff "TSource Engine Query" 00
match udp initiator "VS01" 00 00 01 00

protocol steamdatagramrelay games
source Steam Datagram Relay, as described by its users
udp either 90 certain len=512.. \x01[\x00-\xff]{8}sdping

protocol quake games
source id Software's connectionless packets
udp either 90 certain \xff\xff\xff\xff(getinfo|getstatus|infoResponse\n|statusResponse\n|getservers|getserversResponse|challengeResponse|connectResponse|rcon |print\n|heartbeat )
udp either 90 certain \x80\x00\x00\x0c\x01QUAKE\x00
match udp initiator ff ff ff ff "getstatus\n"

protocol teamspeak voice
source TeamSpeak 3, as described by its users: the init packet
udp initiator 90 certain TS3INIT1\x00\x65\x00\x00
udp responder 90 certain TS3INIT1\x00\x65\x88
tcp responder 90 certain (TS3\n\r|TS3\r\n|TS3 Client\n)
match udp initiator "TS3INIT1" 00 65 00 00 88 00*20

protocol world-of-warcraft games
source World of Warcraft, as described by emulators: an authentication challenge
tcp initiator 90 certain \x00[\x03\x08].\x00WoW\x00
match tcp initiator 00 08 26 00 "WoW" 00 03 03 05

protocol minecraft-bedrock games
source RakNet's answer with the edition as text
udp responder 91 certain \x1c[\x00-\xff]{16}\x00\xff\xff\x00\xfe\xfe\xfe\xfe\xfd\xfd\xfd\xfd\x124Vx..MC(PE|EE);
match udp responder 1c 00*16 00 ff ff 00 fe fe fe fe fd fd fd fd 12 34 56 78 00 20 "MCPE;Dedicated"

protocol openarena-master games
source GameSpy query protocol, versions 1 and 4
udp initiator 90 certain len=7 \xfe\xfd\x09[\x00-\xff]{4}
udp initiator 90 certain \xfe\xfd\x00[\x00-\xff]{8}\xff\xff\xff[\x00\x01]
udp initiator 90 certain \\(status|info|basic|rules|players)\\
match udp initiator fe fd 09 00 00 00 01
