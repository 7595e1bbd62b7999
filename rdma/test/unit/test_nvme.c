/* A ring on blocks: commands that are stuck or fail, and what goes beside the commits. */
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "adversary/blocks.h"
#include "base/clock.h"
#include "farlog/host.h"
#include "blocks/nvme.h"
#include "region/superblock.h"
#include "device.h"
#include "log/writer.h"

/* commit_end -- of one that ends with this record: a PAD fills its last LBA. */
static uint64_t commit_end(const struct farlog_position *position, uint64_t lba_len)
{
	return (position->end_lsn + lba_len - 1) / lba_len * lba_len;
}

static int append_within(farlog_writer *writer, uint64_t deadline_ns, struct farlog_position *position)
{
	struct farlog_entry entry = {.data = "stuck", .len = 5};

	return farlog_append(writer, &entry, deadline_ns, position);
}

/* A command that does not come back: UNKNOWN by the client's own clock, and OK once it has. */
static void append__unknown_while_a_command_is_stuck(void **state)
{
	struct farlog_position position;
	farlog_writer *writer;
	uint64_t start_ns;

	(void)state;
	device_make(512);
	writer = unit_open(URI);
	farlog_block_trouble(NAME, 1, 0);
	start_ns = clock_monotonic_ns();
	assert_int_equal(append_within(writer, 20000000, &position), FARLOG_UNKNOWN);
	assert_true(clock_monotonic_ns() - start_ns < 2000000000u);
	assert_int_equal(farlog_wait(writer, position.end_lsn, 1000000), FARLOG_UNKNOWN);
	farlog_block_trouble(NAME, 0, 0);
	assert_int_equal(farlog_wait(writer, position.end_lsn, 0), FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

/* A drain may read and release what a stuck command has already put there: the writer does not use its place again. */
static void ring__stuck_slot_is_not_used_again(void **state)
{
	static uint8_t buffer[64 << 10];
	struct farlog_position position;
	struct farlog_cursors cursors;
	struct farlog_batch batch = {0};
	farlog_reader *drain;
	farlog_writer *writer;
	uint64_t durable_lsn;

	(void)state;
	device_make(512);
	writer = unit_open(URI);
	drain = unit_read(URI, FARLOG_START_HEAD, true);
	farlog_block_trouble(NAME, 1, 0);
	assert_int_equal(append_within(writer, 1000000, &position), FARLOG_UNKNOWN);
	for (unsigned i = 0; i < 10000 && batch.next_lsn < position.end_lsn; i++) {
		may_fail(farlog_poll(writer, &durable_lsn)); /* what is under way lands by and by */
		if (farlog_reader_read(drain, buffer, sizeof(buffer), &batch) == FARLOG_OK)
			assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	}
	assert_int_equal(batch.next_lsn, commit_end(&position, 512)); /* with its PAD */
	farlog_writer_cursors(writer, &cursors);
	assert_int_equal(region_load_word(writer->region, LAYOUT_CREDIT_OFF), batch.next_lsn);
	assert_true(cursors.durable_lsn < position.end_lsn);
	assert_int_equal(cursors.head_lsn, cursors.durable_lsn);
	farlog_block_trouble(NAME, 0, 0);
	assert_int_equal(farlog_wait(writer, position.end_lsn, 0), FARLOG_OK);
	farlog_writer_cursors(writer, &cursors);
	assert_int_equal(cursors.head_lsn, batch.next_lsn);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
	farlog_reader_close(drain);
}

/* A full ring, and a device that is slow to tell of the credit: an append keeps its deadline, and what comes late is
 * taken. */
static void append__credit_comes_late(void **state)
{
	static uint8_t buffer[128 << 10];
	struct farlog_position position;
	struct farlog_batch batch;
	struct farlog_entry entry = {.data = buffer, .len = 3000};
	farlog_reader *drain;
	farlog_writer *writer;
	uint64_t durable_lsn;
	uint64_t start_ns;
	int result;

	(void)state;
	device_make(512);
	writer = unit_open(URI);
	drain = unit_read(URI, FARLOG_START_HEAD, true);
	while (farlog_append(writer, &entry, 0, &position) == FARLOG_OK)
		;
	while (farlog_reader_read(drain, buffer, sizeof(buffer), &batch) == FARLOG_OK)
		assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	farlog_reader_close(drain);
	farlog_block_trouble(NAME, 2, 0);
	start_ns = clock_monotonic_ns();
	assert_int_equal(farlog_append(writer, &entry, 1000000, &position), FARLOG_FULL);
	assert_true(clock_monotonic_ns() - start_ns < 1000000000u);
	assert_true(nvme_of(writer->region)->is_call_flying); /* given up on, and still to come */
	farlog_block_trouble(NAME, 0, 0);
	nvme_of(writer->region)->words_read_ns = clock_monotonic_ns();
	for (unsigned i = 0; i < 100 && nvme_of(writer->region)->is_call_flying; i++)
		writer_read_credit(writer, false);
	may_fail(farlog_poll(writer, &durable_lsn));
	result = farlog_append(writer, &entry, 0, &position);
	assert_int_equal(result, FARLOG_OK);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

/* The device goes away under load: nothing is acknowledged, the writer is done, and a later one finds the log as it
 * was. */
static void append__device_gone(void **state)
{
	struct farlog_position acknowledged;
	struct farlog_position position;
	struct farlog_cursors cursors;
	farlog_writer *writer;

	(void)state;
	device_make(4096);
	writer = unit_open(URI);
	assert_int_equal(append_within(writer, 0, &acknowledged), FARLOG_OK);
	farlog_block_trouble(NAME, 0, ENODEV);
	assert_int_equal(append_within(writer, 0, &position), FARLOG_UNKNOWN);
	assert_int_equal(append_within(writer, 0, &position), FARLOG_CLOSED);
	farlog_writer_cursors(writer, &cursors);
	assert_int_equal(cursors.durable_lsn, commit_end(&acknowledged, 4096));
	assert_non_null(strstr(farlog_writer_trouble(writer), strerror(ENODEV)));
	assert_int_not_equal(farlog_writer_close(writer), FARLOG_OK);
	assert_int_equal(farlog_writer_open(URI, CONFIG(.level = FARLOG_LEVEL_PERSISTENT), &writer, NULL), FARLOG_IO);
	farlog_block_trouble(NAME, 0, 0);
	writer = unit_open(URI);
	assert_true(farlog_writer_recovery(writer)->tail_lsn >= acknowledged.end_lsn);
	assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
}

/* A living writer learns of a fence by looking while it commits. */
static void writer__sees_the_fence(void **state)
{
	const char *uri = device_file_uri("fence");
	struct farlog_position position;
	struct farlog_ring_status status;
	uint64_t until_ns = clock_after_ns(10000000000u);
	farlog_writer *writer;
	int result = FARLOG_OK;

	(void)state;
	unit_format(uri, SIZE, 8192);
	writer = unit_open(uri);
	assert_int_equal(farlog_ring_fence(uri, 5, NULL), FARLOG_OK);
	while (result == FARLOG_OK && clock_monotonic_ns() < until_ns) {
		result = append_within(writer, 0, &position);
		if (result == FARLOG_FULL)
			break;
	}
	assert_int_equal(result, FARLOG_FENCED);
	assert_int_equal(position.epoch, 5);
	farlog_writer_close(writer);
	assert_int_equal(farlog_ring_fence(uri, 4, NULL), FARLOG_OK); /* it does not go down */
	assert_int_equal(farlog_ring_inspect(uri, &status, NULL), FARLOG_OK);
	assert_int_equal(status.epoch_min, 5);
	assert_int_equal(status.is_writer_held, 0);
}

/* Hints and a look go along with one commit, and that not often; also where each append has just looked for room by
 * itself. */
static void writer__hints_go_beside_few_commits(void **state)
{
	const char *uri = device_file_uri("hints");
	struct farlog_position position = {0};
	struct farlog_ring_status status = {0};
	uint64_t until_ns = clock_after_ns(20000000000u);
	farlog_reader *reader;
	farlog_writer *writer;
	struct region_nvme *nvme;
	uint64_t before_ns;

	(void)state;
	unit_format(uri, LAYOUT_DATA_OFF + (8u << 20), 8192);
	writer = unit_open(uri);
	nvme = nvme_of(writer->region);
	assert_int_equal(append_within(writer, 10000000000u, &position), FARLOG_OK);
	before_ns = nvme->side_commands_ns;
	for (unsigned count = 0; count < 3 && clock_monotonic_ns() < until_ns;
		count += nvme->side_commands_ns != before_ns) {
		before_ns = nvme->side_commands_ns;
		writer->hint_ticks = 0; /* due each time */
		nvme_sleep(UINT64_MAX); /* so that the ring is not full before, on whatever is fast */
		nvme->words_read_ns = clock_monotonic_ns();
		assert_int_equal(append_within(writer, 10000000000u, &position), FARLOG_OK);
		assert_true(nvme->side_commands_ns == before_ns || nvme->side_commands_ns - before_ns >= 5000000u);
	}
	reader = unit_read(uri, FARLOG_START_HEAD, false);
	while (status.durable_lsn == 0 && clock_monotonic_ns() < until_ns)
		assert_int_equal(farlog_reader_status(reader, &status), FARLOG_OK);
	assert_true(status.durable_lsn > 0);
	farlog_reader_close(reader);
	farlog_writer_close(writer);
}

#define THREAD_COUNT 6
#define THREAD_RECORD_COUNT 60

static void *append_some(void *context)
{
	struct farlog_entry entry = {.data = "shared", .len = 6};
	struct farlog_position position;
	uint64_t count = 0;

	for (unsigned i = 0; i < THREAD_RECORD_COUNT; i++)
		count += farlog_shared_append(context, &entry, 30000000000u, &position) == FARLOG_OK;
	return (void *)count;
}

/* Many threads, one device: each is told of its own, and a drain finds all of them. */
static void shared_append__all_are_there(void **state)
{
	static uint8_t buffer[1 << 20];
	const char *uri = device_file_uri("shared");
	pthread_t threads[THREAD_COUNT];
	struct farlog_batch batch;
	farlog_shared *shared;
	farlog_reader *drain;
	uint64_t count = 0;
	void *told;

	(void)state;
	unit_format(uri, LAYOUT_DATA_OFF + (1u << 20), 8192);
	assert_int_equal(farlog_shared_open(uri, CONFIG(.level = FARLOG_LEVEL_PERSISTENT), &shared, NULL), FARLOG_OK);
	for (unsigned i = 0; i < THREAD_COUNT; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, append_some, shared), 0);
	for (unsigned i = 0; i < THREAD_COUNT; i++) {
		assert_int_equal(pthread_join(threads[i], &told), 0);
		count += (uint64_t)told;
	}
	assert_int_equal(count, THREAD_COUNT * THREAD_RECORD_COUNT);
	drain = unit_read(uri, FARLOG_START_HEAD, true);
	for (count = 0; farlog_reader_read(drain, buffer, sizeof(buffer), &batch) == FARLOG_OK;) {
		count += batch.record_count;
		assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	}
	assert_int_equal(count, THREAD_COUNT * THREAD_RECORD_COUNT + 1); /* and the EPOCH record */
	farlog_reader_close(drain);
	assert_int_equal(farlog_shared_close(shared), FARLOG_OK);
}

/* append_until_full -- records of this length, each with its number. */
static void append_until_full(farlog_writer *writer, uint32_t len, uint64_t *appended_count)
{
	static uint8_t payload[8192];
	struct farlog_entry entry = {.data = payload, .len = len};
	struct farlog_position position = {0};

	for (;; ++*appended_count) {
		memcpy(payload, appended_count, sizeof(*appended_count));
		if (farlog_append(writer, &entry, 30000000000u, &position) != FARLOG_OK)
			break;
	}
}

/* read_once -- one batch of what is there, and release it. */
static void read_once(farlog_reader *drain, uint8_t *buffer, uint32_t buffer_len, uint64_t *read_count)
{
	struct farlog_batch batch;

	assert_int_equal(farlog_reader_read(drain, buffer, buffer_len, &batch), FARLOG_OK);
	for (uint64_t off = 0; off < batch.len;) {
		const struct record_header *header = (const struct record_header *)(buffer + off);
		uint64_t number;

		memcpy(&number, buffer + off + RECORD_HEADER_LEN, sizeof(number));
		if (!(header->flags & (RECORD_FLAG_PAD | RECORD_FLAG_EPOCH)))
			assert_int_equal(number, (*read_count)++);
		off += header->flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN :
												 record_extent(64, header->key_len, header->payload_len);
	}
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
}

/* A window of what is read ahead that is as long as the ring, or longer: what it has of the lap before is not taken for
 * the next one's. */
static void drain__laps_of_a_ring_shorter_than_a_window(void **state)
{
	static uint8_t buffer[24u << 10];
	static const uint32_t ring_lens[] = {128u << 10, 512u << 10};
	struct farlog_reader_config config = {.is_drain = 1};
	struct farlog_writer_config writer_config = {.counters_dir = "", .policy = FARLOG_POLICY_REJECT};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		const char *uri = device_file_uri("laps");
		uint64_t appended_count = 0;
		uint64_t read_count = 0;
		farlog_reader *drain;
		farlog_writer *writer;

		unit_format(uri, LAYOUT_DATA_OFF + ring_lens[i], 8192);
		/* one for all laps: another's epoch would have everything read again */
		assert_int_equal(farlog_writer_open(uri, &writer_config, &writer, NULL), FARLOG_OK);
		assert_int_equal(farlog_reader_open(uri, &config, &drain, NULL), FARLOG_OK);
		for (unsigned turn = 0; turn < 120 || read_count < appended_count; turn++) {
			if (turn < 120)
				append_until_full(writer, turn % 2 == 0 ? 8192 - 64 : 4000, &appended_count);
			/* a piece of the ring, which is full again before the next */
			read_once(drain, buffer, sizeof(buffer), &read_count);
		}
		farlog_reader_close(drain);
		assert_int_equal(farlog_writer_close(writer), FARLOG_OK);
		unlink(uri + strlen("nvme:"));
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(drain__laps_of_a_ring_shorter_than_a_window),
	cmocka_unit_test(append__unknown_while_a_command_is_stuck),
	cmocka_unit_test(ring__stuck_slot_is_not_used_again),
	cmocka_unit_test(append__credit_comes_late),
	cmocka_unit_test(append__device_gone),
	cmocka_unit_test(writer__sees_the_fence),
	cmocka_unit_test(writer__hints_go_beside_few_commits),
	cmocka_unit_test(shared_append__all_are_there),
};
RUN_GROUP(nvme, tests)
