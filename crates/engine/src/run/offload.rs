//! Which functions can have connections taken ahead of them, and under which engines.

use std::any::TypeId;

use flow::{Ageing, Eviction};
use nf::{KeyOf, NetworkFunction, Sharing};
use packet::FiveTuple;

use crate::kind::EngineKind;
use crate::offload::Offload;
use crate::placement::tables::Tables;

impl Offload {
    /// Checks that this function can have connections taken ahead of it, under this engine and with these tables.
    ///
    /// # Errors
    /// The reason why not, as a sentence.
    pub fn accepts<N: NetworkFunction>(kind: EngineKind, nf: &N, tables: &Tables) -> Result<(), String> {
        let name = nf.description().name;
        if !N::DECIDES
            || nf.description().sharing != Sharing::Nothing
            || N::COUNTS
            || TypeId::of::<KeyOf<N>>() != TypeId::of::<FiveTuple>()
        {
            return Err(format!(
                "{name} never says that a connection is decided, so nothing can be taken ahead of it; firewall and conntrack do"
            ));
        }
        if !matches!(kind, EngineKind::Sequential | EngineKind::Rss) {
            return Err(format!(
                "{kind} has more than one core step the packets of a connection, or moves it between cores, so packets can't be taken ahead \
                 of it; use sequential or rss"
            ));
        }
        let Tables { ageing, eviction, early_drop_percent, per_source, .. } = *tables;
        let is_by_age = ageing == Ageing::Wheel && matches!(eviction, Eviction::OldestUnprotected | Eviction::None);
        if !is_by_age || early_drop_percent.is_some() || per_source.is_some() {
            return Err(
                "with these options of flow tables it depends on each packet which flows end or are refused, so none can be taken ahead of \
                 the function; leave out --ageing, --eviction, --early-drop and --per-source"
                    .into(),
            );
        }
        Ok(())
    }
}
