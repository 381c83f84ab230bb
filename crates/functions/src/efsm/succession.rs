//! A program that succeeds another in a run: which contexts stay, and what stands in the way.

use alloc::format;
use alloc::string::String;

use efsm::Machine;
use efsm::machine::Stage;

use super::{Efsm, Place};

impl Efsm {
    /// This program in place of `old`, with the contexts where they are.
    pub(super) fn after(self, old: &Self) -> Result<Self, String> {
        let stages = || old.machine.stages.iter().filter(|stage| stage.keys.is_some());
        let place = match (&old.place, &self.place) {
            (Place::Shared(why), Place::Shared(_) | Place::Flow(..) | Place::Nowhere) => Place::Shared(*why),
            (Place::Flow(_, _, before), Place::Flow(_, _, layout)) => {
                for stage in stages() {
                    let new = keeps(&self.machine, stage)?;
                    if before.span(stage.number) != layout.span(new.number)
                        || before.has_timeouts != layout.has_timeouts
                    {
                        let name = &stage.name;
                        return Err(format!(
                            "the contexts of the stage `{name}` would lie elsewhere in a flow: stages with contexts can only \
                             be added behind the others, and timeouts not where there were none"
                        ));
                    }
                }
                self.place.clone()
            }
            (Place::Nowhere, Place::Nowhere) => Place::Nowhere,
            (Place::Nowhere, Place::Flow(..) | Place::Shared(_)) => {
                return Err("the new program has contexts, and the running one has none".into());
            }
            (Place::Flow(..), Place::Nowhere) => {
                return Err("the new program has no contexts, and the running one has".into());
            }
            (Place::Flow(..), Place::Shared(why)) => {
                let what = why.what();
                return Err(format!("the new program has {what}, and the contexts of the running one are in flows"));
            }
        };
        for stage in stages() {
            keeps(&self.machine, stage)?;
        }
        if self.machine.globals != old.machine.globals {
            return Err("the new program has other global registers, or other first values of them".into());
        }
        Ok(Self { place, ..self })
    }
}

/// The stage of the new program that goes on with the contexts of an old one's.
fn keeps<'a>(new: &'a Machine, old: &Stage) -> Result<&'a Stage, String> {
    let name = &old.name;
    let stage = new.stages.iter().find(|stage| stage.name == *name && stage.keys.is_some());
    let stage = stage.ok_or_else(|| format!("the stage `{name}` has contexts, and is not in the new program"))?;
    let what = match () {
        () if stage.keys != old.keys => "other keys",
        () if stage.contexts != old.contexts => "room for another number of contexts",
        () if !stage.registers.starts_with(&old.registers) => "other registers",
        () if old
            .states
            .iter()
            .any(|(state, number)| stage.states.iter().any(|(other, now)| other == state && now != number)) =>
        {
            "other numbers for states"
        }
        () => return Ok(stage),
    };
    Err(format!("the stage `{name}` has {what} in the new program, so its contexts can't stay"))
}
