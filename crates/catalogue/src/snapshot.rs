//! The flows of a run in a file, for another run to go on with.
//!
//! A snapshot has a magic number, the version of its format, a header in TOML, the state as 64-bit words, and a checksum of all that. Numbers
//! are little-endian. It is read by the same version of Millrace, for the same function: flows are what the function's code makes of them.
//! It has the configuration with which they were made. A run begins with that, and another configuration takes over before the first
//! packet.

use std::io::{self, Write};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use engine::{Beginning, Inspect, Look, SavedFlow};
use functions::chain::AnyFunction;
use nf::{Flow, KeyOf, NetworkFunction};
use packet::{Family, FlowKey, Nanos, Words};
use serde::{Deserialize, Serialize};

use crate::chain;
use crate::config::Settings;
use crate::{CatalogueEntry, Program};

/// The flows of a run, and what its packet sets share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    header: Header,
    /// The state as words, in this order: what the function had inherited; IPv4 flows; IPv6 flows; what packet sets share. A flow is the
    /// words of its key, its deadline, 1 if it is assured and else 0, and the words of the function's part.
    words: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    /// The version of Millrace that wrote it.
    millrace: String,
    function: String,
    configuration: String,
    /// The time of the last packet, in nanoseconds since 1970.
    time_ns: u64,
    flows_v4: u64,
    flows_v6: u64,
    /// Words of a key of either family, and of a flow.
    key_words: [usize; 2],
    flow_words: usize,
    /// Words of what the function had of those that it had succeeded, and of what packet sets share.
    inherited_words: usize,
    shared_words: usize,
}

/// Error of a snapshot that can't be made or used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Flows of this function don't outlive a run.
    #[error("{function} can't be snapshotted: {reason}")]
    Unsupported {
        /// The function.
        function: &'static str,
        /// Why.
        reason: String,
    },
    /// It has another magic number.
    #[error("this is no snapshot of Millrace")]
    NoSnapshot,
    /// It has another format.
    #[error("the snapshot has format {0}; this version of Millrace reads format {FORMAT}")]
    Format(u32),
    /// It is cut off, longer than it says, or its checksum is wrong.
    #[error("the snapshot is damaged; nothing of it was used")]
    Damaged,
    /// It is of another function or of other software.
    #[error("the snapshot is of {0}; remove it to begin without flows")]
    Other(String),
    /// The configuration of now can't take over from its own.
    #[error(
        "the snapshot's flows can't go on with the configuration of now: {reason}. Remove the snapshot to begin without flows, or start \
         with its own configuration:\n{configuration}"
    )]
    Configuration {
        /// Why.
        reason: String,
        /// Its own configuration.
        configuration: String,
    },
}

/// State that goes from run to run.
pub struct Restart<'a> {
    /// The flows to begin with.
    pub from: Option<&'a Snapshot>,
    /// The program that takes over before the first packet, where the snapshot has another configuration.
    pub successor: Option<Box<dyn Program>>,
    /// The settings that the run has, as [text](crate::config::Settings::canonical).
    pub configuration: Arc<Mutex<String>>,
    /// Gets the flows that the run leaves behind, unless it fails.
    pub at_end: Option<Sender<Snapshot>>,
}

impl Restart<'_> {
    /// The function to begin with, which may have inherited something, and the state.
    pub(crate) fn of<N: NetworkFunction>(self, nf: &Arc<N>) -> Result<(Arc<N>, Beginning<N>), SnapshotError> {
        let Self { from, successor, configuration, at_end } = self;
        let mut first = Arc::clone(nf);
        let mut beginning =
            Beginning { flows: Vec::new(), shared: None, time: Nanos(0), successor: None, at_end: None };
        if let Some(snapshot) = from {
            let (inherited, rest) = snapshot.parts::<N>(nf)?;
            if !inherited.is_empty() {
                first = Arc::new(nf.inherit(inherited).ok_or(SnapshotError::Damaged)?);
            }
            let (flows, shared) = snapshot.flows::<N>(rest)?;
            // What it has inherited may be state that its own configuration has no need of.
            beginning.shared = first.description().sharing.is_any().then(|| shared.to_vec());
            (beginning.flows, beginning.time) = (flows, snapshot.time());
        }
        if let Some(program) = successor {
            let other = || SnapshotError::Other("another function".to_owned());
            beginning.successor = *program.typed().downcast::<Option<N>>().map_err(|_| other())?;
        }
        if let Some(answer) = at_end {
            layout::<N>(nf)?;
            let look: Look<N> = Box::new(move |state, nf, now| {
                let text = configuration.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if let Ok(snapshot) = Snapshot::of(state, nf, now, text) {
                    // The caller may have stopped waiting.
                    let _ = answer.send(snapshot);
                }
            });
            beginning.at_end = Some(look);
        }
        Ok((first, beginning))
    }
}

