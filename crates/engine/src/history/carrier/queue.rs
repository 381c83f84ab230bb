//! A queue that checks sequenced packets against what the sequencer must have written.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use nf::NetworkFunction;
use packet::{Nanos, Seq};
use port::{Batch, Opened, Port, PortError, Receive, Received, Sides, Stream};

use super::error::{CarrierError, OrderError};
use super::layout::{Carried, Shape, parse};
use super::ring::{Ring, metadata_of};

/// The policy for missing packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// End the input: the replicas would differ from here on.
    Refused,
    /// Let cores recover the records from later packets. The first copy of such a record can't be checked and is trusted; later copies must
    /// be equal.
    Recovered,
}

/// The most packets that may be missing at one place. More means damage, and cores would ask each other long for records that nobody has:
/// the work grows with the square of their number.
const fn gap_max(cores: u64) -> u64 {
    let (asked, rounds) = ((1 << 23) / (cores * cores), 4 * cores);
    if asked > rounds { asked } else { rounds }
}

/// The number of recent gaps that are remembered, to tell late packets from repeated ones.
const GAPS_MAX: usize = 64;

/// A queue that lets sequenced packets through while they are whole, in order, and carry the right records. The first wrong packet ends the
/// input. Gaps [may be allowed](Gaps::Recovered).
///
/// Packets stay as they are, but get the sequencer's numbers and times.
pub struct Sequenced<'a, N: NetworkFunction> {
    inner: Box<dyn Receive + 'a>,
    expected: Ring<N>,
    gaps: Gaps,
    /// Recent gaps: the missing numbers, with the position of the packet after them.
    missing: VecDeque<(Range<u64>, u64)>,
    /// The number of packets so far.
    place: u64,
    now: Nanos,
    /// An error to return after the packets before it were delivered.
    pending: Option<PortError>,
    ended: bool,
}

impl<'a, N: NetworkFunction> Sequenced<'a, N> {
    /// Checks the sequenced packets of `inner`, for `cores` cores that run the function.
    ///
    /// # Panics
    /// As [`Shape::of`].
    #[must_use]
    pub fn new(inner: Box<dyn Receive + 'a>, nf: Arc<N>, cores: usize, gaps: Gaps) -> Self {
        let expected = Ring::new(nf, cores);
        Self {
            inner,
            expected,
            gaps,
            missing: VecDeque::with_capacity(GAPS_MAX),
            place: 0,
            now: Nanos(0),
            pending: None,
            ended: false,
        }
    }

    /// The shape of the history that packets carry.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.expected.shape()
    }

    /// Checks a packet against what must come next.
    fn check(&mut self, batch: &Batch, index: usize) -> Result<(Seq, Nanos), OrderError> {
        let (next, place) = (self.expected.next(), self.place);
        let fault = |error| OrderError::Packet { place, error };
        let (packet, bytes) = batch.packet(index);
        let carried = parse(packet.link, bytes, self.shape()).map_err(fault)?;
        if carried.seq != next {
            if self.gaps == Gaps::Refused
                || carried.seq < next
                || carried.seq.0 - next.0 > gap_max(self.shape().cores() as u64)
            {
                return Err(self.out_of_order(batch, index, carried.seq));
            }
            self.check_behind_gap(&carried).map_err(fault)?;
            self.missing.truncate(GAPS_MAX - 1);
            self.missing.push_front((next.0..carried.seq.0, place));
            self.expected.resume(carried.rows, carried.seq);
        } else if carried.rows != self.expected.rows() {
            return Err(fault(self.other_rows(&carried)));
        }
        if carried.time < self.now {
            return Err(fault(CarrierError::Falls { seq: carried.seq }));
        }
        self.now = carried.time;
        self.place += 1;
        self.expected.record(&carried.packet(), carried.bytes);
        Ok((carried.seq, carried.time))
    }

    /// Checks a packet after a gap against the packets before the gap. Nothing is known of those in the gap.
    #[cold]
    fn check_behind_gap(&self, carried: &Carried<'_>) -> Result<(), CarrierError> {
        carried.check_rows()?;
        let next = self.expected.next();
        let function = N::DESCRIPTION.name;
        let fits = |seq: Seq, row: &[u8]| match seq < next {
            true => Carried { rows: self.expected.rows(), ..*carried }.row(seq) == row,
            false => metadata_of::<N::Meta>(row).is_some(),
        };
        for (of, row) in carried.history() {
            if !fits(of, row) {
                return Err(CarrierError::OtherRecord { of, function });
            }
            if of >= next && metadata_of::<N::Meta>(row).is_some_and(|(time, _)| time < self.now) {
                return Err(CarrierError::RowTime { of });
            }
        }
        Ok(())
    }

    /// Why a packet with this number is out of order. The missing one may come later in the batch.
    #[cold]
    fn out_of_order(&self, batch: &Batch, index: usize, seq: Seq) -> OrderError {
        let (first, place) = (self.expected.next(), self.place);
        if let Some((gap, place)) = self.missing.iter().find(|(gap, _)| gap.contains(&seq.0)) {
            return OrderError::Reordered { place: *place, late: seq, early: Seq(gap.end) };
        }
        if seq < first {
            return OrderError::Repeated { place, seq };
        }
        if self.gaps == Gaps::Recovered {
            return OrderError::WideGap { place, first, next: seq };
        }
        let later = (index + 1..batch.len()).any(|index| {
            let (packet, bytes) = batch.packet(index);
            parse(packet.link, bytes, self.shape()).is_ok_and(|carried| carried.seq == first)
        });
        match later {
            true => OrderError::Reordered { place, late: first, early: seq },
            false => OrderError::Gap { place, first, next: seq },
        }
    }

    /// The first error in rows that are not the expected ones.
    #[cold]
    fn other_rows(&self, carried: &Carried<'_>) -> CarrierError {
        if let Err(error) = carried.check_rows() {
            return error;
        }
        let expected = Carried { rows: self.expected.rows(), ..*carried };
        let differs = carried.history().find(|(seq, row)| *row != expected.row(*seq));
        let function = N::DESCRIPTION.name;
        // Rows without a packet are zero in both.
        differs
            .map_or(CarrierError::EarlyRow { seq: carried.seq }, |(of, _)| CarrierError::OtherRecord { of, function })
    }
}

