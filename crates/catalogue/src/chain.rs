//! `chain` of the catalogue: reads the configuration of a chain and of each of its functions.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::EngineError;
use functions::chain::{AnyFunction, Chain, LongChain, Make, SHORT};
use functions::{Catalogued, Visitor};
use nf::{Description, Function, Link};
use port::{Fate, Packet, Queue};
use serde::Deserialize;
use toml::Table;

use crate::config::{ConfigError, Settings, nearest};
use crate::explained::explain_one;
use crate::{Decided, Explained, Loaded, Program};

/// The description of chains.
pub(crate) const DESCRIPTION: Description = AnyFunction::DESCRIPTION;

/// The configuration of a chain; under other keys, those of its functions.
#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    functions: Vec<String>,
    #[serde(default)]
    backwards: Vec<u16>,
    #[serde(flatten)]
    parts: BTreeMap<String, toml::Value>,
}

/// Makes a function from its part of the settings.
struct FromSettings(Settings);

impl Make for FromSettings {
    type Error = ConfigError;

    fn make<N: Catalogued>(&mut self) -> Result<N, ConfigError> {
        self.0.read::<N::Config>(&N::DESCRIPTION).map(N::from_config)
    }
}

/// The one function of a chain of one, which is run as it is.
struct Alone<'s> {
    name: &'s str,
    settings: &'s Settings,
    made: Option<Result<Box<dyn Program>, ConfigError>>,
}

impl Visitor for Alone<'_> {
    fn visit<N: Catalogued>(&mut self) {
        if N::DESCRIPTION.name == self.name {
            let config = self.settings.read::<N::Config>(&N::DESCRIPTION);
            self.made = Some(config.map(|config| boxed(N::from_config(config))));
        }
    }
}

fn boxed<N: Function>(nf: N) -> Box<dyn Program> {
    Box::new(Loaded(Arc::new(nf)))
}

/// A function of a chain by itself, and its name in the chain.
pub type Part = (String, Box<dyn Program>);

/// Each function of a chain by itself, with its name in the chain.
///
/// # Errors
/// As for the chain.
pub fn parts(settings: &Settings) -> Result<Vec<Part>, ConfigError> {
    // What is wrong with the chain is said about the chain.
    load(settings)?;
    let Config { functions, parts, .. } = settings.read(&DESCRIPTION)?;
    let mut seen = BTreeMap::<&str, usize>::new();
    let part = |name: &String| {
        let key =
            key_of(name, seen.entry(AnyFunction::NAMES.iter().find(|known| known == &name).copied()?).or_default());
        let table = parts.get(&key).and_then(toml::Value::as_table).cloned().unwrap_or_default();
        let own = Settings::from_table(&settings.place_of(&key), &table);
        let mut only = Alone { name, settings: &own, made: None };
        functions::each(&mut only);
        only.made.map(|made| made.map(|made| (key, made)))
    };
    functions.iter().filter_map(part).collect()
}

/// One packet's steps in a chain: the name of each function that it reaches, and its step there.
pub type Way = Vec<(String, Explained)>;

