/* sweep.c -- every call into kernel and libraries is made to fail once, in turn, in each scenario on each kind of region.
 *
 * Proved: nothing fails open. A scenario that says OK has done its work; one that does not has lost no acknowledged record, says which call failed
 * and why, and works when it is done again. Each run begins with the same bytes: a ring whose writer was killed behind RECORDS acknowledged
 * records, one that is drained, or none. SEED=n, PERCENT=n of the calls, drawn by
 * the seed (100). usage: sweep [kind [scenario]] */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "clock.h"
#include "farlog/farlog.h"
#include "record.h"
#include "runs.h"

#define RING_SIZE (256u << 10)
#define RECORDS 20u  /* that a ring was left with */
#define APPENDS 6u   /* more, in a scenario */
#define NUMBERS 64u  /* records are numbered below this */
#define HANG_S 120u  /* no deadline of the product is near it */
#define MEMBERS_MAX 2u

#define ONE 1u     /* of a region with one ring in a file */
#define MANY 2u    /* of a region with a directory */
#define MEMBERS 4u /* of a stream with members */
#define DEVICE 8u  /* of a ring that has all of a device, which is formatted but never removed */
#define NEAR (ONE | MANY | DEVICE)

/* What a ring is when a run begins. */
enum start { START_NONE, START_LEFT, START_DRAINED, START_COUNT };

struct kind {
	const char *name;
	const char *scheme;  /* of the URI of each file */
	const char *options; /* behind its path */
	const char *dir;
	unsigned file_count; /* above 1: members, as many of which must have a record as there are files */
	unsigned of;         /* which scenarios */
	bool is_device;      /* it is there, blank, before a ring is made */
};

static const struct kind kinds[] = {
	{"file", "mem:", "", "/var/tmp", 1, ONE, false},
	{"directory", "mem:", "?ring=desk/orders&size=1048576", "/dev/shm", 1, MANY, false},
	{"blocks", "nvme:", "?flush=dsync", "/var/tmp", 1, DEVICE, true},
	{"members", "mem:", "", "/dev/shm", 2, MEMBERS, false},
};

/* One run. */
static struct {
	const struct kind *kind;
	char paths[MEMBERS_MAX][128];
	char uris[MEMBERS_MAX][256];
	char uri[600];
	bool is_acked[NUMBERS];  /* OK was said of this record */
	bool is_absent[NUMBERS]; /* it was said not to be there */
	struct farlog_error error;
	char failure[700];       /* what is wrong; "" = nothing */
} run;

static struct {
	void *bytes[START_COUNT][MEMBERS_MAX];
	size_t lens[START_COUNT][MEMBERS_MAX];
	uint64_t lag_records; /* of a ring that was left */
} images;

#define FAIL(...) (snprintf(run.failure, sizeof(run.failure), __VA_ARGS__), (void)0)

static const struct farlog_writer_config writer_config = {.level = FARLOG_LEVEL_VISIBLE, .counters_dir = "", .deadline_ns = 2000000000};

/* ---------------------------------------------------------------- appending and reading */

static int append_one(farlog_writer *writer, uint64_t number)
{
	struct farlog_entry entry = {.data = &number, .len = sizeof(number)};
	struct farlog_position position = {0};
	int result = farlog_append(writer, &entry, 0, &position);

	if (result == FARLOG_UNKNOWN && position.lsn != 0) {
		int outcome = farlog_resolve(writer, position.lsn, 0, &position);

		run.is_absent[number] = outcome == FARLOG_NOT_FOUND;
		result = outcome == FARLOG_OK ? FARLOG_OK : result;
	}
	if (result == FARLOG_OK)
		run.is_acked[number] = true;
	return result;
}

static int append_some(uint64_t first, unsigned count, bool is_closed)
{
	farlog_writer *writer;
	int result = farlog_writer_open(run.uri, &writer_config, &writer, &run.error);
	int closed;

	if (result != FARLOG_OK)
		return result;
	for (unsigned i = 0; i < count && result == FARLOG_OK; i++)
		result = append_one(writer, first + i);
	if (!is_closed)
		return result;
	closed = farlog_writer_close(writer);
	return result != FARLOG_OK ? result : closed;
}

