/* Rings that are carved from a region: the directory, its damage, and what may not be done with it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "region/region.h"
#include "carved.h"

static void directory__rings_side_by_side(void **state)
{
	const char *uri = unit_tmpfs_uri("packed");
	struct farlog_region_ring rings[LIST_MAX];
	struct farlog_region_status status;
	struct farlog_ring_status ring;

	(void)state;
	carved_make(uri, "desk7/orders");
	carved_make(uri, "desk7/fills");
	assert_int_equal(carved_list(uri, rings, &status), 2);
	assert_int_equal(status.size_bytes, REGION_LEN);
	assert_int_equal(status.free_bytes, 2 * RING_LEN);
	assert_int_equal(status.largest_free_bytes, 2 * RING_LEN);
	assert_string_equal(rings[0].name, "desk7/orders");
	assert_int_equal(rings[0].offset_bytes, DIRECTORY_LEN);
	assert_int_equal(rings[1].offset_bytes, DIRECTORY_LEN + RING_LEN);
	assert_int_equal(rings[1].state, FARLOG_RING_READY);
	assert_true(rings[1].generation > rings[0].generation);
	carved_append(uri, "desk7/orders", 20, 1);
	carved_append(uri, "desk7/fills", 30, 2);
	assert_int_equal(carved_count_records(uri, "desk7/orders", 1), 20);
	assert_int_equal(carved_count_records(uri, "desk7/fills", 2), 30);
	assert_int_equal(farlog_ring_fence(carved_at(uri, "desk7/fills"), 9, NULL), FARLOG_OK);
	assert_int_equal(farlog_ring_inspect(carved_at(uri, "desk7/fills"), &ring, NULL), FARLOG_OK);
	assert_int_equal(ring.epoch_min, 9);
	assert_int_equal(ring.capacity_bytes, RING_LEN - LAYOUT_DATA_OFF);
	assert_int_equal(ring.contract.size_bytes, RING_LEN);
	assert_int_equal(farlog_ring_inspect(carved_at(uri, "desk7/orders"), &ring, NULL), FARLOG_OK);
	assert_int_equal(ring.epoch_min, 0);
}

static void directory__locks_are_of_one_ring(void **state)
{
	const char *uri = unit_tmpfs_uri("locks");
	struct farlog_error error = {0};
	farlog_writer *left;
	farlog_writer *right;
	farlog_writer *second;
	farlog_reader *drain;

	(void)state;
	carved_make(uri, "left");
	carved_make(uri, "right");
	left = unit_open(carved_at(uri, "left"));
	right = unit_open(carved_at(uri, "right"));
	drain = unit_read(carved_at(uri, "left"), FARLOG_START_HEAD, true);
	assert_int_equal(farlog_writer_open(carved_at(uri, "left"), CONFIG(.level = FARLOG_LEVEL_VISIBLE), &second, &error),
		FARLOG_HELD);
	assert_int_equal(carved_format_sized(uri, "left", 0, true, &error), FARLOG_HELD);
	assert_int_equal(farlog_ring_remove(carved_at(uri, "right"), 1, &error), FARLOG_HELD);
	farlog_writer_close(right);
	assert_int_equal(farlog_ring_remove(carved_at(uri, "right"), 1, &error), FARLOG_OK);
	/* All of the region is nobody's while one ring is in use. */
	assert_int_equal(farlog_ring_format(uri, &(struct farlog_ring_config){.is_forced = 1}, &error), FARLOG_HELD);
	farlog_writer_close(left);
	farlog_reader_close(drain);
	assert_int_equal(farlog_ring_format(uri, &(struct farlog_ring_config){.is_forced = 1}, &error), FARLOG_EXISTS);
	assert_non_null(strstr(error.text, "1 rings"));
	assert_int_equal(farlog_ring_remove(carved_at(uri, "left"), 1, &error), FARLOG_OK);
	assert_int_equal(farlog_ring_format(uri, &(struct farlog_ring_config){.is_forced = 1}, &error), FARLOG_OK);
	farlog_writer_close(unit_open(uri));
}

