//! The published vectors of RFC 9001 and RFC 9369, appendix A.

use std::vec::Vec;

use aes::Aes128;
use aes::cipher::{BlockEncrypt, KeyInit};
use aes_gcm::Aes128Gcm;
use aes_gcm::aead::AeadInPlace;

use super::{Keys, V2};
use crate::{NameKind, Names, Signatures, protocol};

fn hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("it is hexadecimal");
    (0..text.len() / 2).map(digit).collect()
}

/// The CRYPTO frame of both appendices.
const FRAME: &str = "060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e86804fe3a47f06a2b69484c00000413011302010000\
c000000010000e00000b6578616d706c652e636f6dff01000100000a00080006001d0017001800100007000504616c706e00050005010000000000330026\
0024001d00209370b2c9caa47fbabaf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b0003020304000d0010000e0403050306030203080408\
050806002d00020101001c00024001003900320408ffffffffffffffff05048000ffff07048000ffff0801100104800075300901100f088394c8f03e5157\
0806048000ffff";

/// Version, head, beginning and end of the protected packet, and the keys.
const VECTORS: [(u32, &str, &str, &str, [&str; 3]); 2] = [
    (
        1,
        "c300000001088394c8f03e5157080000449e00000002",
        "c000000001088394c8f03e5157080000449e7b9aec34d1b1c98dd7689fb8ec11",
        "e221af44860018ab0856972e194cd934",
        ["1f369613dd76d5467730efcbe3b1a22d", "fa044b2f42a3fd3b46fb255c", "9f50449e04a0e810283a1e9933adedd2"],
    ),
    (
        V2,
        "d36b3343cf088394c8f03e5157080000449e00000002",
        "d76b3343cf088394c8f03e5157080000449ea0c95e82ffe67b6abcdb4298b485",
        "a18b2faa745b6fe189cf772a9f84cbfc",
        ["8b1a0bc121284290a29e0971b5cd045d", "91f73e2351d8fa91660e909f", "45b95e15235d6f45a6b19cbcb0294ba9"],
    ),
];

/// Protects the packet of the appendix, and compares what is published of the result.
fn protected(vector: usize) -> Vec<u8> {
    let (version, head, begins, ends, _) = VECTORS[vector];
    let head = hex(head);
    let keys = Keys::new(version, &hex("8394c8f03e515708")).expect("the version is known");
    let mut content = hex(FRAME);
    content.resize(1_162, 0);
    let mut nonce = keys.iv;
    nonce[11] ^= 2;
    let tag = Aes128Gcm::new(&keys.key.into())
        .encrypt_in_place_detached(&nonce.into(), &head, &mut content)
        .expect("the packet is short");
    let mut packet = [&head[..], &content, &tag].concat();
    let sample: [u8; 16] = packet[22..38].try_into().expect("sixteen bytes");
    let mut mask = aes::Block::from(sample);
    Aes128::new(&keys.head.into()).encrypt_block(&mut mask);
    packet[0] ^= mask[0] & 0xf;
    (0..4).for_each(|index| packet[18 + index] ^= mask[1 + index]);
    assert!(packet.starts_with(&hex(begins)) && packet.ends_with(&hex(ends)) && packet.len() == 1_200);
    packet
}

#[test]
fn keys_are_those_of_the_appendix() {
    for (version, .., keys) in VECTORS {
        let derived = Keys::new(version, &hex("8394c8f03e515708")).expect("the version is known");
        let [key, iv, head] = keys.map(hex);
        assert_eq!((&derived.key[..], &derived.iv[..], &derived.head[..]), (&key[..], &iv[..], &head[..]));
    }
}

#[test]
fn names_of_the_appendix() {
    let signatures = Signatures::built_in();
    for vector in 0..2 {
        let mut packet = protected(vector);
        let mut names = Names::default();
        assert!(signatures.datagram_names(protocol::QUIC, &packet, &mut names));
        assert_eq!(names.get(NameKind::Server), Some(&b"example.com"[..]));
        assert_eq!(names.get(NameKind::Alpn), Some(&b"alpn"[..]));
        // One bit anywhere is noticed.
        packet[600] ^= 1;
        assert!(!signatures.datagram_names(protocol::QUIC, &packet, &mut names));
    }
}
