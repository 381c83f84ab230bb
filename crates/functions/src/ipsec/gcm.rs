//! AES-GCM (NIST SP 800-38D) with 96-bit nonces, in two separate steps: the tag is checked before decryption, without a buffer for the
//! plaintext. Cipher, counter mode and hash are RustCrypto's.

use core::fmt;

use aes::cipher::generic_array::GenericArray;
use aes::cipher::{BlockCipher, BlockEncrypt, BlockSizeUser, InnerIvInit, KeyInit, StreamCipherCore, consts::U16};
use aes::{Aes128, Aes192, Aes256};
use ctr::CtrCore;
use ctr::flavors::Ctr32BE;
use ghash::GHash;
use ghash::universal_hash::UniversalHash;
use subtle::ConstantTimeEq;

/// Bytes of a nonce.
pub(super) const NONCE: usize = 12;
/// Bytes of a tag.
pub(super) const TAG: usize = 16;

/// An expanded key.
#[derive(Clone)]
pub(super) struct Gcm {
    cipher: Cipher,
    hash: GHash,
}

#[derive(Clone)]
enum Cipher {
    Aes128(Aes128),
    Aes192(Aes192),
    Aes256(Aes256),
}

impl Gcm {
    /// Expands a key of 16, 24 or 32 bytes; `None` for another length.
    pub(super) fn new(key: &[u8]) -> Option<Self> {
        let cipher = match key.len() {
            16 => Cipher::Aes128(Aes128::new(GenericArray::from_slice(key))),
            24 => Cipher::Aes192(Aes192::new(GenericArray::from_slice(key))),
            32 => Cipher::Aes256(Aes256::new(GenericArray::from_slice(key))),
            _ => return None,
        };
        let subkey = cipher.block([0; 16]);
        Some(Self { cipher, hash: GHash::new(&subkey.into()) })
    }

    /// Encrypts `text` in place.
    ///
    /// # Returns
    /// The tag over `head` and the ciphertext.
    #[must_use]
    pub(super) fn seal(&self, nonce: [u8; NONCE], head: &[u8], text: &mut [u8]) -> [u8; TAG] {
        self.crypt(nonce, text);
        self.tag(nonce, head, text)
    }

    /// Returns true if `tag` is that of `head` and the ciphertext. Runs in constant time.
    #[must_use]
    pub(super) fn is_authentic(&self, nonce: [u8; NONCE], head: &[u8], ciphertext: &[u8], tag: &[u8; TAG]) -> bool {
        self.tag(nonce, head, ciphertext).ct_eq(tag).into()
    }

    /// Encrypts or decrypts in place; both are the same operation.
    pub(super) fn crypt(&self, nonce: [u8; NONCE], text: &mut [u8]) {
        match &self.cipher {
            Cipher::Aes128(cipher) => stream(cipher, nonce, text),
            Cipher::Aes192(cipher) => stream(cipher, nonce, text),
            Cipher::Aes256(cipher) => stream(cipher, nonce, text),
        }
    }

    fn tag(&self, nonce: [u8; NONCE], head: &[u8], ciphertext: &[u8]) -> [u8; TAG] {
        let mut hash = self.hash.clone();
        hash.update_padded(head);
        hash.update_padded(ciphertext);
        let bits = |bytes: &[u8]| (bytes.len() as u64 * 8).to_be_bytes();
        let mut lengths = [0; 16];
        lengths[..8].copy_from_slice(&bits(head));
        lengths[8..].copy_from_slice(&bits(ciphertext));
        hash.update(&[lengths.into()]);
        let digest: [u8; 16] = hash.finalize().into();
        let mask = self.cipher.block(counter(nonce, 1));
        core::array::from_fn(|at| digest[at] ^ mask[at])
    }
}

impl Cipher {
    fn block(&self, block: [u8; 16]) -> [u8; 16] {
        let mut block = block.into();
        match self {
            Self::Aes128(cipher) => cipher.encrypt_block(&mut block),
            Self::Aes192(cipher) => cipher.encrypt_block(&mut block),
            Self::Aes256(cipher) => cipher.encrypt_block(&mut block),
        }
        block.into()
    }
}

/// Applies the key stream from the second counter block on. The first masks the tag.
fn stream<C: BlockCipher + BlockEncrypt + BlockSizeUser<BlockSize = U16>>(
    cipher: &C,
    nonce: [u8; NONCE],
    text: &mut [u8],
) {
    let stream = CtrCore::<&C, Ctr32BE>::inner_iv_init(cipher, &counter(nonce, 2).into());
    stream.apply_keystream_partial(text.into());
}

fn counter(nonce: [u8; NONCE], number: u32) -> [u8; 16] {
    let mut block = [0; 16];
    block[..NONCE].copy_from_slice(&nonce);
    block[NONCE..].copy_from_slice(&number.to_be_bytes());
    block
}

/// Keys are not shown.
impl fmt::Debug for Gcm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.cipher {
            Cipher::Aes128(_) => "AES-128-GCM",
            Cipher::Aes192(_) => "AES-192-GCM",
            Cipher::Aes256(_) => "AES-256-GCM",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use aes_gcm::aead::{AeadInPlace, KeyInit as _};
    use aes_gcm::{Aes128Gcm, Aes256Gcm, AesGcm};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn theirs(key: &[u8], nonce: [u8; NONCE], head: &[u8], text: &mut [u8]) -> [u8; TAG] {
        let nonce = &nonce.into();
        let tag = match key.len() {
            16 => Aes128Gcm::new_from_slice(key).unwrap().encrypt_in_place_detached(nonce, head, text),
            24 => AesGcm::<Aes192, _>::new_from_slice(key).unwrap().encrypt_in_place_detached(nonce, head, text),
            _ => Aes256Gcm::new_from_slice(key).unwrap().encrypt_in_place_detached(nonce, head, text),
        };
        tag.unwrap().into()
    }

    proptest! {
        #[test]
        fn seals_as_the_library_does_and_notices_a_changed_bit(
            key in prop_oneof![vec(any::<u8>(), 16), vec(any::<u8>(), 24), vec(any::<u8>(), 32)],
            nonce: [u8; NONCE],
            head in vec(any::<u8>(), 0..40),
            text in vec(any::<u8>(), 0..300),
            (at, bit) in (any::<prop::sample::Index>(), 0..8_u32),
        ) {
            let gcm = Gcm::new(&key).unwrap();
            let (mut ours, mut expected) = (text.clone(), text.clone());
            let tag = gcm.seal(nonce, &head, &mut ours);
            prop_assert_eq!(tag, theirs(&key, nonce, &head, &mut expected));
            prop_assert_eq!(&ours, &expected);
            prop_assert!(gcm.is_authentic(nonce, &head, &ours, &tag));
            let all: Vec<u8> = [&head[..], &ours, &tag].concat();
            let mut changed = all.clone();
            changed[at.index(all.len())] ^= 1_u8 << bit;
            let (changed_head, rest) = changed.split_at(head.len());
            let (changed_text, changed_tag) = rest.split_last_chunk().unwrap();
            prop_assert!(!gcm.is_authentic(nonce, changed_head, changed_text, changed_tag));
            gcm.crypt(nonce, &mut ours);
            prop_assert_eq!(ours, text);
        }
    }

    #[test]
    fn a_key_has_one_of_three_lengths() {
        assert!([0, 15, 17, 20, 36].iter().all(|len| Gcm::new(&std::vec![0; *len]).is_none()));
    }
}
