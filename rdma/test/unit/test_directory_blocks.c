/* Many rings on one device: what test_directory.c shows of memory, by whole LBAs; and power cuts in each operation on
 * adversarial blocks. ROUNDS=n of each cut (2). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "adversary/blocks.h"
#include "region/directory.h"
#include "ring/record.h"
#include "blocks/nvme.h"
#include "unit.h"

#define NAME "directory-blocks"
#define BLOCKS "block-fault:" NAME
#define RING_LEN (LAYOUT_DATA_OFF + (96u << 10))
#define TAKEN_LEN (RING_LEN + NVME_EXTRA_LEN) /* on the device */
#define DEVICE_LEN (DIRECTORY_LEN + 4 * TAKEN_LEN)
#define LIST_MAX 8
#define ROUND_COUNT 2 /* of cuts everywhere */

static char text[500];
static char failure[300]; /* of a crash, "" = none */

#define FAIL_IF(condition) \
	do { \
		if ((condition) && failure[0] == '\0') \
			snprintf(failure, sizeof(failure), "line %d: %s", __LINE__, #condition); \
	} while (0)

static const char *at(const char *uri, const char *ring)
{
	snprintf(text, sizeof(text), "%s?ring=%s&size=%u", uri, ring, DEVICE_LEN);
	return text;
}

static int format_sized(const char *uri, const char *ring, uint64_t size_bytes, struct farlog_error *error)
{
	struct farlog_ring_config config = {
		.size_bytes = size_bytes, .stream_name = ring, .salt = 0x5A175A175A17ull, .record_len_max = 4096};

	memset(error, 0, sizeof(*error));
	return farlog_ring_format(at(uri, ring), &config, error);
}

static void make(const char *uri, const char *ring)
{
	struct farlog_error error;

	if (format_sized(uri, ring, RING_LEN, &error) != FARLOG_OK)
		fail_msg("format: %s", error.text);
}

static int append(const char *uri, const char *ring, unsigned count, uint8_t fill)
{
	struct farlog_writer_config config = {
		.counters_dir = "", .policy = FARLOG_POLICY_REJECT, .level = FARLOG_LEVEL_VISIBLE};
	struct farlog_position position;
	farlog_writer *writer;
	int result = farlog_writer_open(at(uri, ring), &config, &writer, NULL);

	for (unsigned i = 0; i < count && result == FARLOG_OK; i++)
		result = unit_append(writer, 100, fill, &position);
	if (writer != NULL)
		farlog_writer_close(writer);
	return result;
}

/* count_records -- of `fill`; -1: there are others, or it cannot be read. */
static int count_records(const char *uri, const char *ring, uint8_t fill)
{
	static uint8_t buffer[RING_LEN];
	struct farlog_batch batch;
	farlog_reader *reader;
	int count = 0;

	if (farlog_reader_open(at(uri, ring), NULL, &reader, NULL) != FARLOG_OK)
		return -1;
	while (count >= 0 && farlog_reader_read(reader, buffer, sizeof(buffer), &batch) == FARLOG_OK)
		for (uint64_t off = 0; off < batch.len;) {
			struct record_header header;

			memcpy(&header, buffer + off, sizeof(header));
			off += header.flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN :
													record_extent(64, header.key_len, header.payload_len);
			if (header.flags == 0)
				count = header.class_id == fill && count >= 0 ? count + 1 : -1;
		}
	farlog_reader_close(reader);
	return count;
}

static void blocks(uint32_t lba_len, int has_cache)
{
	farlog_block_drop(NAME);
	farlog_block_hosts(0);
	farlog_block_host(0);
	farlog_block_shape(lba_len, has_cache);
}

static void check_side_by_side(const char *uri)
{
	struct farlog_region_ring rings[LIST_MAX];
	struct farlog_region_status status;
	struct farlog_ring_status ring;
	struct farlog_error error;

	make(uri, "desk7/orders");
	make(uri, "desk7/fills");
	assert_int_equal(append(uri, "desk7/orders", 12, 1), FARLOG_OK);
	assert_int_equal(append(uri, "desk7/fills", 15, 2), FARLOG_OK);
	assert_int_equal(append(uri, "desk7/orders", 3, 1), FARLOG_OK);
	assert_int_equal(count_records(uri, "desk7/orders", 1), 15);
	assert_int_equal(count_records(uri, "desk7/fills", 2), 15);
	assert_int_equal(farlog_region_list(uri, &status, rings, LIST_MAX, NULL), FARLOG_OK);
	assert_int_equal(status.ring_count, 2);
	assert_int_equal(status.largest_free_bytes + NVME_EXTRA_LEN, status.free_bytes);
	assert_string_equal(rings[1].name, "desk7/fills");
	assert_int_equal(rings[1].offset_bytes, DIRECTORY_LEN + TAKEN_LEN);
	assert_int_equal(rings[1].size_bytes, RING_LEN);
	assert_int_equal(rings[1].state, FARLOG_RING_READY);
	assert_int_equal(farlog_ring_fence(at(uri, "desk7/fills"), 9, NULL), FARLOG_OK);
	assert_int_equal(farlog_ring_inspect(at(uri, "desk7/fills"), &ring, NULL), FARLOG_OK);
	assert_int_equal(ring.epoch_min, 9);
	assert_int_equal(ring.contract.size_bytes, RING_LEN);
	assert_int_equal(farlog_ring_inspect(at(uri, "desk7/orders"), &ring, NULL), FARLOG_OK);
	assert_true(ring.epoch_min <= 2); /* its own writers' */
	assert_int_equal(ring.writer_epoch, 2);
	assert_int_equal(farlog_ring_remove(at(uri, "desk7/orders"), 0, &error), FARLOG_EXISTS);
	assert_int_equal(farlog_ring_remove(at(uri, "desk7/orders"), 1, &error), FARLOG_OK);
	make(uri, "next"); /* in its place, by the same salt */
	assert_int_equal(count_records(uri, "next", 1), 0);
	assert_int_equal(count_records(uri, "desk7/fills", 2), 15);
}

static void blocks__rings_side_by_side(void **state)
{
	char uri[300];

	(void)state;
	blocks(512, 1);
	check_side_by_side(BLOCKS);
	blocks(4096, 0);
	check_side_by_side(BLOCKS);
	snprintf(uri, sizeof(uri), "nvme:%s", unit_path(unit_file_uri("parts")));
	check_side_by_side(uri);
}

static void blocks__locks_are_of_one_ring(void **state)
{
	struct farlog_error error = {0};
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_WRITER};
	struct region *region;
	farlog_writer *left;
	farlog_writer *right;
	farlog_writer *second;
	farlog_reader *drain;
	char uri[300];

	(void)state;
	snprintf(uri, sizeof(uri), "nvme:%s", unit_path(unit_file_uri("locks")));
	for (unsigned i = 0; i < 2; i++) {
		const char *where = i == 0 ? uri : BLOCKS;

		blocks(512, 1);
		make(where, "left");
		make(where, "right");
		left = unit_open(at(where, "left"));
		right = unit_open(at(where, "right"));
		drain = unit_read(at(where, "left"), FARLOG_START_HEAD, true);
		assert_int_equal(farlog_writer_open(at(where, "left"), NULL, &second, &error), FARLOG_HELD);
		assert_int_equal(farlog_ring_remove(at(where, "right"), 1, &error), FARLOG_HELD);
		assert_int_equal(farlog_writer_close(right), FARLOG_OK);
		assert_int_equal(farlog_ring_format(where, &(struct farlog_ring_config){.is_forced = 1}, &error), FARLOG_HELD);
		/* A handle that was opened before its ring was removed must not become a writer of what took its place. */
		assert_int_equal(region_open(at(where, "right"), &options, &region, NULL), FARLOG_OK);
		assert_int_equal(farlog_ring_remove(at(where, "right"), 1, &error), FARLOG_OK);
		make(where, "third");
		assert_int_equal(region_lock(region, REGION_ROLE_WRITER), FARLOG_NOT_FOUND);
		region->ops->close(region);
		assert_int_equal(append(where, "third", 3, 1), FARLOG_OK);
		assert_int_equal(farlog_writer_close(left), FARLOG_OK);
		farlog_reader_close(drain);
		assert_int_equal(
			farlog_ring_format(where, &(struct farlog_ring_config){.is_forced = 1}, &error), FARLOG_EXISTS);
		assert_non_null(strstr(error.text, "2 rings"));
	}
}