static void directory__refusals(void **state)
{
	const char *uri = unit_tmpfs_uri("refusals");
	const char *other = unit_tmpfs_uri("single");
	struct farlog_region_ring rings[LIST_MAX];
	struct farlog_region_status status;
	struct farlog_ring_status ring;
	struct farlog_error error;
	char name[100];

	(void)state;
	assert_int_equal(
		farlog_ring_format("mem:/dev/shm/nothing?ring=a", &(struct farlog_ring_config){.size_bytes = RING_LEN}, &error),
		FARLOG_INVALID);
	assert_non_null(strstr(error.text, "size="));
	assert_int_equal(access("/dev/shm/nothing", F_OK), -1);
	assert_int_equal(carved_format_sized(uri, "a", 5000, false, &error), FARLOG_INVALID);
	assert_int_equal(access(unit_path(uri), F_OK), -1);
	carved_make(uri, "a");
	assert_int_equal(carved_format_sized(uri, "a", RING_LEN, false, &error), FARLOG_EXISTS);
	assert_int_equal(carved_format_sized(uri, "a", 2 * RING_LEN, false, &error), FARLOG_EXISTS);
	assert_int_equal(carved_format_sized(uri, "a", 2 * RING_LEN, true, &error), FARLOG_INVALID);
	assert_int_equal(carved_format_sized(uri, "b", 0, false, &error), FARLOG_INVALID);
	assert_int_equal(carved_format_sized(uri, "b", 4 * RING_LEN, false, &error), FARLOG_FULL);
	snprintf(name, sizeof(name), "%u bytes: %u are free", 4 * RING_LEN, 3 * RING_LEN);
	assert_non_null(strstr(error.text, name));
	assert_int_equal(farlog_ring_inspect(carved_at(uri, "b"), &ring, &error), FARLOG_NOT_FOUND);
	assert_non_null(strstr(error.text, "\"b\""));
	memset(name, 'n', sizeof(name) - 1);
	name[64] = '\0';
	assert_int_equal(carved_format_sized(uri, name, RING_LEN, false, &error), FARLOG_INVALID);
	assert_int_equal(carved_format_sized(uri, "", RING_LEN, false, &error), FARLOG_INVALID);
	assert_int_equal(farlog_ring_inspect(uri, &ring, &error), FARLOG_NOT_A_RING);
	assert_non_null(strstr(error.text, "?ring=NAME"));
	assert_int_equal(farlog_ring_format(uri, NULL, &error), FARLOG_EXISTS);
	unit_format(other, REGION_LEN, 0);
	assert_int_equal(carved_format_sized(other, "a", RING_LEN, true, &error), FARLOG_EXISTS);
	assert_non_null(strstr(error.text, "holds one ring"));
	assert_int_equal(farlog_ring_inspect(carved_at(other, "a"), &ring, &error), FARLOG_NOT_A_RING);
	assert_int_equal(farlog_region_list(other, &status, rings, LIST_MAX, &error), FARLOG_EXISTS);
	assert_int_equal(farlog_ring_remove(uri, 1, &error), FARLOG_NOT_A_RING); /* not all of its rings carved_at once */
	assert_int_equal(farlog_ring_remove("nvme:/dev/null", 1, &error), FARLOG_INVALID);
	assert_int_equal(farlog_ring_remove(carved_at(uri, "b"), 0, &error), FARLOG_NOT_FOUND);
}

/* A device is there before its first ring is: who looks for one must be told that it is not there, or it is never
 * made. */
static void directory__of_a_blank_region(void **state)
{
	const char *uri = unit_tmpfs_uri("blank");
	struct farlog_ring_status ring;
	struct farlog_error error;
	int fd = open(unit_path(uri), O_RDWR | O_CREAT, 0600);

	(void)state;
	assert_int_equal(ftruncate(fd, REGION_LEN), 0);
	assert_int_equal(farlog_ring_inspect(carved_at(uri, "a"), &ring, &error), FARLOG_NOT_FOUND);
	assert_non_null(strstr(error.text, "is all zeros"));
	carved_make(uri, "a");
	assert_int_equal(farlog_ring_inspect(carved_at(uri, "a"), &ring, &error), FARLOG_OK);
	assert_int_equal(farlog_ring_remove(carved_at(uri, "a"), 0, &error), FARLOG_OK);
	assert_int_equal(pwrite(fd, "x", 1, 0), 1);
	assert_int_equal(ftruncate(fd, 1), 0);
	assert_int_equal(ftruncate(fd, REGION_LEN), 0);
	assert_int_equal(farlog_ring_inspect(carved_at(uri, "a"), &ring, &error), FARLOG_NOT_A_RING);
	close(fd);
}

