/* test_failed_look.c -- the right to write rests on a look that fails: at locks, at the header, at records. A look that
 * failed has not found that nobody is there. */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#include "adversary/blocks.h"
#include "blocks/reserve.h"
#include "region/directory.h"
#include "mem/mem.h"
#include "blocks/nvme.h"
#include "target/target.h"
#include "adversary/file.h"
#include "unit.h"

#define NAME "look-blocks"
#define RING_LEN (LAYOUT_DATA_OFF + (64u << 10))
#define DEVICE_LEN (DIRECTORY_LEN + 2 * (RING_LEN + NVME_EXTRA_LEN))
#define URI "block-fault:" NAME
#define PART_URI URI "?ring=a"

static struct farlog_error last;

static void make(const char *uri, int has_reservations)
{
	struct farlog_ring_config config = {
		.size_bytes = RING_LEN, .stream_name = "a", .salt = 0x5A17, .record_len_max = 4096, .is_forced = 1};

	farlog_block_drop(NAME);
	farlog_block_hosts(has_reservations);
	farlog_block_host(0);
	farlog_block_shape(512, 1);
	if (farlog_ring_format(uri, &config, &last) != FARLOG_OK)
		fail_msg("format: %s", last.text);
	farlog_block_hosts(0);
}

static farlog_writer *open_on(int host, const char *uri)
{
	farlog_writer *writer;

	farlog_block_host(host);
	writer = unit_open(uri);
	farlog_block_host(0);
	return writer;
}

/* ---------------------------------------------------------------- a writer that was shut out, on the drain's host */

static int join(struct block_device *device)
{
	static const uint8_t uuid[16] = {1};
	struct region_claim claim = {.kind = REGION_CLAIM_SHARED, .ring_uuid = uuid, .uri = URI};
	struct reserve_view view;

	return reserve_join(device, &claim, &view, &last);
}

static int fail_is_locked(struct block_device *device, enum region_role role)
{
	(void)device;
	(void)role;
	errno = EIO;
	return FARLOG_IO;
}

/* Its lock cannot be looked at: it may live. */
static void zombie__lock_cannot_be_looked_at(void **state)
{
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_DRAIN};
	const struct block_ops *ops;
	struct block_ops failing;
	struct region *region;
	farlog_writer *former;
	farlog_writer *writer;

	(void)state;
	make(URI, 1);
	former = open_on(1, URI);
	writer = open_on(2, URI);
	farlog_writer_close(former);
	farlog_block_host(1);
	assert_int_equal(region_open(URI, &options, &region, &last), FARLOG_OK);
	farlog_block_host(0);
	ops = nvme_of(region)->device->ops;
	failing = *ops;
	failing.is_locked = fail_is_locked;
	nvme_of(region)->device->ops = &failing;
	assert_int_equal(join(nvme_of(region)->device), FARLOG_HELD);
	assert_non_null(strstr(last.text, "still lives on this host"));
	nvme_of(region)->device->ops = ops;
	assert_int_equal(join(nvme_of(region)->device), FARLOG_OK); /* and there is none */
	region->ops->close(region);
	farlog_writer_close(writer);
}

/* The reservation cannot be looked at while that writer lives, by whichever call. */
static void zombie__reservation_cannot_be_looked_at(void **state)
{
	struct farlog_reader_config config = {.is_drain = 1};
	farlog_writer *former;
	farlog_writer *writer;
	farlog_reader *reader;
	unsigned call = 0;

	(void)state;
	make(URI, 1);
	former = open_on(1, URI);
	writer = open_on(2, URI);
	farlog_block_host(1);
	do {
		farlog_block_fail_reservation(++call);
		assert_int_not_equal(farlog_reader_open(URI, &config, &reader, &last), FARLOG_OK);
	} while (farlog_block_has_failed_reservation());
	assert_true(call > 2);
	farlog_block_fail_reservation(0);
	farlog_block_host(0);
	farlog_writer_close(former);
	farlog_writer_close(writer);
}

/* ---------------------------------------------------------------- a former writer of another host */

static bool has_failed;

static void end_trouble(void *context)
{
	(void)context;
	farlog_block_trouble(NAME, 0, 0);
}