/* take -- the numbers of a batch's records, behind those that are there. */
static unsigned take(const uint8_t *bytes, uint64_t len, uint64_t numbers[NUMBERS], unsigned count)
{
	for (uint64_t off = 0; off + sizeof(struct record_header) <= len && count < NUMBERS;) {
		struct record_header header;

		memcpy(&header, bytes + off, sizeof(header));
		if (header.flags == 0)
			memcpy(&numbers[count++], bytes + off + RECORD_HEADER_LEN + header.key_len, sizeof(numbers[0]));
		off += header.flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN : record_extent(64, header.key_len, header.payload_len);
	}
	return count;
}

/* read_rest -- all that a reader gives; the result of its last read, *batch its last batch that held records. */
static int read_rest(farlog_reader *reader, uint64_t numbers[NUMBERS], unsigned *count, struct farlog_batch *last)
{
	static uint8_t buf[RING_SIZE];
	struct farlog_batch batch;
	unsigned idle = 0;
	int result = FARLOG_OK;

	*count = 0;
	while ((result == FARLOG_OK || result == FARLOG_NOT_YET) && idle < 200) { /* members are reached by threads */
		result = farlog_reader_read(reader, buf, sizeof(buf), &batch);
		if (result == FARLOG_OK) {
			*count = take(buf, batch.len, numbers, *count);
			*last = batch;
			idle = 0;
		} else if (run.kind->file_count == 1) {
			break;
		} else {
			idle++;
			usleep(1000);
		}
	}
	return result;
}

static int drain_ring(uint64_t numbers[NUMBERS], unsigned *count)
{
	struct farlog_reader_config config = {.is_drain = 1};
	struct farlog_batch last = {0};
	farlog_reader *reader;
	int result = farlog_reader_open(run.uri, &config, &reader, &run.error);

	*count = 0;
	if (result != FARLOG_OK)
		return result;
	result = read_rest(reader, numbers, count, &last);
	if (result == FARLOG_NOT_YET)
		result = *count > 0 ? farlog_reader_release(reader, last.next_lsn, last.next_seq, last.last_epoch) : FARLOG_OK;
	farlog_reader_close(reader);
	return result;
}

/* ---------------------------------------------------------------- scenarios */

static int run_format(void)
{
	struct farlog_ring_config config = {.size_bytes = run.kind->is_device ? 0 : RING_SIZE, .salt = 7, .stream_name = "desk/orders"};
	int first = FARLOG_OK;

	for (unsigned i = 0; i < run.kind->file_count; i++) {
		struct farlog_error error = {0};
		int result = farlog_ring_format(run.uris[i], &config, &error);

		if (first == FARLOG_OK && result != FARLOG_OK) {
			first = result;
			run.error = error;
		}
	}
	return first;
}

static int run_append(void)
{
	return append_some(RECORDS + 1, APPENDS, true);
}

static int run_shared(void)
{
	farlog_shared *shared;
	int result = farlog_shared_open(run.uri, &writer_config, &shared, &run.error);
	int closed;

	if (result != FARLOG_OK)
		return result;
	for (uint64_t number = RECORDS + 1; number <= RECORDS + APPENDS && result == FARLOG_OK; number++) {
		struct farlog_entry entry = {.data = &number, .len = sizeof(number)};
		struct farlog_position position;

		result = farlog_shared_append(shared, &entry, 0, &position);
		run.is_acked[number] = result == FARLOG_OK;
	}
	closed = farlog_shared_close(shared);
	return result != FARLOG_OK ? result : closed;
}

static int run_fence(void)
{
	return farlog_ring_fence(run.uri, 5, &run.error);
}

static struct farlog_ring_status seen;

static int run_inspect(void)
{
	return farlog_ring_inspect(run.uri, &seen, &run.error);
}

static int run_remove(void)
{
	return farlog_ring_remove(run.uri, 0, &run.error);
}

static struct {
	uint64_t numbers[NUMBERS];
	unsigned count;
} drained;

static int run_drain(void)
{
	return drain_ring(drained.numbers, &drained.count);
}

static struct farlog_region_status region;

static int run_list(void)
{
	struct farlog_region_ring rings[4];

	return farlog_region_list(run.uri, &region, rings, 4, &run.error);
}

