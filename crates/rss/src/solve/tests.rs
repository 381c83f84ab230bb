use packet::toeplitz::SYMMETRIC_KEY;
use proptest::prelude::*;

use super::*;
use crate::field::{Fields, PacketType};
use crate::sets::Vary;
use crate::verify::verify;
use crate::{Family, probe};

fn sets(line: &str, types: &[PacketType]) -> PacketSets {
    PacketSets::from_line(line, (!types.is_empty()).then_some(types)).unwrap()
}

fn run(card: &str, driver: Driver, sets: &PacketSets) -> Outcome {
    solve(&Problem::new(Card::named(card).unwrap(), driver, sets))
}

fn solved(card: &str, driver: Driver, sets: &PacketSets) -> Solution {
    match run(card, driver, sets) {
        Outcome::Solved(solution) => *solution,
        Outcome::Impossible(proof) | Outcome::NotFound(proof) => panic!("{card}: {proof}"),
    }
}

/// The same, with each port on its own card.
fn apart(card: &str, driver: Driver, sets: &PacketSets) -> Solution {
    let problem = Problem { one_card: false, ..Problem::new(Card::named(card).unwrap(), driver, sets) };
    match solve(&problem) {
        Outcome::Solved(solution) => *solution,
        Outcome::Impossible(proof) | Outcome::NotFound(proof) => panic!("{card}: {proof}"),
    }
}

fn proof(card: &str, driver: Driver, sets: &PacketSets) -> String {
    match run(card, driver, sets) {
        Outcome::Impossible(proof) => proof.to_string(),
        other => panic!("{card}: {other:?}"),
    }
}

/// Keys of a card's length, one behind the other, as unknowns.
fn unknowns(keys: &[&[u8]], key_bytes: usize) -> Bits {
    let mut bits = Bits::zero(keys.len() * key_bytes * 8);
    for (port, key) in keys.iter().enumerate() {
        let key = Key::new(*key);
        (0..key_bytes * 8).filter(|bit| key.bit(*bit)).for_each(|bit| bits.flip(port * key_bytes * 8 + bit));
    }
    bits
}

const BACK: &str = "lan: src dst sport dport, wan: dst src dport sport";

/// Woo and Park, "Scalable TCP Session Monitoring with Symmetric Receive-side Scaling" (2012).
#[test]
fn the_known_symmetric_key_is_a_member() {
    for card in ["ixgbe", "virtio", "mlx5"] {
        let one = solved(card, Driver::Linux, &sets("tap: five-tuple symmetric", &[]));
        assert!(one.space.contains(&unknowns(&[&SYMMETRIC_KEY], 40)), "{card}");
        let two = solved(card, Driver::Linux, &sets(BACK, &[]));
        assert!(two.space.contains(&unknowns(&[&SYMMETRIC_KEY, &SYMMETRIC_KEY], 40)), "{card}");
        let mut wrong = SYMMETRIC_KEY;
        wrong[20] ^= 1;
        assert!(!one.space.contains(&unknowns(&[&wrong], 40)), "{card}");
        assert!(!two.space.contains(&unknowns(&[&SYMMETRIC_KEY, &wrong], 40)), "{card}");
    }
    // Keys of period 16 are not quite all: windows of 31 bits more than a field leave three bits out, which only equal some
    // 32, 96 or 128 bits away (31, 63, 159, 191; 127, 255; and 319, which no window reaches).
    let one = solved("ixgbe", Driver::Linux, &sets("tap: five-tuple symmetric", &[]));
    assert_eq!(one.space.dimension(), 16 + 3);
    let loose = [31, 63, 127, 159, 191, 255, 319];
    for key in one.space.basis() {
        let periodic = |bit: &usize| !loose.contains(bit) && !loose.contains(&(bit + 16));
        assert!((0..303).filter(periodic).all(|bit| key.get(bit) == key.get(bit + 16)));
    }
}

/// Who can hash one address of some packets and only both of others has to hash both of all: then there is one hash for all of a set.
#[test]
fn types_that_share_sets_are_hashed_alike() {
    use PacketType::{Frag4, Frag6, Other4, Other6, Sctp4, Sctp6, Tcp4, Tcp6, Udp4, Udp6};
    for card in ["ice", "mlx5", "ena"] {
        let v6 = sets("lan: src, wan: dst", &[Tcp6, Udp6, Sctp6, Other6, Frag6]);
        let mut v4 = sets("lan: src, wan: dst", &[Tcp4, Udp4, Sctp4, Other4, Frag4]);
        v4.vary = Vary::ALL;
        for sets in [v6, v4] {
            let solution = solved(card, Driver::Linux, &sets);
            assert!(solution.members.iter().all(|member| member.selection == Fields::HOSTS), "{card}");
            assert_eq!(verify(&solution, 1_000, 7), Ok(()), "{card}");
        }
    }
}