impl CatalogueEntry {
    /// The program that a run with this snapshot begins with: that of the snapshot's configuration. `None` if that is `configuration`, as
    /// [text](Settings::canonical).
    ///
    /// # Errors
    /// The snapshot is of another function or of other software.
    pub fn of_snapshot(
        &self,
        snapshot: &Snapshot,
        configuration: &str,
    ) -> Result<Option<Box<dyn Program>>, SnapshotError> {
        let (function, name) = (&*snapshot.header.function, self.description().name);
        // A chain of one is its function.
        let is_alone = name == chain::DESCRIPTION.name && AnyFunction::NAMES.contains(&function);
        snapshot.check_origin(if is_alone { function } else { name })?;
        let own = &snapshot.header.configuration;
        if own == configuration {
            return Ok(None);
        }
        let settings = Settings::from_file("the snapshot's configuration", own.clone());
        let unreadable = |error| SnapshotError::Other(format!("a configuration that can't be read: {error}"));
        self.load(&settings).map(Some).map_err(unreadable)
    }
}

const MAGIC: &[u8; 8] = b"MILLSNAP";
const FORMAT: u32 = 2;
/// Bytes of the magic number, the format, and the length of the header.
const FRONT: usize = 16;
/// Bytes of the checksum.
const CHECKSUM: usize = 4;
const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Snapshot {
    /// The flows of a run at `now`.
    pub(crate) fn of<N: NetworkFunction>(
        state: &mut dyn Inspect<N>,
        nf: &N,
        now: Nanos,
        configuration: String,
    ) -> Result<Self, SnapshotError> {
        let layout = layout::<N>(nf)?;
        let flows = state.saved(nf, now);
        let mut words = nf.inherited();
        let inherited_words = words.len();
        let mut v6 = Vec::new();
        let mut counts = [0, 0];
        for SavedFlow { key, flow, deadline, assured } in flows {
            let (family, words) = match key.family() {
                Family::V4(key) => {
                    words.extend_from_slice(key.to_words().as_ref());
                    (0, &mut words)
                }
                Family::V6(key) => {
                    v6.extend_from_slice(key.to_words().as_ref());
                    (1, &mut v6)
                }
            };
            counts[family] += 1;
            words.extend([deadline.0, assured.into()]);
            let at = words.len();
            words.resize(at + layout.1, 0);
            flow.write_words(&mut words[at..]);
        }
        words.append(&mut v6);
        let mut shared = if nf.description().sharing.is_any() { state.saved_shared(nf, now) } else { Vec::new() };
        let header = Header {
            millrace: VERSION.to_owned(),
            function: N::DESCRIPTION.name.to_owned(),
            configuration,
            time_ns: now.0,
            flows_v4: counts[0],
            flows_v6: counts[1],
            key_words: layout.0,
            flow_words: layout.1,
            inherited_words,
            shared_words: shared.len(),
        };
        words.append(&mut shared);
        Ok(Self { header, words })
    }

    /// Number of flows.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.header.flows_v4 + self.header.flows_v6
    }

    /// True if it has no flows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of what packet sets share.
    #[must_use]
    pub const fn shared_bytes(&self) -> u64 {
        self.header.shared_words as u64 * 8
    }

    /// The error for a snapshot's configuration that another one can't take over from.
    #[must_use]
    pub fn refusal(&self, reason: String) -> SnapshotError {
        SnapshotError::Configuration { reason, configuration: self.header.configuration.clone() }
    }

    /// The time of the last packet before it.
    #[must_use]
    pub const fn time(&self) -> Nanos {
        Nanos(self.header.time_ns)
    }

    /// Checks that it is of this function and of this software.
    fn check_origin(&self, name: &str) -> Result<(), SnapshotError> {
        let Header { millrace, function, .. } = &self.header;
        if function != name {
            return Err(SnapshotError::Other(format!("the function {function}, not {name}")));
        }
        if millrace != VERSION {
            return Err(other_software(millrace));
        }
        Ok(())
    }

    /// Returns the words that the function had inherited, and all words behind them.
    fn parts<N: NetworkFunction>(&self, nf: &N) -> Result<(&[u64], &[u64]), SnapshotError> {
        let layout = layout::<N>(nf)?;
        self.check_origin(N::DESCRIPTION.name)?;
        let Header { millrace, key_words, flow_words, inherited_words, .. } = &self.header;
        if (*key_words, *flow_words) != layout {
            return Err(other_software(millrace));
        }
        self.words.split_at_checked(*inherited_words).ok_or(SnapshotError::Damaged)
    }

    /// The flows, and the words behind them.
    fn flows<'w, N: NetworkFunction>(
        &self,
        mut rest: &'w [u64],
    ) -> Result<(Vec<SavedFlow<N>>, &'w [u64]), SnapshotError> {
        let Header { key_words, flow_words, flows_v4, .. } = &self.header;
        let mut flows = Vec::new();
        for number in 0..self.len() {
            let is_v6 = number >= *flows_v4;
            let (key, more) = rest.split_at(key_words[usize::from(is_v6)]);
            let (&[deadline, assured], more) = more.split_first_chunk().ok_or(SnapshotError::Damaged)?;
            let (flow, more) = more.split_at(*flow_words);
            rest = more;
            let key = if is_v6 {
                KeyOf::<N>::from_v6(from_words(key).ok_or(SnapshotError::Damaged)?)
            } else {
                KeyOf::<N>::from_v4(from_words(key).ok_or(SnapshotError::Damaged)?)
            };
            let flow = N::Flow::read_words(flow).ok_or(SnapshotError::Damaged)?;
            flows.push(SavedFlow { key, flow, deadline: Nanos(deadline), assured: assured != 0 });
        }
        Ok((flows, rest))
    }

    /// Writes it.
    ///
    /// # Errors
    /// `out` can't be written.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let header = toml::to_string(&self.header).map_err(io::Error::other)?;
        let len = u32::try_from(header.len()).map_err(|_| io::Error::other("the configuration is too long"))?;
        let mut bytes = Vec::with_capacity(FRONT + header.len() + self.words.len() * 8 + CHECKSUM);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        out.write_all(&bytes)
    }

    /// Reads one. Nothing of a damaged one is used.
    ///
    /// # Errors
    /// It is none, or of another format, or damaged.
    pub fn read(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let damaged = SnapshotError::Damaged;
        let behind = bytes.strip_prefix(MAGIC).ok_or(SnapshotError::NoSnapshot)?;
        let (format, behind) = behind.split_first_chunk().ok_or(damaged.clone())?;
        // Another format may have its checksum elsewhere.
        let format = u32::from_le_bytes(*format);
        if format != FORMAT {
            return Err(SnapshotError::Format(format));
        }
        let (content, checksum) = bytes.split_last_chunk().ok_or(damaged.clone())?;
        if crc32fast::hash(content) != u32::from_le_bytes(*checksum) {
            return Err(damaged);
        }
        let (len, behind) = behind.split_first_chunk().ok_or(damaged.clone())?;
        let behind = behind.get(..behind.len().wrapping_sub(CHECKSUM)).ok_or(damaged.clone())?;
        let (header, flows) = behind.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(damaged.clone())?;
        let header = std::str::from_utf8(header).map_err(|_| damaged.clone())?;
        let header: Header = toml::from_str(header).map_err(|_| damaged.clone())?;
        let (words, odd) = flows.as_chunks();
        if !odd.is_empty() || header.words() != Some(words.len()) {
            return Err(damaged);
        }
        Ok(Self { header, words: words.iter().map(|word| u64::from_le_bytes(*word)).collect() })
    }
}