/* judge_records -- what was acknowledged is there once and in order, and nothing that was said to be absent. first: what was drained before. */
static void judge_records(unsigned first_count, const uint64_t first[NUMBERS])
{
	uint64_t numbers[NUMBERS], before = 0;
	bool is_there[NUMBERS] = {false};
	unsigned count;
	int result = drain_ring(numbers, &count);

	if (result != FARLOG_OK) {
		FAIL("drained afterwards: %s: %s", farlog_result_name(result), run.error.text);
		return;
	}
	for (unsigned i = 0; i < first_count; i++)
		is_there[first[i]] = true;
	for (unsigned i = 0; i < count; i++) {
		if (numbers[i] >= NUMBERS || numbers[i] <= before) {
			FAIL("record %lu is behind record %lu", numbers[i], before);
			return;
		}
		before = numbers[i];
		is_there[before] = true;
	}
	for (unsigned i = 1; i < NUMBERS; i++) {
		if ((run.is_acked[i] && !is_there[i]) || (run.is_absent[i] && is_there[i]))
			FAIL("record %u is %sthere and was %s", i, is_there[i] ? "" : "not ", run.is_acked[i] ? "acknowledged" : "said to be absent");
	}
}

static void judge_format(int result)
{
	int again = result == FARLOG_OK ? result : run_format();

	if (result == FARLOG_EXISTS || (again != FARLOG_OK && again != FARLOG_EXISTS))
		FAIL("formatted once more: %s: %s", farlog_result_name(again), run.error.text);
	else if ((again = append_some(1, 1, true)) != FARLOG_OK)
		FAIL("appended afterwards: %s: %s", farlog_result_name(again), run.error.text);
	else
		judge_records(0, NULL);
}

static void judge_append(int result)
{
	for (unsigned i = RECORDS + 1; result == FARLOG_OK && i <= RECORDS + APPENDS; i++)
		if (!run.is_acked[i])
			FAIL("OK, and record %u was not acknowledged", i);
	if (run.failure[0] == '\0')
		judge_records(0, NULL);
}

static void judge_fence(int result)
{
	struct farlog_writer_config config = writer_config;
	farlog_writer *writer;

	if (result != FARLOG_OK)
		result = run_fence();
	if (result != FARLOG_OK) {
		FAIL("fenced once more: %s: %s", farlog_result_name(result), run.error.text);
		return;
	}
	config.epoch = 3;
	result = farlog_writer_open(run.uri, &config, &writer, &run.error);
	if (result == FARLOG_OK)
		farlog_writer_close(writer);
	if (result != FARLOG_FENCED)
		FAIL("a writer of epoch 3 opens a ring fenced below 5: %s", farlog_result_name(result));
	else
		judge_records(0, NULL);
}

static void judge_inspect(int result)
{
	if (result == FARLOG_OK && seen.lag_records != images.lag_records)
		FAIL("OK with lag %lu, expected %lu", seen.lag_records, images.lag_records);
}

static void judge_remove_left(int result)
{
	if (result == FARLOG_OK)
		FAIL("a ring with undrained records was removed");
	else
		judge_records(0, NULL);
}

static void judge_remove_drained(int result)
{
	int left = farlog_ring_inspect(run.uri, &seen, &run.error);

	if (left != FARLOG_NOT_FOUND && (result == FARLOG_OK || left != FARLOG_OK))
		FAIL("removal said %s, and the ring is %s: %s", farlog_result_name(result), farlog_result_name(left), run.error.text);
	else if (left == FARLOG_OK && (result = run_remove()) != FARLOG_OK)
		FAIL("removed once more: %s: %s", farlog_result_name(result), run.error.text);
}

static void judge_drain(int result)
{
	for (unsigned i = 0; i < drained.count && run.failure[0] == '\0'; i++)
		if (drained.numbers[i] != i + 1)
			FAIL("record %u of the drain is %lu", i + 1, drained.numbers[i]);
	if (result == FARLOG_OK && drained.count != RECORDS)
		FAIL("OK with %u of %u records", drained.count, RECORDS);
	if (run.failure[0] == '\0')
		judge_records(drained.count, drained.numbers);
}

static void judge_list(int result)
{
	if (result == FARLOG_OK && region.ring_count != 1)
		FAIL("OK with %u rings, expected 1", region.ring_count);
}

