/* conformance.c -- one program, every kind of region: what a ring promises is the same, whatever lies below it.
 *
 * usage: conformance            every kind that can exist on this machine
 *        conformance KIND       tmpfs, packed, file, fault, devdax, fsdax or bar; exit 77 and what is missing when there is none
 *
 * Kinds that need hardware take a path from FARLOG_TEST_DEVDAX, FARLOG_TEST_FSDAX (a directory) and FARLOG_TEST_BAR. What lies there is
 * destroyed. Each kind is run with every flush method that this processor has. SEED=n repeats after how many records writers are killed. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "atomics.h"
#include "clock.h"
#include "directory.h"
#include "farlog/farlog.h"
#include "layout.h"
#include "persist.h"
#include "record.h"
#include "region_fault.h"

#define SIZE (0x3000u + (256u << 10))
#define RECORD_LEN_MAX 8192u
#define EXIT_SKIP 77
#define PACKED_LEN (DIRECTORY_LEN + 5ull * SIZE)

static char uri[400];
static uint8_t buffer[SIZE];
static unsigned failed;
static uint32_t level;

#define CHECK(claim)                                                                                  \
	do {                                                                                              \
		if (!(claim)) {                                                                               \
			printf("conformance: %s: line %d: %s\n", uri, __LINE__, #claim);                          \
			failed++;                                                                                 \
		}                                                                                             \
	} while (0)

static farlog_writer *open_writer(uint32_t asked)
{
	struct farlog_writer_config config = {.level = asked, .policy = FARLOG_POLICY_REJECT, .counters_dir = "",
		.deadline_ns = 30000000000ull};
	struct farlog_error error = {0};
	farlog_writer *writer;

	if (farlog_writer_open(uri, &config, &writer, &error) != FARLOG_OK) {
		printf("conformance: %s\n", error.text);
		failed++;
	}
	return writer;
}

static farlog_reader *open_drain(void)
{
	struct farlog_reader_config config = {.is_drain = 1};
	farlog_reader *drain = NULL;

	CHECK(farlog_reader_open(uri, &config, &drain, NULL) == FARLOG_OK);
	return drain;
}

static bool format(void)
{
	bool has_own_size = strstr(uri, "/dev/dax") != NULL || strstr(uri, "resource") != NULL;
	struct farlog_ring_config config = {.size_bytes = has_own_size ? 0 : SIZE, .record_len_max = RECORD_LEN_MAX, .is_forced = 1,
		.stream_name = "conformance"};
	struct farlog_error error = {0};
	int result = farlog_ring_format(uri, &config, &error);

	if (result != FARLOG_OK)
		printf("conformance: %s\n", error.text);
	CHECK(result == FARLOG_OK);
	return result == FARLOG_OK;
}

static void check_contract(void)
{
	struct farlog_contract contract;
	farlog_writer *writer = NULL;
	struct farlog_error error = {0};

	level = FARLOG_LEVEL_PERSISTENT;
	if (strncmp(uri, "mem:", 4) != 0)
		return;
	CHECK(farlog_region_probe(uri, &contract, &error) == FARLOG_OK);
	level = contract.level;
	CHECK(contract.probe[0] != '\0' && contract.flush_name[0] != '\0' && contract.deadline_default_ns > 0);
	if (level == FARLOG_LEVEL_PERSISTENT)
		return;
	/* More than the contract gives is refused when the ring is opened. */
	CHECK(farlog_writer_open(uri, &(struct farlog_writer_config){.level = FARLOG_LEVEL_PERSISTENT, .counters_dir = ""}, &writer, &error) ==
		FARLOG_LEVEL);
}

