// SPDX-License-Identifier: MIT
//
// Hands the packets of an interface to the AF_XDP sockets of its queues. What the filter passes goes to the kernel; what no socket claims
// is dropped and counted.
//
// The committed xsk.o was made by this command, with Debian's clang 14; crates/port-xdp/tests/bytecode.rs makes it again and compares:
//
//     clang -target bpf -mcpu=v3 -O2 -nostdinc -Wall -Werror -c bpf/xsk.c -o bpf/xsk.o
//
// It includes no header, so that the bytecode depends on nothing but the compiler. crates/port-xdp/src/filter.rs has the same filter in Rust.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define always_inline static inline __attribute__((always_inline))

// Of the kernel's interface, <linux/bpf.h>.
struct xdp_md {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 ingress_ifindex;
	u32 rx_queue_index;
	u32 egress_ifindex;
};
enum { XDP_DROP = 1, XDP_PASS = 2, XDP_REDIRECT = 4 };
static void *(*bpf_map_lookup_elem)(const void *map, const void *key) = (void *)1;
static long (*bpf_redirect_map)(const void *map, u64 key, u64 flags) = (void *)51;

// The loader makes the maps and puts their descriptors where the program names them: program.rs.
extern const u8 sockets, filter, counts;

// What is counted, by its place in the map `counts`: program.rs, Counts.
enum count { REDIRECTED, UNCLAIMED, LINK_PASSED, MANAGEMENT_PASSED };

#define MANAGEMENT_MAX 8

// filter.rs, Filter::encode.
struct filter {
	// 1 if link traffic passes to the kernel.
	u32 link_passes;
	// How many of the ports below are set.
	u32 management_count;
	// Protocol << 16 | port.
	u32 management[MANAGEMENT_MAX];
};

enum { ETHER_LEN = 14, VLAN_LEN = 4, IPV4_LEN = 20, IPV6_LEN = 40 };
enum { IPV4 = 0x0800, IPV6 = 0x86dd, VLAN = 0x8100, SERVICE_VLAN = 0x88a8 };
enum { TCP = 6, UDP = 17, ICMPV6 = 58 };
// Router solicitation, router advertisement, neighbour solicitation, neighbour advertisement, redirect (RFC 4861).
enum { NEIGHBOUR_FIRST = 133, NEIGHBOUR_LAST = 137 };

always_inline u16 big_endian(const u8 *bytes) { return (u16)bytes[0] << 8 | bytes[1]; }

always_inline void add_one(u32 key)
{
	u64 *count = bpf_map_lookup_elem(&counts, &key);
	if (count)
		*count += 1;
}

// True if the packet goes to one of the management ports.
always_inline int is_management(const struct filter *rules, u32 protocol, const u8 *transport, const u8 *end)
{
	if ((protocol != TCP && protocol != UDP) || transport + 4 > end)
		return 0;
	u32 wanted = protocol << 16 | big_endian(transport + 2);
#pragma unroll
	for (u32 i = 0; i < MANAGEMENT_MAX; i++)
		if (i < rules->management_count && rules->management[i] == wanted)
			return 1;
	return 0;
}

enum verdict { TO_FUNCTION, TO_KERNEL_LINK, TO_KERNEL_MANAGEMENT };

always_inline enum verdict decide(const struct filter *rules, const u8 *data, const u8 *end)
{
	const u8 *at = data + ETHER_LEN;
	if (at > end)
		return TO_FUNCTION;
	u16 type = big_endian(data + 12);
#pragma unroll
	for (int tag = 0; tag < 2; tag++) {
		if (type != VLAN && type != SERVICE_VLAN)
			break;
		if (at + VLAN_LEN > end)
			return TO_FUNCTION;
		type = big_endian(at + 2);
		at += VLAN_LEN;
	}
	if (type == IPV4) {
		if (!rules->management_count || at + IPV4_LEN > end)
			return TO_FUNCTION;
		// Fragments have no ports, or not all of them: more to come, or not the first.
		if (big_endian(at + 6) & 0x3fff)
			return TO_FUNCTION;
		u32 header = (at[0] & 15) * 4;
		if (header < IPV4_LEN)
			return TO_FUNCTION;
		u32 protocol = at[9];
		return is_management(rules, protocol, at + header, end) ? TO_KERNEL_MANAGEMENT : TO_FUNCTION;
	}
	if (type == IPV6) {
		if (at + IPV6_LEN > end)
			return TO_FUNCTION;
		u32 protocol = at[6];
		const u8 *transport = at + IPV6_LEN;
		if (protocol == ICMPV6) {
			if (transport + 1 > end || *transport < NEIGHBOUR_FIRST || *transport > NEIGHBOUR_LAST)
				return TO_FUNCTION;
			return rules->link_passes ? TO_KERNEL_LINK : TO_FUNCTION;
		}
		return is_management(rules, protocol, transport, end) ? TO_KERNEL_MANAGEMENT : TO_FUNCTION;
	}
	return rules->link_passes ? TO_KERNEL_LINK : TO_FUNCTION;
}

// `frags`: a packet may lie in several buffers; its headers are in the first.
SECTION("xdp.frags")
int xsk(struct xdp_md *context)
{
	u32 zero = 0;
	const struct filter *rules = bpf_map_lookup_elem(&filter, &zero);
	if (!rules)
		return XDP_DROP;
	switch (decide(rules, (const u8 *)(u64)context->data, (const u8 *)(u64)context->data_end)) {
	case TO_KERNEL_LINK:
		add_one(LINK_PASSED);
		return XDP_PASS;
	case TO_KERNEL_MANAGEMENT:
		add_one(MANAGEMENT_PASSED);
		return XDP_PASS;
	case TO_FUNCTION:
		break;
	}
	// The action for a queue without a socket is in the flags.
	long action = bpf_redirect_map(&sockets, context->rx_queue_index, XDP_DROP);
	add_one(action == XDP_REDIRECT ? REDIRECTED : UNCLAIMED);
	return action;
}

SECTION("license") const char terms[] = "MIT";
