//! Questions to a driver by `SIOCETHTOOL`: its name and its offloads. Layouts: `linux/ethtool.h`.

use std::io;

use interface::Probe;

const GET_DRIVER: u32 = 0x03;
const GET_STRINGS: u32 = 0x1b;
const GET_STRING_COUNTS: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
/// The names of features, among the sets of strings.
const FEATURES: u32 = 4;
const NAME_LEN: usize = 32;

/// More features than any kernel has.
const FEATURES_MAX: usize = 512;

/// The driver's name.
pub(super) fn driver(probe: &Probe, interface: &str) -> io::Result<String> {
    /// `struct ethtool_drvinfo`, of which only the driver's name is of interest.
    #[repr(C)]
    struct Driver {
        command: u32,
        name: [u8; 32],
        rest: [u8; 160],
    }
    let mut driver = Driver { command: GET_DRIVER, name: [0; 32], rest: [0; 160] };
    // SAFETY: the command fills in 196 bytes, which the structure has.
    unsafe { probe.ask_driver(interface, &mut driver) }?;
    Ok(text(&driver.name))
}

/// The names of the offloads that are on, such as `rx-lro`.
pub(super) fn offloads(probe: &Probe, interface: &str) -> io::Result<Vec<String>> {
    #[repr(C)]
    struct Counts {
        command: u32,
        reserved: u32,
        sets: u64,
        count: u32,
        padding: u32,
    }
    let mut counts = Counts { command: GET_STRING_COUNTS, reserved: 0, sets: 1 << FEATURES, count: 0, padding: 0 };
    // SAFETY: one set is asked for, so the command fills in one count.
    unsafe { probe.ask_driver(interface, &mut counts) }?;
    let count = counts.count as usize;
    if count > FEATURES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }

    #[repr(C)]
    struct Strings {
        command: u32,
        set: u32,
        count: u32,
        names: [[u8; NAME_LEN]; FEATURES_MAX],
    }
    let mut strings =
        Strings { command: GET_STRINGS, set: FEATURES, count: count as u32, names: [[0; NAME_LEN]; FEATURES_MAX] };
    // SAFETY: the kernel has no more features than it has just told, and there is room for them.
    unsafe { probe.ask_driver(interface, &mut strings) }?;

    /// Thirty-two features: `struct ethtool_get_features_block`.
    #[derive(Clone, Copy, Default)]
    #[repr(C)]
    struct Block {
        available: u32,
        requested: u32,
        active: u32,
        never_changed: u32,
    }
    #[repr(C)]
    struct States {
        command: u32,
        blocks_max: u32,
        blocks: [Block; FEATURES_MAX / 32],
    }
    let blocks_max = (FEATURES_MAX / 32) as u32;
    let mut states = States { command: GET_FEATURES, blocks_max, blocks: [Block::default(); FEATURES_MAX / 32] };
    // SAFETY: the kernel fills in as many blocks as it is told there is room for.
    unsafe { probe.ask_driver(interface, &mut states) }?;
    let is_on = |number: usize| states.blocks[number / 32].active & (1 << (number % 32)) != 0;
    let names = strings.names.iter().enumerate().take(count);
    Ok(names.filter(|(number, _)| is_on(*number)).map(|(_, name)| text(name)).filter(|name| !name.is_empty()).collect())
}

/// A text that ends with its first zero.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_offloads_and_no_others() {
        let probe = Probe::new().expect("a socket");
        let offloads = offloads(&probe, "lo").expect("every interface has features");
        // Its packets never leave the machine, so their checksums are never written, and that can't be changed.
        assert!(offloads.iter().any(|name| name.starts_with("tx-checksum")), "{offloads:?}");
        assert!(!offloads.iter().any(|name| name == "rx-gro-hw"), "{offloads:?}");
        assert!(super::offloads(&probe, "nosuch0").is_err() && driver(&probe, "nosuch0").is_err());
    }
}