/* Records of every length come back as they went in, in order, over several laps. */
static void check_laps(void)
{
	farlog_writer *writer = open_writer(level);
	farlog_reader *drain = open_drain();
	uint64_t appended = 0;
	uint64_t drained = 0;

	for (unsigned i = 0; writer != NULL && drain != NULL && i < 900; i++) {
		static uint8_t payload[RECORD_LEN_MAX];
		struct farlog_entry entry = {.data = payload, .len = i * 37 % (RECORD_LEN_MAX - 128), .class_id = (uint16_t)i, .key = "key",
			.key_len = i % 4};
		struct farlog_position position;
		struct farlog_batch batch;
		int result;

		memset(payload, (int)i, entry.len);
		result = i % 3 ? farlog_submit(writer, &entry, &position) : farlog_append(writer, &entry, 0, &position);
		CHECK(result == FARLOG_OK || result == FARLOG_FULL);
		appended += result == FARLOG_OK;
		if (result != FARLOG_FULL && i != 899)
			continue;
		CHECK(farlog_wait(writer, farlog_writer_recovery(writer)->tail_lsn, 0) == FARLOG_OK);
		while (farlog_reader_read(drain, buffer, sizeof(buffer), &batch) == FARLOG_OK) {
			drained += batch.record_count;
			CHECK(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch) == FARLOG_OK);
		}
		CHECK(drained == appended + 1); /* and the EPOCH record */
	}
	CHECK(farlog_writer_close(writer) == FARLOG_OK);
	farlog_reader_close(drain);
}

static void check_order_of_locks(void)
{
	farlog_writer *writer = open_writer(level);
	farlog_writer *second = NULL;
	farlog_reader *drain = open_drain();
	farlog_reader *other = NULL;

	CHECK(farlog_writer_open(uri, &(struct farlog_writer_config){.level = level, .counters_dir = ""}, &second, NULL) == FARLOG_HELD);
	CHECK(farlog_reader_open(uri, &(struct farlog_reader_config){.is_drain = 1}, &other, NULL) == FARLOG_HELD);
	CHECK(farlog_ring_format(uri, &(struct farlog_ring_config){.is_forced = 1}, NULL) == FARLOG_HELD);
	farlog_writer_close(writer);
	farlog_reader_close(drain);
}

#define KILLED_BATCH_COUNT 40u
#define KILLED_ROOM_LEN (SIZE / 2) /* a batch, and the EPOCH record of the next writer */

/* killed_entry -- what the record of this sequence number holds: of any length, some of more than a page. The bytes last for a batch. */
static struct farlog_entry killed_entry(uint64_t seq)
{
	static uint8_t places[KILLED_BATCH_COUNT][RECORD_LEN_MAX];
	uint8_t *bytes = places[seq % KILLED_BATCH_COUNT];
	uint64_t mixed = seq * 0x9E3779B97F4A7C15ull >> 32;
	struct farlog_entry entry = {.data = bytes + 71, .len = (uint32_t)(mixed % (mixed % 16 == 0 ? 6000 : 500)),
		.class_id = (uint16_t)seq, .key = bytes, .key_len = (uint16_t)(seq % 71)};

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

/* append_for_ever -- the writer's process. It ends by itself only when something is wrong. */
static void append_for_ever(struct told *told)
{
	farlog_writer *writer = open_writer(level);
	int result = writer != NULL ? FARLOG_OK : FARLOG_INVALID;

	while (result == FARLOG_OK) {
		struct farlog_cursors cursors;
		struct farlog_position position;
		struct farlog_entry entry;

		farlog_writer_cursors(writer, &cursors);
		if (cursors.appended_lsn - cursors.head_lsn + KILLED_ROOM_LEN > cursors.capacity_bytes) {
			sched_yield(); /* the next writer needs room for its epoch */
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
}

static bool is_record_right(const struct record_header *header, const uint8_t *body)
{
	struct farlog_entry entry = killed_entry(header->seq);

	return header->payload_len == entry.len && header->key_len == entry.key_len && header->class_id == entry.class_id &&
		memcmp(body, entry.key, entry.key_len) == 0 && memcmp(body + entry.key_len, entry.data, entry.len) == 0;
}

/* drain_killed -- all there is now: each is what its number says, none is missing, none is there twice. */
static void drain_killed(farlog_reader *drain, uint64_t *next_seq)
{
	struct farlog_batch batch;

	while (farlog_reader_read(drain, buffer, sizeof(buffer), &batch) == FARLOG_OK) {
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
			at += record_extent(LAYOUT_LINE_LEN, header.key_len, header.payload_len);
		}
		CHECK(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch) == FARLOG_OK);
	}
}

/* kill_writer -- in the middle of its work, after `count` acknowledgements and a bit. False: it did not get as far. */
static bool kill_writer(pid_t pid, const struct told *told, uint64_t count, farlog_reader *drain, uint64_t *next_seq)
{
	uint64_t until_ns = clock_after_ns(30000000000ull);
	int status = 0;

	while (atomic_load_acquire(&told->count) < count && clock_monotonic_ns() < until_ns && waitpid(pid, &status, WNOHANG) == 0) {
		drain_killed(drain, next_seq); /* so that the ring does not stay full */
		sched_yield();
	}
	kill(pid, SIGKILL);
	if (told->count >= count && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status))
		return true;
	fprintf(stderr, "conformance: %s: writer %d acknowledged %lu of %lu records, status %#x\n", uri, (int)pid, (unsigned long)told->count,
		(unsigned long)count, (unsigned)status);
	return false;
}

