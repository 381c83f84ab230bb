//! Splitting packets and joining them again: [`Park`].

use packet::{Fragment, Headers, LinkType, Transport, parse};

use crate::counts::Counts;
use crate::lengths;
use crate::ring::{Look, Place, Ring};
use crate::store::Store;
use crate::tag::{End, Secret, TAG_BYTES, Tag, Wish, is_tagged};

/// Options of a split.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Number of bytes of a frame that go to the function, from [`KEEP_MIN`] to [`KEEP_MAX`]; the tag comes behind them. Packets with longer headers are not split.
    pub keep: usize,
    /// Number of payloads that can be parked, at least 1.
    pub slots: u32,
    /// Number of times that the ring of slots may come round to a payload; at the last time the payload is given up for another. At least 1.
    pub rounds: u8,
    /// If true, IP and UDP lengths say what is sent to the function, so that functions other than Millrace's take it. Otherwise they stay, as in
    /// a capture with a snap length, and [`Headed`](crate::Headed) tells the function the packet's length.
    pub shorten: bool,
    /// The secret of the tags.
    pub secret: Secret,
}

/// Smallest [`Options::keep`].
pub const KEEP_MIN: usize = 64;

/// Largest [`Options::keep`].
pub const KEEP_MAX: usize = 512;

/// Longest payload that is parked, in bytes. Packets with a longer one go whole.
pub const PAYLOAD_MAX: usize = 2_048;

/// Parked payloads, and where they lie.
#[derive(Debug)]
pub struct Park {
    options: Options,
    ring: Ring,
    store: Store,
    counts: Counts,
}

/// The part of a frame that goes to the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// All of it.
    Whole,
    /// Its first bytes, and a tag behind them.
    Head {
        /// Number of its bytes.
        len: usize,
        /// The tag.
        tag: [u8; TAG_BYTES],
    },
}

/// Result for a frame that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// It has no tag: send it as it is.
    Plain,
    /// It is whole again.
    Whole,
    /// It has no payload any more, or the function has dropped it: send nothing.
    Gone,
}

/// Reason for which a packet goes whole.
#[derive(Clone, Copy)]
enum Unsplit {
    TooShort,
    /// It isn't a whole packet of TCP or UDP, its headers or its payload are too long, or its length fields are wrong.
    Other,
}

impl Park {
    /// A split with nothing parked.
    ///
    /// # Panics
    /// [`Options::keep`] is out of its range, or there are no slots.
    #[must_use]
    pub fn new(options: Options, store: Store) -> Self {
        assert!((KEEP_MIN..=KEEP_MAX).contains(&options.keep) && options.slots > 0, "it was checked before");
        Self { ring: Ring::new(options.slots, options.rounds), options, store, counts: Counts::default() }
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { parked: self.ring.parked().into(), lost: self.store.lost(), ..self.counts }
    }

    /// Splits a packet: parks what is behind the first bytes. With [`shorten`](Options::shorten) the lengths in the head are changed in place.
    /// `wire_len` is the frame's length on the wire.
    pub fn split(&mut self, link: LinkType, wire_len: u32, frame: &mut [u8]) -> Split {
        self.counts.packets += 1;
        self.counts.bytes += frame.len() as u64;
        let split = self.decide(link, wire_len, frame);
        self.counts.bytes_to_function += match split {
            Split::Whole => frame.len() as u64,
            Split::Head { len, .. } => (len + TAG_BYTES) as u64,
        };
        split
    }

    fn decide(&mut self, link: LinkType, wire_len: u32, frame: &mut [u8]) -> Split {
        let cut = self.cut(link, wire_len, frame);
        let place = cut.ok().and_then(|cut| self.store.choose(&mut self.ring, (frame.len() - cut) as u32));
        let (cut, place) = match (cut, place) {
            (Ok(cut), Some(place)) => (cut, place),
            _ if is_tagged(frame) => self.cut_tagged(link, wire_len, frame),
            (cut, _) => {
                *match cut {
                    Ok(_) => &mut self.counts.occupied,
                    Err(Unsplit::TooShort) => &mut self.counts.too_short,
                    Err(Unsplit::Other) => &mut self.counts.other,
                } += 1;
                return Split::Whole;
            }
        };
        self.counts.evicted += u64::from(place.evicts);
        if cut < frame.len() {
            self.store.put(place.slot, place.generation, &frame[cut..]);
            let by = cut as i32 + TAG_BYTES as i32 - frame.len() as i32;
            let fits = by == 0 || !self.options.shorten || lengths::change(link, frame, frame.len(), by);
            debug_assert!(fits, "it was tried on a copy");
        }
        self.counts.splits += 1;
        let whole_len = wire_len.max(frame.len() as u32);
        let tag = Tag { slot: place.slot, generation: place.generation, whole_len }.write(self.options.secret);
        Split::Head { len: cut, tag }
    }

    /// Returns the place to cut at, or why the packet goes whole.
    fn cut(&self, link: LinkType, wire_len: u32, frame: &[u8]) -> Result<usize, Unsplit> {
        let keep = self.options.keep;
        if frame.len() <= keep + TAG_BYTES {
            return Err(Unsplit::TooShort);
        }
        let headers = plain(link, wire_len, frame).filter(|headers| usize::from(headers.payload_offset) <= keep);
        let payload_end = headers.map(|headers| u32::from(headers.payload_offset) + headers.payload_len);
        // What is behind the datagram, and what a length field has no room for, could not be put back where it was.
        let fits = payload_end.is_some_and(|end| !self.options.shorten || end as usize == frame.len());
        if !fits || frame.len() - keep > PAYLOAD_MAX || self.options.shorten && !can_shorten(link, frame, keep) {
            return Err(Unsplit::Other);
        }
        Ok(keep)
    }

