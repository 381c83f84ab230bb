# Control of machines, buildings and stages. README.md describes the format.

protocol bacnet industry
source ANSI/ASHRAE 135, annex J: BACnet/IP
udp either 90 certain size=be16@2 \x81(\x0a\x00[\x00-\xff]|\x0b\x00[\x00-\xff]|[\x0a\x0b].[\x00-\xff])\x01[\x00-\x03\x04-\x07\x08\x0c\x20-\x2f\x80-\x83\x88\xa0]
udp either 90 certain size=be16@2 \x81[\x00-\x03\x05-\x09]\x00[\x06-\xff][\x00-\xff]
udp either 90 certain size=be16@2 \x81\x04.[\x0a-\xff][\x00-\xff]{6}\x01
match udp initiator 81 0b 00 0c 01 20 ff ff 00 ff 10 08
miss udp initiator 81 0b 00 0d 01 20 ff ff 00 ff 10 08

protocol knxnet_ip industry
source ISO 22510, KNXnet/IP core: header
udp either 90 certain size=be16@4 \x06\x10(\x02[\x01-\x0c]|\x03[\x10-\x13]|\x04[\x20-\x25]|\x05[\x30-\x33]|\x07[\x40-\x43]|\x09[\x50-\x5f])\x00.
tcp either 90 certain \x06\x10(\x02[\x01-\x0c]|\x04[\x20-\x25]|\x09[\x50-\x5f])\x00[\x06-\xff]
match udp initiator 06 10 02 01 00 0e 08 01 c0 a8 00 02 0e 57
miss udp initiator 06 10 02 01 00 0f 08 01 c0 a8 00 02 0e 57

protocol opc-ua industry
source OPC 10000-6, section 7.1: OPC UA connection protocol
tcp initiator 90 certain HELF..\x00\x00[\x00-\x01]\x00\x00\x00
tcp responder 90 certain (ACKF|ERRF)..\x00\x00
tcp either 90 certain (OPN|MSG|CLO)[FCA]..\x00\x00[\x00-\xff]{4}
match tcp initiator "HELF" 38 00 00 00 00 00 00 00 00 00 01 00
match tcp responder "ACKF" 1c 00 00 00 00 00 00 00
miss tcp initiator "HELLO.."

protocol fins industry
source Omron FINS/TCP
tcp either 90 certain FINS\x00\x00\x00[\x08-\xff]\x00\x00\x00[\x00-\x06]\x00\x00\x00
udp initiator 90 likely len=12..600 [\x80\x81]\x00[\x01-\x07][\x00\x01][\x00-\x7e].[\x00\x01][\x00-\x7e]..(\x01[\x01-\x05]|\x05\x01|\x06\x01)[\x80-\xb2\x00]
match tcp initiator "FINS" 00 00 00 0c 00 00 00 00 00 00 00 00 00 00 00 00

protocol hart-ip industry
source FieldComm HART-IP: header
udp either 90 certain size=be16@6 \x01[\x00-\x02\x0f][\x00-\x04][\x00-\x13]..\x00.
tcp initiator 90 certain \x01\x00\x00\x00..\x00\x0d[\x00\x01]\x00[\x00-\xff]{3}
match udp initiator 01 00 00 00 00 02 00 0d 01 00 00 ea 60

protocol ge-srtp industry
source GE SRTP, as described in published analyses: the hello of 56 zeros, and the answer
tcp responder 90 likely \x01\x00\x00\x00\x00\x00\x00\x00\x0f\x00\x00\x00\x00\x00\x00\x00[\x00-\xff]{8}
match tcp responder 01 00*7 0f 00*47

protocol codesys industry
source CODESYS gateway, version 3, as described in published analyses
tcp either 90 certain \x00\x01\x17\xe8[\x10-\xff].\x00\x00
match tcp initiator 00 01 17 e8 2c 00 00 00

protocol fox industry
source Niagara Fox, as described in published analyses
tcp either 90 certain fox a [0-9-]{1,3} -1 fox hello\n
match tcp initiator "fox a 0 -1 fox hello\n{\n"

protocol ilon industry
source CEA-852: EIA-709 over IP, header
udp either 60 likely size=be16@0 [\x00-\x05][\x14-\xff][\x01\x02][\x01\x03\x60\x63\x66\x68\x70\x71\x73\x7f]\x00\x00[\x00-\xff]{12}
match udp initiator 00 18 01 01 00 00 00*18

protocol dlms industry
source DLMS/COSEM over TCP: the wrapper of IEC 62056-47, then an association request
tcp initiator 90 certain \x00\x01\x00[\x01-\x70]\x00\x01\x00[\x10-\xff]\x60[\x10-\xff]\xa1\x09\x06\x07\x60\x85\x74\x05\x08
match tcp initiator 00 01 00 10 00 01 00 1f 60 1d a1 09 06 07 60 85 74 05 08 01 01

protocol hl7 industry
source HL7 minimal lower layer protocol
tcp either 90 certain \x0bMSH[|^~&#][\^~\\&|]{3,5}
match tcp initiator 0b "MSH|^~\\&|SENDER|"

protocol artnet industry
source Art-Net 4
udp either 90 certain Art-Net\x00[\x00-\xff]{2}
match udp initiator "Art-Net" 00 00 20 00 0e

protocol sacn industry
source ANSI E1.31
udp initiator 90 certain \x00\x10\x00\x00ASC-E1\.17\x00\x00\x00
match udp initiator 00 10 00 00 "ASC-E1.17" 00 00 00 72 0b

protocol rdm-osc industry
source Open Sound Control 1.0
udp either 90 certain #bundle\x00[\x00-\xff]{8}
udp either 80 likely /[a-zA-Z0-9_/.\-]{3,}\x00{1,4},[ifsbhtdTFN]{1,8}\x00{1,4}
match udp initiator "#bundle" 00 00*8
match udp initiator "/mixer/fader" 00*4 ",f" 00*2 3f 00 00 00

protocol rtps industry
source OMG DDSI-RTPS 2.5, section 8.3.3
udp either 90 certain RTP[SX]\x02[\x00-\x09][\x00-\xff]{14}
match udp initiator "RTPS" 02 03 01 0f 00*12 09 01 08 00

protocol gvcp industry
source GigE Vision Control Protocol
udp initiator 90 certain size=be16@4+8 \x42[\x01\x11\x10\x00]\x00[\x02\x04\x40\x80\x82\x84\x86]
udp responder 90 certain size=be16@4+8 \x00\x00\x00[\x03\x81\x83\x85\x87]\x00[\x00-\xff]{3}[\x01-\xff]
match udp initiator 42 01 00 02 00 00 00 01
miss udp initiator 42 01 00 02 00 08 00 01

protocol beckhoff-ams industry
source Beckhoff ADS/AMS over TCP
tcp initiator 90 certain \x00\x00[\x20-\xff].\x00\x00[\x00-\xff]{4}\x01\x01..[\x00-\xff]{4}\x01\x01..[\x00-\x09]\x00\x04\x00
match tcp initiator 00 00 2c 00 00 00 c0 a8 00 01 01 01 53 03 c0 a8 00 02 01 01 00 80 02 00 04 00

protocol melsec industry
source MELSEC communication protocol, frames 3E and 4E
tcp initiator 90 likely \x50\x00\x00[\x00-\xff]\xff\x03\x00.[\x00-\x04]..[\x00-\xff]{2}[\x00-\x0f]
tcp responder 90 likely \xd0\x00\x00[\x00-\xff]\xff\x03\x00.[\x00-\x10]
match tcp initiator 50 00 00 ff ff 03 00 0c 00 10 00 01 04 00 00 64
