/* A ring on blocks: commands that are stuck or fail, devices that are not what they were, and what may not be formatted
 * over. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "adversary/blocks.h"
#include "blocks/name.h"
#include "base/clock.h"
#include "farlog/host.h"
#include "blocks/nvme.h"
#include "region/superblock.h"
#include "unit.h"
#include "log/writer.h"

#define NAME "unit-blocks"
#define URI "block-fault:" NAME
#define SIZE (LAYOUT_DATA_OFF + (64u << 10))

static void make(uint32_t lba_len)
{
	farlog_block_drop(NAME);
	farlog_block_shape(lba_len, 1);
	unit_format(URI, SIZE, 8192);
	farlog_block_reseed(NAME, unit_random() | 1);
}

static const char *file_uri(const char *name)
{
	static char uri[300];

	snprintf(uri, sizeof(uri), "nvme:%s", unit_path(unit_file_uri(name)));
	return uri;
}

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
	make(512);
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
	make(512);
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
	make(512);
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
	nvme_of(writer->region)->looked_ns = clock_monotonic_ns();
	for (unsigned i = 0; i < 100 && nvme_of(writer->region)->is_call_flying; i++)
		writer_take_credit(writer, false);
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
	make(4096);
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
	const char *uri = file_uri("fence");
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
	const char *uri = file_uri("hints");
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
	before_ns = nvme->aside_ns;
	for (unsigned count = 0; count < 3 && clock_monotonic_ns() < until_ns; count += nvme->aside_ns != before_ns) {
		before_ns = nvme->aside_ns;
		writer->hint_ticks = 0; /* due each time */
		nvme_nap(UINT64_MAX);   /* so that the ring is not full before, on whatever is fast */
		nvme->looked_ns = clock_monotonic_ns();
		assert_int_equal(append_within(writer, 10000000000u, &position), FARLOG_OK);
		assert_true(nvme->aside_ns == before_ns || nvme->aside_ns - before_ns >= 5000000u);
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
	const char *uri = file_uri("shared");
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

static void expect_open(const char *uri, int result, const char *text)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	assert_int_equal(farlog_writer_open(uri, CONFIG(.level = FARLOG_LEVEL_VISIBLE), &writer, &error), result);
	if (strstr(error.text, text) == NULL)
		fail_msg("expected \"%s\" in: %s", text, error.text);
}

static void open__namespace_has_shrunk(void **state)
{
	const char *uri = file_uri("shrunk");

	(void)state;
	unit_format(uri, SIZE, 8192);
	assert_int_equal(truncate(uri + strlen("nvme:"), SIZE / 2), 0);
	expect_open(uri, FARLOG_CORRUPT, "the end of it is not here");
}

/* More than this host could copy: a file with a hole. */
static void open__ring_beyond_memory(void **state)
{
	const char *uri = file_uri("huge");
	int fd = open(uri + strlen("nvme:"), O_CREAT | O_RDWR | O_CLOEXEC, 0600);

	(void)state;
	assert_true(fd >= 0);
	if (ftruncate(fd, 4ll << 40) != 0) {
		close(fd);
		skip(); /* a file system of small files */
	}
	close(fd);
	expect_open(uri, FARLOG_NO_MEMORY, "make a ring on a partition");
}

/* A ring on blocks is none in memory, nor the other way round: what lies where is not the same. */
static void open__by_the_other_scheme(void **state)
{
	const char *path = file_uri("scheme") + strlen("nvme:");
	char mem[300];
	char nvme[300];

	(void)state;
	snprintf(mem, sizeof(mem), "mem:%s", path);
	snprintf(nvme, sizeof(nvme), "nvme:%s", path);
	unit_format(nvme, SIZE, 8192);
	expect_open(mem, FARLOG_UNSUPPORTED, "made on blocks");
	unlink(path);
	unit_format(mem, SIZE, 8192);
	expect_open(nvme, FARLOG_UNSUPPORTED, "made in memory");
}

