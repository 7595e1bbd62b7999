#include <fcntl.h>
#include <unistd.h>

#include "ring/layout.h"
#include "unit.h"

#define REGION_LEN (LAYOUT_DATA_OFF + (64u << 10))

/* Nothing goes while somebody is in it, or with records that nobody has stored. */
static void file__ring_is_removed_with_it(void **state)
{
	const char *uri = unit_tmpfs_uri("file-removed");
	struct farlog_reader_config drains = {.is_drain = 1};
	struct farlog_position position;
	struct farlog_error error;
	struct farlog_batch batch;
	farlog_writer *writer;
	farlog_reader *drain;
	static uint8_t buf[64u << 10];

	(void)state;
	unit_format(uri, REGION_LEN, 0);
	writer = unit_open(uri);
	assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_ring_remove(uri, 0, &error), FARLOG_HELD);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	assert_int_equal(farlog_ring_remove(uri, 0, &error), FARLOG_EXISTS);
	assert_non_null(strstr(error.text, "records that are not drained"));
	assert_int_equal(farlog_reader_open(uri, &drains, &drain, &error), FARLOG_OK);
	while (farlog_reader_read(drain, buf, sizeof(buf), &batch) == FARLOG_OK)
		assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	assert_int_equal(farlog_ring_remove(uri, 0, &error), FARLOG_HELD);
	farlog_reader_close(drain);
	assert_int_equal(access(unit_path(uri), F_OK), 0);
	assert_int_equal(farlog_ring_remove(uri, 0, &error), FARLOG_OK);
	assert_int_equal(access(unit_path(uri), F_OK), -1);
	assert_int_equal(farlog_ring_remove(uri, 0, &error), FARLOG_NOT_FOUND);
}

/* Who has a removed file open must not become its writer: all that is acknowledged would be gone when it is closed. */
static void file__removed_before_its_lock(void **state)
{
	const char *uri = unit_tmpfs_uri("file-late");
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_WRITER};
	struct region *region;

	(void)state;
	unit_format(uri, REGION_LEN, 0);
	assert_int_equal(region_open(uri, &options, &region, NULL), FARLOG_OK);
	assert_int_equal(region_lock(region, REGION_ROLE_WRITER), FARLOG_OK);
	region->ops->fence.unlock(region, REGION_ROLE_WRITER);
	assert_int_equal(farlog_ring_remove(uri, 0, NULL), FARLOG_OK);
	assert_int_equal(region_lock(region, REGION_ROLE_WRITER), FARLOG_NOT_FOUND);
	assert_int_equal(region_lock(region, REGION_ROLE_DRAIN), FARLOG_NOT_FOUND);
	region->ops->close(region);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(file__ring_is_removed_with_it),
	cmocka_unit_test(file__removed_before_its_lock),
};
RUN_GROUP(remove, tests)