static void begin_trouble(void *context)
{
	has_failed = true;
	farlog_block_trouble(NAME, 0, EIO);
	farlog_block_call(NAME, *(const unsigned *)context, end_trouble, NULL);
}

/* expect_held -- whatever fails from the operation of this number on: the ring is neither opened nor removed from host
 * 1. */
static bool expect_held(unsigned operation, unsigned failure_len)
{
	farlog_writer *next = NULL;

	has_failed = false;
	farlog_block_host(1);
	farlog_block_call(NAME, operation, begin_trouble, &failure_len);
	if (farlog_writer_open(PART_URI, CONFIG(.policy = FARLOG_POLICY_REJECT), &next, &last) == FARLOG_OK)
		fail_msg("operation %u: opened", operation);
	end_trouble(NULL);
	farlog_block_call(NAME, operation, begin_trouble, &failure_len);
	if (farlog_ring_remove(PART_URI, 0, &last) == FARLOG_OK)
		fail_msg("operation %u: removed", operation);
	farlog_block_call(NAME, UINT64_MAX, NULL, NULL);
	end_trouble(NULL);
	farlog_block_host(0);
	return has_failed;
}

/* The header that names it cannot be read. */
static void former__header_cannot_be_read(void **state)
{
	(void)state;
	for (int has_reservations = 0; has_reservations < 2; has_reservations++) {
		farlog_writer *former;
		char uri[200];

		snprintf(uri, sizeof(uri), PART_URI "&size=%u", (unsigned)DEVICE_LEN);
		make(uri, has_reservations);
		former = open_on(0, PART_URI);
		for (unsigned failure_len = 0; failure_len < 6; failure_len++) {
			unsigned operation = 1;

			while (expect_held(operation, failure_len))
				operation++;
			assert_true(operation > 10);
		}
		farlog_writer_close(former);
	}
	farlog_block_drop(NAME);
}

static void begin_silence(void *context)
{
	(void)context;
	has_failed = true;
	farlog_block_trouble(NAME, 2, 0);
}

/* A device that does not answer leaves no errno, from whichever read on: what stands there from before is not the
 * reason. */
