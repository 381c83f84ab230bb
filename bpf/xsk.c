// SPDX-License-Identifier: MIT
//
// Three programs that hand the packets of an interface to AF_XDP sockets. What the filter passes goes to the kernel; what no socket claims is
// dropped and counted.
//
// `xsk` hands the packets of each queue to that queue's socket. `sequence` numbers the packets of all interfaces, writes the first bytes of
// each into a ring that all cores read, and hands packets to cores in turn. `offload` does as `xsk`, but takes the packets of connections
// that user space has put into a table: it forwards or drops them.
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
extern const u8 sockets, filter, counts, place, order, history, connections, entries, outlet;

// What is counted, by its place in the map `counts`: program.rs, Counts.
enum count { REDIRECTED, UNCLAIMED, LINK_PASSED, MANAGEMENT_PASSED, HISTORY_FULL, UNSTAMPED, OFFLOADED };

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

// offload.rs and offload/table.rs have the same structures.

// A connection: the smaller endpoint, then the other. Numbers are in the machine's order.
struct tuple {
	// Address of the first endpoint, upper half and lower half, and that of the second. IPv4 addresses are lower halves.
	u64 hosts[4];
	// First port << 48 | second port << 32 | protocol << 24 | IP version << 16.
	u64 rest;
};

// One side of a TCP connection: packet::TcpSide.
struct side {
	u32 end;
	u32 max_end;
	u32 max_win;
	u32 max_ack;
	u32 scale;
	u32 unacknowledged;
};

// packet::LastSegment.
struct segment {
	u32 seq;
	u32 end;
	u32 ack;
	u16 window;
	u16 from_first;
};

// A connection that the program takes packets of. Sides are the first endpoint, then the second. Times are those of the monotonic clock.
struct entry {
	// State bits, and in the upper half two counters of 16 bits: packets of each side that passed while it was waiting. Changed by atomic
	// instructions alone.
	u64 word;
	u64 deadline;
	// The time of the last packet.
	u64 last;
	// Idle timeout: if all data is acknowledged, and if some isn't.
	u64 idle[2];
	u64 bytes_max;
	u64 packets[2];
	u64 bytes[2];
	struct tuple key;
	// For each side, whether its packets are forwarded (1) or dropped (0).
	u32 forwards[2];
	u32 is_tcp;
	// Of this use of the entry.
	u32 id;
	struct side sides[2];
	struct segment last_segment;
};

// The program takes packets. Whoever clears this bit closes the entry: all later packets go to the socket.
#define OPEN 1ULL
// Somebody reads or writes the rest of the entry.
#define LOCKED 2ULL
// Packets pass to the socket. They are counted, and stamped by their numbers, so that user space knows when it has had them all.
#define WAITING 4ULL

// How often a program tries to lock an entry. Whoever holds it needs a fraction of a microsecond.
#define TRIES 16

enum { VXLAN = 4789, GENEVE = 6081 };
enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };

// A packet of a connection.
struct seen {
	struct tuple key;
	struct segment segment;
	// True if an entry may take it: port/src/card.rs, Plain::of, though fewer TCP options.
	u32 is_plain;
};

always_inline u32 big_endian_32(const u8 *bytes) { return (u32)big_endian(bytes) << 16 | big_endian(bytes + 2); }
always_inline u64 big_endian_64(const u8 *bytes) { return (u64)big_endian_32(bytes) << 32 | big_endian_32(bytes + 4); }

