//! Sets of addresses, as `ipset save` prints them and `ipset restore` takes them.

mod entry;
mod read;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use crate::error::Errors;
use crate::value::{Counters, Family, Interval};
use crate::words::quote;

pub use entry::{Entry, EntryExtra, EntryPart};

/// Named sets. They print as `ipset save` does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sets {
    /// The sets, in the order in which the text creates them.
    pub sets: Vec<Set>,
}

/// The type of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetKind {
    /// `bitmap:ip`.
    BitmapIp,
    /// `bitmap:port`.
    BitmapPort,
    /// `hash:ip`.
    HashIp,
    /// `hash:net`.
    HashNet,
    /// `hash:ip,port`.
    HashIpPort,
    /// `hash:net,port`.
    HashNetPort,
    /// `hash:ip,port,ip`.
    HashIpPortIp,
    /// `hash:net,iface`.
    HashNetInterface,
    /// `hash:mac`.
    HashMac,
    /// `list:set`.
    ListSet,
}

/// The content of one dimension of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dimension {
    Ip,
    Net,
    /// Any network, also that of all addresses.
    AnyNet,
    /// A port with its protocol.
    Port,
    /// A port alone.
    BarePort,
    Mac,
    Interface,
    Set,
}

impl SetKind {
    /// All types.
    pub const ALL: [Self; 10] = [
        Self::BitmapIp,
        Self::BitmapPort,
        Self::HashIp,
        Self::HashNet,
        Self::HashIpPort,
        Self::HashNetPort,
        Self::HashIpPortIp,
        Self::HashNetInterface,
        Self::HashMac,
        Self::ListSet,
    ];

    /// The name that ipset has for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BitmapIp => "bitmap:ip",
            Self::BitmapPort => "bitmap:port",
            Self::HashIp => "hash:ip",
            Self::HashNet => "hash:net",
            Self::HashIpPort => "hash:ip,port",
            Self::HashNetPort => "hash:net,port",
            Self::HashIpPortIp => "hash:ip,port,ip",
            Self::HashNetInterface => "hash:net,iface",
            Self::HashMac => "hash:mac",
            Self::ListSet => "list:set",
        }
    }

    /// The content of its entries.
    pub(crate) const fn dimensions(self) -> &'static [Dimension] {
        match self {
            Self::BitmapIp | Self::HashIp => &[Dimension::Ip],
            Self::BitmapPort => &[Dimension::BarePort],
            Self::HashNet => &[Dimension::Net],
            Self::HashIpPort => &[Dimension::Ip, Dimension::Port],
            Self::HashNetPort => &[Dimension::Net, Dimension::Port],
            Self::HashIpPortIp => &[Dimension::Ip, Dimension::Port, Dimension::Ip],
            Self::HashNetInterface => &[Dimension::AnyNet, Dimension::Interface],
            Self::HashMac => &[Dimension::Mac],
            Self::ListSet => &[Dimension::Set],
        }
    }

    pub(crate) const fn is_hash(self) -> bool {
        !matches!(self, Self::BitmapIp | Self::BitmapPort | Self::ListSet)
    }
}

/// A named set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: SetKind,
    /// The family of its addresses.
    pub family: Family,
    /// `range` of `bitmap:ip`: the addresses that fit.
    pub addresses: Option<Interval<IpAddr>>,
    /// `range` of `bitmap:port`: the ports that fit.
    pub ports: Option<Interval<u16>>,
    /// `netmask`: leading bits of an address that count. All if not given.
    pub netmask: Option<u8>,
    /// `timeout`, in seconds: entries without their own expire after this; 0 never. `None`: entries never expire.
    pub timeout_s: Option<u32>,
    /// `counters`: entries count packets and bytes.
    pub counters: bool,
    /// `comment`: entries have comments.
    pub comments: bool,
    /// `hashsize`: buckets at the start.
    pub hash_size: u32,
    /// `maxelem`, or `size` of `list:set`: most entries.
    pub entries_max: u32,
    /// `forceadd`: a full set gives up an entry for a new one.
    pub force_add: bool,
    /// The line that creates it.
    pub line: u32,
    /// Its entries, sorted; of `list:set` in the order of the list.
    pub entries: Vec<Entry>,
}

impl Sets {
    /// Reads what `ipset save` prints. Lines may also begin with `ipset`, as in a script. `name` is the text's name in errors.
    ///
    /// # Errors
    ///
    /// All errors of the text, up to 100.
    pub fn parse(text: &str, name: &str) -> Result<Self, Errors> {
        read::sets(text, name)
    }

    /// The set of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Set> {
        self.sets.iter().find(|set| set.name == name)
    }
}

impl fmt::Display for Sets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_list = |set: &&Set| set.kind == SetKind::ListSet;
        let (lists, others): (Vec<_>, Vec<_>) = self.sets.iter().partition(is_list);
        // Lists come last, so that their sets are there.
        others.into_iter().chain(lists).try_for_each(|set| set.fmt(f))
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "create {} {}", self.name, self.kind.name())?;
        if self.kind.is_hash() {
            if self.kind != SetKind::HashMac {
                f.write_str(match self.family {
                    Family::V4 => " family inet",
                    Family::V6 => " family inet6",
                })?;
            }
            write!(f, " hashsize {} maxelem {}", self.hash_size, self.entries_max)?;
        }
        if let Some(Interval { first, last }) = self.addresses {
            write!(f, " range {first}-{last}")?;
        }
        if let Some(Interval { first, last }) = self.ports {
            write!(f, " range {first}-{last}")?;
        }
        if let Some(bits) = self.netmask {
            write!(f, " netmask {bits}")?;
        }
        if self.kind == SetKind::ListSet {
            write!(f, " size {}", self.entries_max)?;
        }
        if let Some(seconds) = self.timeout_s {
            write!(f, " timeout {seconds}")?;
        }
        f.write_str(if self.counters { " counters" } else { "" })?;
        f.write_str(if self.comments { " comment" } else { "" })?;
        f.write_str(if self.force_add { " forceadd" } else { "" })?;
        f.write_str("\n")?;
        for entry in &self.entries {
            write!(f, "add {} {entry}", self.name)?;
            if let Some(seconds) = entry.timeout_s {
                write!(f, " timeout {seconds}")?;
            }
            f.write_str(if entry.no_match { " nomatch" } else { "" })?;
            if let Some(EntryExtra { counters: Counters { packets, bytes }, comment }) = entry.extra.as_deref() {
                if self.counters {
                    write!(f, " packets {packets} bytes {bytes}")?;
                }
                if !comment.is_empty() {
                    match quote(comment) {
                        quoted if quoted.starts_with('"') => write!(f, " comment {quoted}")?,
                        plain => write!(f, " comment \"{plain}\"")?,
                    }
                }
            }
            f.write_str("\n")?;
        }
        Ok(())
    }
}
