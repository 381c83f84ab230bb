/*
 * What benches/dpdk/rte.rs needs of DPDK, with the loops over bursts as a DPDK program would write them.
 *
 * Each table lies on a heap of its own, over memory that asks for huge pages (rte_malloc_heap_memory_add). So it needs
 * neither reserved huge pages nor root, and the heap's own count says what the table takes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_config.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_jhash.h>
#include <rte_malloc.h>
#include <rte_prefetch.h>
#include <rte_version.h>

#define BURST 32
/* Keys lie this far apart whatever their length. */
#define KEY_STRIDE 16
#define HUGE_PAGE ((size_t)2 << 20)

/* How the state is reached; as `Read` in rte.rs. */
enum { READ_ARRAY, READ_DATA, READ_NOTHING };

struct shim_plan {
	uint32_t entries;
	uint32_t key_len;
	uint32_t state_bytes;
	uint32_t read;
	bool jhash;
	bool extendable;
};

struct shim_table {
	struct rte_hash *hash;
	/* The state of the key at each position; NULL if the key's data is the state. */
	uint8_t *states;
	struct shim_plan plan;
	char name[16];
	int socket;
	uint8_t *base;
	size_t length;
};

const char *shim_version(void)
{
	return rte_version();
}

const char *shim_error(void)
{
	return rte_strerror(rte_errno);
}

/*
 * No huge pages, no devices, one core: the one that we are on. --in-memory doesn't go with --no-huge, so DPDK makes a folder
 * at its start, and without shared configuration puts nothing there that stays: it gets one that we take away at once.
 */
bool shim_start(void)
{
	char core[32], parent[] = "/tmp/millrace-dpdk-XXXXXX", child[64];
	snprintf(core, sizeof(core), "--lcores=0@%d", sched_getcpu());
	char *arguments[] = {
		"rte_hash", "--no-huge",	"--no-pci", "--no-shconf",	 "-m", "64", "--no-telemetry",
		core,	    "--iova-mode=va", "--log-level=error", "--file-prefix=rte_hash",
	};
	if (mkdtemp(parent) == NULL || setenv("RUNTIME_DIRECTORY", parent, 1) != 0) {
		rte_errno = errno;
		return false;
	}
	bool started = rte_eal_init(sizeof(arguments) / sizeof(*arguments), arguments) >= 0;
	snprintf(child, sizeof(child), "%s/dpdk/rte_hash", parent);
	rmdir(child);
	*strrchr(child, '/') = 0;
	rmdir(child);
	rmdir(parent);
	return started;
}

void shim_stop(void)
{
	rte_eal_cleanup();
}