// Reads a packet of TCP or UDP with ports. False for all others; they are for user space.
always_inline int see(const u8 *data, const u8 *end, struct seen *seen)
{
	const u8 *at = data + ETHER_LEN;
	if (at > end)
		return 0;
	u16 type = big_endian(data + 12);
#pragma unroll
	for (int tag = 0; tag < 2; tag++) {
		if (type != VLAN && type != SERVICE_VLAN)
			break;
		if (at + VLAN_LEN > end)
			return 0;
		type = big_endian(at + 2);
		at += VLAN_LEN;
	}
	u64 from[2], to[2];
	u32 protocol, payload, version;
	const u8 *transport;
	seen->is_plain = 1;
	if (type == IPV4) {
		if (at + IPV4_LEN > end || at[0] >> 4 != 4)
			return 0;
		u32 header = (at[0] & 15) * 4;
		u32 fragment = big_endian(at + 6);
		// Later fragments have no ports.
		if (header < IPV4_LEN || fragment & 0x1fff)
			return 0;
		u32 total = big_endian(at + 2);
		if (header != IPV4_LEN || fragment & 0x2000 || total < IPV4_LEN || total > (u64)(end - at))
			seen->is_plain = 0;
		version = 4;
		protocol = at[9];
		payload = total - header;
		from[0] = to[0] = 0;
		from[1] = big_endian_32(at + 12);
		to[1] = big_endian_32(at + 16);
		transport = at + header;
	} else if (type == IPV6) {
		if (at + IPV6_LEN > end || at[0] >> 4 != 6)
			return 0;
		payload = big_endian(at + 4);
		if (payload + IPV6_LEN > (u64)(end - at))
			seen->is_plain = 0;
		version = 6;
		protocol = at[6];
		from[0] = big_endian_64(at + 8);
		from[1] = big_endian_64(at + 16);
		to[0] = big_endian_64(at + 24);
		to[1] = big_endian_64(at + 32);
		transport = at + IPV6_LEN;
	} else {
		return 0;
	}
	if ((protocol != TCP && protocol != UDP) || transport + 8 > end)
		return 0;
	u64 from_port = big_endian(transport), to_port = big_endian(transport + 2);
	seen->segment.seq = seen->segment.end = seen->segment.ack = 0;
	seen->segment.window = 0;
	if (protocol == UDP) {
		u32 len = big_endian(transport + 4);
		if (len < 8 || len > payload || to_port == VXLAN || to_port == GENEVE)
			seen->is_plain = 0;
	} else if (transport + 20 > end) {
		seen->is_plain = 0;
	} else {
		u32 header = (transport[12] >> 4) * 4;
		// A time stamp alone, or no options.
		int has_known_options = header == 20 ||
			(header == 32 && transport + 32 <= end && big_endian_32(transport + 20) == 0x0101080a);
		if (!has_known_options || header > payload || (transport[13] & (FIN | SYN | RST | ACK)) != ACK)
			seen->is_plain = 0;
		seen->segment.seq = big_endian_32(transport + 4);
		seen->segment.ack = big_endian_32(transport + 8);
		seen->segment.window = big_endian(transport + 14);
		seen->segment.end = seen->segment.seq + payload - header;
	}
	int is_first = from[0] < to[0] ||
		(from[0] == to[0] && (from[1] < to[1] || (from[1] == to[1] && from_port <= to_port)));
	seen->segment.from_first = is_first;
	seen->key.hosts[0] = is_first ? from[0] : to[0];
	seen->key.hosts[1] = is_first ? from[1] : to[1];
	seen->key.hosts[2] = is_first ? to[0] : from[0];
	seen->key.hosts[3] = is_first ? to[1] : from[1];
	seen->key.rest = (is_first ? from_port << 48 | to_port << 32 : to_port << 48 | from_port << 32) |
		(u64)protocol << 24 | (u64)version << 16;
	return 1;
}

// packet/src/offload.rs: sequence number `a` is not after `b`.
always_inline int at_most(u32 a, u32 b) { return (int)(a - (b + 1)) < 0; }

// packet/src/offload.rs, TcpWindows::take: takes a segment if it is within the windows.
always_inline int take_segment(struct entry *entry, const struct segment *segment)
{
	u32 of_sender = segment->from_first ? 0 : 1;
	struct side *sender = &entry->sides[of_sender], *receiver = &entry->sides[of_sender ^ 1];
	u32 ack_window = sender->max_win > 66000 ? sender->max_win : 66000;
	if (segment->window == 0 || !at_most(segment->seq, sender->max_end) || !at_most(segment->end, sender->max_end) ||
	    !at_most(segment->ack, receiver->end) || !at_most(sender->end - receiver->max_win, segment->end) ||
	    !at_most(receiver->end - ack_window, segment->ack))
		return 0;
	struct segment *last = &entry->last_segment;
	if (last->seq == segment->seq && last->end == segment->end && last->ack == segment->ack &&
	    last->window == segment->window && last->from_first == segment->from_first)
		return 0;
	*last = *segment;
	u32 offered = (u32)segment->window << (sender->scale & 15);
	if (sender->max_win < offered)
		sender->max_win = offered;
	if (!at_most(segment->end, sender->end)) {
		sender->end = segment->end;
		sender->unacknowledged = 1;
	}
	if (!at_most(segment->ack, sender->max_ack))
		sender->max_ack = segment->ack;
	if (at_most(receiver->max_end, segment->ack + offered))
		receiver->max_end = segment->ack + offered;
	if (segment->ack == receiver->end)
		receiver->unacknowledged = 0;
	return 1;
}

