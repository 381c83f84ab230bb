//! Check of TCP reassembly: whatever segments come, what is told adds up, every byte that is told came in a segment, and limits hold.

use stream::{BLOCK_BYTES, Budget, Event, Limits, Policy, Pool, Segment, Side, Taken};

/// The most blocks of all sides.
const BLOCKS: usize = 12;

/// The longest segment: more than a block holds.
const SEGMENT_MAX: usize = 2 * BLOCK_BYTES;

/// What came in segments: for each place from the first sequence number on, the values that its byte had, all below 16, as bits.
struct Sent {
    base: u32,
    values: Vec<u16>,
}

impl Sent {
    fn at(&self, seq: u32) -> usize {
        seq.wrapping_sub(self.base) as usize
    }

    fn add(&mut self, seq: u32, payload: &[u8]) {
        let at = self.at(seq);
        self.values[at..][..payload.len()].iter_mut().zip(payload).for_each(|(values, byte)| *values |= 1 << byte);
    }

    fn has(&self, seq: u32, byte: u8) -> bool {
        self.values.get(self.at(seq)).is_some_and(|values| byte < 16 && values >> byte & 1 == 1)
    }
}

/// What was told so far.
struct Told {
    bytes: u64,
    gaps: u64,
    /// The sequence number of the next byte.
    next: u32,
    ended: bool,
    /// True once no more is wanted.
    deaf: bool,
    /// Events until no more is wanted.
    wanted: u32,
}

impl Told {
    fn hear(&mut self, event: Event<'_>, sent: &Sent) -> bool {
        let is_again = matches!(event, Event::Again(_));
        assert!(!self.deaf && (!self.ended || is_again), "{event:?} after the last");
        match event {
            Event::Data(bytes) => {
                assert!(!bytes.is_empty());
                for byte in bytes {
                    assert!(sent.has(self.next, *byte), "{byte} at {} never came", self.next);
                    self.next = self.next.wrapping_add(1);
                }
                self.bytes += bytes.len() as u64;
            }
            Event::Gap(gap) => {
                assert!(gap.len > 0);
                self.next = self.next.wrapping_add(gap.len);
                self.gaps += u64::from(gap.len);
            }
            Event::Deviation(deviation) => assert!(deviation.len > 0),
            Event::Again(again) => {
                let behind = self.bytes + self.gaps - again.offset;
                assert!((1..=behind).contains(&(again.bytes.len() as u64)), "{again:?}");
                let first = self.next.wrapping_sub(behind as u32);
                for (at, byte) in (0..).zip(again.bytes) {
                    assert!(sent.has(first.wrapping_add(at), *byte), "{byte} never came again");
                }
            }
            Event::End => self.ended = true,
        }
        self.wanted = self.wanted.saturating_sub(1);
        self.deaf = self.wanted == 0;
        !self.deaf
    }
}

/// Reads the input as a policy, limits, how many events are wanted, and a place to begin; then segments and acknowledgments of seven bytes each.
pub fn stream(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_first_chunk::<6>() else { return };
    let policy = Policy::ALL[usize::from(head[0]) % Policy::ALL.len()];
    let limits =
        Limits { early_bytes: 1 + u32::from(head[1]) * 40, early_blocks: 1 + u16::from(head[2]) % BLOCKS as u16 };
    let wanted = if head[3] == 0 { u32::MAX } else { u32::from(head[3]) };
    let base = u32::from_be_bytes([head[4], head[5], head[4], head[5]]);
    let budget = Budget::new((1 + usize::from(head[3]) % BLOCKS) * BLOCK_BYTES);
    let pool = Pool::new(&budget);
    let mut side = Side::default();
    let mut told = Told { bytes: 0, gaps: 0, next: 0, ended: false, deaf: false, wanted };
    // Segments begin in the first 64 Ki.
    let mut sent = Sent { base, values: vec![0; (1 << 16) + 1 + SEGMENT_MAX] };
    for op in rest.chunks_exact(7) {
        let seq = base.wrapping_add(u32::from(u16::from_be_bytes([op[1], op[2]])));
        let waiting = side.early_bytes();
        if op[0] & 0x80 != 0 {
            side.acknowledged(seq, &pool, &mut |event| told.hear(event, &sent));
        } else {
            let len = usize::from(u16::from_be_bytes([op[3], op[4]])) % SEGMENT_MAX;
            // A few bytes differ from copy to copy.
            let byte = |at: usize| (seq.wrapping_add(at as u32) & 7) as u8 | if at % 16 == 3 { op[5] & 8 } else { 0 };
            let payload: Vec<u8> = (0..len).map(byte).collect();
            let (syn, fin) = (op[0] & 1 != 0, op[0] & 2 != 0);
            let missing = if op[0] & 4 != 0 { u32::from(op[6]) } else { 0 };
            let first = seq.wrapping_add(u32::from(syn));
            sent.add(first, &payload);
            if side.next().is_none() || syn && side.offset() == 0 && waiting == 0 {
                told.next = first;
            }
            let segment = Segment { seq, payload: &payload, missing, syn, fin };
            let was_over = told.ended || told.deaf;
            let taken = side.segment(&segment, &pool, policy, &limits, &mut |event| told.hear(event, &sent));
            assert!(!was_over || taken == Taken::Ignored);
        }
        hold(&side, &told, &pool, &budget, &limits);
    }
    if !(told.ended || told.deaf) {
        ends_as_foreseen(&mut side, &mut told, &pool, &sent);
    }
    side.let_go(&pool);
    assert_eq!((pool.used(), budget.used()), (0, 0));
}

/// What always holds.
fn hold(side: &Side, told: &Told, pool: &Pool, budget: &Budget, limits: &Limits) {
    assert!(side.early_bytes() <= limits.early_bytes);
    assert!(pool.used() <= usize::from(limits.early_blocks) && budget.used() <= budget.bytes());
    assert!(pool.used() * BLOCK_BYTES >= side.early_bytes() as usize);
    assert_eq!(side.offset(), told.bytes + told.gaps);
    assert!(told.deaf || side.has_ended() == told.ended);
    if told.ended || told.deaf {
        assert_eq!(pool.used(), 0, "what nobody wants is given back");
    } else {
        assert!(side.next().is_none_or(|next| next == told.next));
    }
}

/// Looking ahead tells what the end then tells.
fn ends_as_foreseen(side: &mut Side, told: &mut Told, pool: &Pool, sent: &Sent) {
    let note = |all: &mut Vec<Option<u8>>, ends: &mut bool, event: Event<'_>| match event {
        Event::Data(bytes) => all.extend(bytes.iter().copied().map(Some)),
        Event::Gap(gap) => all.extend((0..gap.len).map(|_| None)),
        Event::Deviation(_) | Event::Again(_) => {}
        Event::End => *ends = true,
    };
    told.wanted = u32::MAX;
    let (before, mut foreseen, mut foreseen_end) = (*side, Vec::new(), false);
    side.look_ahead(pool, &mut |event| {
        note(&mut foreseen, &mut foreseen_end, event);
        true
    });
    assert_eq!(*side, before);
    let (mut seen, mut end) = (Vec::new(), false);
    side.end(pool, &mut |event| {
        note(&mut seen, &mut end, event);
        told.hear(event, sent)
    });
    assert_eq!((seen, end), (foreseen, foreseen_end));
    assert_eq!((pool.used(), side.offset()), (0, told.bytes + told.gaps));
}
