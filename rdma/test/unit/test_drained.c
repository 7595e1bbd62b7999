/* Is a ring drained? Each read of its device fails in turn, and bytes of its records are lost: whoever inspects or
 * removes it is never told that it holds nothing. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "adversary/blocks.h"
#include "region/directory.h"
#include "ring/layout.h"
#include "blocks/nvme.h"
#include "unit.h"

#define NAME "drained-blocks"
#define RING_LEN (LAYOUT_DATA_OFF + (96u << 10))
#define DEVICE_LEN (DIRECTORY_LEN + 2 * (RING_LEN + NVME_EXTRA_LEN))
#define RECORD_COUNT 20u

static char uri[200];
static bool has_failed;
static unsigned failure_len; /* operations that fail behind one another */

static void make(void)
{
	struct farlog_ring_config config = {
		.size_bytes = RING_LEN, .stream_name = "a", .salt = 0x5A175A175A17ull, .record_len_max = 4096};
	struct farlog_position position;
	farlog_writer *writer;

	farlog_block_drop(NAME);
	farlog_block_hosts(0);
	farlog_block_host(0);
	farlog_block_shape(512, 1);
	snprintf(uri, sizeof(uri), "block-fault:" NAME "?ring=a&size=%u", (unsigned)DEVICE_LEN);
	assert_int_equal(farlog_ring_format(uri, &config, NULL), FARLOG_OK);
	writer = unit_open(uri);
	for (unsigned i = 0; i < RECORD_COUNT; i++)
		assert_int_equal(unit_append(writer, 100, 1, &position), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

static void end_trouble(void *context)
{
	(void)context;
	farlog_block_trouble(NAME, 0, 0);
}

static void begin_trouble(void *context)
{
	(void)context;
	has_failed = true;
	farlog_block_trouble(NAME, 0, EIO);
	farlog_block_call(NAME, failure_len, end_trouble, NULL);
}

/* expect_kept -- whatever fails from the operation of this number on. True: that operation came. */
static bool expect_kept(unsigned operation)
{
	struct farlog_ring_status status;
	struct farlog_error error = {0};
	int result;

	has_failed = false;
	farlog_block_call(NAME, operation, begin_trouble, NULL);
	result = farlog_ring_inspect(uri, &status, &error);
	farlog_block_call(NAME, UINT64_MAX, NULL, NULL);
	end_trouble(NULL);
	if (result == FARLOG_OK && status.lag_records != RECORD_COUNT + 1)
		fail_msg("operation %u: inspect says OK and %lu records", operation, status.lag_records);
	if (result != FARLOG_OK && error.text[0] == '\0')
		fail_msg("operation %u: no word", operation);
	farlog_block_call(NAME, operation, begin_trouble, NULL);
	result = farlog_ring_remove(uri, 0, &error);
	farlog_block_call(NAME, UINT64_MAX, NULL, NULL);
	end_trouble(NULL);
	if (result == FARLOG_OK)
		fail_msg("operation %u: removed", operation);
	return has_failed;
}

static void blocks__cannot_be_read(void **state)
{
	(void)state;
	for (failure_len = 0; failure_len < 6; failure_len++) {
		unsigned operation = 1;

		make();
		while (expect_kept(operation))
			operation++;
		assert_true(operation > 10);
	}
	farlog_block_drop(NAME);
}

/* The first record that is not drained has lost a byte: the walk ends at once, and the writer's word says that there
 * were more. */
static void memory__record_is_damaged(void **state)
{
	const char *ring = unit_tmpfs_uri("drained-damaged");
	struct farlog_ring_status status;
	struct farlog_error error;
	int fd;

	(void)state;
	unit_format(ring, RING_LEN, 4096);
	assert_int_equal(farlog_ring_inspect(ring, &status, NULL), FARLOG_OK);
	assert_int_equal(status.lag_bytes, 0);
	assert_int_equal(farlog_writer_close(unit_open(ring)), FARLOG_OK);
	fd = open(unit_path(ring), O_RDWR);
	assert_int_equal(pwrite(fd, "\xFF\xFF", 2, LAYOUT_DATA_OFF + 20), 2);
	close(fd);
	assert_int_equal(farlog_ring_inspect(ring, &status, &error), FARLOG_OK);
	assert_true(status.lag_bytes > 0);
	assert_int_equal(farlog_ring_remove(ring, 0, &error), FARLOG_CORRUPT);
	assert_non_null(strstr(error.text, "was acknowledged"));
	assert_int_equal(farlog_ring_remove(ring, 1, &error), FARLOG_OK);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(blocks__cannot_be_read),
	cmocka_unit_test(memory__record_is_damaged),
};

RUN_GROUP(drained, tests)
