//! Published packets, and configurations that are refused. Tunnels from end to end are tested with the engines.

use std::string::{String, ToString};
use std::vec::Vec;

use super::esp::Association;
use super::gcm::Gcm;
use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.as_chunks().0.iter().map(|[high, low]| high << 4 | low).collect()
}

/// Cases 2 to 5 of draft-mcgrew-gcm-test-01, section 4, those with numbers of 32 bits: key and salt; index, number and explicit
/// nonce; what is sealed, trailer included; ciphertext and tag.
const PUBLISHED: [[&str; 4]; 4] = [
    [
        "feffe9928665731c6d6a8f9467308308feffe9928665731c cafebabe",
        "0000a5f8 0000000a facedbaddecaf888",
        "45000028a4ad4000400678800a01038f0a010612802306b8cb712602dd6bb03e501016d075680001",
        "a5b1f8066029aea40e598b8122de02420938b3ab33f828e687b8858b5bfbdbd0315b27452144cc77 95457b9652037f5318027b5b4cd7a636",
    ],
    [
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab 11223344",
        "4a2cbfe3 00000002 0102030405060708",
        "4500003069a6400080062690c0a801029389155e0a9e008b2dc57ee0000000007002400020bf0000020405b40101040201020201",
        "ff425c9b724599df7a3bcd510194e00d6a78107f1b0b1cbf06efae9d65a5d763748a637985771d347f0545659f14e99def842d8e \
         b335f4eecfdbf831824b4c4915956c96",
    ],
    [
        "00000000000000000000000000000000 00000000",
        "00000000 00000001 0000000000000000",
        "4500003c99c500008001cb7a40679318010101010800075c020044006162636465666768696a6b6c6d6e6f7071727374757677\
         61626364656667686901020201",
        "4688daf2f973a392732909c331d56d60f694abaa414b5e7ff5fdcdfff5e9a284456476492719ffb64de7d9dca1e1d894bc3bd578\
         73ed4d181d19d4d5c8c18af3 f821d496eeb096e98ad2b69e4799c71d",
    ],
    [
        "7d773d00c144c525ac619d18c84a3f47 d9664267",
        "335467ae ffffffff 43457e9182443bc6",
        "01020201",
        "437f866b cb3f699fe9b0822bac961c4504bef270",
    ],
];

#[test]
fn published_packets_are_opened_and_sealed_alike() {
    for [key, header, plaintext, sealed] in PUBLISHED {
        let (key, header, plaintext) = (bytes(key), bytes(header), bytes(plaintext));
        let (key, salt) = key.split_last_chunk().unwrap();
        let spi = u32::from_be_bytes(*header.first_chunk().unwrap());
        let association = Association { spi, salt: *salt, gcm: Gcm::new(key).unwrap() };
        let esp = [&header[..], &bytes(sealed)].concat();
        assert!(association.is_authentic(&esp));
        for at in 0..esp.len() {
            let mut other = esp.clone();
            other[at] ^= 0x10;
            assert!(!association.is_authentic(&other), "byte {at}");
            assert!(!association.is_authentic(&esp[..at]), "the first {at} bytes");
        }
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(salt);
        nonce[4..].copy_from_slice(&header[8..]);
        let mut text = plaintext.clone();
        let tag = association.gcm.seal(nonce, &header[..8], &mut text);
        assert_eq!([&header[..], &text, &tag].concat(), esp);
        association.gcm.crypt(nonce, &mut text);
        assert_eq!(text, plaintext);
    }
}

/// Padding is checked after the tag: wrong padding with the right key is not a forgery.
#[test]
fn what_is_not_padded_is_authentic_all_the_same() {
    let [key, header, ..] = PUBLISHED[0];
    let (key, header) = (bytes(key), bytes(header));
    let (key, salt) = key.split_last_chunk().unwrap();
    let association = Association { spi: 0, salt: *salt, gcm: Gcm::new(key).unwrap() };
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(salt);
    nonce[4..].copy_from_slice(&header[8..]);
    for len in [0, 1, 5, 8] {
        let mut text = std::vec![7; len];
        let tag = association.gcm.seal(nonce, &header[..8], &mut text);
        assert!(association.is_authentic(&[&header[..], &text, &tag].concat()), "{len} bytes");
    }
}

const TUNNEL: &str = r#"
[[tunnels]]
local = "192.0.2.1"
peer = "198.51.100.1"
inside = ["10.1.0.0/16"]
beyond = ["10.2.0.0/16"]
spi_out = 0x1001
key_out = "000102030405060708090a0b0c0d0e0f10111213"
spi_in = 0x2001
key_in = "0xff0102030405060708090a0b0c0d0e0f10111213"
"#;

fn refused(from: &str, to: &str) -> String {
    assert!(TUNNEL.contains(from), "{from}");
    toml::from_str::<Config>(&TUNNEL.replacen(from, to, 1)).expect_err(to).message().into()
}

#[test]
fn what_can_not_be_is_refused() {
    assert!(toml::from_str::<Config>(TUNNEL).is_ok());
    assert!(refused("198.51.100.1", "2001:db8::1").contains("different address families"));
    assert!(refused("198.51.100.1", "192.0.2.1").contains("both 192.0.2.1"));
    assert!(refused("[\"10.1.0.0/16\"]", "[]").contains("`inside` names no network"));
    assert!(refused("0x1001", "255").contains("from 256"));
    assert!(refused("0xff01", "0001").contains("nonces twice"));
    for key in ["\"00010203\"", "\"\"", "\"zz0102030405060708090a0b0c0d0e0f10111213\""] {
        let error = refused("\"000102030405060708090a0b0c0d0e0f10111213\"", key);
        assert!(error.contains("40, 56 or 72") && !error.contains("0102"), "{error}");
    }
    let twice = std::format!("{TUNNEL}{TUNNEL}");
    let error = toml::from_str::<Config>(&twice).expect_err("twice the same").to_string();
    assert!(error.contains("tunnels 1 and 2 have the same `local`, `peer` and `spi_in`"), "{error}");
    let error = toml::from_str::<Config>(&twice.replacen("0x2001", "0x2002", 1)).expect_err("one key").to_string();
    assert!(error.contains("tunnels 1 and 2 have the same `key_out`"), "{error}");
}

#[test]
fn keys_are_not_shown() {
    let config: Config = toml::from_str(TUNNEL).unwrap();
    let shown = std::format!("{config:?} {:?}", Ipsec::new(config.clone()));
    assert!(shown.contains("Key(20 bytes)") && shown.contains("AES-128-GCM"), "{shown}");
    assert!(!shown.contains("[0, 1, 2") && !shown.contains("0001020304"), "{shown}");
}