static void remove__device_does_not_answer(void **state)
{
	uint64_t seed = unit_random() | 1;
	farlog_writer *writer;
	unsigned operation = 0;
	char uri[200];

	(void)state;
	snprintf(uri, sizeof(uri), PART_URI "&size=%u", (unsigned)DEVICE_LEN);
	make(uri, 0);
	writer = open_on(0, PART_URI);
	assert_int_equal(unit_append(writer, 100, 1, &(struct farlog_position){0}), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	do {
		int result;

		has_failed = false;
		farlog_block_reseed(NAME, seed); /* each removal goes the same way, up to the silence */
		farlog_block_call(NAME, ++operation, begin_silence, NULL);
		errno = ENOTTY;
		result = farlog_ring_remove(PART_URI, 0, &last);
		farlog_block_call(NAME, UINT64_MAX, NULL, NULL);
		end_trouble(NULL);
		assert_int_equal(result, has_failed && result != FARLOG_EXISTS ? FARLOG_IO : FARLOG_EXISTS);
		if (result == FARLOG_IO && (strstr(last.text, "has not answered") == NULL || last.os_errno == ENOTTY))
			fail_msg("operation %u: \"%s\" does not say that the device has not answered", operation, last.text);
	} while (has_failed);
	assert_true(operation > 5);
	farlog_block_drop(NAME);
}

/* ---------------------------------------------------------------- a fence at a target */

struct fence_bed {
	farlog_target *target;
	const char *ring_uri;
};

/* make_bed -- False: there is no libfabric on this machine. */
static bool make_bed(struct fence_bed *bed)
{
	farlog_writer *writer;
	int result = farlog_target_open("ofi:tcp://127.0.0.1:0", &bed->target, &last);

	if (result == FARLOG_UNSUPPORTED)
		return false;
	assert_int_equal(result, FARLOG_OK);
	bed->ring_uri = unit_file_uri("fence");
	unit_format(bed->ring_uri, RING_LEN, 4096);
	writer = unit_open(bed->ring_uri);
	assert_int_equal(unit_append(writer, 100, 1, &(struct farlog_position){0}), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	assert_int_equal(farlog_target_serve(bed->target, "a", bed->ring_uri, "", &last), FARLOG_OK);
	return true;
}

static void free_bed(struct fence_bed *bed)
{
	farlog_target_close(bed->target);
	remove(unit_path(bed->ring_uri));
}

static unsigned failing_msync; /* this one of the coming calls fails; 0 = none does */
static unsigned failed_count;

static int fail_msync(void *start, size_t len, int flags)
{
	if (failing_msync > 0 && --failing_msync == 0) {
		failed_count++;
		errno = EIO;
		return -1;
	}
	return msync(start, len, flags);
}

/* What the former writer stored, or the floor, cannot be made durable: the fence is not confirmed, and says why. */
static void fence__cannot_be_made_durable(void **state)
{
	struct fence_bed bed;
	uint64_t tail_lsn = 7;

	(void)state;
	if (!make_bed(&bed))
		skip();
	if (bed.target->rings->region->contract.flush_method != FARLOG_FLUSH_MSYNC) {
		free_bed(&bed);
		skip(); /* FARLOG_TEST_DIR is not on a disk */
	}
	farlog_file_set_msync(fail_msync);
	failed_count = 0;
	for (unsigned call = 1; failed_count + 1 == call; call++) {
		int result;

		failing_msync = call;
		last = (struct farlog_error){0};
		result = farlog_target_fence(bed.target, "a", 9, &tail_lsn, &last);
		if (failed_count < call)
			assert_int_equal(result, FARLOG_OK);
		else if (result != FARLOG_IO || last.os_errno != EIO || strstr(last.text, "fence") == NULL || tail_lsn != 7)
			fail_msg("msync %u fails: %s, tail %lu, \"%s\"", call, farlog_result_name(result), tail_lsn, last.text);
	}
	farlog_file_set_msync(NULL);
	failing_msync = 0;
	assert_true(failed_count >= 2);
	assert_true(tail_lsn > 7);
	free_bed(&bed);
}

static int fail_fetch(struct region *region, uint64_t off, uint64_t len)
{
	(void)len;
	return off >= LAYOUT_DATA_OFF && region != NULL ? FARLOG_IO : FARLOG_OK;
}

/* The records cannot be read, of a region whose bytes have to be fetched: the fence does not know where the log
 * ends. */
static void fence__records_cannot_be_read(void **state)
{
	const struct region_ops *ops;
	struct region_ops failing;
	struct fence_bed bed;
	struct region *region;
	uint64_t tail_lsn = 7;

	(void)state;
	if (!make_bed(&bed))
		skip();
	region = bed.target->rings->region;
	ops = region->ops;
	failing = *ops;
	failing.data.fetch = fail_fetch;
	region->ops = &failing;
	region->caps.needs_fetch = true;
	assert_int_equal(farlog_target_fence(bed.target, "a", 9, &tail_lsn, &last), FARLOG_IO);
	assert_non_null(strstr(last.text, "fence: read undrained records of ring \"a\""));
	assert_int_equal(tail_lsn, 7);
	assert_int_equal(bed.target->rings->tail_epoch_min, 0);
	assert_true(region_load_word(region, LAYOUT_FENCE_OFF) < 9);
	region->ops = ops;
	region->caps.needs_fetch = false;
	assert_int_equal(farlog_target_fence(bed.target, "a", 9, &tail_lsn, &last), FARLOG_OK);
	assert_int_equal(region_load_word(region, LAYOUT_FENCE_OFF), 9);
	free_bed(&bed);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(zombie__lock_cannot_be_looked_at),
	cmocka_unit_test(zombie__reservation_cannot_be_looked_at),
	cmocka_unit_test(former__header_cannot_be_read),
	cmocka_unit_test(remove__device_does_not_answer),
	cmocka_unit_test(fence__cannot_be_made_durable),
	cmocka_unit_test(fence__records_cannot_be_read),
};

RUN_GROUP(failed_look, tests)