static void directory__space_is_used_again_but_not_its_records(void **state)
{
	const char *uri = unit_tmpfs_uri("again");
	struct farlog_region_ring rings[LIST_MAX];
	struct farlog_region_status status;
	struct farlog_error error;

	(void)state;
	carved_make(uri, "a");
	carved_make(uri, "b");
	carved_make(uri, "c");
	carved_append(uri, "a", 40, 1);
	carved_append(uri, "b", 40, 2);
	carved_append(uri, "c", 40, 3);
	assert_int_equal(farlog_ring_remove(carved_at(uri, "b"), 0, &error), FARLOG_EXISTS);
	assert_non_null(strstr(error.text, "41 records"));
	assert_int_equal(farlog_ring_remove(carved_at(uri, "b"), 1, &error), FARLOG_OK);
	assert_int_equal(carved_list(uri, rings, &status), 2);
	assert_int_equal(status.free_bytes, 2 * RING_LEN);
	assert_int_equal(status.largest_free_bytes, RING_LEN);
	assert_int_equal(carved_format_sized(uri, "d", 2 * RING_LEN, false, &error), FARLOG_FULL);
	carved_make(uri, "d");
	assert_int_equal(carved_list(uri, rings, &status), 3);
	assert_string_equal(rings[1].name, "d");
	assert_int_equal(rings[1].offset_bytes, DIRECTORY_LEN + RING_LEN);
	assert_int_equal(carved_count_records(uri, "d", 0), 0);
	assert_int_equal(carved_count_records(uri, "a", 1), 40);
	assert_int_equal(carved_count_records(uri, "c", 3), 40);
}

/* A handle that was opened before its ring was removed must not become a writer of what took its place. */
static void directory__removed_before_its_lock(void **state)
{
	const char *uri = unit_tmpfs_uri("removed");
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_WRITER};
	struct region *region;

	(void)state;
	carved_make(uri, "a");
	assert_int_equal(region_open(carved_at(uri, "a"), &options, &region, NULL), FARLOG_OK);
	assert_int_equal(region_lock(region, REGION_ROLE_WRITER), FARLOG_OK);
	region->ops->fence.unlock(region, REGION_ROLE_WRITER);
	assert_int_equal(farlog_ring_remove(carved_at(uri, "a"), 0, NULL), FARLOG_OK);
	carved_make(uri, "b");
	assert_int_equal(region_lock(region, REGION_ROLE_WRITER), FARLOG_NOT_FOUND);
	assert_int_equal(region_lock(region, REGION_ROLE_DRAIN), FARLOG_NOT_FOUND);
	region->ops->close(region);
	carved_append(uri, "b", 3, 1);
}

static void poke(const char *uri, uint64_t off, const void *bytes, size_t len)
{
	int fd = open(unit_path(uri), O_RDWR);

	assert_int_equal(pwrite(fd, bytes, len, (off_t)off), (ssize_t)len);
	close(fd);
}