impl<N: NetworkFunction> Receive for Sequenced<'_, N> {
    fn receive(&mut self, batch: &mut Batch) -> Result<Received, PortError> {
        if let Some(error) = self.pending.take() {
            batch.clear();
            return Err(error);
        }
        if self.ended {
            batch.clear();
            return Ok(Received::End);
        }
        let received = self.inner.receive(batch)?;
        for index in 0..batch.len() {
            match self.check(batch, index) {
                Ok((seq, time)) => {
                    let packet = &mut batch.packets_mut()[index];
                    (packet.seq, packet.time) = (seq, time);
                }
                Err(error) => {
                    self.ended = true;
                    batch.truncate(index);
                    let error = PortError::Unfit(Box::new(error));
                    if index == 0 {
                        return Err(error);
                    }
                    self.pending = Some(error);
                    break;
                }
            }
        }
        Ok(received)
    }

    port::forward_receive!(inner);
}

/// A port with one stream of [sequenced](Sequenced) packets.
pub struct SequencedPort<'a, N: NetworkFunction> {
    inner: &'a mut dyn Port,
    nf: Arc<N>,
    cores: usize,
    gaps: Gaps,
}

impl<'a, N: NetworkFunction> SequencedPort<'a, N> {
    /// The sequenced packets of `inner`, for `cores` cores that run the function.
    #[must_use]
    pub fn new(inner: &'a mut dyn Port, nf: Arc<N>, cores: usize, gaps: Gaps) -> Self {
        Self { inner, nf, cores, gaps }
    }

    /// The shape of the history that packets carry.
    ///
    /// # Panics
    /// As [`Shape::of`].
    #[must_use]
    pub fn shape(&self) -> Shape {
        Shape::of::<N>(self.cores)
    }
}

impl<N: NetworkFunction> Port for SequencedPort<'_, N> {
    /// Opens the stream.
    ///
    /// # Errors
    /// The errors of the inner port; [`PortError::Queues`] if that port has several queues.
    fn open(&mut self, cores: usize) -> Result<Opened<'_>, PortError> {
        match self.inner.open(cores)? {
            Opened::Stream(Stream { input, output, order }) => {
                let input = Box::new(Sequenced::new(input, Arc::clone(&self.nf), self.cores, self.gaps));
                Ok(Opened::Stream(Stream { input, output, order }))
            }
            Opened::Queues(queues) => Err(PortError::Queues { have: queues.len(), want: 1 }),
            Opened::Sequenced(queues) => Err(PortError::Queues { have: queues.len(), want: 1 }),
        }
    }

    fn sides(&self) -> Sides {
        self.inner.sides()
    }
}