static void superblock__lba_has_changed(void **state)
{
	static uint8_t bytes[LAYOUT_DATA_OFF] __attribute__((aligned(64)));
	struct region region = {.base = bytes, .caps.commit_len = 4096, .contract.size_bytes = SIZE};
	struct superblock superblock;
	struct farlog_error error;
	struct region *made;
	struct region_options options = {.access = REGION_READ, .role = REGION_ROLE_READER};

	(void)state;
	make(512);
	assert_int_equal(region_open(URI, &options, &made, &error), FARLOG_OK);
	memcpy(bytes, made->base, sizeof(bytes));
	made->ops->close(made);
	assert_int_equal(superblock_load(&region, "nvme:x", &superblock, &error), FARLOG_UNSUPPORTED);
	assert_non_null(strstr(error.text, "made for LBAs of 512 bytes"));
	region.caps.commit_len = 512;
	assert_int_equal(superblock_load(&region, "nvme:x", &superblock, &error), FARLOG_OK);
}

static void put_bytes(const char *path, off_t off, const void *bytes, size_t len)
{
	int fd = open(path, O_WRONLY);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, len, off), len);
	close(fd);
}

static void expect_format(const char *uri, int result, const char *text)
{
	struct farlog_error error = {0};

	assert_int_equal(farlog_ring_format(uri, NULL, &error), result);
	if (strstr(error.text, text) == NULL)
		fail_msg("expected \"%s\" in: %s", text, error.text);
}

/* What is on a device is named before it is lost. */
static void format__names_what_is_there(void **state)
{
	static const uint8_t entry[] = {
		0x80, 0x00, 0x02, 0x00, 0x83, 0xff, 0xff, 0xff, 0x01, 0x00, 0x00, 0x00, 0x40, 0x00, 0x00, 0x00};
	const char *uri = file_uri("foreign");
	const char *path = uri + strlen("nvme:");
	int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	close(fd);
	put_bytes(path, 20000, "x", 1);
	expect_format(uri, FARLOG_EXISTS, "bytes that are not zero (first at block 4)");
	put_bytes(path, 446, entry, sizeof(entry));
	put_bytes(path, 510, "\x55\xaa", 2);
	expect_format(uri, FARLOG_EXISTS, "a partition table (dos)");
	expect_open(uri, FARLOG_NOT_A_RING, "a device without a ring");
	assert_int_equal(farlog_ring_format(uri, &(struct farlog_ring_config){.is_forced = 1}, NULL), FARLOG_OK);
	expect_format(uri, FARLOG_EXISTS, "already holds a ring");
}

static void open__refused_by_name(void **state)
{
	struct farlog_error error = {0};
	const char *file;
	char uri[320];

	(void)state;
	expect_open("nvme:/dev/null", FARLOG_INVALID, "character device");
	expect_open("nvme:/dev", FARLOG_INVALID, "a directory");
	expect_open("nvme:/dev/farlog-is-not-there", FARLOG_NOT_FOUND, "/dev/farlog-is-not-there");
	expect_open("nvme:loop0", FARLOG_INVALID, "expected the path of a block device");
	expect_open("nvme:/dev/null?ring=a", FARLOG_INVALID, "character device");
	expect_open("nvme:/dev/loop0?poll=fast", FARLOG_INVALID, "expected none, io or sq");
	expect_open("nvme:/dev/loop0?commands=scsi", FARLOG_INVALID, "expected kernel or nvme");
	expect_open("mem:/dev/shm/x?poll=sq", FARLOG_INVALID, "is for nvme:");
	file = file_uri("ways");
	unit_format(file, SIZE, 8192);
	snprintf(uri, sizeof(uri), "%s?poll=io", file);
	expect_open(uri, FARLOG_UNSUPPORTED, "has no poll queues");
	snprintf(uri, sizeof(uri), "%s?commands=nvme", file);
	expect_open(uri, FARLOG_UNSUPPORTED, "is for a whole NVMe namespace");
	make(4096);
	assert_int_equal(
		farlog_ring_format(URI, &(struct farlog_ring_config){.record_len_max = 2048, .is_forced = 1}, &error),
		FARLOG_INVALID);
	assert_non_null(strstr(error.text, "less than an LBA"));
}

