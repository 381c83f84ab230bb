//! What a wrapper of a port remembers about the packets of a batch from receive to transmit: [`Gathered`].

use std::ops::Range;

use packet::Seq;

/// Packets of a batch that were gathered from several, and by how much packet numbers were lowered because of that. It travels with the
/// batch, and with all batches that cores make of it. For wrappers of ports; everyone else leaves it alone.
#[derive(Debug, Default)]
pub struct Gathered {
    /// From this packet on, the port's own numbers are larger by this much.
    lowered: Vec<(Seq, u64)>,
    /// Gathered packets, with the place of their words.
    packets: Vec<(Seq, Range<usize>)>,
    words: Vec<u16>,
}

impl Gathered {
    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.lowered.clear();
        self.packets.clear();
        self.words.clear();
    }

    /// True if nothing is remembered.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.lowered.is_empty() && self.packets.is_empty()
    }

    /// True if no packet was gathered.
    #[inline]
    #[must_use]
    pub const fn has_no_packets(&self) -> bool {
        self.packets.is_empty()
    }

    /// Remembers that the numbers from `seq` on were lowered by `by`. Call it in order of numbers.
    pub fn lower(&mut self, seq: Seq, by: u64) {
        debug_assert!(self.lowered.last().is_none_or(|(last, _)| *last <= seq), "in order of numbers");
        self.lowered.push((seq, by));
    }

    /// Remembers words about a gathered packet. Call it in order of numbers.
    pub fn push(&mut self, seq: Seq, words: &[u16]) {
        debug_assert!(self.packets.last().is_none_or(|(last, _)| *last < seq), "in order of numbers");
        let start = self.words.len();
        self.words.extend_from_slice(words);
        self.packets.push((seq, start..self.words.len()));
    }

    /// The port's own number of a packet.
    #[must_use]
    pub fn own_number(&self, seq: Seq) -> Seq {
        let at = self.lowered.partition_point(|(from, _)| *from <= seq);
        Seq(seq.0 + at.checked_sub(1).map_or(0, |at| self.lowered[at].1))
    }

    /// The words about a gathered packet; `None` if it was not gathered.
    #[must_use]
    pub fn words(&self, seq: Seq) -> Option<&[u16]> {
        let at = self.packets.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
        Some(&self.words[self.packets[at].1.clone()])
    }

    /// Takes over what `other` remembers.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.lowered.clone_from(&other.lowered);
        self.packets.clone_from(&other.packets);
        self.words.clone_from(&other.words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_words() {
        let mut gathered = Gathered::default();
        assert!(gathered.is_empty());
        assert_eq!((gathered.own_number(Seq(5)), gathered.words(Seq(5))), (Seq(5), None));
        gathered.lower(Seq(4), 1);
        gathered.lower(Seq(6), 3);
        gathered.push(Seq(6), &[7, 8]);
        gathered.push(Seq(9), &[]);
        let mut copy = Gathered::default();
        copy.copy_from(&gathered);
        assert!(!copy.is_empty() && !copy.has_no_packets());
        assert_eq!([3, 4, 5, 6, 100].map(|seq| copy.own_number(Seq(seq)).0), [3, 5, 6, 9, 103]);
        assert_eq!(
            (copy.words(Seq(6)), copy.words(Seq(9)), copy.words(Seq(7))),
            (Some(&[7, 8][..]), Some(&[][..]), None)
        );
        copy.clear();
        assert!(copy.is_empty());
    }
}
