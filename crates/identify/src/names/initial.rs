//! Initial packets of QUIC: decrypted (RFC 9001, section 5; RFC 9369, section 3.3), and their CRYPTO frames joined.

use aes::Aes128;
use aes::cipher::{BlockEncrypt, KeyInit};
use aes_gcm::Aes128Gcm;
use aes_gcm::aead::AeadInPlace;
use hkdf::Hkdf;
use sha2::Sha256;

use super::{Names, hello};
use crate::bytes::{Bytes, Stop, Told, ensure};
use crate::datagram::quic::{Initial, V2, varint};

/// Bytes of a packet, at most. Initial packets are seldom longer than 1500 bytes.
const PACKET_MAX: usize = 2_048;
/// CRYPTO frames of a packet, at most.
const FRAMES_MAX: usize = 64;

/// Reads the names in the hello of a client, if the datagram has the whole of them.
pub(super) fn read(bytes: &Bytes<'_>, names: &mut Names) -> Told<()> {
    let mut plain = [0; PACKET_MAX];
    let len = decrypt(bytes, &mut plain)?;
    let frames = Crypto::read(&plain[..len])?;
    let mut at = 0;
    hello::read(&mut || frames.byte(&plain, &mut at), false, names)
}

/// The keys that protect a client's Initial packets.
#[derive(Debug, PartialEq, Eq)]
struct Keys {
    key: [u8; 16],
    iv: [u8; 12],
    head: [u8; 16],
}

/// Returns the salt of a version; `None` if it encrypts in a way of its own.
const fn salt(version: u32) -> Option<[u8; 20]> {
    Some(match version {
        1 => [
            0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc, 0xbb,
            0x7f, 0x0a,
        ],
        V2 => [
            0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26, 0x9d, 0xcb, 0xf9, 0xbd,
            0x2e, 0xd9,
        ],
        // Drafts 29 to 34.
        0xff00_001d..=0xff00_0022 => [
            0xaf, 0xbf, 0xec, 0x28, 0x99, 0x93, 0xd2, 0x4c, 0x9e, 0x97, 0x86, 0xf1, 0x9c, 0x61, 0x11, 0xe0, 0x43, 0x90,
            0xa8, 0x99,
        ],
        // Drafts 23 to 28, and mvfst of their time.
        0xff00_0017..=0xff00_001c | 0xface_b002 => [
            0xc3, 0xee, 0xf7, 0x12, 0xc7, 0x2e, 0xbb, 0x5a, 0x11, 0xa7, 0xd2, 0x43, 0x2b, 0xb4, 0x63, 0x65, 0xbe, 0xf9,
            0xf5, 0x02,
        ],
        _ => return None,
    })
}

/// Fills `out` by HKDF-Expand-Label (RFC 8446, section 7.1) without a context.
fn expand(secret: &Hkdf<Sha256>, label: &[u8], out: &mut [u8]) -> Told<()> {
    let head = [0, out.len() as u8, 6 + label.len() as u8];
    secret.expand_multi_info(&[&head, b"tls13 ", label, &[0]], out).map_err(|_| Stop::No)
}

impl Keys {
    fn new(version: u32, destination: &[u8]) -> Told<Self> {
        let salt = salt(version).ok_or(Stop::No)?;
        let initial = Hkdf::<Sha256>::new(Some(&salt), destination);
        let mut secret = [0; 32];
        expand(&initial, b"client in", &mut secret)?;
        let secret = Hkdf::<Sha256>::from_prk(&secret).map_err(|_| Stop::No)?;
        let [key_label, iv_label, head_label]: [&[u8]; 3] = if version == V2 {
            [b"quicv2 key", b"quicv2 iv", b"quicv2 hp"]
        } else {
            [b"quic key", b"quic iv", b"quic hp"]
        };
        let mut keys = Self { key: [0; 16], iv: [0; 12], head: [0; 16] };
        expand(&secret, key_label, &mut keys.key)?;
        expand(&secret, iv_label, &mut keys.iv)?;
        expand(&secret, head_label, &mut keys.head)?;
        Ok(keys)
    }
}

/// Decrypts the Initial packet of a client at the beginning of a datagram. Returns the length of its frames.
fn decrypt(bytes: &Bytes<'_>, plain: &mut [u8; PACKET_MAX]) -> Told<usize> {
    let Initial { version, destination, number, end } = Initial::read(bytes)?;
    let keys = Keys::new(version, destination)?;
    ensure(end <= PACKET_MAX)?;
    let packet = bytes.slice(0, end)?;
    plain[..end].copy_from_slice(packet);

    // The head's protection: a mask out of sixteen bytes behind the longest number (section 5.4).
    let mut mask = aes::Block::from(bytes.array::<16>(number + 4)?);
    Aes128::new(&keys.head.into()).encrypt_block(&mut mask);
    plain[0] ^= mask[0] & 0xf;
    let number_len = usize::from(plain[0] & 3) + 1;
    let mut nonce = keys.iv;
    for index in 0..number_len {
        plain[number + index] ^= mask[1 + index];
        nonce[12 - number_len + index] ^= plain[number + index];
    }

    let content = number + number_len;
    ensure(end >= content + 16)?;
    let (head, rest) = plain.split_at_mut(content);
    let (sealed, tag) = rest[..end - content].split_at_mut(end - content - 16);
    let tag: [u8; 16] = tag.try_into().map_err(|_| Stop::No)?;
    Aes128Gcm::new(&keys.key.into())
        .decrypt_in_place_detached(&nonce.into(), head, sealed, &tag.into())
        .map_err(|_| Stop::No)?;
    let len = end - content - 16;
    plain.copy_within(content..content + len, 0);
    Ok(len)
}

/// CRYPTO frames of a packet: offset in the handshake, place in the packet, length.
struct Crypto {
    frames: [(usize, usize, usize); FRAMES_MAX],
    count: usize,
}

impl Crypto {
    /// Reads the frames of a packet (RFC 9000, section 19).
    fn read(plain: &[u8]) -> Told<Self> {
        let bytes = Bytes::datagram(plain);
        let mut found = Self { frames: [(0, 0, 0); FRAMES_MAX], count: 0 };
        let mut at = 0;
        while at < plain.len() && found.count < FRAMES_MAX {
            match bytes.u8(at)? {
                0 | 1 => at += 1,
                kind @ (2 | 3) => {
                    let mut numbers = [0; 4];
                    at += 1;
                    for number in &mut numbers {
                        (*number, at) = varint(&bytes, at)?;
                    }
                    for _ in 0..numbers[2].min(plain.len()) * 2 + if kind == 3 { 3 } else { 0 } {
                        (_, at) = varint(&bytes, at)?;
                    }
                }
                6 => {
                    let (offset, next) = varint(&bytes, at + 1)?;
                    let (len, next) = varint(&bytes, next)?;
                    let _data = bytes.slice(next, len)?;
                    found.frames[found.count] = (offset, next, len);
                    found.count += 1;
                    at = next + len;
                }
                _ => break,
            }
        }
        ensure(found.count > 0)?;
        Ok(found)
    }

    /// Returns the byte of the handshake at `at`, and moves on.
    fn byte(&self, plain: &[u8], at: &mut usize) -> Told<u8> {
        let holds = |(offset, _, len): &&(usize, usize, usize)| *at >= *offset && *at - offset < *len;
        let (offset, place, _) = self.frames[..self.count].iter().find(holds).ok_or(Stop::No)?;
        let byte = plain.get(place + (*at - offset)).ok_or(Stop::No)?;
        *at += 1;
        Ok(*byte)
    }
}

#[cfg(test)]
mod tests;
