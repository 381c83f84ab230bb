// SPDX-License-Identifier: MIT
//
// Two programs that hand the packets of an interface to AF_XDP sockets. What the filter passes goes to the kernel; what no socket claims is
// dropped and counted.
//
// `xsk` hands the packets of each queue to that queue's socket. `sequence` numbers the packets of all interfaces, writes the first bytes of
// each into a ring that all cores read, and hands packets to cores in turn.
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
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static long (*bpf_redirect_map)(const void *map, u64 key, u64 flags) = (void *)51;
static long (*bpf_xdp_adjust_meta)(struct xdp_md *context, int delta) = (void *)54;
static u64 (*bpf_xdp_get_buff_len)(struct xdp_md *context) = (void *)188;
static long (*bpf_xdp_load_bytes)(struct xdp_md *context, u32 offset, void *to, u32 len) = (void *)189;

// The loader makes the maps and puts their descriptors where the program names them: program.rs.
extern const u8 sockets, filter, counts, place, order, history;

// What is counted, by its place in the map `counts`: program.rs, Counts.
enum count { REDIRECTED, UNCLAIMED, LINK_PASSED, MANAGEMENT_PASSED, HISTORY_FULL, UNSTAMPED };

#define MANAGEMENT_MAX 8

// filter.rs, Filter::encode.
struct filter {
	// Where link traffic goes: enum link.
	u32 link;
	// How many of the ports below are set.
	u32 management_count;
	// Protocol << 16 | port.
	u32 management[MANAGEMENT_MAX];
};

enum link { LINK_TO_FUNCTION, LINK_TO_KERNEL, LINK_ACROSS };

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

// A packet that goes across is handed to a socket, too: user space sends it out of the paired interface.
enum verdict { TO_FUNCTION, TO_KERNEL_LINK, TO_KERNEL_MANAGEMENT, ACROSS };

always_inline enum verdict decide_link(const struct filter *rules)
{
	if (rules->link == LINK_TO_KERNEL)
		return TO_KERNEL_LINK;
	return rules->link == LINK_ACROSS ? ACROSS : TO_FUNCTION;
}

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
			return decide_link(rules);
		}
		return is_management(rules, protocol, transport, end) ? TO_KERNEL_MANAGEMENT : TO_FUNCTION;
	}
	return decide_link(rules);
}

// What the filter says. `action` is what becomes of the packet if no socket gets it.
always_inline enum verdict filtered(struct xdp_md *context, int *action)
{
	u32 zero = 0;
	const struct filter *rules = bpf_map_lookup_elem(&filter, &zero);
	*action = XDP_DROP;
	if (!rules)
		return TO_KERNEL_LINK;
	enum verdict verdict = decide(rules, (const u8 *)(u64)context->data, (const u8 *)(u64)context->data_end);
	if (verdict == TO_KERNEL_LINK || verdict == TO_KERNEL_MANAGEMENT) {
		add_one(verdict == TO_KERNEL_LINK ? LINK_PASSED : MANAGEMENT_PASSED);
		*action = XDP_PASS;
	}
	return verdict;
}

// Hands the packet to a socket.
always_inline int hand_over(u32 socket)
{
	// The action where there is no socket is in the flags.
	long action = bpf_redirect_map(&sockets, socket, XDP_DROP);
	add_one(action == XDP_REDIRECT ? REDIRECTED : UNCLAIMED);
	return action;
}

// `frags`: a packet may lie in several buffers; its headers are in the first.
SECTION("xdp.frags")
int xsk(struct xdp_md *context)
{
	int action;
	enum verdict verdict = filtered(context, &action);
	return verdict == TO_FUNCTION || verdict == ACROSS ? hand_over(context->rx_queue_index) : action;
}

// sequencer.rs has the same four structures.

// The program's place among those of all interfaces.
struct place {
	// Sockets, one for each core.
	u32 cores;
	// The port's number of this interface.
	u32 interface;
	// Records of the history: a power of two.
	u32 records;
	// Records that are left free at least, so that programs on several processors that look at once don't overrun the readers.
	u32 spare;
};

// Common to the programs of all interfaces. Each half has a cache line of its own.
struct order {
	// The number of the next packet.
	u64 next;
	u64 pad[7];
	// Cores have read all records before this number.
	u64 floor;
	u64 pad_too[7];
};

#define HEAD_MAX 224

// What cores are told of a packet.
struct record {
	// The packet's number and 1. Written last: whoever finds it here can read the rest.
	u64 published;
	// When the packet came, by the clock that never steps.
	u64 time;
	// Of marks, which user space writes.
	u64 first;
	u32 wire_len;
	u16 interface;
	// Bytes in `head`; larger values are marks.
	u16 head_len;
	u8 head[HEAD_MAX];
};

// Goes ahead of the packet.
struct stamp {
	u64 number;
	u64 time;
};

// The number of what goes across, by the first core.
#define UNNUMBERED (~0ULL)

SECTION("xdp.frags/sequence")
int sequence(struct xdp_md *context)
{
	int action;
	enum verdict verdict = filtered(context, &action);
	if (verdict != TO_FUNCTION && verdict != ACROSS)
		return action;
	u32 zero = 0;
	const struct place *own = bpf_map_lookup_elem(&place, &zero);
	struct order *common = bpf_map_lookup_elem(&order, &zero);
	if (!own || !common)
		return XDP_DROP;
	if (bpf_xdp_adjust_meta(context, -(int)sizeof(struct stamp))) {
		add_one(UNSTAMPED);
		return XDP_DROP;
	}
	struct stamp *stamp = (struct stamp *)(u64)context->data_meta;
	if ((void *)(stamp + 1) > (void *)(u64)context->data)
		return XDP_DROP;
	if (verdict == ACROSS) {
		stamp->number = UNNUMBERED;
		return hand_over(0);
	}
	if (*(volatile u64 *)&common->next - *(volatile u64 *)&common->floor + own->spare >= own->records) {
		add_one(HISTORY_FULL);
		return XDP_DROP;
	}
	u64 now = bpf_ktime_get_ns();
	u64 number = __sync_fetch_and_add(&common->next, 1);
	u32 at = number & (own->records - 1);
	struct record *record = bpf_map_lookup_elem(&history, &at);
	if (!record)
		return XDP_DROP;
	stamp->number = number;
	stamp->time = now;
	u64 head_len = (u64)context->data_end - (u64)context->data;
	if (head_len > HEAD_MAX)
		head_len = HEAD_MAX;
	record->time = now;
	record->wire_len = bpf_xdp_get_buff_len(context);
	record->interface = own->interface;
	if (head_len == 0 || bpf_xdp_load_bytes(context, 0, record->head, head_len))
		head_len = 0;
	record->head_len = head_len;
	// An exchange is a full barrier on every processor.
	__sync_lock_test_and_set(&record->published, number + 1);
	return hand_over(number % own->cores);
}

SECTION("license") const char terms[] = "MIT";
