/* Many threads, one writer. Run under ThreadSanitizer as well. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "ring/layout.h"
#include "mem/persist.h"
#include "ring/record.h"
#include "region/region.h"
#include "unit.h"

#define CAPACITY (256u << 10)
#define SIZE (LAYOUT_DATA_OFF + CAPACITY)
#define THREAD_COUNT 4u
#define APPENDS_PER_THREAD 1500u
#define TELL_TRIES 10000u
#define LOOKS_MAX 30000u

struct worker {
	pthread_t thread;
	farlog_shared *shared;
	uint32_t number;
	uint32_t acked;
	uint32_t unexpected;
};

struct payload {
	uint32_t worker;
	uint32_t number;
	uint8_t rest[120];
};

static void *append_many(void *context)
{
	struct worker *worker = context;
	uint8_t large[5000] = {0};
	uint64_t last_lsn = 0;

	for (uint32_t i = 0; i < APPENDS_PER_THREAD; i++) {
		struct payload payload = {.worker = worker->number, .number = i};
		struct farlog_entry entry = {.data = large, .len = i % 97 == 0 ? 4900 : 8 + i % 120};
		struct farlog_position position;
		struct farlog_position resolved;
		struct farlog_cursors cursors;
		int result;

		memset(payload.rest, (int)i, sizeof(payload.rest));
		memcpy(large, &payload, sizeof(payload));
		result = farlog_shared_append(worker->shared, &entry, 10000000000ull, &position);
		if (result != FARLOG_OK || (last_lsn != 0 && position.lsn <= last_lsn)) {
			worker->unexpected++;
			continue;
		}
		last_lsn = position.lsn;
		worker->acked++;
		if (i % 64 == 0 && farlog_shared_resolve(worker->shared, position.lsn, 1000000000, &resolved) != FARLOG_OK)
			worker->unexpected++;
		farlog_shared_cursors(worker->shared, &cursors);
		if (cursors.head_lsn > cursors.appended_lsn || cursors.durable_lsn > cursors.appended_lsn ||
			cursors.appended_lsn - cursors.head_lsn > cursors.capacity_bytes)
			worker->unexpected++;
	}
	return NULL;
}

struct drainer {
	pthread_t thread;
	farlog_reader *drain;
	uint64_t is_stopping;
	uint64_t next_seq;
	uint32_t seen[THREAD_COUNT];
	uint32_t unexpected;
};

static void check_records(struct drainer *drainer, const uint8_t *bytes, uint64_t len)
{
	for (uint64_t at = 0; at < len;) {
		struct record_header header;
		struct payload payload;

		memcpy(&header, bytes + at, sizeof(header));
		if (header.flags & RECORD_FLAG_PAD) {
			at += 64;
			continue;
		}
		drainer->unexpected += header.seq != drainer->next_seq++;
		if (header.flags == 0) {
			memcpy(&payload, bytes + at + 56, 8);
			/* A thread's records are in its own order. */
			drainer->unexpected += payload.worker >= THREAD_COUNT || payload.number != drainer->seen[payload.worker];
			if (payload.worker < THREAD_COUNT)
				drainer->seen[payload.worker]++;
		}
		at += record_extent(64, header.key_len, header.payload_len);
	}
}

static void *drain_all(void *context)
{
	static uint8_t buffer[64 << 10];
	struct drainer *drainer = context;

	for (;;) {
		bool is_last = __atomic_load_n(&drainer->is_stopping, __ATOMIC_ACQUIRE);
		struct farlog_batch batch;
		int result = farlog_reader_read(drainer->drain, buffer, sizeof(buffer), &batch);

		if (result == FARLOG_OK) {
			check_records(drainer, buffer, batch.len);
			if (farlog_reader_release(drainer->drain, batch.next_lsn, batch.next_seq, batch.last_epoch) != FARLOG_OK)
				drainer->unexpected++;
		} else if (result != FARLOG_NOT_YET) {
			drainer->unexpected++;
			return NULL;
		} else if (is_last) {
			return NULL;
		}
	}
}

static void run(const char *uri, uint32_t level)
{
	struct farlog_writer_config config = {.level = level, .counters_dir = ""};
	struct worker workers[THREAD_COUNT] = {0};
	struct drainer drainer = {0};
	struct farlog_error error = {0};
	farlog_shared *shared;

	if (farlog_shared_open(uri, &config, &shared, &error) != FARLOG_OK)
		fail_msg("%s", error.text);
	drainer.drain = unit_read(uri, FARLOG_START_HEAD, true);
	assert_int_equal(pthread_create(&drainer.thread, NULL, drain_all, &drainer), 0);
	for (uint32_t i = 0; i < THREAD_COUNT; i++) {
		workers[i].shared = shared;
		workers[i].number = i;
		assert_int_equal(pthread_create(&workers[i].thread, NULL, append_many, &workers[i]), 0);
	}
	for (uint32_t i = 0; i < THREAD_COUNT; i++)
		pthread_join(workers[i].thread, NULL);
	assert_int_equal(farlog_shared_close(shared), FARLOG_OK);
	__atomic_store_n(&drainer.is_stopping, 1, __ATOMIC_RELEASE);
	pthread_join(drainer.thread, NULL);
	farlog_reader_close(drainer.drain);
	assert_int_equal(drainer.unexpected, 0);
	for (uint32_t i = 0; i < THREAD_COUNT; i++) {
		assert_int_equal(workers[i].unexpected, 0);
		assert_int_equal(workers[i].acked, APPENDS_PER_THREAD);
		assert_int_equal(drainer.seen[i], APPENDS_PER_THREAD);
	}
}