/// Runs the functions of a chain one behind another over the packets before number `number`, counted from 0, and takes the steps of that one
/// apart. `None` if there are fewer packets.
///
/// # Errors
/// Errors of the port.
///
/// # Panics
/// If the settings are not those of a chain, which [`parts`] checks.
pub fn explain(settings: &Settings, queue: &mut dyn Queue, number: u64) -> Result<Option<Way>, EngineError> {
    let Config { backwards, .. } = settings.read(&DESCRIPTION).expect("it was read before");
    let all = parts(settings).expect("it was read before");
    let mut steppers: Vec<_> = all.iter().map(|(name, program)| (name, program.stepper())).collect();
    let is_backwards = |packet: &Packet| backwards.contains(&packet.interface);
    explain_one(
        &mut steppers,
        queue,
        number,
        |steppers, packet, bytes| {
            let (mut now, mut bytes) = (packet, bytes.to_vec());
            for (_, stepper) in in_order(steppers, is_backwards(&packet)) {
                let Some((after, sent)) = stepper.step(Packet { fate: Fate::default(), ..now }, &bytes) else { break };
                (now, bytes) = (after, sent.to_vec());
            }
        },
        |steppers, packet, bytes| {
            let (mut now, mut bytes, mut way) = (packet, bytes.to_vec(), Way::new());
            for (name, stepper) in in_order(steppers, is_backwards(&packet)) {
                let explained = stepper.explain(Packet { fate: Fate::default(), ..now }, &bytes);
                (now, bytes) = (explained.packet, explained.after.clone());
                let is_last = explained.decided != Decided::Forwarded;
                way.push(((*name).clone(), explained));
                if is_last {
                    break;
                }
            }
            way
        },
    )
}

/// The functions in the order in which a packet meets them.
fn in_order<T>(all: &mut [T], backwards: bool) -> Box<dyn Iterator<Item = &mut T> + '_> {
    if backwards { Box::new(all.iter_mut().rev()) } else { Box::new(all.iter_mut()) }
}

/// The name of a function in a chain that has had it so often.
fn key_of(name: &str, count: &mut usize) -> String {
    *count += 1;
    if *count == 1 { name.to_owned() } else { format!("{name}-{count}") }
}

/// Builds a chain.
pub(crate) fn load(settings: &Settings) -> Result<Box<dyn Program>, ConfigError> {
    let Config { functions, backwards, mut parts } = settings.read(&DESCRIPTION)?;
    if functions.is_empty() {
        return Err(settings.error(format!(
            "a chain needs `functions`, such as functions = [\"firewall\", \"nat\"]; there are {}",
            AnyFunction::NAMES.join(", ")
        )));
    }
    let mut alone = None;
    let (mut links, mut seen) = (Vec::new(), BTreeMap::<&str, usize>::new());
    for name in &functions {
        let key = key_of(name, seen.entry(name).or_default());
        let table = match parts.remove(&key) {
            Some(toml::Value::Table(table)) => table,
            Some(_) => return Err(settings.error(format!("`{key}` must be a table: [{key}]"))),
            None => Table::new(),
        };
        let own = Settings::from_table(&settings.place_of(&key), &table);
        if functions.len() == 1 && AnyFunction::NAMES.contains(&&**name) {
            let mut only = Alone { name, settings: &own, made: None };
            functions::each(&mut only);
            alone = only.made.transpose()?;
        }
        let link = AnyFunction::named(name, &mut FromSettings(own))?.ok_or_else(|| {
            let guess = nearest(name, AnyFunction::NAMES.into_iter());
            let guess = guess.map(|guess| format!("; did you mean `{guess}`?")).unwrap_or_default();
            settings.error(format!(
                "`{name}` can't be in a chain{guess} (functions of chains: {})",
                AnyFunction::NAMES.join(", ")
            ))
        })?;
        links.push((key, link));
    }
    if let Some(unknown) = parts.keys().next() {
        let names: Vec<&str> =
            ["functions", "backwards"].into_iter().chain(links.iter().map(|(key, _)| &**key)).collect();
        let guess = nearest(unknown, names.iter().copied()).map(|guess| format!("; did you mean `{guess}`?"));
        return Err(settings.error(format!(
            "`{unknown}` is neither a key of chain nor a function in it{} (known here: {})",
            guess.unwrap_or_default(),
            names.join(", ")
        )));
    }
    if let Some(alone) = alone {
        return Ok(alone);
    }
    let fits = Chain::words(links.iter().map(|(_, link)| link), &backwards) <= SHORT;
    let error = |message| settings.error(message);
    Ok(match fits {
        true => boxed(Chain::new(links, &backwards).map_err(error)?),
        false => boxed(LongChain::new(links, &backwards).map_err(error)?),
    })
}