/* A heap with room for the table and all that rte_hash keeps beside it. */
static bool add_heap(struct shim_table *table)
{
	const struct shim_plan *plan = &table->plan;
	size_t entries = rte_align64pow2((uint64_t)plan->entries + 1);
	table->length = entries * (8 * 2 + 4) + (size_t)plan->entries * (32 + KEY_STRIDE + plan->state_bytes) + 8 * HUGE_PAGE;
	table->length = RTE_ALIGN_CEIL(table->length, HUGE_PAGE);
	uint8_t *raw = mmap(NULL, table->length + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (raw == MAP_FAILED) {
		rte_errno = ENOMEM;
		return false;
	}
	table->base = RTE_PTR_ALIGN_CEIL(raw, HUGE_PAGE);
	/* The ends that alignment leaves over go back at once. */
	if (table->base > raw)
		munmap(raw, table->base - raw);
	if (raw + HUGE_PAGE > table->base)
		munmap(table->base + table->length, raw + HUGE_PAGE - table->base);
	/* A kernel that has none to give says so, and small pages do. */
	(void)madvise(table->base, table->length, MADV_HUGEPAGE);
	memset(table->base, 0, table->length);
	if (rte_malloc_heap_create(table->name) != 0)
		goto unmap;
	if (rte_malloc_heap_memory_add(table->name, table->base, table->length, NULL, table->length / HUGE_PAGE, HUGE_PAGE) != 0)
		goto destroy;
	table->socket = rte_malloc_heap_get_socket(table->name);
	return true;
destroy:
	rte_malloc_heap_destroy(table->name);
unmap:
	munmap(table->base, table->length);
	return false;
}

static void remove_heap(struct shim_table *table)
{
	if (rte_malloc_heap_memory_remove(table->name, table->base, table->length) == 0) {
		rte_malloc_heap_destroy(table->name);
		munmap(table->base, table->length);
	}
}

struct shim_table *shim_new(const struct shim_plan *plan)
{
	static unsigned int count;
	struct shim_table *table = rte_zmalloc(NULL, sizeof(*table), 0);
	if (table == NULL)
		return NULL;
	table->plan = *plan;
	snprintf(table->name, sizeof(table->name), "millrace%u", count++);
	if (!add_heap(table))
		goto forget;
	struct rte_hash_parameters parameters = {
		.name = table->name,
		.entries = plan->entries,
		.key_len = plan->key_len,
		.hash_func = plan->jhash ? rte_jhash : rte_hash_crc,
		.socket_id = table->socket,
		.extra_flag = plan->extendable ? RTE_HASH_EXTRA_FLAGS_EXT_TABLE : 0,
	};
	table->hash = rte_hash_create(&parameters);
	if (table->hash == NULL)
		goto heap;
	if (plan->read != READ_DATA || plan->state_bytes > sizeof(void *)) {
		table->states = rte_zmalloc_socket(NULL, (size_t)plan->entries * plan->state_bytes, 64, table->socket);
		if (table->states == NULL)
			goto hash;
	}
	return table;
hash:
	rte_hash_free(table->hash);
heap:
	remove_heap(table);
forget:
	rte_free(table);
	return NULL;
}

void shim_free(struct shim_table *table)
{
	rte_hash_free(table->hash);
	rte_free(table->states);
	remove_heap(table);
	rte_free(table);
}

/* What the table takes of its heap. */
size_t shim_bytes(const struct shim_table *table)
{
	struct rte_malloc_socket_stats stats;
	return rte_malloc_get_socket_stats(table->socket, &stats) == 0 ? stats.heap_allocsz_bytes : 0;
}

static inline uint64_t *state_at(const struct shim_table *table, int32_t position)
{
	return (uint64_t *)(table->states + (size_t)position * table->plan.state_bytes);
}

static inline bool insert(const struct shim_table *table, const uint8_t *key, uint64_t word)
{
	if (table->states == NULL)
		return rte_hash_add_key_data(table->hash, key, (void *)(uintptr_t)word) == 0;
	int32_t position = rte_hash_add_key(table->hash, key);
	if (position < 0)
		return false;
	uint64_t *state = state_at(table, position);
	state[0] = word;
	for (size_t at = 1; at < table->plan.state_bytes / 8; at++)
		state[at] = 0;
	return table->plan.read != READ_DATA || rte_hash_add_key_data(table->hash, key, state) == 0;
}

/* How many of the keys are in then. */
size_t shim_insert(const struct shim_table *table, const uint8_t *keys, const uint64_t *words, size_t count)
{
	size_t done = 0;
	for (size_t at = 0; at < count; at++)
		done += insert(table, keys + at * KEY_STRIDE, words[at]);
	return done;
}

/* How many of the keys were in. */
size_t shim_remove(const struct shim_table *table, const uint8_t *keys, size_t count)
{
	size_t done = 0;
	for (size_t at = 0; at < count; at++)
		done += rte_hash_del_key(table->hash, keys + at * KEY_STRIDE) >= 0;
	return done;
}

/* Takes the old keys out and puts the new ones in, one by one; how many of them it was. */
size_t shim_churn(const struct shim_table *table, const uint8_t *old, const uint8_t *new, const uint64_t *words, size_t count)
{
	size_t done = 0;
	for (size_t at = 0; at < count; at++) {
		done += rte_hash_del_key(table->hash, old + at * KEY_STRIDE) >= 0;
		done += insert(table, new + at * KEY_STRIDE, words[at]);
	}
	return done;
}

static size_t look_positions(const struct shim_table *table, const void **burst, uint32_t count, uint64_t *sum)
{
	int32_t positions[BURST];
	size_t hits = 0;
	rte_hash_lookup_bulk(table->hash, burst, count, positions);
	for (uint32_t at = 0; at < count; at++)
		hits += positions[at] >= 0;
	if (table->plan.read == READ_NOTHING)
		return hits;
	for (uint32_t at = 0; at < count; at++)
		if (positions[at] >= 0)
			rte_prefetch0(state_at(table, positions[at]));
	for (uint32_t at = 0; at < count; at++)
		if (positions[at] >= 0)
			*sum += *state_at(table, positions[at]);
	return hits;
}

static size_t look_data(const struct shim_table *table, const void **burst, uint32_t count, uint64_t *sum)
{
	void *data[BURST];
	uint64_t hits = 0;
	rte_hash_lookup_bulk_data(table->hash, burst, count, &hits, data);
	if (table->states == NULL) {
		for (uint32_t at = 0; at < count; at++)
			*sum += (hits >> at & 1) != 0 ? (uintptr_t)data[at] : 0;
		return __builtin_popcountll(hits);
	}
	for (uint32_t at = 0; at < count; at++)
		if ((hits >> at & 1) != 0)
			rte_prefetch0(data[at]);
	for (uint32_t at = 0; at < count; at++)
		if ((hits >> at & 1) != 0)
			*sum += *(const uint64_t *)data[at];
	return __builtin_popcountll(hits);
}

/* How many of the keys are in, and the sum of the first words of their states. */
size_t shim_look(const struct shim_table *table, const uint8_t *keys, size_t count, uint64_t *sum)
{
	const void *burst[BURST];
	size_t hits = 0;
	for (size_t first = 0; first < count; first += BURST) {
		uint32_t length = RTE_MIN(count - first, (size_t)BURST);
		for (uint32_t at = 0; at < length; at++)
			burst[at] = keys + (first + at) * KEY_STRIDE;
		hits += table->plan.read == READ_DATA ? look_data(table, burst, length, sum)
						      : look_positions(table, burst, length, sum);
	}
	return hits;
}
