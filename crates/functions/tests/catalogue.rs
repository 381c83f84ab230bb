//! What the catalogue says of a configuration file is what reading one does.

use millrace_functions::{
    anti_ddos, app_classifier, asset_monitor, bridge, ddos, dns_tunnel, flow_buffer, heavy_hitter, ipsec,
    load_balancer, policer, port_knock, port_scan, sidejacking, web_cache,
};
use nf::{Description, NetworkFunction};
use serde::de::DeserializeOwned;

/// The defaults that the catalogue prints make up the default configuration, and no key is missing from it.
fn defaults_are_true<C: DeserializeOwned + Default + PartialEq + std::fmt::Debug>(description: &Description) {
    let lines: Vec<String> = description.keys.iter().map(|key| format!("{} = {}\n", key.name, key.default)).collect();
    let read: C = toml::from_str(&lines.concat()).unwrap_or_else(|error| panic!("{}: {error}", description.name));
    assert_eq!(read, C::default(), "{}", description.name);
    let none: C = toml::from_str("").expect("an empty file is a configuration");
    assert_eq!(none, C::default());
    let Err(error) = toml::from_str::<C>("no_such_key = 1") else { panic!("{}: unknown key", description.name) };
    for key in description.keys {
        let error = error.to_string();
        assert!(
            error.contains(&format!("`{}`", key.name)),
            "{}: {} is not listed: {error}",
            description.name,
            key.name
        );
    }
    let known = error.to_string().matches('`').count() / 2 - 1;
    assert!(known >= description.keys.len(), "{}: {error}", description.name);
}

#[test]
fn catalogue_defaults() {
    defaults_are_true::<anti_ddos::Config>(&anti_ddos::AntiDdos::DESCRIPTION);
    defaults_are_true::<bridge::Config>(&bridge::Bridge::DESCRIPTION);
    defaults_are_true::<ddos::Config>(&ddos::Ddos::DESCRIPTION);
    defaults_are_true::<heavy_hitter::Config>(&heavy_hitter::HeavyHitter::DESCRIPTION);
    defaults_are_true::<ipsec::Config>(&ipsec::Ipsec::DESCRIPTION);
    defaults_are_true::<load_balancer::Config>(&load_balancer::LoadBalancer::DESCRIPTION);
    defaults_are_true::<policer::Config>(&policer::Policer::DESCRIPTION);
    defaults_are_true::<port_knock::Config>(&port_knock::PortKnock::DESCRIPTION);
    defaults_are_true::<port_scan::Config>(&port_scan::PortScan::DESCRIPTION);
    defaults_are_true::<dns_tunnel::Config>(&dns_tunnel::DnsTunnel::DESCRIPTION);
    defaults_are_true::<sidejacking::Config>(&sidejacking::Sidejacking::DESCRIPTION);
    defaults_are_true::<web_cache::Config>(&web_cache::WebCache::DESCRIPTION);
    defaults_are_true::<app_classifier::Config>(&<app_classifier::AppClassifier>::DESCRIPTION);
    defaults_are_true::<flow_buffer::Config>(&flow_buffer::FlowBuffer::DESCRIPTION);
    defaults_are_true::<asset_monitor::Config>(&asset_monitor::AssetMonitor::DESCRIPTION);
}

#[test]
fn errors_say_what_is_right() {
    let error = |text: &str| toml::from_str::<port_knock::Config>(text).unwrap_err().to_string();
    assert!(error("ports = []").contains("one to eight"));
    assert!(error("\nports = [1, 2, 3, 4, 5, 6, 7, 8, 9]").contains("line 2, column 9"));
    assert!(error("ports = [7000, 0]").contains("port 0"));
    assert!(error("ports = [70000]").contains("line 1, column"));
    let error = |text: &str| toml::from_str::<policer::Config>(text).unwrap_err().to_string();
    assert!(error("per = \"host\"").contains("five-tuple"));
    assert!(error("burst = 0").contains("from 1 to 1000000000"));
}