static void expect(int result, int wanted, const struct farlog_error *error, const char *said)
{
	if (result != wanted || strstr(error->text, said) == NULL)
		fail_msg("%s, expected %s and \"%s\": %s", farlog_result_name(result), farlog_result_name(wanted), said,
			error->text);
}

static void poke(const char *uri, uint64_t off, const void *bytes, size_t len)
{
	int fd = open(uri + strlen("nvme:"), O_RDWR | O_CREAT, 0600);

	assert_int_equal(pwrite(fd, bytes, len, (off_t)off), (ssize_t)len);
	if (off + len < DEVICE_LEN)
		assert_int_equal(ftruncate(fd, DEVICE_LEN), 0);
	close(fd);
}

static void blocks__refusals(void **state)
{
	struct farlog_ring_status status;
	struct farlog_error error;
	char uri[300];
	char single[300];
	char foreign[300];

	(void)state;
	snprintf(uri, sizeof(uri), "nvme:%s", unit_path(unit_file_uri("refusals")));
	snprintf(single, sizeof(single), "nvme:%s", unit_path(unit_file_uri("single")));
	snprintf(foreign, sizeof(foreign), "nvme:%s", unit_path(unit_file_uri("foreign")));
	make(uri, "a");
	expect(format_sized(uri, "b", 4 * TAKEN_LEN, &error), FARLOG_FULL, &error, "no free space for ring");
	expect(format_sized(uri, "b", LAYOUT_DATA_OFF, &error), FARLOG_INVALID, &error, "size");
	expect(farlog_ring_inspect(at(uri, "b"), &status, &error), FARLOG_NOT_FOUND, &error, "\"b\"");
	expect(farlog_ring_inspect(uri, &status, &error), FARLOG_NOT_A_RING, &error, "?ring=NAME");
	expect(farlog_ring_format(uri, NULL, &error), FARLOG_EXISTS, &error, "1 rings");
	unit_format(single, DEVICE_LEN, 4096);
	expect(format_sized(single, "a", RING_LEN, &error), FARLOG_EXISTS, &error, "holds one ring");
	expect(farlog_ring_inspect(at(single, "a"), &status, &error), FARLOG_NOT_A_RING, &error, "holds one ring");
	poke(foreign, 1024, "somebody's", 10); /* where a ring has nothing */
	expect(format_sized(foreign, "a", RING_LEN, &error), FARLOG_NOT_A_RING, &error, "holds foreign data");
	/* The rings of a device whose LBA has changed. */
	blocks(512, 1);
	make(BLOCKS, "a");
	farlog_block_reshape(NAME, 4096);
	expect(farlog_ring_inspect(at(BLOCKS, "a"), &status, &error), FARLOG_UNSUPPORTED, &error,
		"LBAs of 512 bytes, and the device now has LBAs of 4096");
}