/* By every way that bytes take to memory: the default of tmpfs is a plain copy. */
static void shared__threads_on_memory(void **state)
{
	static const enum farlog_flush_method methods[] = {
		FARLOG_FLUSH_NONE, FARLOG_FLUSH_CLWB, FARLOG_FLUSH_CLFLUSHOPT, FARLOG_FLUSH_NT_STORE, FARLOG_FLUSH_CVAP};
	char uri[400];

	(void)state;
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		if (!persist_is_supported(methods[i]))
			continue;
		snprintf(uri, sizeof(uri), "%s?flush=%s", unit_tmpfs_uri("shared"), persist_method_name(methods[i]));
		unit_format(uri, SIZE, 8192);
		run(uri, FARLOG_LEVEL_VISIBLE);
	}
}

static void shared__threads_with_group_commit(void **state)
{
	(void)state;
	unit_fault(SIZE, 8192);
	run(FAULT_URI, FARLOG_LEVEL_PERSISTENT);
}

static void *append_until_refused(void *context)
{
	struct worker *worker = context;
	struct farlog_entry entry = {.data = "12345678", .len = 8};
	struct farlog_position position;
	int result;

	do {
		result = farlog_shared_append(worker->shared, &entry, 1000000000, &position);
		worker->acked += result == FARLOG_OK;
	} while (result == FARLOG_OK);
	worker->unexpected = result != FARLOG_UNKNOWN && result != FARLOG_CLOSED;
	return NULL;
}

/* The region dies under the threads: each is told UNKNOWN or CLOSED, none hangs. */
static void shared__region_fails_under_threads(void **state)
{
	struct worker workers[THREAD_COUNT] = {0};
	struct farlog_writer_config config = {.counters_dir = ""};
	farlog_shared *shared;

	(void)state;
	unit_fault(LAYOUT_DATA_OFF + (4u << 20), 8192);
	assert_int_equal(farlog_shared_open(FAULT_URI, &config, &shared, NULL), FARLOG_OK);
	farlog_fault_arm(FAULT_NAME, 2000);
	for (uint32_t i = 0; i < THREAD_COUNT; i++) {
		workers[i].shared = shared;
		pthread_create(&workers[i].thread, NULL, append_until_refused, &workers[i]);
	}
	for (uint32_t i = 0; i < THREAD_COUNT; i++)
		pthread_join(workers[i].thread, NULL);
	for (uint32_t i = 0; i < THREAD_COUNT; i++)
		assert_int_equal(workers[i].unexpected, 0);
	assert_int_equal(farlog_shared_close(shared), FARLOG_UNKNOWN);
	farlog_fault_crash(FAULT_NAME);
}

static void shared__outcomes_of_one_thread(void **state)
{
	const char *uri = unit_tmpfs_uri("shared-one");
	static uint8_t large[9000];
	struct farlog_writer_config config = {
		.level = FARLOG_LEVEL_VISIBLE, .policy = FARLOG_POLICY_REJECT, .counters_dir = ""};
	struct farlog_entry entry = {.data = large, .len = 9000};
	struct farlog_position position;
	farlog_shared *shared;

	(void)state;
	unit_format(uri, SIZE, 8192);
	assert_int_equal(farlog_shared_open(uri, &config, &shared, NULL), FARLOG_OK);
	assert_int_equal(farlog_shared_append(shared, &entry, 0, &position), FARLOG_TOO_LARGE);
	entry.len = 100;
	assert_int_equal(farlog_shared_append(shared, &entry, 0, &position), FARLOG_OK);
	assert_int_equal(farlog_shared_resolve(shared, position.lsn, 0, &position), FARLOG_OK);
	assert_int_equal(farlog_shared_resolve(shared, position.lsn + (1u << 20), 0, &position), FARLOG_NOT_FOUND);
	while (farlog_shared_append(shared, &entry, 0, &position) == FARLOG_OK)
		;
	assert_int_equal(farlog_shared_append(shared, &entry, 0, &position), FARLOG_FULL);
	assert_int_equal(farlog_ring_fence(uri, 7, NULL), FARLOG_OK);
	assert_int_equal(farlog_shared_append(shared, &entry, 0, &position), FARLOG_FENCED);
	assert_int_equal(position.epoch, 7);
	assert_int_equal(farlog_shared_close(shared), FARLOG_OK);
	assert_int_equal(farlog_shared_close(NULL), FARLOG_OK);
}

/* shared__resolve_looks_once -- whatever its deadline: the flush that an append left behind ends at some time, and who
 * asks with deadlines that have passed before anything is looked at must come to know of it. */