    /// Chooses where to cut a packet that is not split for its length and ends like a tag. The function must see no such end but ours. So the
    /// packet's last bytes are parked, and a tag of ours takes their place: the packet keeps its length. If these bytes may be headers, the
    /// tag comes behind them.
    fn cut_tagged(&mut self, link: LinkType, wire_len: u32, frame: &[u8]) -> (usize, Place) {
        let cut = frame.len() - TAG_BYTES;
        let can_park = plain(link, wire_len, frame).is_some_and(|headers| usize::from(headers.payload_offset) <= cut);
        let place = if can_park { self.store.choose(&mut self.ring, TAG_BYTES as u32) } else { None };
        match place {
            Some(place) => (cut, place),
            None => (frame.len(), self.ring.take_by_force(0)),
        }
    }

    /// Asks for the payload of a frame that has come back. Stores on other machines take a while to answer, so ask for those of a burst
    /// before the first is [joined](Self::join).
    pub fn ask(&mut self, frame: &[u8]) {
        if let End::Tag(tag, Wish::Join | Wish::Keep) = Tag::read(frame, self.options.secret)
            && let Look::Parked(len) = self.ring.look(tag.slot, tag.generation)
        {
            self.store.ask(tag.slot, tag.generation, len);
        }
    }

    /// Joins a frame that has come back with its payload, into `whole`, which is emptied first. Waits for a store to answer, at most for its
    /// timeout.
    pub fn join(&mut self, link: LinkType, frame: &[u8], whole: &mut Vec<u8>) -> Joined {
        let (tag, wish) = match Tag::read(frame, self.options.secret) {
            End::Plain => {
                self.counts.plain += 1;
                return Joined::Plain;
            }
            End::Damaged => {
                self.counts.damaged += 1;
                return Joined::Gone;
            }
            End::Tag(tag, wish) => (tag, wish),
        };
        let len = match self.ring.look(tag.slot, tag.generation) {
            Look::Parked(len) => len,
            Look::Gone => {
                self.counts.missed += 1;
                return Joined::Gone;
            }
            Look::Late => {
                self.counts.late += 1;
                return Joined::Gone;
            }
            Look::Never => {
                self.counts.wrong_generation += 1;
                return Joined::Gone;
            }
        };
        if wish == Wish::Release {
            self.ring.free(tag.slot);
            self.counts.released += 1;
            return Joined::Gone;
        }
        let head = &frame[..frame.len() - TAG_BYTES];
        whole.clear();
        whole.extend_from_slice(head);
        if !self.store.get(tag.slot, tag.generation, len, whole) {
            // The store counts it.
            self.ring.free(tag.slot);
            return Joined::Gone;
        }
        // Nothing has changed if the tag has taken the payload's place.
        let by = len as i32 - TAG_BYTES as i32;
        if self.options.shorten && len > 0 && by != 0 && !lengths::change(link, whole, 0, by) {
            self.ring.free(tag.slot);
            self.counts.unfit += 1;
            return Joined::Gone;
        }
        match wish {
            Wish::Keep => self.counts.copies += 1,
            Wish::Join | Wish::Release => {
                self.ring.free(tag.slot);
                self.counts.joins += 1;
            }
        }
        Joined::Whole
    }

    /// Lets the payload of a header go that will not come back. Does nothing to other frames.
    pub fn release(&mut self, frame: &[u8]) {
        if let End::Tag(tag, _) = Tag::read(frame, self.options.secret)
            && let Look::Parked(_) = self.ring.look(tag.slot, tag.generation)
        {
            self.ring.free(tag.slot);
            self.counts.released += 1;
        }
    }

    /// Looks after stores that don't answer. Call it when there is nothing else to do.
    pub fn tend(&mut self) {
        self.store.tend();
    }

    /// The stores that don't answer now, by address.
    #[must_use]
    pub fn silent(&self) -> Vec<String> {
        self.store.silent()
    }

    #[cfg(test)]
    pub(crate) fn set_generation(&mut self, generation: u16) {
        self.ring.set_generation(generation);
    }
}

/// The headers of a packet behind which there is nothing that a function of headers reads: TCP or UDP, neither a fragment nor a tunnel.
fn plain(link: LinkType, wire_len: u32, frame: &[u8]) -> Option<Headers> {
    parse(link, frame, wire_len, 0).ok().filter(|headers| {
        headers.fragment == Fragment::Whole
            && headers.tunnel.is_none()
            && matches!(headers.transport, Transport::Tcp(_) | Transport::Udp { .. })
    })
}

/// True if the lengths of a frame can be shortened and restored.
fn can_shorten(link: LinkType, frame: &[u8], keep: usize) -> bool {
    let mut head = [0; KEEP_MAX];
    let head = &mut head[..keep];
    head.copy_from_slice(&frame[..keep]);
    let by = keep as i32 + TAG_BYTES as i32 - frame.len() as i32;
    lengths::change(link, head, frame.len(), by)
}

#[cfg(test)]
mod tests;