impl Header {
    /// Number of all words; `None` if no memory could hold them.
    fn words(&self) -> Option<usize> {
        let of = |flows: u64, key: usize| {
            let each = key.checked_add(2)?.checked_add(self.flow_words)?;
            usize::try_from(flows).ok()?.checked_mul(each)
        };
        let flows = of(self.flows_v4, self.key_words[0])?.checked_add(of(self.flows_v6, self.key_words[1])?)?;
        flows.checked_add(self.inherited_words)?.checked_add(self.shared_words)
    }
}

/// Words of a key of either family, and of a flow.
fn layout<N: NetworkFunction>(nf: &N) -> Result<([usize; 2], usize), SnapshotError> {
    let unsupported = |reason: String| SnapshotError::Unsupported { function: N::DESCRIPTION.name, reason };
    let (sharing, words) = (nf.description().sharing, N::Flow::WORDS);
    match (sharing.what(), words) {
        _ if sharing.reads_frames() => {
            Err(unsupported("it gathers streams, and what it has of them is not in flows".to_owned()))
        }
        (Some(what), _) if !N::KEEPS => {
            Err(unsupported(format!("its packet sets share {what}, which has no form outside of memory")))
        }
        (_, None) => Err(unsupported("its flows have no form outside of memory".to_owned())),
        (_, Some(words)) => {
            let [v4, v6] = [<KeyOf<N> as FlowKey>::V4::COUNT, <KeyOf<N> as FlowKey>::V6::COUNT];
            Ok(([v4, v6], words))
        }
    }
}