static void directory__either_copy_may_be_damaged(void **state)
{
	const char *uri = unit_tmpfs_uri("copies");
	struct farlog_region_ring rings[LIST_MAX];
	struct farlog_region_status status;
	struct farlog_error error;

	(void)state;
	carved_make(uri, "a");
	carved_make(uri, "b");
	poke(uri, DIRECTORY_A_OFF + 200, "\x5A", 1);
	assert_int_equal(carved_list(uri, rings, &status), 2);
	carved_make(uri, "c"); /* mends it */
	poke(uri, DIRECTORY_B_OFF + 40, "\x5A", 1);
	assert_int_equal(carved_list(uri, rings, &status), 3);
	carved_append(uri, "c", 3, 1);
	poke(uri, DIRECTORY_A_OFF + 40, "\x5A", 1);
	assert_int_equal(farlog_region_list(uri, &status, rings, LIST_MAX, &error), FARLOG_CORRUPT);
	assert_non_null(strstr(error.text, "both copies"));
	assert_int_equal(farlog_writer_open(
						 carved_at(uri, "c"), CONFIG(.level = FARLOG_LEVEL_VISIBLE), &(farlog_writer *){NULL}, &error),
		FARLOG_CORRUPT);
	assert_int_equal(carved_format_sized(uri, "d", RING_LEN, true, &error), FARLOG_CORRUPT);
	/* A magic without its bytes is damage too, even where nothing else is left. */
	poke(uri, DIRECTORY_A_OFF, (uint8_t[LAYOUT_DATA_OFF]){0}, LAYOUT_DATA_OFF);
	assert_int_equal(carved_format_sized(uri, "d", RING_LEN, true, &error), FARLOG_CORRUPT);
	poke(uri, DIRECTORY_B_OFF, (uint8_t[LAYOUT_DATA_OFF]){0}, LAYOUT_DATA_OFF);
	assert_int_equal(carved_list(uri, rings, &status), -1);
}

/* spoil -- change both copies by `change` and carved_make their checksums right again. */
static void spoil(const char *uri, void (*change)(struct directory *directory))
{
	struct directory *directory = malloc(sizeof(*directory));
	int fd = open(unit_path(uri), O_RDWR);
	uint32_t crc;

	assert_non_null(directory);
	assert_int_equal(pread(fd, directory, DIRECTORY_COPY_LEN, DIRECTORY_A_OFF), DIRECTORY_COPY_LEN);
	change(directory);
	crc = crc32c_update(0, &directory->header, offsetof(struct directory_header, crc32c));
	directory->header.crc32c =
		crc32c_update(crc, directory->entries, directory->header.entry_count * sizeof(directory->entries[0]));
	assert_int_equal(pwrite(fd, directory, DIRECTORY_COPY_LEN, DIRECTORY_A_OFF), DIRECTORY_COPY_LEN);
	assert_int_equal(pwrite(fd, directory, DIRECTORY_COPY_LEN, DIRECTORY_B_OFF), DIRECTORY_COPY_LEN);
	close(fd);
	free(directory);
}

static void overlap(struct directory *directory)
{
	directory->entries[1].off -= LAYOUT_BLOCK_LEN;
}
static void reach_into_directory(struct directory *directory)
{
	directory->entries[0].off = DIRECTORY_TAILS_OFF;
}
static void reach_beyond(struct directory *directory)
{
	directory->entries[1].len = REGION_LEN;
}
static void reach_around(struct directory *directory)
{
	directory->entries[1].len = 0ull - LAYOUT_BLOCK_LEN;
}
static void lie_off_grid(struct directory *directory)
{
	directory->entries[1].off += 64;
}
static void have_same_name(struct directory *directory)
{
	strcpy(directory->entries[1].name, directory->entries[0].name);
}
static void have_no_end(struct directory *directory)
{
	memset(directory->entries[1].name, 'x', FARLOG_STREAM_NAME_LEN);
}
static void share_slot(struct directory *directory)
{
	directory->entries[1].slot = directory->entries[0].slot;
}
static void be_short(struct directory *directory)
{
	directory->entries[1].len = LAYOUT_DATA_OFF;
}