/// A pair of keys that another solver found for a firewall, which shards LAN packets by their flow and WAN packets by the flow
/// that they answer; the rest of its 52 bytes is zero.
#[test]
fn a_firewalls_keys_by_another_solver_are_members() {
    const LAN: [u8; 16] = [0x20, 0, 0x24, 0x22, 0x24, 0x22, 0x20, 0, 0x20, 0, 0x24, 0x22, 0x20, 0, 0x24, 0x23];
    const WAN: [u8; 16] = [0x24, 0x22, 0x20, 0, 0x20, 0, 0x24, 0x22, 0x24, 0x22, 0x20, 0, 0x24, 0x22, 0x20, 0];
    let types = [PacketType::Tcp4, PacketType::Udp4];
    for card in ["ice", "i40e"] {
        let solution = solved(card, Driver::Linux, &sets(BACK, &types));
        assert!(solution.space.contains(&unknowns(&[&LAN, &WAN], 52)), "{card}");
        assert!(!solution.space.contains(&unknowns(&[&WAN, &LAN[..15]], 52)), "{card}");
    }
}

/// A NAT of the same origin shards by the server's address, on a card that hashes all four fields: the only key that there is has one bit.
#[test]
fn a_nats_key_is_the_only_one() {
    let lan = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
    let wan = [0, 0, 0, 1];
    let mut sets = sets("lan: dst, wan: src", &[PacketType::Tcp4]);
    sets.vary = Vary::ALL;
    let solution = solved("ixgbe", Driver::Linux, &sets);
    assert!(solution.space.contains(&unknowns(&[&lan, &wan], 40)));
    // Bits 127 and up reach no window.
    assert_eq!(solution.space.dimension(), 1 + 2 * (320 - 127));
    assert_eq!((solution.keys[0].bytes()[..15].to_vec(), solution.keys[1].bytes()[..15].to_vec()), {
        let mut wan = wan.to_vec();
        wan.resize(15, 0);
        (lan[..15].to_vec(), wan)
    });
    // Its index is the address's first bits: hosts of one /8 share a queue, and that is told.
    sets.vary = Vary::default();
    let proof = proof("ixgbe", Driver::Linux, &sets);
    assert!(proof.contains("does not depend on the last 24 bits of dst"), "{proof}");
}

/// A key by hand for a policer on an 82599, which hashes both addresses: the first 64 bits are zero, so only the destination
/// counts.
#[test]
fn a_policers_key_is_a_member() {
    let mut key = packet::toeplitz::MICROSOFT_KEY;
    key[..8].fill(0);
    let solution = solved("ixgbe", Driver::Linux, &sets("wan: dst", &[PacketType::Udp4, PacketType::Other4]));
    assert!(solution.space.contains(&unknowns(&[&key], 40)));
    assert!(!solution.space.contains(&unknowns(&[&packet::toeplitz::MICROSOFT_KEY], 40)));
}

#[test]
fn by_source_inside_and_by_destination_outside() {
    let sets = sets("lan: src, wan: dst", &[]);
    // Who can hash one address alone needs no more than one key for both.
    let solution = solved("ice", Driver::Dpdk, &sets);
    assert_eq!(verify(&solution, 500, 3), Ok(()));
    for port in 0..2 {
        let rank = &solution.ranks[port];
        assert_eq!((rank.rank, rank.of), (9, 9), "512 entries");
    }
    // Who can't hashes the other one as well, and no key mends that.
    let proof = proof("virtio", Driver::Linux, &sets);
    assert!(
        proof.contains("tcp4 packets at lan") && proof.contains("does not depend on the last 24 bits of src"),
        "{proof}"
    );
    assert!(proof.contains("lan hashes dst of tcp4 packets, which must be cancelled"), "{proof}");
    // The destination alone would go, as it stands last: but in IPv6 the source covers where IPv4 has its destination.
    let text = self::proof("virtio", Driver::Linux, &self::sets("wan: dst", &[]));
    assert!(text.contains("bits 65-94 of wan's key are zero: wan hashes src of tcp6 packets"), "{text}");
    solved("virtio", Driver::Linux, &self::sets("wan: dst", &[PacketType::Other4, PacketType::Frag4]));
}