static void shared__resolve_looks_once(void **state)
{
	const char *uri = unit_file_uri("shared-once");
	struct farlog_writer_config config = {
		.level = FARLOG_LEVEL_PERSISTENT, .policy = FARLOG_POLICY_REJECT, .counters_dir = ""};
	struct farlog_entry entry = {.data = uri, .len = 8};
	struct farlog_position position = {0};
	struct farlog_position resolved;
	farlog_shared *shared;
	int result = FARLOG_UNKNOWN;

	(void)state;
	unit_format(uri, SIZE, 8192);
	assert_int_equal(farlog_shared_open(uri, &config, &shared, NULL), FARLOG_OK);
	assert_int_equal(farlog_shared_append(shared, &entry, 1, &position), FARLOG_UNKNOWN);
	for (unsigned i = 0; result == FARLOG_UNKNOWN && i < LOOKS_MAX; i++) {
		usleep(1000);
		result = farlog_shared_resolve(shared, position.lsn, 1, &resolved);
	}
	assert_int_equal(result, FARLOG_OK);
	assert_int_equal(resolved.level, FARLOG_LEVEL_PERSISTENT);
	assert_int_equal(farlog_shared_close(shared), FARLOG_OK);
}

static uint64_t tail_hint_of(const char *uri)
{
	struct region_options options = {.access = REGION_READ, .role = REGION_ROLE_READER};
	struct region *region;
	uint64_t tail_lsn;

	assert_int_equal(region_open(uri, &options, &region, NULL), FARLOG_OK);
	tail_lsn = region_load_word(region, LAYOUT_TAIL_HINT_OFF);
	region->ops->close(region);
	return tail_lsn;
}

/* fill_and_tell -- the writer fills the ring within the time between two hints, and goes on trying. */
static void fill_and_tell(const char *uri, uint32_t level)
{
	struct farlog_writer_config config = {.level = level, .policy = FARLOG_POLICY_REJECT, .counters_dir = ""};
	struct farlog_entry entry = {.data = uri, .len = 8};
	struct farlog_position position = {0};
	struct farlog_position last = {0};
	farlog_shared *shared;
	unsigned tries = 0;

	assert_int_equal(farlog_shared_open(uri, &config, &shared, NULL), FARLOG_OK);
	while (farlog_shared_append(shared, &entry, 0, &position) == FARLOG_OK)
		last = position;
	while (tail_hint_of(uri) != last.end_lsn && tries++ < TELL_TRIES)
		assert_int_equal(farlog_shared_append(shared, &entry, 0, &position), FARLOG_FULL);
	assert_int_equal(tail_hint_of(uri), last.end_lsn);
	assert_int_equal(farlog_shared_close(shared), FARLOG_OK);
}

/* shared__full_ring_is_told -- no append comes any more that would tell readers of the last records, by which a drain
 * makes room. */
static void shared__full_ring_is_told(void **state)
{
	const char *uri = unit_tmpfs_uri("full");

	(void)state;
	unit_format(uri, LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN, 1024);
	fill_and_tell(uri, FARLOG_LEVEL_VISIBLE);
	unit_fault(LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN, 1024);
	fill_and_tell(FAULT_URI, 0);
}

/* shared__full_ring_is_told_as_far_as_durable -- no flush comes back: what nobody was told is durable is not told to a
 * drain either, full as the ring is. */
static void shared__full_ring_is_told_as_far_as_durable(void **state)
{
	struct farlog_writer_config config = {.policy = FARLOG_POLICY_REJECT, .counters_dir = ""};
	struct farlog_entry entry = {.data = FAULT_URI, .len = 8};
	struct farlog_position position = {0};
	struct farlog_position last = {0};
	farlog_shared *shared;

	(void)state;
	unit_fault(LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN, 1024);
	assert_int_equal(farlog_shared_open(FAULT_URI, &config, &shared, NULL), FARLOG_OK);
	assert_int_equal(farlog_shared_append(shared, &entry, 1000000000, &last), FARLOG_OK);
	farlog_fault_set_slowness(FAULT_NAME, 256);
	while (farlog_shared_append(shared, &entry, 1000000, &position) == FARLOG_UNKNOWN)
		;
	for (unsigned tries = 0; tries < TELL_TRIES; tries++)
		assert_int_equal(farlog_shared_append(shared, &entry, 0, &position), FARLOG_FULL);
	assert_true(tail_hint_of(FAULT_URI) <= last.end_lsn);
	farlog_fault_set_slowness(FAULT_NAME, 128);
	assert_int_equal(farlog_shared_close(shared), FARLOG_OK);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(shared__full_ring_is_told),
	cmocka_unit_test(shared__full_ring_is_told_as_far_as_durable),
	cmocka_unit_test(shared__threads_on_memory),
	cmocka_unit_test(shared__threads_with_group_commit),
	cmocka_unit_test(shared__region_fails_under_threads),
	cmocka_unit_test(shared__outcomes_of_one_thread),
	cmocka_unit_test(shared__resolve_looks_once),
};
RUN_GROUP(shared, tests)
