//! The tunnels of the configuration file, checked while it is read.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use serde::Deserialize;

use super::gcm::Gcm;
use super::window;
use crate::config::{Count, Prefix};

/// How the tunnels are set up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Fields")]
pub struct Config {
    pub(super) fields: Fields,
}

/// The keys of the configuration file. Defaults and meanings: `docs/ipsec.md`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Fields {
    pub(super) tunnels: Vec<Tunnel>,
    pub(super) replay_window: Count<1, { window::LONGEST as u64 }>,
    pub(super) mtu: Count<576, 65_535>,
    pub(super) other: Other,
}

impl Default for Fields {
    fn default() -> Self {
        Self { tunnels: Vec::new(), replay_window: Count::new(64), mtu: Count::new(65_535), other: Other::Drop }
    }
}

/// What to do with packets that match no tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Other {
    Drop,
    Forward,
}

/// A tunnel: a pair of security associations.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tunnel {
    pub(super) local: IpAddr,
    pub(super) peer: IpAddr,
    pub(super) inside: Vec<Prefix>,
    pub(super) beyond: Vec<Prefix>,
    pub(super) spi_out: Spi,
    pub(super) key_out: Key,
    pub(super) spi_in: Spi,
    pub(super) key_in: Key,
}

/// A security parameter index. Numbers below 256 are reserved.
pub(super) type Spi = Count<256, { u32::MAX as u64 }>;

/// An AES key followed by four bytes of salt.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Key {
    bytes: Vec<u8>,
}

impl Key {
    pub(super) fn gcm(&self) -> Gcm {
        let (key, _) = self.bytes.split_at(self.bytes.len() - 4);
        Gcm::new(key).expect("the length was looked at when the key was read")
    }

    pub(super) fn salt(&self) -> [u8; 4] {
        *self.bytes.last_chunk().expect("a key has its salt behind it")
    }
}

/// Keys are not shown.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.bytes.len())
    }
}

impl TryFrom<String> for Key {
    type Error = &'static str;

    /// The error doesn't repeat the text, because it may be a key with a typing error.
    fn try_from(text: String) -> Result<Self, &'static str> {
        const WANTED: &str = "this is not a key: write a key of 16, 24 or 32 bytes followed by 4 bytes of salt, as 40, \
            56 or 72 hexadecimal digits";
        let digits: Vec<u8> =
            text.strip_prefix("0x").unwrap_or(&text).chars().map_while(|c| c.to_digit(16)).map(|d| d as u8).collect();
        let whole = digits.len() == text.strip_prefix("0x").unwrap_or(&text).len();
        match digits.len() {
            40 | 56 | 72 if whole => {
                Ok(Self { bytes: digits.as_chunks().0.iter().map(|[high, low]| high << 4 | low).collect() })
            }
            _ => Err(WANTED),
        }
    }
}

/// Maximum number of tunnels, because a look-up is linear.
const TUNNELS_MAX: usize = 256;

impl TryFrom<Fields> for Config {
    type Error = String;

    fn try_from(fields: Fields) -> Result<Self, String> {
        if fields.tunnels.len() > TUNNELS_MAX {
            return Err(format!("{} tunnels are too many: {TUNNELS_MAX} at most", fields.tunnels.len()));
        }
        for (number, tunnel) in fields.tunnels.iter().enumerate() {
            let Tunnel { local, peer, inside, beyond, .. } = tunnel;
            if local.is_ipv4() != peer.is_ipv4() {
                return Err(format!(
                    "tunnel {}: `local` ({local}) and `peer` ({peer}) are of different address families",
                    number + 1
                ));
            }
            if local == peer {
                return Err(format!("tunnel {}: `local` and `peer` are both {local}", number + 1));
            }
            for (name, list) in [("inside", inside), ("beyond", beyond)] {
                if list.is_empty() {
                    return Err(format!("tunnel {}: `{name}` names no network", number + 1));
                }
            }
            if tunnel.key_out == tunnel.key_in {
                return Err(format!(
                    "tunnel {}: `key_out` and `key_in` are the same: two senders with one key would use its nonces twice",
                    number + 1
                ));
            }
            let same = |other: &Tunnel| (other.local, other.peer, other.spi_in) == (*local, *peer, tunnel.spi_in);
            if let Some(earlier) = fields.tunnels[..number].iter().position(same) {
                return Err(format!(
                    "tunnels {} and {} have the same `local`, `peer` and `spi_in`",
                    earlier + 1,
                    number + 1
                ));
            }
            let sends_with = |other: &Tunnel| other.key_out == tunnel.key_out;
            if let Some(earlier) = fields.tunnels[..number].iter().position(sends_with) {
                return Err(format!("tunnels {} and {} have the same `key_out`", earlier + 1, number + 1));
            }
        }
        Ok(Self { fields })
    }
}