// Takes a packet for an entry that the caller has locked. Returns its action; -1 if the packet is not for the entry to take.
always_inline int take_locked(struct entry *entry, const struct seen *seen, u32 len)
{
	u64 now = bpf_ktime_get_ns();
	if (now < entry->last)
		now = entry->last;
	if (now >= entry->deadline || entry->bytes[0] + entry->bytes[1] + len > entry->bytes_max)
		return -1;
	u32 side = seen->segment.from_first ? 0 : 1;
	int action = XDP_DROP;
	if (entry->forwards[side]) {
		action = bpf_redirect_map(&outlet, 0, XDP_DROP);
		// There is no other interface at the moment.
		if (action != XDP_REDIRECT)
			return -1;
	}
	u32 is_owed = 0;
	if (entry->is_tcp) {
		if (!take_segment(entry, &seen->segment))
			return -1;
		is_owed = (entry->sides[0].unacknowledged | entry->sides[1].unacknowledged) & 1;
	}
	entry->packets[side] += 1;
	entry->bytes[side] += len;
	entry->last = now;
	entry->deadline = now + entry->idle[is_owed];
	return action;
}

// Puts a number ahead of a packet that goes to a socket, if there is room.
always_inline void stamp_number(struct xdp_md *context, u64 number)
{
	if (bpf_xdp_adjust_meta(context, -(int)sizeof(struct stamp)))
		return;
	struct stamp *stamp = (struct stamp *)(u64)context->data_meta;
	if ((void *)(stamp + 1) > (void *)(u64)context->data)
		return;
	stamp->number = number;
	stamp->time = 0;
}

// Takes a packet if its connection has an open entry. Returns its action; -1 if it goes to the socket. A packet that an open entry doesn't
// take closes the entry.
always_inline int take(struct xdp_md *context)
{
	struct seen seen;
	const u8 *data = (const u8 *)(u64)context->data, *end = (const u8 *)(u64)context->data_end;
	if (!see(data, end, &seen))
		return -1;
	u32 *index = bpf_map_lookup_elem(&connections, &seen.key);
	if (!index)
		return -1;
	u32 at = *index;
	struct entry *entry = bpf_map_lookup_elem(&entries, &at);
	if (!entry)
		return -1;
	u32 len = end - data;
	// A packet in several buffers is for user space.
	if (bpf_xdp_get_buff_len(context) != len)
		seen.is_plain = 0;
	int is_locked = 0;
	for (int i = 0; i < TRIES; i++) {
		u64 word = *(volatile u64 *)&entry->word;
		if (word & WAITING) {
			u64 shift = seen.segment.from_first ? 32 : 48, mask = 0xffffULL << shift;
			u64 next = (word & ~mask) | ((word + (1ULL << shift)) & mask);
			if (__sync_val_compare_and_swap(&entry->word, word, next) == word) {
				stamp_number(context, (u64)entry->id << 16 | ((next & mask) >> shift));
				return -1;
			}
			continue;
		}
		if (!(word & OPEN))
			return -1;
		if (!seen.is_plain)
			break;
		if (!(word & LOCKED) && __sync_val_compare_and_swap(&entry->word, word, word | LOCKED) == word) {
			is_locked = 1;
			break;
		}
	}
	if (!is_locked) {
		__sync_fetch_and_and(&entry->word, ~OPEN);
		return -1;
	}
	int action = -1, is_other = 0;
	// Between the look at the table and the lock the entry may have been given to another connection.
	for (int i = 0; i < 4; i++)
		is_other |= entry->key.hosts[i] != seen.key.hosts[i];
	is_other |= entry->key.rest != seen.key.rest;
	if (!is_other)
		action = take_locked(entry, &seen, len);
	if (action < 0 && !is_other)
		__sync_fetch_and_and(&entry->word, ~(OPEN | LOCKED));
	else
		__sync_fetch_and_and(&entry->word, ~LOCKED);
	if (action >= 0)
		add_one(OFFLOADED);
	return action;
}

SECTION("xdp.frags/offload")
int offload(struct xdp_md *context)
{
	int action;
	enum verdict verdict = filtered(context, &action);
	if (verdict != TO_FUNCTION && verdict != ACROSS)
		return action;
	action = verdict == TO_FUNCTION ? take(context) : -1;
	return action < 0 ? hand_over(context->rx_queue_index) : action;
}

SECTION("license") const char terms[] = "MIT";
