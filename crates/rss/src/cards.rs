//! The table of cards. Each fact has a source: a driver file of Linux or DPDK, a specification, or a data sheet. Assumptions without a
//! source are marked as not confirmed.

use crate::card::{Ability, Card, Choice, Driver, Fact, Scope, Symmetry};
use crate::field::{Field, Fields, PacketType};

use Driver::{Dpdk, Linux};
use PacketType::{Ether, Frag4, Frag6, Other4, Other6, Sctp4, Sctp6, Tcp4, Tcp6, Udp4, Udp6};

const TCP_UDP: &[PacketType] = &[Tcp4, Udp4, Tcp6, Udp6];
const TCP: &[PacketType] = &[Tcp4, Tcp6];
const UDP: &[PacketType] = &[Udp4, Udp6];
const SCTP: &[PacketType] = &[Sctp4, Sctp6];
const TRANSPORT: &[PacketType] = &[Tcp4, Udp4, Sctp4, Tcp6, Udp6, Sctp6];
const REST: &[PacketType] = &[Other4, Frag4, Other6, Frag6];
const REST_AND_SCTP: &[PacketType] = &[Sctp4, Other4, Frag4, Sctp6, Other6, Frag6];
const IP: &[PacketType] = &[Tcp4, Udp4, Sctp4, Other4, Frag4, Tcp6, Udp6, Sctp6, Other6, Frag6];

/// Any part of addresses and ports.
const ANY: Choice = Choice::Part { of: Fields::FOUR, with: Fields::FOUR };
/// Any part of addresses and ports with an address in it.
const ANY_WITH_HOST: Choice = Choice::Part { of: Fields::FOUR, with: Fields::HOSTS };
/// Either address, or both.
const HOST: Choice = Choice::Part { of: Fields::HOSTS, with: Fields::HOSTS };
const HOSTS: Choice = Choice::OneOf(&[Fields::HOSTS]);
const FOUR: Choice = Choice::OneOf(&[Fields::FOUR]);
const HOSTS_OR_FOUR: Choice = Choice::OneOf(&[Fields::HOSTS, Fields::FOUR]);
const MAC: Choice = Choice::Part { of: Fields::MACS, with: Fields::MACS };
const WITH_TAG: Choice = Choice::OneOf(&[Fields::FOUR.with(Fields::of(&[Field::Tag]))]);

const fn can(driver: Driver, types: &'static [PacketType], choice: Choice) -> Ability {
    Ability { driver, types, choice }
}

const fn fact(says: &'static str, source: &'static str) -> Fact {
    Fact { says, source, confirmed: true }
}

const fn guess(says: &'static str, source: &'static str) -> Fact {
    Fact { says, source, confirmed: false }
}

const ORDER: Fact = fact(
    "addresses, then ports, source first, network byte order; the table is indexed by the hash's lowest bits",
    "Microsoft, RSS Hashing Functions",
);
const PACKED: Fact = guess(
    "if only some of addresses and ports are hashed, the fields follow each other without gaps",
    "assumed from Microsoft's order, without a source: compare the hash of a packet (the probes of `rss solve`)",
);

