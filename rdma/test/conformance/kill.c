/* kill.c -- a writer's process is killed while it appends: all that it was told of is there, once and whole. */
#include "conformance.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "ring/layout.h"
#include "ring/record.h"

#define KILLED_BATCH_COUNT 40u
#define KILLED_ROOM_LEN (SIZE / 2) /* a batch, and the EPOCH record of the next writer */

static uint8_t buffer[SIZE];

struct farlog_entry killed_entry(uint64_t seq)
{
	static uint8_t places[KILLED_BATCH_COUNT][RECORD_LEN_MAX];
	uint8_t *bytes = places[seq % KILLED_BATCH_COUNT];
	uint64_t mixed = seq * 0x9E3779B97F4A7C15ull >> 32;
	struct farlog_entry entry = {.data = bytes + 71,
		.len = (uint32_t)(mixed % (mixed % 16 == 0 ? 6000 : 500)),
		.class_id = (uint16_t)seq,
		.key = bytes,
		.key_len = (uint16_t)(seq % 71)};

	for (uint32_t i = 0; i < 71 + entry.len; i++)
		bytes[i] = (uint8_t)(seq + i * 7);
	return entry;
}

/* What a writer that will be killed has been told; shared with the process that kills it. */
struct told {
	uint64_t end_lsn;
	uint64_t count;
};

/* append_killed_batch -- some records under one flush. */
static int append_killed_batch(farlog_writer *writer, uint64_t next_seq, struct told *told)
{
	struct farlog_entry entries[KILLED_BATCH_COUNT];
	struct farlog_position positions[KILLED_BATCH_COUNT];
	size_t done, submitted;
	int result;

	for (unsigned i = 0; i < KILLED_BATCH_COUNT; i++)
		entries[i] = killed_entry(next_seq + i);
	result = farlog_append_batch(writer, entries, KILLED_BATCH_COUNT, 0, positions, &done, &submitted);
	if (done > 0) {
		atomic_store_release(&told->end_lsn, positions[done - 1].end_lsn);
		atomic_store_release(&told->count, told->count + done);
	}
	return result;
}

/* It ends by itself only when something is wrong. */
int append_for_ever(const struct place *place, const struct farlog_grant *grant, void *shared)
{
	struct told *told = shared;
	farlog_writer *writer = open_writer(place, grant, level);
	int result = writer != NULL ? FARLOG_OK : FARLOG_INVALID;

	while (result == FARLOG_OK) {
		struct farlog_cursors cursors;
		struct farlog_position position;
		struct farlog_entry entry;

		farlog_writer_cursors(writer, &cursors);
		if (cursors.appended_lsn - cursors.head_lsn + KILLED_ROOM_LEN > cursors.capacity_bytes) {
			uint64_t durable_lsn;

			result = farlog_poll(writer, &durable_lsn); /* the next writer needs room for its epoch */
			sched_yield();
			continue;
		}
		if (cursors.next_seq % 16 == 0) {
			result = append_killed_batch(writer, cursors.next_seq, told);
			continue;
		}
		entry = killed_entry(cursors.next_seq);
		if (cursors.next_seq % 3 == 0) {
			result = farlog_submit(writer, &entry, &position); /* acknowledged with the next append */
			continue;
		}
		result = farlog_append(writer, &entry, 0, &position);
		if (result != FARLOG_OK)
			continue;
		atomic_store_release(&told->end_lsn, position.end_lsn);
		atomic_store_release(&told->count, told->count + 1);
	}
	fprintf(stderr, "conformance: %s: the writer that was to be killed: %s\n", place->uri, farlog_result_name(result));
	return 1;
}

static bool is_record_right(const struct record_header *header, const uint8_t *body)
{
	struct farlog_entry entry = killed_entry(header->seq);

	return header->payload_len == entry.len && header->key_len == entry.key_len && header->class_id == entry.class_id &&
		memcmp(body, entry.key, entry.key_len) == 0 && memcmp(body + entry.key_len, entry.data, entry.len) == 0;
}