/// The error for a snapshot of another version.
fn other_software(millrace: &str) -> SnapshotError {
    SnapshotError::Other(format!("Millrace {millrace}; this is {VERSION}, whose flows may differ"))
}

/// A key of these words. `None` for a key that doesn't exist.
fn from_words<K: Words>(words: &[u64]) -> Option<K> {
    let mut array = K::ZEROS;
    (K::COUNT > 0 && array.as_ref().len() == words.len()).then(|| {
        array.as_mut().copy_from_slice(words);
        K::from_words(array)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let header = Header {
            millrace: VERSION.to_owned(),
            function: "conntrack".to_owned(),
            configuration: "flows = 16\n".to_owned(),
            time_ns: 7,
            flows_v4: 2,
            flows_v6: 1,
            key_words: [2, 5],
            flow_words: 8,
            inherited_words: 3,
            shared_words: 40,
        };
        let words = (0..header.words().unwrap() as u64).map(|word| word << 40 | word).collect();
        Snapshot { header, words }
    }

    fn written(snapshot: &Snapshot) -> Vec<u8> {
        let mut bytes = Vec::new();
        snapshot.write(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let snapshot = snapshot();
        assert_eq!(Snapshot::read(&written(&snapshot)), Ok(snapshot));
    }

    #[test]
    fn any_damage_is_noticed() {
        let whole = written(&snapshot());
        for at in 0..whole.len() {
            assert!(Snapshot::read(&whole[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                assert!(Snapshot::read(&damaged).is_err(), "bit {bit} of byte {at}");
            }
        }
        let longer = [&*whole, &[0]].concat();
        assert_eq!(Snapshot::read(&longer), Err(SnapshotError::Damaged));
        assert_eq!(Snapshot::read(b"MILLSNAP\x03\0\0\0"), Err(SnapshotError::Format(3)));
        assert_eq!(Snapshot::read(b"pcap"), Err(SnapshotError::NoSnapshot));
    }

    /// A header with a right checksum may still lie about what follows.
    #[test]
    fn a_lying_header_is_refused() {
        for lie in [
            Header { flows_v4: u64::MAX, ..snapshot().header },
            Header { flows_v6: 2, ..snapshot().header },
            Header { key_words: [usize::MAX, 5], ..snapshot().header },
            Header { shared_words: 41, ..snapshot().header },
            Header { inherited_words: i64::MAX as usize, shared_words: i64::MAX as usize, ..snapshot().header },
        ] {
            let lying = Snapshot { header: lie, ..snapshot() };
            // TOML has no numbers above those of i64, and then nothing is written.
            let mut bytes = Vec::new();
            assert!(lying.write(&mut bytes).is_err() || Snapshot::read(&bytes) == Err(SnapshotError::Damaged));
        }
    }
}