/* A tree such as sysfs has it: two subsystems, of which one has two namespaces, and one is connected twice. */
static void make_sysfs(char root[300])
{
	static const char *const devices[][3] = {{"nvme0n1", "nqn.2014-08.com.example:a", "1"},
		{"nvme0n2", "nqn.2014-08.com.example:a", "2"}, {"nvme1n1", "nqn.2014-08.com.example:b", "7"},
		{"nvme2n1", "nqn.2014-08.com.example:c", "1"}, {"nvme3n1", "nqn.2014-08.com.example:c", "1"},
		{"nvme1c1n1", "nqn.2014-08.com.example:b", "7"}}; /* what nvme1n1 stands on, with native multipathing */
	char command[900];

	snprintf(root, 300, "%s", unit_path(unit_tmpfs_uri("sysfs")));
	for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
		snprintf(command, sizeof(command),
			"d='%s/block/%s'; mkdir -p $d/device && echo '%s' > $d/device/subsysnqn && echo %s > $d/nsid", root,
			devices[i][0], devices[i][1], devices[i][2]);
		assert_int_equal(system(command), 0);
	}
	snprintf(command, sizeof(command), "echo 1 > '%s/block/nvme1c1n1/hidden'", root);
	assert_int_equal(system(command), 0);
}

static void expect_namespace(const char *sysfs, const char *name, int result, const char *text)
{
	struct farlog_error error = {0};
	char path[64] = "";

	assert_int_equal(block_find_namespace(name, name, sysfs, path, sizeof(path), &error), result);
	if (strstr(result == FARLOG_OK ? path : error.text, text) == NULL)
		fail_msg("%s: expected \"%s\" in: %s%s", name, text, path, error.text);
}

static void namespace__by_its_subsystems_name(void **state)
{
	char root[300];
	char command[320];
	char long_name[300] = "nqn.2014-08.com.example:";

	(void)state;
	make_sysfs(root);
	memset(long_name + strlen(long_name), 'x', 224 - strlen(long_name));
	expect_namespace(root, "nqn.2014-08.com.example:a/1", FARLOG_OK, "/dev/nvme0n1");
	expect_namespace(root, "nqn.2014-08.com.example:a/2", FARLOG_OK, "/dev/nvme0n2");
	expect_namespace(root, "nqn.2014-08.com.example:b", FARLOG_OK, "/dev/nvme1n1");
	expect_namespace(root, "nqn.2014-08.com.example:a", FARLOG_NOT_FOUND, "name the namespace");
	expect_namespace(root, "nqn.2014-08.com.example:c/1", FARLOG_NOT_FOUND, "connected twice");
	expect_namespace(root, "nqn.2014-08.com.example:b/1", FARLOG_NOT_FOUND, "nvme connect");
	expect_namespace(root, "nqn.2014-08.com.example:d/1", FARLOG_NOT_FOUND, "-n nqn.2014-08.com.example:d");
	expect_namespace(root, "nqn.2014-8.com.example:d/1", FARLOG_INVALID, "is no NQN");
	expect_namespace(root, "nqn.2014-08.", FARLOG_INVALID, "is no NQN");
	expect_namespace(root, "nqn.2014-08.com.example:a/x", FARLOG_INVALID, "namespace \"x\"");
	expect_namespace(root, "nqn.2014-08.com.example:a/0", FARLOG_INVALID, "namespace \"0\"");
	expect_namespace(root, long_name, FARLOG_INVALID, "at most 223");
	expect_open("nvme:nqn.2014-08.com.example:farlog-is-not-there/1", FARLOG_NOT_FOUND, "nvme connect");
	snprintf(command, sizeof(command), "rm -r '%s'", root);
	assert_int_equal(system(command), 0);
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
		const char *uri = file_uri("laps");
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
	cmocka_unit_test(namespace__by_its_subsystems_name),
	cmocka_unit_test(append__unknown_while_a_command_is_stuck),
	cmocka_unit_test(ring__stuck_slot_is_not_used_again),
	cmocka_unit_test(append__credit_comes_late),
	cmocka_unit_test(append__device_gone),
	cmocka_unit_test(writer__sees_the_fence),
	cmocka_unit_test(writer__hints_go_beside_few_commits),
	cmocka_unit_test(shared_append__all_are_there),
	cmocka_unit_test(open__namespace_has_shrunk),
	cmocka_unit_test(open__by_the_other_scheme),
	cmocka_unit_test(open__ring_beyond_memory),
	cmocka_unit_test(superblock__lba_has_changed),
	cmocka_unit_test(format__names_what_is_there),
	cmocka_unit_test(open__refused_by_name),
};
RUN_GROUP(nvme, tests)
