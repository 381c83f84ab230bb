//! The place of a program's contexts: in flows, or in state that packet sets share.

use efsm::machine::{KeyField, Target};
use efsm::{Field, Machine};
use nf::PacketSet;

use super::flow::Layout;

/// The place of the contexts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// No stage has contexts.
    Nowhere,
    /// In the flow of this packet set; the stage whose key it is, and where each stage's context lies.
    Flow(PacketSet, usize, Layout),
    /// In state that packet sets share, for this reason.
    Shared(SharedFor),
}

/// Why packet sets share the contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SharedFor {
    Globals,
    OtherKeys,
    NoOwnKey,
    Presets,
    Size,
}

impl SharedFor {
    /// All reasons. Snapshots know them by their place here.
    pub(super) const ALL: [Self; 5] = [Self::Globals, Self::OtherKeys, Self::NoOwnKey, Self::Presets, Self::Size];

    /// Names what they share, for the sentence "packet sets share ...".
    pub(super) const fn what(self) -> &'static str {
        match self {
            Self::Globals => "global registers",
            Self::OtherKeys => "contexts that packets with different keys reach",
            Self::NoOwnKey => "contexts whose key is not a packet's own",
            Self::Presets => "preset contexts",
            Self::Size => "contexts, which are too large for a flow",
        }
    }
}

impl Place {
    pub(super) fn of(machine: &Machine) -> Self {
        let mut stateful = machine.stages.iter().enumerate().filter_map(|(at, stage)| Some((at, stage.keys.as_ref()?)));
        let sets_global = machine
            .stages
            .iter()
            .flat_map(|stage| &stage.rows)
            .any(|row| row.assignments.iter().any(|assignment| matches!(assignment.target, Target::Global(_))));
        if sets_global {
            return Self::Shared(SharedFor::Globals);
        }
        let Some((first, keys)) = stateful.next() else { return Self::Nowhere };
        let last = stateful.clone().next_back().map_or(first, |(at, _)| at);
        if keys.update.is_some() || stateful.any(|(_, other)| other != keys) {
            return Self::Shared(SharedFor::OtherKeys);
        }
        // The key must be that of the packet as it came in.
        let changes_key = machine.stages[..last].iter().flat_map(|stage| &stage.rows).any(|row| {
            row.assignments.iter().any(|assignment| match assignment.target {
                Target::Header(field) => {
                    let is_key = |field: Field| keys.lookup.fields.contains(&KeyField::Header(field));
                    is_key(field) || is_key(field.reversed())
                }
                Target::Meta(_) | Target::Register(_) | Target::Wide(_) | Target::Global(_) => false,
            })
        });
        let has_meta = keys.lookup.fields.iter().any(|field| matches!(field, KeyField::Meta(_)));
        let has_presets = machine.stages.iter().any(|stage| !stage.presets.is_empty());
        if changes_key || has_meta {
            return Self::Shared(SharedFor::NoOwnKey);
        }
        if has_presets {
            return Self::Shared(SharedFor::Presets);
        }
        match Layout::of(machine) {
            Some(layout) => Self::Flow(packet_set(keys.lookup.biflow, &keys.lookup.fields), first, layout),
            None => Self::Shared(SharedFor::Size),
        }
    }
}

/// The packet set with these fields as its key, or one that engines ask the key for.
fn packet_set(biflow: bool, fields: &[KeyField]) -> PacketSet {
    let has = |field| fields.contains(&KeyField::Header(field));
    match (has(Field::IpSrc), has(Field::IpDst), has(Field::L4Src) && has(Field::L4Dst)) {
        (true, true, true) if biflow => PacketSet::SymmetricFiveTuple,
        (true, true, true) => PacketSet::FiveTuple,
        (true, true, false) if !biflow => PacketSet::SourceDestination,
        (true, false, _) => PacketSet::Source,
        (false, true, _) => PacketSet::Destination,
        _ => PacketSet::Initiator,
    }
}
