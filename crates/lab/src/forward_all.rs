//! A function that does nothing. Its time per packet is the dispatch cost.

use nf::{Description, NetworkFunction, Opened, PacketSet, Sharing, Sizing, Step, Verdict};
use packet::{FiveTuple, Headers};

/// Forwards every packet.
pub(crate) struct ForwardAll;

/// No packet contributes anything.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Never {}

impl nf::Meta for Never {
    type Key = FiveTuple;
    const RECORD_BYTES: usize = 0;
    fn key(&self) -> FiveTuple {
        match *self {}
    }
    fn write(&self, _: &mut [u8]) {
        match *self {}
    }
    fn read(_: &[u8]) -> Option<Self> {
        None
    }
}

impl NetworkFunction for ForwardAll {
    type Meta = Never;
    type Flow = ();
    type Shared<M: memory::Memory> = ();
    type Speed = nf::Plain;

    const DESCRIPTION: Description = Description {
        name: "pass",
        summary: "forwards every packet",
        state: "none",
        sharing: Sharing::Nothing,
        keys: &[],
        drop_reasons: &[],
        recipes: &[],
    };

    fn packet_set(&self) -> PacketSet {
        PacketSet::None
    }

    fn sizing(&self) -> Sizing {
        Sizing { flows: 0, flows_v6: 0 }
    }

    fn shared<M: memory::Memory>(&self, _: &M) {}

    fn meta(&self, _: &Headers, _frame: &[u8]) -> Option<Never> {
        None
    }

    fn open<M: memory::Memory>(&self, _: &mut nf::Context<'_, Self, M>, meta: &Never) -> Step<Opened<()>, M> {
        match *meta {}
    }

    fn packet<M: memory::Memory>(
        &self,
        _: &mut nf::Context<'_, Self, M>,
        (): &mut (),
        meta: &Never,
    ) -> Step<Verdict, M> {
        match *meta {}
    }
}