/* One copy that is damaged loses nothing, both are said to be so. */
static void blocks__damaged_copies(void **state)
{
	struct farlog_error error;
	char uri[300];

	(void)state;
	snprintf(uri, sizeof(uri), "nvme:%s", unit_path(unit_file_uri("damage")));
	make(uri, "a");
	make(uri, "b");
	poke(uri, DIRECTORY_A_OFF + 200, "\x5A", 1);
	assert_int_equal(append(uri, "b", 4, 1), FARLOG_OK);
	make(uri, "c"); /* mends it */
	poke(uri, DIRECTORY_B_OFF, "\x5A", 1);
	assert_int_equal(append(uri, "c", 4, 1), FARLOG_OK);
	poke(uri, DIRECTORY_A_OFF + 40, "\x5A", 1);
	expect(farlog_writer_open(at(uri, "c"), NULL, &(farlog_writer *){NULL}, &error), FARLOG_CORRUPT, &error,
		"both copies");
	expect(format_sized(uri, "d", RING_LEN, &error), FARLOG_CORRUPT, &error, "both copies");
}

/* ---------------------------------------------------------------- crashes */

struct attempt {
	const char *ring;
	bool is_removal;
	int count_before;
};

static int make_attempt(const struct attempt *attempt)
{
	struct farlog_error error;

	return attempt->is_removal ? farlog_ring_remove(at(BLOCKS, attempt->ring), 1, &error) :
								 format_sized(BLOCKS, attempt->ring, RING_LEN, &error);
}

static int list(struct farlog_region_ring rings[LIST_MAX])
{
	struct farlog_region_status status;
	int result = farlog_region_list(BLOCKS, &status, rings, LIST_MAX, NULL);

	FAIL_IF(result != FARLOG_OK && result != FARLOG_NOT_FOUND);
	return result == FARLOG_OK ? (int)status.ring_count : -1;
}

