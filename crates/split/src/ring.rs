//! The ring of slots that payloads are parked in: which are in use, and whose they are.

/// A ring of slots, used one after the other. When it has come round to a slot whose payload is still parked, the payload stays for some
/// rounds, and is then given up: the oldest goes first.
#[derive(Debug)]
pub(crate) struct Ring {
    slots: Vec<Slot>,
    next: u32,
    /// How often the ring may come round to a payload; at the last time it is given up.
    rounds: u8,
    parked: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Number of its last payload, modulo 2^16.
    generation: u16,
    /// Number of rounds until the payload is given up; 0 if none is parked.
    rounds: u8,
    len: u32,
}

/// A slot that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) slot: u32,
    pub(crate) generation: u16,
    /// True if another payload was given up for it.
    pub(crate) evicts: bool,
}

/// What a slot says to a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The payload is parked, and has so many bytes.
    Parked(u32),
    /// It was joined or let go before.
    Gone,
    /// Another payload has taken its slot.
    Late,
    /// The slot never had this generation.
    Never,
}

impl Ring {
    pub(crate) fn new(slots: u32, rounds: u8) -> Self {
        Self { slots: vec![Slot::default(); slots as usize], next: 0, rounds: rounds.max(1), parked: 0 }
    }

    /// Number of the slot that comes next.
    pub(crate) const fn next(&self) -> u32 {
        self.next
    }

    /// Goes past the next slot.
    pub(crate) fn skip(&mut self) {
        self.next = if self.next + 1 == self.slots.len() as u32 { 0 } else { self.next + 1 };
    }

    /// Takes the next slot for a payload of `len` bytes. `None` if the payload there stays for another round.
    pub(crate) fn take(&mut self, len: u32) -> Option<Place> {
        let slot = &mut self.slots[self.next as usize];
        if slot.rounds > 1 {
            slot.rounds -= 1;
            self.skip();
            return None;
        }
        Some(self.take_by_force(len))
    }

    /// Takes the next slot, whatever is there.
    pub(crate) fn take_by_force(&mut self, len: u32) -> Place {
        let at = self.next;
        self.skip();
        let slot = &mut self.slots[at as usize];
        let evicts = slot.rounds > 0;
        *slot = Slot { generation: slot.generation.wrapping_add(1), rounds: self.rounds, len };
        self.parked += u32::from(!evicts);
        Place { slot: at, generation: slot.generation, evicts }
    }

    /// Looks up a payload.
    pub(crate) fn look(&self, slot: u32, generation: u16) -> Look {
        let Some(slot) = self.slots.get(slot as usize) else { return Look::Never };
        match slot.generation.wrapping_sub(generation) {
            0 if slot.rounds > 0 => Look::Parked(slot.len),
            // Nothing was parked there yet.
            0 if slot.generation == 0 && slot.len == 0 => Look::Never,
            0 => Look::Gone,
            1..0x8000 => Look::Late,
            _ => Look::Never,
        }
    }

    /// Frees the slot of a parked payload.
    pub(crate) fn free(&mut self, slot: u32) {
        if let Some(slot) = self.slots.get_mut(slot as usize)
            && slot.rounds > 0
        {
            slot.rounds = 0;
            self.parked -= 1;
        }
    }

    /// Number of payloads that are parked.
    pub(crate) const fn parked(&self) -> u32 {
        self.parked
    }

    /// Sets the generation of all slots, as if the ring had come round so often.
    #[cfg(test)]
    pub(crate) fn set_generation(&mut self, generation: u16) {
        self.slots.iter_mut().for_each(|slot| slot.generation = generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_after_its_rounds() {
        let mut ring = Ring::new(2, 2);
        let first = ring.take(10).expect("free");
        let second = ring.take(20).expect("free");
        assert_eq!(ring.look(first.slot, first.generation), Look::Parked(10));
        ring.free(second.slot);
        assert_eq!((ring.look(second.slot, second.generation), ring.parked()), (Look::Gone, 1));
        assert_eq!(ring.take(30), None, "the first payload stays for a round");
        assert_eq!(ring.take(30).map(|place| place.evicts), Some(false), "the second is gone");
        let third = ring.take(40).expect("given up at the second round");
        assert!(third.evicts && third.slot == first.slot);
        assert_eq!(ring.look(first.slot, first.generation), Look::Late);
        assert_eq!(ring.look(first.slot, first.generation.wrapping_add(9)), Look::Never);
        assert_eq!((ring.look(7, 0), ring.parked()), (Look::Never, 2));
    }

    #[test]
    fn generations_wrap() {
        let mut ring = Ring::new(1, 1);
        ring.set_generation(u16::MAX);
        let place = ring.take(1).expect("free");
        assert_eq!(place.generation, 0);
        assert_eq!((ring.look(0, 0), ring.look(0, u16::MAX)), (Look::Parked(1), Look::Late));
    }
}
