//! The functions that a chain of the catalogue may have. Behaviour and choices: `docs/chain.md`.

use nf::ConfigKey;

use crate::anti_ddos::AntiDdos;
use crate::bridge::Bridge;
use crate::conntrack::Conntrack;
use crate::ddos::Ddos;
use crate::firewall::Firewall;
use crate::heavy_hitter::HeavyHitter;
use crate::list::Catalogued;
use crate::load_balancer::LoadBalancer;
use crate::nat::Nat;
use crate::policer::Policer;
use crate::port_knock::PortKnock;
use crate::syn_limit::SynLimit;

nf::chain! {
    /// A function of a chain.
    pub enum AnyFunction, AnyShared: "chain", "runs several functions, one behind another, with one parse and one look-up for all that have the same packet sets", KEYS => {
        Firewall(Firewall),
        Nat(Nat),
        Conntrack(Conntrack),
        Policer(Policer),
        Ddos(Ddos),
        SynLimit(SynLimit),
        HeavyHitter(HeavyHitter),
        PortKnock(PortKnock),
        LoadBalancer(LoadBalancer),
        AntiDdos(AntiDdos),
        Bridge(Bridge),
    }
}

/// A chain of any of these functions, with room for two or three in an entry.
pub type Chain = nf::Chain<AnyFunction, SHORT>;

/// Number of words of an entry of a [`Chain`].
pub const SHORT: usize = 16;

/// A chain of any of these functions, with room for many in an entry.
pub type LongChain = nf::Chain<AnyFunction, 48>;

const KEYS: &[ConfigKey] = &[
    ConfigKey {
        name: "functions",
        default: "[]",
        help: "the functions, first to last, such as [\"firewall\", \"nat\"]; NAME.KEY then sets a key of the function NAME, NAME-2.KEY of the second one of that name",
    },
    ConfigKey {
        name: "backwards",
        default: "[]",
        help: "numbers of the interfaces whose packets go from the last function to the first, as answers do",
    },
];

/// Makes a function of a chain by its name.
pub trait Make {
    /// The error of a configuration.
    type Error;

    /// Reads the configuration of a function and makes it.
    ///
    /// # Errors
    /// The configuration is wrong.
    fn make<N: Catalogued>(&mut self) -> Result<N, Self::Error>;
}

impl AnyFunction {
    /// The names of the functions.
    pub const NAMES: [&str; 11] = [
        "firewall",
        "nat",
        "conntrack",
        "policer",
        "ddos",
        "syn-limit",
        "heavy-hitter",
        "port-knock",
        "load-balancer",
        "anti-ddos",
        "bridge",
    ];

    /// The function of this name; `None` if there is none.
    ///
    /// # Errors
    /// Its configuration is wrong.
    pub fn named<M: Make>(name: &str, make: &mut M) -> Result<Option<Self>, M::Error> {
        Ok(Some(match name {
            "firewall" => Self::Firewall(make.make()?),
            "nat" => Self::Nat(make.make()?),
            "conntrack" => Self::Conntrack(make.make()?),
            "policer" => Self::Policer(make.make()?),
            "ddos" => Self::Ddos(make.make()?),
            "syn-limit" => Self::SynLimit(make.make()?),
            "heavy-hitter" => Self::HeavyHitter(make.make()?),
            "port-knock" => Self::PortKnock(make.make()?),
            "load-balancer" => Self::LoadBalancer(make.make()?),
            "anti-ddos" => Self::AntiDdos(make.make()?),
            "bridge" => Self::Bridge(make.make()?),
            _ => return Ok(None),
        }))
    }
}
