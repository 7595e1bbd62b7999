/* play.c -- see play.h; what it proves, and how, stands in test_methods.c. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "ring/layout.h"
#include "mem/persist.h"
#include "play.h"
#include "ring/record.h"

#define BEHIND_LEN 512u      /* looked at behind a record */
#define EDGE_LEN (64u << 10) /* of memory between two pages that may not be touched */
#define PAGE_LEN 4096u
#define DEADLINE_NS 30000000000u /* the helper that calls msync may wait for its core */

struct play play;
static uint8_t *edges[2]; /* for keys, for payloads */

static void make_edges(void)
{
	for (unsigned i = 0; i < 2 && edges[i] == NULL; i++) {
		uint8_t *map = mmap(NULL, EDGE_LEN + 2 * PAGE_LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		assert_true(map != MAP_FAILED);
		edges[i] = map + PAGE_LEN;
		assert_int_equal(mprotect(edges[i], EDGE_LEN, PROT_READ | PROT_WRITE), 0);
	}
}

void play_fill(uint8_t *bytes, size_t len)
{
	for (size_t at = 0; at < len; at += 8) {
		uint64_t word = unit_random();

		memcpy(bytes + at, &word, len - at < 8 ? len - at : 8);
	}
}

/* content -- random bytes that end, or begin, where memory does: a byte read beyond them is a fault. */
static uint8_t *content(unsigned edge, size_t len)
{
	uint8_t *bytes = unit_below(2) ? edges[edge] : edges[edge] + EDGE_LEN - len;

	play_fill(bytes, len);
	return bytes;
}

static uint8_t *image_at(uint64_t lsn)
{
	return play.image + lsn % CAPACITY;
}

static void put(uint8_t *at, uint64_t value, size_t len)
{
	memcpy(at, &value, len);
}

static uint64_t get(const uint8_t *at, size_t len)
{
	uint64_t value = 0;

	memcpy(&value, at, len);
	return value;
}

/* draw -- a record into the image. payload_len as it stands in the header; a PAD's is that of what it skips. */
static void draw(
	uint64_t lsn, unsigned flags, const struct farlog_entry *entry, uint64_t payload_len, uint64_t stored_len)
{
	uint8_t *record = image_at(lsn);

	memset(record, 0, stored_len);
	memcpy(record, "FLG1\1\7", 6);
	put(record + 6, flags, 2);
	put(record + 8, lsn, 8);
	put(record + 16, 1, 4);
	put(record + 20, payload_len, 4);
	put(record + 24, play.seq, 8);
	put(record + 44, entry->class_id, 2);
	put(record + 46, entry->key_len, 2);
	if (entry->key_len > 0)
		memcpy(record + 56, entry->key, entry->key_len);
	if (entry->len > 0)
		memcpy(record + 56 + entry->key_len, entry->data, entry->len);
	put(record + stored_len - 8, lsn ^ play.salt, 8);
}

uint64_t play_extent_of(const struct farlog_entry *entry)
{
	return ((uint64_t)64 + entry->key_len + entry->len + play.align - 1) / play.align * play.align;
}

/* play_expect -- the record goes where it has to, behind a PAD where the end of the ring is too near. */
void play_expect(const struct farlog_entry *entry, unsigned flags, const struct farlog_position *position)
{
	static const struct farlog_entry nothing;
	uint64_t extent = play_extent_of(entry);
	uint64_t left = CAPACITY - play.lsn % CAPACITY;

	if (extent > left) {
		draw(play.lsn, RECORD_FLAG_PAD, &nothing, left - 64, 64);
		play.lsn += left;
	}
	assert_int_equal(position->lsn, play.lsn);
	assert_int_equal(position->end_lsn, play.lsn + extent);
	assert_int_equal(position->seq, play.seq);
	draw(play.lsn, flags, entry, entry->len, extent);
	play.lsn += extent;
	play.seq++;
}

static uint64_t stored_len(const uint8_t *record, uint64_t *extent)
{
	uint64_t body_len = get(record + 20, 4) + get(record + 46, 2);

	*extent = (64 + body_len + play.align - 1) / play.align * play.align;
	if (!(get(record + 6, 2) & RECORD_FLAG_PAD))
		return *extent;
	*extent = body_len + 64;
	return 64;
}

/* play_check -- what was appended since the last check, and what lies behind it. */
void play_check(void)
{
	for (uint64_t extent = 0; play.checked_lsn < play.lsn; play.checked_lsn += extent) {
		uint8_t *record = image_at(play.checked_lsn);
		const uint8_t *stored = play.ring + play.checked_lsn % CAPACITY;
		uint64_t len = stored_len(record, &extent);
		uint64_t body_len = len > 64 ? get(record + 20, 4) + get(record + 46, 2) : 0;
		uint32_t crc;

		memcpy(record + 32, stored + 32, 12); /* timestamp and clock error */
		crc = crc32c_update_table((uint32_t)play.salt, record, 52);
		put(record + 52, crc32c_update_table(crc, record + 56, body_len), 4);
		assert_memory_equal(stored, record, len);
	}
	for (uint64_t lsn = play.lsn; lsn < play.lsn + BEHIND_LEN; lsn += 64)
		assert_memory_equal(play.ring + lsn % CAPACITY, image_at(lsn), 64);
}

void play_wait_all(void)
{
	if (play.pending_count > 0)
		assert_int_equal(farlog_wait(play.writer, play.lsn, DEADLINE_NS), FARLOG_OK);
	play.pending_count = 0;
	play_check();
}

/* play_drain -- all there is, against the image. */
void play_drain(void)
{
	static uint8_t buf[CAPACITY];
	struct farlog_batch batch;
	uint64_t extent;
	uint64_t len;

	play_wait_all();
	while (farlog_reader_read(play.drain, buf, sizeof(buf), &batch) == FARLOG_OK) {
		for (uint64_t at = 0; at < batch.len; at += len, play.drained_lsn += extent) {
			len = stored_len(image_at(play.drained_lsn), &extent);
			assert_true(at + len <= batch.len);
			assert_memory_equal(buf + at, image_at(play.drained_lsn), len);
		}
		assert_int_equal(batch.next_lsn, play.drained_lsn);
		assert_int_equal(
			farlog_reader_release(play.drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	}
	assert_int_equal(play.drained_lsn, play.lsn);
	assert_memory_equal(play.ring, play.image, CAPACITY);
}

void play_make_room(uint64_t extent)
{
	uint64_t left = CAPACITY - play.lsn % CAPACITY;

	if (play.lsn + extent + (extent > left ? left : 0) + BEHIND_LEN > play.drained_lsn + CAPACITY)
		play_drain();
}

struct farlog_entry play_make_entry(uint16_t key_len, uint32_t len)
{
	return (struct farlog_entry){.data = content(1, len),
		.len = len,
		.class_id = (uint16_t)unit_random(),
		.key = content(0, key_len),
		.key_len = key_len};
}

static int commit_claim(const struct farlog_entry *entry, struct farlog_position *position)
{
	void *payload;
	int result = farlog_claim(play.writer, entry->len, entry->class_id, entry->key, entry->key_len, &payload);

	if (result != FARLOG_OK)
		return result;
	memcpy(payload, entry->data, entry->len);
	return farlog_commit(play.writer, 0, position);
}

int play_append_by(enum way way, const struct farlog_entry *entry, struct farlog_position *position)
{
	if (play.shared != NULL)
		return farlog_shared_append(play.shared, entry, 0, position);
	switch (way) {
	case WAY_TRY:
		return farlog_try_append(play.writer, entry, position);
	case WAY_SUBMIT:
		play.pending_count++;
		return farlog_submit(play.writer, entry, position);
	case WAY_CLAIM:
		return commit_claim(entry, position);
	default:
		return farlog_append(play.writer, entry, 0, position);
	}
}

void play_append(enum way way, uint16_t key_len, uint32_t len)
{
	struct farlog_entry entry = play_make_entry(key_len, len);
	struct farlog_position position;

	play_make_room(play_extent_of(&entry));
	assert_int_equal(play_append_by(way, &entry, &position), FARLOG_OK);
	play_expect(&entry, 0, &position);
	if (way != WAY_SUBMIT || play.shared != NULL)
		play.pending_count = 0; /* an acknowledgement is one of all before it */
	if (play.pending_count == 0 || play.pending_count == PENDING_MAX)
		play_wait_all();
}

void play_append_heartbeat(void)
{
	struct farlog_entry nothing = {0};
	struct farlog_position position;

	play_make_room(play_extent_of(&nothing));
	assert_int_equal(farlog_heartbeat(play.writer, 0, &position), FARLOG_OK);
	play_expect(&nothing, RECORD_FLAG_HEARTBEAT, &position);
	play.pending_count = 0;
	play_wait_all();
}

#define BATCH_MAX 80u /* more than one run of records that share a reading of the clock */

/* append_batch -- of `count` entries, the one at bad_at such that it cannot be taken; none where bad_at is not below
 * count. */
static void append_batch(unsigned count, unsigned bad_at, const struct farlog_entry *bad, int refusal)
{
	static uint8_t bytes[BATCH_MAX][400];
	struct farlog_entry entries[BATCH_MAX];
	struct farlog_position positions[BATCH_MAX];
	uint64_t extent = 0;
	unsigned good_count;
	size_t done, submitted;

	if (count > CAPACITY / 2 / play.align)
		count = CAPACITY / 2 / play.align;
	good_count = bad_at < count ? bad_at : count;
	for (unsigned i = 0; i < count; i++) {
		uint16_t key_len = (uint16_t)unit_below(100);

		play_fill(bytes[i], sizeof(bytes[i]));
		entries[i] = (struct farlog_entry){.data = bytes[i] + key_len,
			.len = (uint32_t)unit_below(300),
			.class_id = (uint16_t)i,
			.key = bytes[i],
			.key_len = key_len};
		extent += play_extent_of(&entries[i]);
	}
	if (bad_at < count)
		entries[bad_at] = *bad;
	play_make_room(extent + RECORD_LEN_MAX);
	assert_int_equal(farlog_append_batch(play.writer, entries, count, 0, positions, &done, &submitted),
		bad_at < count ? refusal : FARLOG_OK);
	assert_int_equal(done, good_count);
	assert_int_equal(submitted, good_count);
	for (unsigned i = 0; i < good_count; i++) {
		play_expect(&entries[i], 0, &positions[i]);
		assert_int_equal(positions[i].level, FARLOG_LEVEL_VISIBLE);
	}
	play.pending_count = 0;
	play_wait_all();
}

void play_append_any_batch(void)
{
	static const struct farlog_entry bad[] = {{.data = bad, .len = RECORD_LEN_MAX, .class_id = 1},
		{.len = 1, .class_id = 1}, {.data = bad, .len = 1, .class_id = 1, .key_len = 7}};
	unsigned kind = (unsigned)unit_below(3);
	unsigned count = (unsigned)unit_below(BATCH_MAX + 1);
	unsigned bad_at = (unsigned)unit_below(4 * BATCH_MAX);

	append_batch(count, bad_at, &bad[kind], kind == 0 ? FARLOG_TOO_LARGE : FARLOG_INVALID);
}

static void open_play(
	const char *path, enum farlog_flush_method method, uint32_t align, uint32_t record_len_max, bool is_shared)
{
	struct farlog_ring_config format = {
		.size_bytes = LAYOUT_DATA_OFF + CAPACITY, .align = align, .record_len_max = record_len_max, .is_forced = 1};
	struct farlog_writer_config *writing =
		CONFIG(.level = FARLOG_LEVEL_VISIBLE, .policy = FARLOG_POLICY_REJECT, .deadline_ns = DEADLINE_NS);
	struct farlog_ring_status status;
	struct farlog_error error = {0};
	int fd;

	memset(&play, 0, sizeof(play));
	snprintf(play.uri, sizeof(play.uri), "mem:%s?flush=%s", path, persist_method_name(method));
	if (farlog_ring_format(play.uri, &format, &error) != FARLOG_OK)
		fail_msg("format: %s", error.text);
	if (is_shared)
		assert_int_equal(farlog_shared_open(play.uri, writing, &play.shared, &error), FARLOG_OK);
	else
		assert_int_equal(farlog_writer_open(play.uri, writing, &play.writer, &error), FARLOG_OK);
	play.drain = unit_read(play.uri, FARLOG_START_HEAD, true);
	assert_int_equal(farlog_ring_inspect(play.uri, &status, &error), FARLOG_OK);
	play.salt = status.salt;
	play.align = align;
	play.record_len_max = record_len_max;
	fd = open(path, O_RDONLY);
	play.region = mmap(NULL, LAYOUT_DATA_OFF + CAPACITY, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	assert_true(play.region != MAP_FAILED);
	play.ring = play.region + LAYOUT_DATA_OFF;
	play.lsn = play.checked_lsn = status.appended_lsn;
	play.seq = 1;
	memcpy(play.image, play.ring, status.appended_lsn); /* the EPOCH record */
}

static void close_play(void)
{
	play_drain();
	assert_int_equal(
		play.shared != NULL ? farlog_shared_close(play.shared) : farlog_writer_close(play.writer), FARLOG_OK);
	farlog_reader_close(play.drain);
	munmap((void *)(uintptr_t)play.region, LAYOUT_DATA_OFF + CAPACITY);
}

/* build_in_place -- records are put together where they lie, as a far writer does where records do not go by wide
 * registers. */
static void build_in_place(void)
{
	struct region *region = play.writer->region;

	region->streamed = NULL;
	region->built = (uint8_t *)(uintptr_t)region->base;
	writer_choose_stage(play.writer);
}

void play_over_methods(void (*script)(void), uint32_t align, uint32_t record_len_max, bool is_shared)
{
	static const enum farlog_flush_method methods[] = {FARLOG_FLUSH_NONE, FARLOG_FLUSH_CLWB, FARLOG_FLUSH_CLFLUSHOPT,
		FARLOG_FLUSH_NT_STORE, FARLOG_FLUSH_CVAP, FARLOG_FLUSH_MSYNC};
	const char *path = unit_path(unit_tmpfs_uri("methods"));
	unsigned count = 0;

	make_edges();
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		if (!persist_is_supported(methods[i]))
			continue;
		open_play(path, methods[i], align, record_len_max, is_shared);
		script();
		close_play();
		count++;
	}
	if (!is_shared) {
		open_play(path, FARLOG_FLUSH_NONE, align, record_len_max, false);
		build_in_place();
		script();
		close_play();
	}
	assert_true(count >= 3); /* none, msync, and one that reaches memory */
}