/* A writer's process is killed while it appends, again and again: everything it was told of is there, once and whole. */
static void check_kill(void)
{
	bool is_disk = strstr(uri, "flush=msync") != NULL;
	struct told *told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t next_seq = 0;

	if (strncmp(uri, "mem:", 4) != 0 || told == MAP_FAILED)
		return;
	for (unsigned round = 0; round < (is_disk ? 5 : 15); round++) {
		uint64_t count = 1 + (uint64_t)rand() % (is_disk ? 40 : 2000);
		farlog_writer *writer;
		farlog_reader *drain;
		pid_t pid;

		memset(told, 0, sizeof(*told));
		fflush(NULL);
		pid = fork();
		if (pid == 0) {
			append_for_ever(told);
			_exit(1);
		}
		drain = open_drain();
		CHECK(drain != NULL && kill_writer(pid, told, count, drain, &next_seq));
		writer = open_writer(level);
		CHECK(writer != NULL && farlog_writer_recovery(writer)->tail_lsn >= told->end_lsn);
		drain_killed(drain, &next_seq);
		CHECK(writer == NULL || next_seq == farlog_writer_recovery(writer)->next_seq + 1); /* and the EPOCH record */
		farlog_writer_close(writer);
		farlog_reader_close(drain);
	}
	munmap(told, sizeof(*told));
}

static void check_status(void)
{
	struct farlog_ring_status status;
	struct farlog_error error = {0};

	CHECK(farlog_ring_inspect(uri, &status, &error) == FARLOG_OK);
	CHECK(strcmp(status.stream_name, "conformance") == 0);
	CHECK(status.head_lsn <= status.appended_lsn && status.appended_lsn - status.head_lsn <= status.capacity_bytes);
	CHECK(!status.is_writer_held && !status.is_drain_held);
	CHECK(farlog_ring_fence(uri, status.writer_epoch + 5, &error) == FARLOG_OK);
}

static void check_fenced_epoch(void)
{
	struct farlog_ring_status status;
	farlog_writer *writer;

	CHECK(farlog_ring_inspect(uri, &status, NULL) == FARLOG_OK);
	writer = open_writer(level);
	CHECK(writer != NULL && farlog_writer_recovery(writer)->epoch == status.epoch_min);
	farlog_writer_close(writer);
}

static void run(void)
{
	unsigned before = failed;

	if (format()) {
		check_contract();
		check_laps();
		check_order_of_locks();
		check_kill();
		check_status();
		check_fenced_epoch();
	}
	printf("conformance: %s (level %s): %s\n", uri, farlog_level_name((int)level), failed == before ? "conforms" : "DOES NOT CONFORM");
}

/* run_methods -- at each flush method that fits. Returns how many. */
static unsigned run_methods(const char *path, const char *const *methods)
{
	unsigned count = 0;

	for (; *methods != NULL; methods++) {
		enum farlog_flush_method method;

		if (!persist_method_named(*methods, &method) || !persist_is_supported(method))
			continue;
		snprintf(uri, sizeof(uri), "mem:%s%cflush=%s", path, strchr(path, '?') != NULL ? '&' : '?', *methods);
		run();
		count++;
	}
	return count;
}

