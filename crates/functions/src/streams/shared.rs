//! Functions over streams whose sessions share state: [`SharedStreamFunction`].

use core::fmt::Debug;

use memory::Memory;
use nf::{Description, Fingerprint, Flow, Reason, Report, Stages, Step, Verdict};
use packet::{FiveTuple, Nanos};

use super::{Direction, Hearing, Portion, Said, Session, StreamFunction, Streams, Tallies, parts};

/// A function over streams whose sessions share state. It is written as a [`StreamFunction`] is; besides, it reaches what sessions share by
/// an [`Access`], and passes conflicts on with `?`. A call may be repeated after a conflict, then with the session's state as it was before.
///
/// What waits at the end of a run is not heard, since that would change what sessions share.
pub trait SharedStreamFunction: Clone + Debug + Send + Sync + 'static {
    /// The state of a session, as plain data.
    type Flow: Flow;
    /// The state that all sessions share.
    type Shared<M: Memory>: Send + 'static;

    /// The name, summary, configuration keys and drop reasons. [`sharing`](Description::sharing) is
    /// [`StreamsShare`](nf::Sharing::StreamsShare).
    const DESCRIPTION: Description;

    /// [`StreamFunction::KEEPS`]; zero if sessions share state.
    const KEEPS: usize = 0;

    /// [`StreamFunction::HOLDS`]
    const HOLDS: usize = 0;

    /// [`StreamFunction::HEARS_UDP`]
    const HEARS_UDP: bool = true;

    /// [`StreamFunction::LISTENS`]
    const LISTENS: bool = true;

    /// [`StreamFunction::REPORTS_CLOSED`]
    const REPORTS_CLOSED: bool = false;

    /// [`StreamFunction::drops`]
    fn drops(&self) -> bool {
        !Self::DESCRIPTION.drop_reasons.is_empty()
    }

    /// [`StreamFunction::counters`]
    fn counters(&self) -> usize {
        0
    }

    /// Creates the initial shared state in `memory`.
    fn shared<M: Memory>(&self, memory: &M) -> Self::Shared<M>;

    /// [`NetworkFunction::fingerprint`](nf::NetworkFunction::fingerprint)
    ///
    /// # Errors
    /// A conflict on shared state.
    fn fingerprint<'a, M: Memory>(
        &self,
        _shared: &'a Self::Shared<M>,
        _tx: &mut M::Tx<'a>,
        _fingerprint: &mut Fingerprint,
    ) -> Step<(), M> {
        Ok(())
    }

    /// Opens a session.
    fn open(&self, session: &Session) -> Self::Flow;

    /// [`StreamFunction::packet`]
    fn packet(&self, _cx: &Hearing<'_>, _flow: &mut Self::Flow, _packet: &Portion) {}

    /// [`StreamFunction::hear_again`]
    fn hear_again(&self, _cx: &mut Hearing<'_>, _flow: &mut Self::Flow, _from: Direction, _offset: u64, _bytes: &[u8]) {
    }

    /// Hears what happens in a session.
    ///
    /// # Errors
    /// A conflict on shared state.
    fn hear<M: Memory>(
        &self,
        cx: &mut Hearing<'_>,
        access: &mut Access<'_, '_, Self, M>,
        flow: &mut Self::Flow,
        said: Said<'_>,
    ) -> Step<(), M>;

    /// Ends a session. Nothing more is heard of it.
    fn close(&self, _cx: &mut Hearing<'_>, _flow: &mut Self::Flow) {}

    /// The report at the end of a run, from the sessions that have not ended yet, from what was counted, and from shared state.
    ///
    /// # Errors
    /// A conflict on shared state.
    fn report<M: Memory>(
        &self,
        _now: Nanos,
        _access: &mut Access<'_, '_, Self, M>,
        _sessions: &mut dyn Iterator<Item = (FiveTuple, Self::Flow)>,
        _tallies: &Tallies<'_>,
    ) -> Step<Option<Report>, M> {
        Ok(None)
    }

    /// [`NetworkFunction::stages`](nf::NetworkFunction::stages) of the network function; none by default.
    fn stages<S: Stages>(_streams: &Streams<Self>, _packets: usize, _stages: &mut S) {}

    /// The verdict on a packet whose session found no room, so that it isn't heard. By default it is dropped if the function [drops](Self::drops) some.
    ///
    /// # Errors
    /// A conflict on shared state.
    fn orphan<M: Memory>(&self, _access: &mut Access<'_, '_, Self, M>) -> Step<Verdict, M> {
        Ok(if self.drops() { Verdict::Drop(Reason::TABLE_FULL) } else { Verdict::forward() })
    }
}

/// Access to what sessions share, in the transaction of a step.
pub struct Access<'x, 'a, F: SharedStreamFunction, M: Memory> {
    /// What sessions share.
    pub shared: &'a F::Shared<M>,
    /// The transaction. Every access takes it.
    pub tx: &'x mut M::Tx<'a>,
}

/// Sessions of a plain function share nothing.
impl<F: StreamFunction> SharedStreamFunction for F {
    type Flow = F::Flow;
    type Shared<M: Memory> = ();

    const DESCRIPTION: Description = F::DESCRIPTION;
    const KEEPS: usize = F::KEEPS;
    const HOLDS: usize = F::HOLDS;
    const LISTENS: bool = F::LISTENS;
    const HEARS_UDP: bool = F::HEARS_UDP;
    const REPORTS_CLOSED: bool = F::REPORTS_CLOSED;

    fn drops(&self) -> bool {
        StreamFunction::drops(self)
    }

    fn counters(&self) -> usize {
        StreamFunction::counters(self)
    }

    fn shared<M: Memory>(&self, _: &M) {}

    fn open(&self, session: &Session) -> F::Flow {
        StreamFunction::open(self, session)
    }

    #[inline]
    fn packet(&self, cx: &Hearing<'_>, flow: &mut F::Flow, packet: &Portion) {
        StreamFunction::packet(self, cx, flow, packet);
    }

    fn hear_again(&self, cx: &mut Hearing<'_>, flow: &mut F::Flow, from: Direction, offset: u64, bytes: &[u8]) {
        StreamFunction::hear_again(self, cx, flow, from, offset, bytes);
    }

    #[inline]
    fn hear<M: Memory>(
        &self,
        cx: &mut Hearing<'_>,
        _: &mut Access<'_, '_, Self, M>,
        flow: &mut F::Flow,
        said: Said<'_>,
    ) -> Step<(), M> {
        StreamFunction::hear(self, cx, flow, said);
        Ok(())
    }

    fn close(&self, cx: &mut Hearing<'_>, flow: &mut F::Flow) {
        StreamFunction::close(self, cx, flow);
    }

    fn report<M: Memory>(
        &self,
        _: Nanos,
        _: &mut Access<'_, '_, Self, M>,
        sessions: &mut dyn Iterator<Item = (FiveTuple, F::Flow)>,
        tallies: &Tallies<'_>,
    ) -> Step<Option<Report>, M> {
        Ok(StreamFunction::report(self, sessions, tallies))
    }

    fn stages<S: Stages>(streams: &Streams<Self>, packets: usize, stages: &mut S) {
        parts::stages(streams, packets, stages);
    }
}