static const struct scenario {
	const char *name;
	enum start start;
	int (*play)(void);
	void (*judge)(int result);
	unsigned of;
} scenarios[] = {
	{"format", START_NONE, run_format, judge_format, NEAR | MEMBERS},
	{"recover and append", START_LEFT, run_append, judge_append, NEAR | MEMBERS},
	{"shared append", START_LEFT, run_shared, judge_append, NEAR | MEMBERS},
	{"fence", START_LEFT, run_fence, judge_fence, NEAR},
	{"inspect", START_LEFT, run_inspect, judge_inspect, NEAR},
	{"drain", START_LEFT, run_drain, judge_drain, NEAR | MEMBERS},
	{"remove undrained", START_LEFT, run_remove, judge_remove_left, ONE | MANY},
	{"remove drained", START_DRAINED, run_remove, judge_remove_drained, ONE | MANY},
	{"list", START_LEFT, run_list, judge_list, MANY},
	{"append to an empty ring", START_DRAINED, run_append, judge_append, ONE | DEVICE},
};

/* ---------------------------------------------------------------- runs */

static void name_files(const struct kind *kind)
{
	char uri[sizeof(run.uri)];
	int used = 0;

	run.kind = kind;
	for (unsigned i = 0; i < kind->file_count; i++) {
		snprintf(run.paths[i], sizeof(run.paths[i]), "%s/farlog-sweep-%ld-%u", kind->dir, (long)getpid(), i);
		snprintf(uri, sizeof(run.uris[i]), "%s%s%s", kind->scheme, run.paths[i], kind->options);
		strcpy(run.uris[i], uri);
	}
	if (kind->file_count > 1)
		used = snprintf(uri, sizeof(uri), "members:%u", kind->file_count);
	for (unsigned i = 0; used > 0 && i < kind->file_count; i++)
		used += snprintf(uri + used, sizeof(uri) - (size_t)used, " %s", run.uris[i]);
	strcpy(run.uri, uri);
}

static void remove_files(void)
{
	for (unsigned i = 0; i < run.kind->file_count; i++)
		unlink(run.paths[i]);
}

static void put_files(enum start start)
{
	remove_files();
	for (unsigned i = 0; (start != START_NONE || run.kind->is_device) && i < run.kind->file_count; i++) {
		int fd = open(run.paths[i], O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

		if (fd < 0 || (start == START_NONE && ftruncate(fd, 2 * RING_SIZE) != 0) ||
			write(fd, images.bytes[start][i], images.lens[start][i]) != (ssize_t)images.lens[start][i]) {
			perror(run.paths[i]);
			exit(2);
		}
		close(fd);
	}
}

static void keep_files(enum start start)
{
	for (unsigned i = 0; i < run.kind->file_count; i++) {
		int fd = open(run.paths[i], O_RDONLY | O_CLOEXEC);
		struct stat stat;

		if (fd < 0 || fstat(fd, &stat) != 0 || (images.bytes[start][i] = realloc(images.bytes[start][i], (size_t)stat.st_size)) == NULL ||
			read(fd, images.bytes[start][i], (size_t)stat.st_size) != stat.st_size) {
			perror(run.paths[i]);
			exit(2);
		}
		images.lens[start][i] = (size_t)stat.st_size;
		close(fd);
	}
}

/* leave -- in a process that is killed: a ring with acknowledged records and no writer. */
static int leave_ring(void)
{
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		if (run_format() == FARLOG_OK && append_some(1, RECORDS, false) == FARLOG_OK)
			kill(getpid(), SIGKILL);
		fprintf(stderr, "%s\n", run.error.text);
		_exit(2);
	}
	return waitpid(child, &status, 0) == child && WIFSIGNALED(status) ? 0 : -1;
}

static bool make_images(const struct kind *kind)
{
	uint64_t numbers[NUMBERS];
	unsigned count;

	name_files(kind);
	put_files(START_NONE);
	if (leave_ring() != 0)
		return false;
	keep_files(START_LEFT);
	if (kind->file_count == 1 && run_inspect() == FARLOG_OK)
		images.lag_records = seen.lag_records;
	if (drain_ring(numbers, &count) != FARLOG_OK || count != RECORDS)
		return false;
	keep_files(START_DRAINED);
	return true;
}

static char usual_text[sizeof(run.error.text)]; /* what a scenario says when no call fails */