#[test]
fn chains_of_reasons_are_told() {
    // Only what both have in common is left, and that is one bit.
    let types = [PacketType::Udp4];
    let proof = proof("ixgbe", Driver::Linux, &sets("wan: dst, lan: src", &types));
    assert!(proof.contains("must count the same as"), "{proof}");
}

#[test]
fn what_is_not_hashed_is_told() {
    let proof = proof("ixgbe", Driver::Linux, &sets("a: smac", &[PacketType::Ether]));
    assert!(proof.contains("ether packets at a all go to one queue"), "{proof}");
    let proof = self::proof("ixgbe", Driver::Linux, &sets("a: smac", &[PacketType::Tcp4]));
    assert!(proof.contains("no field that names the set of tcp4 packets at a is hashed"), "{proof}");
    let macs = sets("a: smac, b: dmac", &[]);
    let proof = self::proof("i40e", Driver::Dpdk, &macs);
    assert!(
        proof.contains("b hashes smac of tcp4 packets, which must be cancelled"),
        "one choice for all ports: {proof}"
    );
    assert_eq!(verify(&apart("i40e", Driver::Dpdk, &macs), 200, 1), Ok(()));
}

#[test]
fn a_bit_turned_over_is_noticed() {
    let mut solution = solved("virtio", Driver::Linux, &sets(BACK, &[]));
    assert_eq!(verify(&solution, 1_000, 1), Ok(()));
    let mut bytes = solution.keys[1].bytes().to_vec();
    bytes[5] ^= 0x10;
    solution.keys[1] = Key::new(bytes);
    let mismatch = verify(&solution, 1_000, 1).unwrap_err().to_string();
    assert!(mismatch.starts_with("two packets of one set"), "{mismatch}");
}

#[test]
fn seeds_are_reproducible() {
    let sets = sets(BACK, &[]);
    let keys = |seed| match solve(&Problem { seed, ..Problem::new(Card::named("ice").unwrap(), Driver::Linux, &sets) })
    {
        Outcome::Solved(solution) => solution.keys,
        other => panic!("{other:?}"),
    };
    assert_eq!(keys(1), keys(1));
    assert_ne!(keys(1), keys(2));
    assert!(keys(1).iter().all(|key| key.bytes().len() == 52));
}

#[test]
fn probes_are_the_hash_of_that_packet() {
    let solution = solved("virtio", Driver::Linux, &sets("a: five-tuple", &[]));
    let of = |kind| probe(&solution).into_iter().find(|probe| probe.kind == kind).unwrap();
    let input = [192, 0, 2, 1, 198, 51, 100, 2, 3, 232, 7, 208];
    let tcp = of(PacketType::Tcp4);
    assert_eq!(tcp.hash, solution.keys[0].hash(&input));
    assert_eq!(tcp.entry, tcp.hash as usize % 128);
    assert_eq!(of(PacketType::Other4).hash, solution.keys[0].hash(&input[..8]));
    assert_eq!(crate::Probe::packet(Family::V4), "192.0.2.1 > 198.51.100.2");
}

#[test]
fn commands_set_the_key_and_the_fields() {
    let lines = |card, driver, line| {
        crate::commands(&solved(card, driver, &sets(line, &[PacketType::Tcp4, PacketType::Udp6])), 4)
    };
    let ice = lines("ice", Driver::Linux, "lan: src, wan: dst");
    assert_eq!(ice.len(), 6, "{ice:#?}");
    assert!(ice[0].starts_with("ethtool -X lan hfunc toeplitz hkey ") && ice[0].ends_with(" equal 4"), "{ice:#?}");
    assert_eq!(ice[0].split(' ').nth(6).unwrap().split(':').count(), 52);
    assert_eq!(ice[1], "ethtool -N lan rx-flow-hash tcp4 s");
    assert_eq!(ice[5], "ethtool -N wan rx-flow-hash udp6 d");
    let mlx5 = lines("mlx5", Driver::Linux, BACK);
    assert!(mlx5[0].starts_with("# a kernel") && mlx5[1] == "ethtool -X lan xfrm none", "{mlx5:#?}");
    assert_eq!(mlx5[3], "ethtool -N lan rx-flow-hash tcp4 sdfn");
    let ena = lines("ena", Driver::Linux, BACK);
    let key = solved("ena", Driver::Linux, &sets(BACK, &[PacketType::Tcp4, PacketType::Udp6])).keys[0].to_string();
    let turned: Vec<&str> = key.split(':').rev().collect();
    assert!(ena[1].contains(&turned.join(":")), "{ena:#?}");
    let rules = lines("ice", Driver::Dpdk, "lan: src, wan: dst");
    assert!(
        rules[1].starts_with(
            "flow create 0 ingress pattern eth / ipv4 / tcp / end actions rss types ipv4-tcp l3-src-only end key "
        ),
        "{rules:#?}"
    );
    assert!(rules[1].ends_with(" key_len 52 queues 0 1 2 3 end / end"), "{rules:#?}");
    let port = lines("virtio", Driver::Dpdk, BACK);
    assert!(
        port[1].starts_with("port config 0 rss-hash-key ipv4-tcp ") && port[2] == "# rss_hf: ipv4-tcp ipv6-udp",
        "{port:#?}"
    );
}