/// Every card.
pub(crate) const CARDS: &[Card] = &[
    Card {
        name: "mlx5",
        hardware: "NVIDIA ConnectX-4 and later",
        key_bytes: 40,
        key_scope: Scope::Port,
        key_settable: true,
        key_reversed_on_linux: false,
        fields_scope: Scope::Port,
        table_sizes: &[256, 512, 1024, 2048],
        symmetry: Symmetry::Usual("symmetric-or-xor"),
        flow_rules: true,
        abilities: &[
            can(Linux, TCP_UDP, ANY),
            can(Linux, REST_AND_SCTP, HOSTS),
            can(Dpdk, TCP_UDP, ANY_WITH_HOST),
            can(Dpdk, REST_AND_SCTP, HOST),
        ],
        facts: &[
            fact(
                "40 bytes of key, one for each RSS context, so for each port",
                "Linux mlx5/core/en/tir.h: toeplitz_hash_key[40]; DPDK: MLX5_RSS_HASH_KEY_LEN",
            ),
            fact(
                "TCP and UDP by any part of addresses and ports; everything else by both addresses",
                "Linux mlx5/core/en_fs_ethtool.c: mlx5e_set_rss_hash_opt; en/rss.c: rss_default_config",
            ),
            fact(
                "with DPDK, either address alone for any IP packet, and ports only of TCP and UDP",
                "DPDK mlx5_flow.c: mlx5_validate_action_rss (L3 and L4 partial RSS)",
            ),
            fact(
                "Linux hashes both directions alike by default (symmetric-or-xor); older kernels can't turn that off, \
                 and then the key doesn't have its effect",
                "Linux mlx5/core/en/rss.c: hash.symmetric = true; en/tir.c: rx_hash_symmetric",
            ),
            fact(
                "256 entries, or two to four for each queue rounded up to a power of two if that is more",
                "Linux mlx5/core/en/rqt.h: MLX5E_INDIR_MIN_RQT_SIZE; en/rqt.c: mlx5e_rqt_size",
            ),
            guess("fragments are hashed like other IP packets", "no source found"),
            ORDER,
            PACKED,
        ],
    },
    Card {
        name: "ice",
        hardware: "Intel E810, E820, E830",
        key_bytes: 52,
        key_scope: Scope::Port,
        key_settable: true,
        key_reversed_on_linux: false,
        fields_scope: Scope::Port,
        table_sizes: &[512, 2048, 128, 64],
        symmetry: Symmetry::OnRequest(Some("symmetric-xor")),
        flow_rules: true,
        abilities: &[
            can(Linux, TRANSPORT, ANY),
            can(Linux, REST, HOSTS),
            can(Dpdk, TRANSPORT, ANY_WITH_HOST),
            can(Dpdk, TRANSPORT, Choice::OneOf(&[Fields::of(&[Field::SrcPort]), Fields::of(&[Field::DstPort])])),
            can(Dpdk, REST, HOST),
        ],
        facts: &[
            fact("52 bytes of key, one for each VSI, so for each port", "Linux ice.h: ICE_VSIQF_HKEY_ARRAY_SIZE"),
            fact(
                "tables of 128, 512 and 2,048 entries",
                "DPDK ice_ethdev.c: ICE_AQC_GSET_RSS_LUT_TABLE_SIZE_*; VSIs of their own have 64",
            ),
            fact(
                "TCP, UDP and SCTP by any part of addresses and ports",
                "Linux ice_ethtool.c: ice_parse_hdrs, ice_parse_hash_flds",
            ),
            fact(
                "with DPDK, either address alone for any IP packet, one port alone with or without addresses",
                "DPDK ice_hash.c: ice_hash_type_list",
            ),
            fact(
                "with DPDK, the protocol number is hashed too wherever a port is, so TCP and UDP never hash alike then",
                "DPDK ice_hash.c: ICE_FLOW_FIELD_IDX_IPV4_PROT",
            ),
            fact(
                "symmetric-xor, if requested, hashes source xor destination",
                "Linux commit `ice: enable symmetric-xor RSS for Toeplitz hash function`",
            ),
            fact("other IP packets by both addresses", "Linux ice_lib.c: default_rss_cfgs"),
            guess("fragments are hashed like other IP packets", "no source found"),
            ORDER,
            PACKED,
        ],
    },
    Card {
        name: "i40e",
        hardware: "Intel X710, XL710, X722",
        key_bytes: 52,
        key_scope: Scope::Port,
        key_settable: true,
        key_reversed_on_linux: false,
        fields_scope: Scope::Device,
        table_sizes: &[512, 128, 64],
        symmetry: Symmetry::OnRequest(None),
        flow_rules: true,
        abilities: &[
            can(Linux, TCP_UDP, ANY),
            can(Linux, SCTP, WITH_TAG),
            can(Linux, REST, HOSTS),
            can(Dpdk, TRANSPORT, ANY),
            can(Dpdk, REST, HOST),
            can(Dpdk, IP, MAC),
            can(Dpdk, &[Ether], MAC),
        ],
        facts: &[
            fact(
                "52 bytes of key, one for each port",
                "Linux i40e.h: I40E_HKEY_ARRAY_SIZE, (I40E_PFQF_HKEY_MAX_INDEX + 1) * 4",
            ),
            fact(
                "512 entries for a port, 64 for a virtual function",
                "Linux i40e.h: I40E_HLUT_ARRAY_SIZE, I40E_VF_HLUT_ARRAY_SIZE",
            ),
            fact("TCP and UDP by any part of addresses and ports", "Linux i40e_ethtool.c: i40e_get_rss_hash_bits"),
            fact(
                "the choice of fields is in global registers: all ports of a card have the same",
                "Linux i40e_ethtool.c: I40E_GLQF_HASH_INSET",
            ),
            fact(
                "SCTP is hashed by its verification tag as well, unless fields are named",
                "DPDK i40e_hash.c: i40e_hash_rss_inset, I40E_INSET_SCTP_VT",
            ),
            fact("with DPDK, addresses, ports and Ethernet addresses by rules", "DPDK i40e_hash.c: match_patterns"),
            guess("the tag follows the ports; Ethernet addresses are in frame order", "no source found"),
            guess("the table of a port may have 128 entries instead", "DPDK i40e_ethdev.h"),
            ORDER,
            PACKED,
        ],
    },
    Card {
        name: "ixgbe",
        hardware: "Intel 82599, X540, X550",
        key_bytes: 40,
        key_scope: Scope::Port,
        key_settable: true,
        key_reversed_on_linux: false,
        fields_scope: Scope::Port,
        table_sizes: &[128, 512],
        symmetry: Symmetry::None,
        flow_rules: false,
        abilities: &[
            can(Linux, TCP, FOUR),
            can(Linux, UDP, HOSTS_OR_FOUR),
            can(Linux, REST_AND_SCTP, HOSTS),
            can(Dpdk, TCP_UDP, HOSTS_OR_FOUR),
            can(Dpdk, REST_AND_SCTP, HOSTS),
        ],
        facts: &[
            fact("40 bytes of key, in ten registers", "Linux ixgbe_main.c: ixgbe_store_key, IXGBE_RSSRK(0..9)"),
            fact(
                "128 entries, 512 from X550 on (64 with virtual functions)",
                "Linux ixgbe_main.c: ixgbe_rss_indir_tbl_entries",
            ),
            fact(
                "TCP by addresses and ports only; UDP by addresses, with or without ports",
                "Linux ixgbe_ethtool.c: ixgbe_set_rss_hash_opt",
            ),
            fact("with DPDK, each type can be switched on alone", "DPDK ixgbe_rxtx.c: IXGBE_MRQC_RSS_FIELD_*"),
            fact(
                "fragments, and packets of a type that is turned off, are hashed by their addresses",
                "Intel 82598 data sheet, 3.5.2.10: TCP only if not fragmented; priority of functions",
            ),
            fact(
                "source address, destination address, source port, destination port; 7 lowest bits for 128 entries",
                "Intel 82598 data sheet, 3.5.2.10.1.1; I210 data sheet, 7.1.2.10.2",
            ),
        ],
    },
    Card {
        name: "ena",
        hardware: "Amazon Elastic Network Adapter",
        key_bytes: 40,
        key_scope: Scope::Port,
        key_settable: true,
        key_reversed_on_linux: true,
        fields_scope: Scope::Port,
        table_sizes: &[128],
        symmetry: Symmetry::None,
        flow_rules: false,
        abilities: &[
            can(Linux, TCP_UDP, ANY),
            // Nothing tells the driver of a part of the addresses for these.
            can(Linux, REST_AND_SCTP, HOSTS),
            can(Linux, &[Ether], MAC),
            can(Dpdk, TCP_UDP, ANY_WITH_HOST),
            can(Dpdk, REST_AND_SCTP, HOST),
        ],
        facts: &[
            fact("40 bytes of key", "Linux ena_com.h: ENA_HASH_KEY_SIZE"),
            fact("128 entries", "DPDK ena_ethdev.h: ENA_RX_RSS_TABLE_LOG_SIZE"),
            fact(
                "for each type either address, either port, if the device supports it",
                "Linux ena_ethtool.c: ena_set_rss_hash; ena_com.c: supported_fields",
            ),
            guess("the fields that can be chosen differ between instance types", "ena_com.c asks the device"),
            fact("older devices don't allow setting the key or the fields", "Linux commit 0c8923c0a64f"),
            fact(
                "the card counts the key's bytes from the last",
                "DPDK ena_rss.c: ena_reorder_rss_hash_key, which reverses them",
            ),
            guess("Linux passes them unchanged", "Linux ena_ethtool.c: ena_set_rxfh"),
            guess(
                "the hash starts from a constant, the same for all packets",
                "Linux ena_ethtool.c: 0xFFFFFFFF; DPDK: 0",
            ),
            fact("SCTP can't be selected by itself", "Linux ena_ethtool.c: SCTP_V4_FLOW gives EOPNOTSUPP"),
            guess("SCTP and fragments are hashed like other IP packets", "no source found"),
            guess(
                "under Linux other IP packets are hashed by both addresses: ethtool has no name for them",
                "no source found",
            ),
            ORDER,
            PACKED,
        ],
    },
    Card {
        name: "virtio",
        hardware: "virtio-net with VIRTIO_NET_F_RSS",
        key_bytes: 40,
        key_scope: Scope::Port,
        key_settable: true,
        key_reversed_on_linux: false,
        fields_scope: Scope::Port,
        table_sizes: &[128],
        symmetry: Symmetry::None,
        flow_rules: false,
        abilities: &[
            can(Linux, TCP_UDP, HOSTS_OR_FOUR),
            can(Linux, REST_AND_SCTP, HOSTS),
            can(Dpdk, TCP_UDP, HOSTS_OR_FOUR),
            can(Dpdk, REST_AND_SCTP, HOSTS),
        ],
        facts: &[
            fact("40 bytes of key", "QEMU and Linux: VIRTIO_NET_RSS_MAX_KEY_SIZE"),
            fact("128 entries", "QEMU: VIRTIO_NET_RSS_MAX_TABLE_LEN; a device may have more"),
            fact(
                "TCP and UDP by addresses, with or without ports; everything else by addresses",
                "Linux virtio_net.c: virtnet_set_hashflow takes sd and sdfn alone",
            ),
            guess("fragments are hashed by their addresses", "virtio 1.2, 5.1.6.4.3"),
            ORDER,
        ],
    },
];