static int missing(const char *kind, const char *variable, const char *what)
{
	printf("conformance: %s: skipped: set %s to %s\n", kind, variable, what);
	return EXIT_SKIP;
}

static const char *const memory_methods[] = {"clwb", "clflushopt", "nt", "cvap", NULL};

static int run_tmpfs(void)
{
	static const char *const methods[] = {"none", "clwb", "clflushopt", "nt", "cvap", NULL};
	char path[100];

	snprintf(path, sizeof(path), "/dev/shm/farlog-conformance-%ld", (long)getpid());
	run_methods(path, methods);
	unlink(path);
	return 0;
}

/* What the other rings of a packed region are made of, and what is in use of them. */
struct neighbour {
	char uri[400];
	uint64_t count; /* records appended and drained again, by a process of its own */
	uint64_t is_wrong;
	uint64_t is_stopping;
};

/* use_neighbour -- append and drain in a ring of the same region until told to stop: every record is the one that was appended. */
static void use_neighbour(struct neighbour *neighbour)
{
	struct farlog_writer_config writer_config = {.level = FARLOG_LEVEL_VISIBLE, .counters_dir = "", .deadline_ns = 30000000000ull};
	farlog_writer *writer = NULL;
	farlog_reader *drain = NULL;
	uint64_t next_seq = 0;

	if (farlog_writer_open(neighbour->uri, &writer_config, &writer, NULL) != FARLOG_OK ||
		farlog_reader_open(neighbour->uri, &(struct farlog_reader_config){.is_drain = 1}, &drain, NULL) != FARLOG_OK)
		neighbour->is_wrong = 1;
	while (!neighbour->is_wrong && !atomic_load_acquire(&neighbour->is_stopping)) {
		unsigned before = failed;

		for (unsigned i = 0; i < 20; i++) {
			struct farlog_cursors cursors;
			struct farlog_entry entry;
			struct farlog_position position;

			farlog_writer_cursors(writer, &cursors);
			entry = killed_entry(cursors.next_seq);
			neighbour->is_wrong |= farlog_append(writer, &entry, 0, &position) != FARLOG_OK;
		}
		drain_killed(drain, &next_seq);
		neighbour->is_wrong |= failed != before;
		atomic_store_release(&neighbour->count, neighbour->count + 20);
		sched_yield();
	}
	farlog_writer_close(writer);
	farlog_reader_close(drain);
}

/* make_packed -- "still", "ring", "busy", and room behind them that is filled with a pattern. */
static void make_packed(const char *path, struct neighbour *busy)
{
	static const char *const names[] = {"still", "ring", "busy"};
	struct farlog_ring_config config = {.size_bytes = SIZE, .record_len_max = RECORD_LEN_MAX, .stream_name = "conformance"};
	FILE *file;

	for (unsigned i = 0; i < 3; i++) {
		snprintf(busy->uri, sizeof(busy->uri), "mem:%s?ring=%s&size=%llu", path, names[i], PACKED_LEN);
		CHECK(farlog_ring_format(busy->uri, &config, NULL) == FARLOG_OK);
	}
	snprintf(uri, sizeof(uri), "mem:%s?ring=still", path);
	level = FARLOG_LEVEL_VISIBLE;
	check_laps();
	file = fopen(path, "r+");
	CHECK(file != NULL && fseek(file, DIRECTORY_LEN + 3 * SIZE, SEEK_SET) == 0);
	for (unsigned i = 0; file != NULL && i < 2 * SIZE; i++)
		fputc((int)(i % 251), file);
	CHECK(file != NULL && fclose(file) == 0);
}

static uint8_t *load_file(const char *path)
{
	uint8_t *bytes = malloc(PACKED_LEN);
	FILE *file = fopen(path, "r");

	CHECK(bytes != NULL && file != NULL && fread(bytes, 1, PACKED_LEN, file) == PACKED_LEN);
	fclose(file);
	return bytes;
}