/// As many entries are used as the rank says, by hosts of one /24.
#[test]
fn ranks_are_what_hashing_shows() {
    let mut sets = sets("lan: src, wan: dst", &[PacketType::Tcp4]);
    sets.vary.ipv4 = 8;
    let solution = solved("ice", Driver::Linux, &sets);
    assert_eq!((solution.ranks[0].rank, solution.ranks[0].of), (8, 9), "8 bits can't choose among 512");
    let entries: std::collections::BTreeSet<u32> =
        (0..=255).map(|host| solution.keys[0].hash(&[10, 1, 2, host]) & 511).collect();
    assert_eq!(entries.len(), 256);
    for entry in [0, 1, 77, 255] {
        assert_eq!(solution.keys[0].hash(&[10, 1, 2, entry]), solution.keys[1].hash(&[10, 1, 2, entry]));
    }
}

fn any_line() -> impl Strategy<Value = (String, bool)> {
    const LISTS: [(&str, &str); 7] = [
        ("src", "dst"),
        ("dst", "src"),
        ("src dst", "dst src"),
        ("src dst sport dport", "dst src dport sport"),
        ("src sport", "dst dport"),
        ("dst dport", "src sport"),
        ("sport dport", "dport sport"),
    ];
    (0..LISTS.len(), 0..3_usize).prop_map(|(list, shape)| {
        let (one, other) = LISTS[list];
        let symmetric =
            shape == 2 && one.split(' ').count() % 2 == 0 && !one.contains("src sport") && !one.contains("dst dport");
        match shape {
            0 => (format!("a: {one}, b: {other}"), false),
            1 => (format!("a: {one}; b: {other}"), false),
            _ => (format!("a: {one}{}", if symmetric { " symmetric" } else { "" }), symmetric),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is solved keeps sets together and spreads them; whatever is not has its reason.
    #[test]
    fn solutions_hold(line in any_line(), card in 0..6_usize, dpdk in any::<bool>(), seed in any::<u64>(), wide in any::<bool>(), types in 0_u16..1024) {
        let types: Vec<PacketType> = PacketType::ALL.into_iter().take(10).enumerate().filter(|(at, _)| types >> at & 1 == 1).map(|(_, kind)| kind).collect();
        let Ok(mut sets) = PacketSets::from_line(&line.0, Some(&types)) else { return Ok(()) };
        if wide {
            sets.vary = Vary::ALL;
        }
        let card = &Card::all()[card];
        let problem = Problem { seed, ..Problem::new(card, if dpdk { Driver::Dpdk } else { Driver::Linux }, &sets) };
        match solve(&problem) {
            Outcome::Solved(solution) => {
                prop_assert_eq!(verify(&solution, 200, seed), Ok(()));
                for rank in &solution.ranks {
                    prop_assert!(rank.rank > 0 && rank.rank <= rank.of);
                }
                for member in &solution.members {
                    prop_assert!(card.selections(problem.driver, member.kind).contains(&member.selection));
                    prop_assert!(member.selection != Fields::NONE);
                }
            }
            Outcome::Impossible(proof) | Outcome::NotFound(proof) => {
                prop_assert!(!proof.consequence.is_empty());
                for forced in &proof.forced {
                    prop_assert!(!forced.steps.is_empty(), "every zero has its reason: {}", proof);
                }
            }
        }
    }
}
