//! Builds the DPDK shim for `benches/rte_hash.rs`. Without the feature `dpdk` it does nothing.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    dpdk::build();
}

#[cfg(feature = "dpdk")]
mod dpdk {
    use std::process::Command;

    const SHIM: &str = "benches/dpdk/shim.c";

    /// Compiles the shim with the system library's flags. It is linked into the benches only, so users of the crate don't need DPDK.
    pub(crate) fn build() {
        println!("cargo::rerun-if-changed={SHIM}");
        let mut shim = cc::Build::new();
        shim.file(SHIM).std("c11").opt_level(3).warnings(false).cargo_metadata(false);
        for flag in pkg_config("--cflags").split_whitespace() {
            shim.flag(flag);
        }
        shim.compile("millrace_dpdk_shim");
        let out = std::env::var("OUT_DIR").expect("cargo names the folder");
        println!("cargo::rustc-link-arg-benches={out}/libmillrace_dpdk_shim.a");
        for flag in pkg_config("--libs").split_whitespace() {
            println!("cargo::rustc-link-arg-benches={flag}");
        }
    }

    fn pkg_config(what: &str) -> String {
        let output = Command::new("pkg-config").args([what, "libdpdk"]).output();
        match output {
            Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
            _ => panic!("pkg-config finds no libdpdk; on Debian: apt-get install libdpdk-dev pkg-config"),
        }
    }
}