/* A ring conforms while another one of its region is in use, and no byte outside of the two changes. */
static int run_packed(void)
{
	static const char *const methods[] = {"none", "clwb", "clflushopt", "nt", "cvap", NULL};
	struct neighbour *busy = mmap(NULL, sizeof(*busy), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char path[100];
	char named[130];
	uint8_t *before;
	uint8_t *after;
	pid_t pid;
	int status;

	snprintf(path, sizeof(path), "/dev/shm/farlog-packed-%ld", (long)getpid());
	make_packed(path, busy);
	before = load_file(path);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		use_neighbour(busy);
		_exit(busy->is_wrong != 0);
	}
	snprintf(named, sizeof(named), "%s?ring=ring", path);
	run_methods(named, methods);
	atomic_store_release(&busy->is_stopping, 1);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0 && busy->count > 0);
	printf("conformance: packed: the ring beside it took %lu records meanwhile\n", busy->count);
	after = load_file(path);
	CHECK(memcmp(before, after, DIRECTORY_LEN + SIZE) == 0);
	CHECK(memcmp(before + DIRECTORY_LEN + SIZE, after + DIRECTORY_LEN + SIZE, SIZE) != 0);
	CHECK(memcmp(before + DIRECTORY_LEN + 3 * SIZE, after + DIRECTORY_LEN + 3 * SIZE, 2 * SIZE) == 0);
	free(before);
	free(after);
	unlink(path);
	munmap(busy, sizeof(*busy));
	return 0;
}

static int run_file(void)
{
	static const char *const methods[] = {"msync", "none", NULL};
	const char *directory = getenv("FARLOG_TEST_DIR");
	char path[300];

	snprintf(path, sizeof(path), "%s/farlog-conformance-%ld", directory != NULL ? directory : "/var/tmp", (long)getpid());
	run_methods(path, methods);
	unlink(path);
	return 0;
}

static int run_fault(void)
{
	snprintf(uri, sizeof(uri), "fault:conformance");
	run();
	farlog_fault_drop("conformance");
	return 0;
}

static int run_fsdax(void)
{
	const char *directory = getenv("FARLOG_TEST_FSDAX");
	char path[300];

	if (directory == NULL)
		return missing("fsdax", "FARLOG_TEST_FSDAX", "a directory on a file system that is mounted with -o dax");
	snprintf(path, sizeof(path), "%s/farlog-conformance-%ld", directory, (long)getpid());
	run_methods(path, memory_methods);
	unlink(path);
	return 0;
}

static int run_device(const char *kind, const char *variable, const char *what)
{
	const char *path = getenv(variable);

	if (path == NULL)
		return missing(kind, variable, what);
	run_methods(path, memory_methods);
	return 0;
}

static int run_devdax(void)
{
	return run_device("devdax", "FARLOG_TEST_DEVDAX", "a device such as /dev/dax0.0, whose contents may go");
}

static int run_bar(void)
{
	return run_device("bar", "FARLOG_TEST_BAR", "a PCI resource file of a memory device, whose contents may go");
}

static const struct {
	const char *kind;
	int (*run)(void);
} kinds[] = {{"tmpfs", run_tmpfs}, {"packed", run_packed}, {"file", run_file}, {"fault", run_fault}, {"fsdax", run_fsdax}, {"devdax", run_devdax}, {"bar", run_bar}};

int main(int argc, char **argv)
{
	const char *seed_text = getenv("SEED");
	unsigned seed = seed_text != NULL ? (unsigned)strtoul(seed_text, NULL, 0) : (unsigned)clock_monotonic_ns();
	unsigned passed_count = 0;
	unsigned failed_count = 0;
	unsigned skipped_count = 0;

	printf("conformance: SEED=%u\n", seed);
	srand(seed);
	clock_start();
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		unsigned before = failed;
		int result;

		if (argc > 1 && strcmp(argv[1], kinds[i].kind) != 0)
			continue;
		result = kinds[i].run();
		skipped_count += result == EXIT_SKIP;
		failed_count += failed != before;
		passed_count += result != EXIT_SKIP && failed == before;
	}
	clock_stop();
	printf("conformance: %u passed, %u failed, %u skipped\n", passed_count, failed_count, skipped_count);
	if (failed_count > 0 || passed_count + skipped_count == 0)
		return 1;
	return argc > 1 && skipped_count > 0 ? EXIT_SKIP : 0;
}