/* drain_batch -- one of them; false: there is none. */
static bool drain_batch(farlog_reader *drain, uint32_t align, uint64_t *next_seq)
{
	struct farlog_batch batch;

	if (farlog_reader_read(drain, buffer, sizeof(buffer), &batch) != FARLOG_OK)
		return false;
	for (uint64_t at = 0; at < batch.len;) {
		struct record_header header;

		memcpy(&header, buffer + at, sizeof(header));
		if (header.flags & RECORD_FLAG_PAD) {
			at += RECORD_PAD_STORED_LEN;
			continue;
		}
		CHECK(*next_seq == 0 || header.seq == *next_seq);
		CHECK(header.flags != 0 || is_record_right(&header, buffer + at + RECORD_HEADER_LEN));
		*next_seq = header.seq + 1;
		at += record_extent(align, header.key_len, header.payload_len);
	}
	CHECK(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch) == FARLOG_OK);
	return true;
}

static uint32_t align_of(farlog_reader *drain)
{
	struct farlog_ring_status status = {.align = LAYOUT_LINE_LEN};

	CHECK(farlog_reader_status(drain, &status) == FARLOG_OK);
	return status.align;
}

void drain_killed(farlog_reader *drain, uint64_t *next_seq)
{
	uint32_t align = align_of(drain);

	while (drain_batch(drain, align, next_seq))
		;
}

/* kill_writer -- in the middle of its work, after `count` acknowledgements and a bit. False: it did not get as far. */
static bool kill_writer(pid_t pid, const struct told *told, uint64_t count, farlog_reader *drain, uint64_t *next_seq)
{
	uint64_t until_ns = clock_after_ns(30000000000ull);
	uint32_t align = align_of(drain);
	int status = 0;

	while (atomic_load_acquire(&told->count) < count && clock_monotonic_ns() < until_ns &&
		waitpid(pid, &status, WNOHANG) == 0) {
		/* So that the ring does not stay full. Not all that is there: a writer may be faster than its drain for
		 * ever. */
		(void)drain_batch(drain, align, next_seq);
		sched_yield();
	}
	kill(pid, SIGKILL);
	if (told->count >= count && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status))
		return true;
	fprintf(stderr, "conformance: %s: writer %d acknowledged %lu of %lu records, status %#x\n", here.uri, (int)pid,
		(unsigned long)told->count, (unsigned long)count, (unsigned)status);
	return false;
}

/* kill_once -- a writer's process, while it appends: everything it was told of is there, once and whole. */
static void kill_once(struct told *told, int shared, uint64_t count_max, uint64_t *next_seq)
{
	uint64_t count = 1 + (uint64_t)rand() % count_max;
	struct farlog_grant grant = entry_take_over(&here);
	farlog_writer *writer;
	farlog_reader *drain;
	pid_t pid;

	memset(told, 0, sizeof(*told));
	pid = entry_spawn("append", &here, &grant, &(struct farlog_grant){0}, shared);
	drain = next_drain();
	CHECK(drain != NULL && kill_writer(pid, told, count, drain, next_seq));
	writer = next_writer();
	CHECK(writer != NULL && farlog_writer_recovery(writer)->tail_lsn >= told->end_lsn);
	drain_killed(drain, next_seq);
	CHECK(writer == NULL || *next_seq == farlog_writer_recovery(writer)->next_seq + 1); /* and the EPOCH record */
	farlog_writer_close(writer);
	farlog_reader_close(drain);
}

void check_kill(void)
{
	bool is_disk = strstr(here.uri, "flush=msync") != NULL || strstr(here.region_uri, "flush=msync") != NULL ||
		strncmp(here.uri, "nvme:", 5) == 0;
	uint64_t count_max = is_disk ? 40 : is_far(&here) ? 300 : 2000;
	unsigned round_count = is_disk || is_far(&here) ? 5 : 15;
	uint64_t next_seq = 0;
	unsigned before = failed;
	struct told *told;
	int shared;

	if (strncmp(here.region_uri, "fault:", 6) == 0) {
		printf("conformance: %s: a writer's death: not here: another process has no part in this memory\n", here.uri);
		return;
	}
	told = entry_share(sizeof(*told), &shared);
	for (unsigned round = 0; round < round_count && failed == before; round++)
		kill_once(told, shared, count_max, &next_seq);
	munmap(told, sizeof(*told));
	close(shared);
}