static void directory__entries_that_do_not_fit(void **state)
{
	static const struct {
		void (*change)(struct directory *directory);
		const char *named;
	} cases[] = {{overlap, "overlaps"}, {reach_into_directory, "overlaps"}, {reach_beyond, "beyond"},
		{reach_around, "beyond"}, {lie_off_grid, "4096"}, {have_same_name, "name of another"}, {have_no_end, "no name"},
		{share_slot, "line of the tails"}, {be_short, "4096"}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *uri = unit_tmpfs_uri("entries");
		struct farlog_region_ring rings[LIST_MAX];
		struct farlog_region_status status;
		struct farlog_error error = {0};

		carved_make(uri, "first");
		carved_make(uri, "second");
		spoil(uri, cases[i].change);
		assert_int_equal(farlog_region_list(uri, &status, rings, LIST_MAX, &error), FARLOG_CORRUPT);
		assert_non_null(strstr(error.text, cases[i].named));
		assert_int_equal(farlog_writer_open(carved_at(uri, "first"), CONFIG(.level = FARLOG_LEVEL_VISIBLE),
							 &(farlog_writer *){NULL}, &error),
			FARLOG_CORRUPT);
		assert_non_null(strstr(error.text, cases[i].named));
	}
}

static void directory__later_version(void **state)
{
	const char *uri = unit_tmpfs_uri("version");
	struct farlog_error error = {0};

	(void)state;
	carved_make(uri, "a");
	poke(uri, DIRECTORY_A_OFF + 8, "\x02", 1);
	poke(uri, DIRECTORY_B_OFF + 8, "\x02", 1);
	assert_int_equal(carved_format_sized(uri, "b", RING_LEN, true, &error), FARLOG_UNSUPPORTED);
	assert_non_null(strstr(error.text, "version 2"));
}

static void directory__full_of_entries(void **state)
{
	const char *uri = unit_tmpfs_uri("many");
	uint64_t len = LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN;
	struct farlog_region_status status;
	struct farlog_error error;
	char ring[500];
	char name[20];

	(void)state;
	for (unsigned i = 0; i <= DIRECTORY_RING_COUNT_MAX; i++) {
		snprintf(ring, sizeof(ring), "%s?ring=r%u&size=%lu", uri, i, DIRECTORY_LEN + 600 * len);
		assert_int_equal(farlog_ring_format(ring, &(struct farlog_ring_config){.size_bytes = len}, &error),
			i < DIRECTORY_RING_COUNT_MAX ? FARLOG_OK : FARLOG_FULL);
	}
	assert_non_null(strstr(error.text, "511 of 511"));
	assert_int_equal(farlog_region_list(uri, &status, NULL, 0, &error), FARLOG_OK);
	assert_int_equal(status.ring_count, DIRECTORY_RING_COUNT_MAX);
	snprintf(name, sizeof(name), "r%u", DIRECTORY_RING_COUNT_MAX - 1);
	carved_append(uri, name, 5, 7);
	assert_int_equal(carved_count_records(uri, name, 7), 5);
	assert_int_equal(farlog_ring_remove(carved_at(uri, "r100"), 0, &error), FARLOG_OK);
	snprintf(ring, sizeof(ring), "%s?ring=again", uri);
	assert_int_equal(farlog_ring_format(ring, &(struct farlog_ring_config){.size_bytes = len}, &error), FARLOG_OK);
}

static void directory__on_a_disk(void **state)
{
	const char *uri = unit_file_uri("packed");

	(void)state;
	carved_make(uri, "a");
	carved_make(uri, "b");
	carved_append(uri, "a", 5, 1);
	carved_append(uri, "b", 6, 2);
	carved_append(uri, "a", 5, 1);
	assert_int_equal(carved_count_records(uri, "a", 1), 10);
	assert_int_equal(carved_count_records(uri, "b", 2), 6);
}

/* ---------------------------------------------------------------- crashes */

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(directory__rings_side_by_side),
	cmocka_unit_test(directory__locks_are_of_one_ring),
	cmocka_unit_test(directory__refusals),
	cmocka_unit_test(directory__of_a_blank_region),
	cmocka_unit_test(directory__space_is_used_again_but_not_its_records),
	cmocka_unit_test(directory__removed_before_its_lock),
	cmocka_unit_test(directory__either_copy_may_be_damaged),
	cmocka_unit_test(directory__entries_that_do_not_fit),
	cmocka_unit_test(directory__later_version),
	cmocka_unit_test(directory__full_of_entries),
	cmocka_unit_test(directory__on_a_disk),
};
RUN_GROUP(directory, tests)