/* says_why -- the error has the reason of the call that failed. Of memory it may say so in words of its own, which are as plain. */
static bool says_why(void)
{
	if (strstr(run.error.text, strerror(calls_errno())) != NULL)
		return true;
	return calls_errno() == ENOMEM && (run.error.result == FARLOG_NO_MEMORY || strstr(run.error.text, "out of memory") != NULL);
}

/* play_one -- a scenario whose n-th call fails. The number of calls; *is_reached: there was an n-th. */
static unsigned play_one(const struct scenario *scenario, enum calls_kind failure, unsigned n, bool *is_reached)
{
	unsigned count;
	int result;

	memset(run.is_acked, 0, sizeof(run.is_acked));
	memset(run.is_absent, 0, sizeof(run.is_absent));
	memset(&run.error, 0, sizeof(run.error));
	run.failure[0] = '\0';
	for (unsigned i = 1; scenario->start == START_LEFT && i <= RECORDS; i++)
		run.is_acked[i] = true;
	put_files(scenario->start);
	alarm(HANG_S);
	calls_arm(failure, n);
	result = scenario->play();
	count = calls_disarm();
	*is_reached = calls_failed() != NULL;
	if (!*is_reached)
		strcpy(usual_text, run.error.text);
	if (result != FARLOG_OK && *is_reached && run.error.result != FARLOG_OK && strcmp(run.error.text, usual_text) != 0 && !says_why())
		FAIL("the error does not say why: \"%s\"", run.error.text);
	else
		scenario->judge(result);
	alarm(0);
	return count;
}

static unsigned long seed, percent;
static unsigned run_count, failed_count;

/* is_drawn -- by the seed, whether a run is among the ones that are played. */
static bool is_drawn(unsigned scenario, unsigned failure, unsigned n)
{
	uint64_t x = (seed + run.kind->name[0] * 7919u + scenario * 104729u + failure * 1299709u + n) * 0x9E3779B97F4A7C15u;

	return (x >> 33) % 100 < percent;
}

static void sweep(unsigned scenario_index, enum calls_kind failure)
{
	const struct scenario *scenario = &scenarios[scenario_index];
	bool is_reached = true;
	unsigned count, played = 0;

	count = play_one(scenario, failure, UINT_MAX, &is_reached);
	run_count++;
	if (run.failure[0] != '\0') {
		printf("[  FAILED  ] %s, %s, without a failure: %s\n", run.kind->name, scenario->name, run.failure);
		failed_count++;
	}
	is_reached = true;
	for (unsigned n = 1; is_reached; n++) {
		if (n <= count && !is_drawn(scenario_index, failure, n))
			continue;
		printf("[ RUN      ] %s %s %s %u\n", run.kind->name, scenario->name, calls_kind_name(failure), n);
		count = play_one(scenario, failure, n, &is_reached);
		played++;
		if (run.failure[0] == '\0')
			continue;
		printf("[  FAILED  ] %s, %s, %s of call %u, %s: %s\n", run.kind->name, scenario->name, calls_kind_name(failure), n,
			calls_failed() != NULL ? calls_failed() : "none", run.failure);
		failed_count++;
	}
	run_count += played;
	printf("sweep: %s: %s: %s: %u calls, %u runs\n", run.kind->name, scenario->name, calls_kind_name(failure), count, played);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	seed = runs_number("SEED", clock_monotonic_ns() & 0xFFFFFFFF);
	percent = runs_number("PERCENT", 100);
	printf("sweep: %lu percent of the calls, seed=%lu: SEED=%lu PERCENT=%lu rdma/test/run.sh sweep\n", percent, seed, seed, percent);
	for (unsigned k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		if (argc > 1 && strcmp(argv[1], kinds[k].name) != 0)
			continue;
		if (!make_images(&kinds[k])) {
			printf("sweep: %s: no ring to begin with: %s\n", kinds[k].name, run.error.text);
			failed_count++;
			continue;
		}
		for (unsigned i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
			for (unsigned failure = 0; (scenarios[i].of & kinds[k].of) != 0 && failure < CALLS_KIND_COUNT; failure++)
				if (argc < 3 || strcmp(argv[2], scenarios[i].name) == 0)
					sweep(i, failure);
		remove_files();
	}
	printf("sweep: %u passed, %u failed\n", run_count - failed_count, failed_count);
	return failed_count > 0 || run_count == 0;
}