/* check_either -- the directory is old or new, and a new ring is empty whatever lay there before. */
static bool check_either(const struct attempt *attempt)
{
	struct farlog_region_ring rings[LIST_MAX];
	int count = list(rings);
	int after = attempt->count_before < 0 ? 1 :
		attempt->is_removal               ? attempt->count_before - 1 :
											attempt->count_before + 1;

	FAIL_IF(count != attempt->count_before && count != after);
	for (int i = 0; i < count && failure[0] == '\0'; i++) {
		FAIL_IF(rings[i].state != FARLOG_RING_READY);
		if (strcmp(rings[i].name, "left") == 0 || strcmp(rings[i].name, "right") == 0)
			FAIL_IF(count_records(BLOCKS, rings[i].name, (uint8_t)rings[i].name[0]) != 10);
		else if (!attempt->is_removal)
			FAIL_IF(count_records(BLOCKS, rings[i].name, 0) != 0);
	}
	return count == after;
}

/* prepare -- a region in which neighbours live and an old ring with records, of the same salt, has left its bytes in
 * the gap. */
static void prepare(const struct attempt *attempt, uint32_t lba_len)
{
	blocks(lba_len, 1);
	if (attempt->count_before < 0) {
		unit_format(BLOCKS, DEVICE_LEN, 4096); /* a device that was another ring's, whose header alone was wiped */
		farlog_block_wipe(NAME, 0, DIRECTORY_LEN);
		return;
	}
	make(BLOCKS, "left");
	make(BLOCKS, "old");
	make(BLOCKS, "right");
	assert_int_equal(append(BLOCKS, "left", 10, 'l'), FARLOG_OK);
	assert_int_equal(append(BLOCKS, "old", 10, 'o'), FARLOG_OK);
	assert_int_equal(append(BLOCKS, "right", 10, 'r'), FARLOG_OK);
	if (!attempt->is_removal)
		assert_int_equal(farlog_ring_remove(at(BLOCKS, "old"), 1, NULL), FARLOG_OK);
}

/* cut -- in the n-th operation of the attempt, and in some operation of the next one if that did not come through.
 * True: it came through. */
static bool cut(const struct attempt *attempt, unsigned n)
{
	bool is_through;
	bool is_new;

	farlog_block_reseed(NAME, unit_random() | 1);
	farlog_block_arm(NAME, n);
	is_through = make_attempt(attempt) == FARLOG_OK;
	farlog_block_crash(NAME);
	is_new = check_either(attempt);
	FAIL_IF(!is_new && is_through);
	if (!is_new) {
		farlog_block_arm(NAME, n > 4 ? n - 4 + unit_below(9) : 1 + unit_below(5));
		(void)make_attempt(attempt);
		farlog_block_crash(NAME);
		is_new = check_either(attempt);
	}
	if (!is_new)
		FAIL_IF(make_attempt(attempt) != FARLOG_OK);
	FAIL_IF(!check_either(attempt));
	return is_through;
}

static void cut_everywhere(struct attempt attempt)
{
	const char *rounds = getenv("ROUNDS");
	unsigned long round_count = rounds != NULL ? strtoul(rounds, NULL, 0) : ROUND_COUNT;

	for (unsigned long round = 0; round < round_count; round++) {
		bool is_through = false;
		unsigned n = 1;

		for (; !is_through; n++) {
			failure[0] = '\0';
			prepare(&attempt, round % 2 == 0 ? 512 : 4096);
			is_through = cut(&attempt, n);
			if (failure[0] != '\0')
				fail_msg("cut in operation %u: %s", n, failure);
		}
		assert_true(n > 8); /* it has had that many operations */
	}
}

static void crash__while_a_ring_is_carved(void **state)
{
	(void)state;
	cut_everywhere((struct attempt){.ring = "new", .count_before = 2});
}

static void crash__while_a_directory_is_made(void **state)
{
	(void)state;
	cut_everywhere((struct attempt){.ring = "new", .count_before = -1});
}

static void crash__while_a_ring_is_removed(void **state)
{
	(void)state;
	cut_everywhere((struct attempt){.ring = "old", .is_removal = true, .count_before = 3});
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(blocks__rings_side_by_side),
	cmocka_unit_test(blocks__locks_are_of_one_ring),
	cmocka_unit_test(blocks__refusals),
	cmocka_unit_test(blocks__damaged_copies),
	cmocka_unit_test(crash__while_a_ring_is_carved),
	cmocka_unit_test(crash__while_a_directory_is_made),
	cmocka_unit_test(crash__while_a_ring_is_removed),
};
RUN_GROUP(directory_blocks, tests)
