//! A function over streams that writes down what it hears.

use functions::streams::{Direction, Hearing, STREAM_KEYS, Said, Session, StreamFunction, Tallies};
use nf::{Description, Flow, Report, Sharing};
use packet::{FiveTuple, protocol};

use super::transcript::{Event, Transcripts};

/// Writes down what the sides of TCP sessions say. It runs on one core, since it numbers sessions in their order.
#[derive(Clone, Debug)]
pub(super) struct Follow {
    transcripts: Transcripts,
}

/// The number of a session's transcript; `None` for sessions that are not TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Followed(Option<u64>);

impl Flow for Followed {}

impl Follow {
    pub(super) const fn new(transcripts: Transcripts) -> Self {
        Self { transcripts }
    }
}

impl StreamFunction for Follow {
    type Flow = Followed;

    const DESCRIPTION: Description = Description {
        name: "streams",
        summary: "writes what both sides of each TCP session say",
        state: "the number of the session",
        sharing: Sharing::Streams,
        keys: &STREAM_KEYS,
        drop_reasons: &[],
        recipes: &[],
    };

    fn open(&self, session: &Session) -> Followed {
        Followed((session.tuple.protocol() == protocol::TCP).then(|| self.transcripts.begin(session)))
    }

    fn hear(&self, cx: &mut Hearing<'_>, followed: &mut Followed, said: Said<'_>) {
        let Some(number) = followed.0 else { return cx.enough_of_both() };
        let side = usize::from(said.direction() == Direction::Reply);
        match said {
            Said::Data(_, bytes) => self.transcripts.write(number, side, bytes),
            Said::Gap(_, gap) => self.transcripts.note(number, side, Event::Gap(gap)),
            Said::Deviation(_, deviation) => self.transcripts.note(number, side, Event::Deviation(deviation)),
            Said::End(_) => self.transcripts.note(number, side, Event::End),
            Said::Datagram(..) => {}
        }
    }

    fn close(&self, _: &mut Hearing<'_>, followed: &mut Followed) {
        followed.0.into_iter().for_each(|number| self.transcripts.end(number));
    }

    /// Hearing what waits in sessions that have not ended is all that the end of the run needs.
    fn report(&self, sessions: &mut dyn Iterator<Item = (FiveTuple, Followed)>, _: &Tallies<'_>) -> Option<Report> {
        sessions.for_each(drop);
        None
    }
}
