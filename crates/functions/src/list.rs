//! The list of all functions. The catalogue, and every test of all functions, use it.

use core::fmt::Debug;

use nf::Function;
use serde::de::DeserializeOwned;

/// A function of the list, with its configuration.
pub trait Catalogued: Function + Clone {
    /// Its configuration. The default is that of an empty file.
    type Config: DeserializeOwned + Default + PartialEq + Debug + 'static;

    /// A test configuration in TOML, small enough that a dozen packets fill its tables.
    const CRAMPED: &'static str;

    /// A test configuration in TOML, small enough that a capture fills its tables.
    const SMALL: &'static str = "";

    /// Creates the function from its configuration.
    fn from_config(config: Self::Config) -> Self;
}

/// An operation on each function of the list.
pub trait Visitor {
    /// Visits one function, given by its type.
    fn visit<N: Catalogued>(&mut self);
}

/// Visits every function that is compiled in, in the order in which the catalogue shows them.
pub fn each(visit: &mut impl Visitor) {
    #[cfg(feature = "firewall")]
    visit.visit::<crate::firewall::Firewall>();
    #[cfg(feature = "nat")]
    visit.visit::<crate::nat::Nat>();
    #[cfg(feature = "conntrack")]
    visit.visit::<crate::conntrack::Conntrack>();
    #[cfg(feature = "policer")]
    visit.visit::<crate::policer::Policer>();
    #[cfg(feature = "ddos")]
    visit.visit::<crate::ddos::Ddos>();
    #[cfg(feature = "syn-limit")]
    visit.visit::<crate::syn_limit::SynLimit>();
    #[cfg(feature = "heavy-hitter")]
    visit.visit::<crate::heavy_hitter::HeavyHitter>();
    #[cfg(feature = "port-knock")]
    visit.visit::<crate::port_knock::PortKnock>();
    #[cfg(feature = "load-balancer")]
    visit.visit::<crate::load_balancer::LoadBalancer>();
    #[cfg(feature = "port-scan")]
    visit.visit::<crate::port_scan::PortScan>();
    #[cfg(feature = "bridge")]
    visit.visit::<crate::bridge::Bridge>();
    #[cfg(feature = "anti-ddos")]
    visit.visit::<crate::anti_ddos::AntiDdos>();
    #[cfg(feature = "ipsec")]
    visit.visit::<crate::ipsec::Ipsec>();
    #[cfg(feature = "dns-tunnel")]
    visit.visit::<crate::dns_tunnel::DnsTunnel>();
    #[cfg(feature = "sidejacking")]
    visit.visit::<crate::streams::Streams<crate::sidejacking::Sidejacking>>();
    #[cfg(feature = "web-cache")]
    visit.visit::<crate::streams::Streams<crate::web_cache::WebCache>>();
    #[cfg(feature = "app-classifier")]
    visit.visit::<crate::streams::Streams<crate::app_classifier::AppClassifier>>();
    #[cfg(feature = "flow-buffer")]
    visit.visit::<crate::streams::Streams<crate::flow_buffer::FlowBuffer>>();
    #[cfg(feature = "asset-monitor")]
    visit.visit::<crate::asset_monitor::AssetMonitor>();
    #[cfg(feature = "identify")]
    visit.visit::<crate::streams::Streams<crate::identify::Identify>>();
    #[cfg(feature = "stream-match")]
    visit.visit::<crate::streams::Streams<crate::stream_match::StreamMatch>>();
    #[cfg(feature = "efsm")]
    visit.visit::<crate::efsm::Efsm>();
    #[cfg(feature = "rules")]
    visit.visit::<crate::rules::Rules>();
}
