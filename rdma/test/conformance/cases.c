/* cases.c -- what a ring promises, whatever lies below it, here or on another host. */
#include "conformance.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "ring/layout.h"
#include "ring/record.h"

struct place here;
uint32_t level;
unsigned failed;

static uint8_t buffer[SIZE];

static int try_writer(const struct place *place, const struct farlog_grant *grant, uint32_t asked,
	farlog_writer **writer, struct farlog_error *error)
{
	struct farlog_writer_config config = {.level = asked,
		.policy = FARLOG_POLICY_REJECT,
		.counters_dir = "",
		.deadline_ns = WAIT_NS,
		.epoch = grant->epoch,
		.grant_token = entry_token(place, grant)};

	return farlog_writer_open(place->uri, &config, writer, error);
}

farlog_writer *open_writer(const struct place *place, const struct farlog_grant *grant, uint32_t asked)
{
	struct farlog_error error = {0};
	farlog_writer *writer = NULL;

	if (try_writer(place, grant, asked, &writer, &error) != FARLOG_OK) {
		printf("conformance: %s\n", error.text);
		failed++;
	}
	return writer;
}

static int try_drain(
	const struct place *place, const struct farlog_grant *grant, farlog_reader **drain, struct farlog_error *error)
{
	struct farlog_reader_config config = {.is_drain = 1, .grant_token = entry_token(place, grant)};

	return farlog_reader_open(place->uri, &config, drain, error);
}

farlog_reader *open_drain(const struct place *place, const struct farlog_grant *grant)
{
	struct farlog_error error = {0};
	farlog_reader *drain = NULL;

	if (try_drain(place, grant, &drain, &error) != FARLOG_OK) {
		printf("conformance: %s\n", error.text);
		failed++;
	}
	return drain;
}

/* next_writer, next_drain -- of the ring under test: it is let in, whoever came before. */
farlog_writer *next_writer(void)
{
	struct farlog_grant grant = entry_take_over(&here);

	return open_writer(&here, &grant, level);
}

farlog_reader *next_drain(void)
{
	struct farlog_grant grant = entry_grant(&here, FARLOG_GRANT_DRAIN);

	return open_drain(&here, &grant);
}

/* has_own_size -- of a device that is a ring as a whole. */
static bool has_own_size(void)
{
	const char *block_device = getenv("FARLOG_TEST_BLOCK");

	if (block_device != NULL && strstr(here.region_uri, block_device) != NULL)
		return true;
	return strstr(here.region_uri, "ring=") == NULL &&
		(strstr(here.region_uri, "/dev/dax") != NULL || strstr(here.region_uri, "resource") != NULL);
}

static bool format(const char *options)
{
	struct farlog_ring_config config = {.size_bytes = has_own_size() ? 0 : SIZE,
		.record_len_max = RECORD_LEN_MAX,
		.is_forced = 1,
		.stream_name = "conformance"};
	struct farlog_error error = {0};
	int result = farlog_ring_format(here.region_uri, &config, &error);

	if (result != FARLOG_OK)
		printf("conformance: %s\n", error.text);
	CHECK(result == FARLOG_OK);
	return result == FARLOG_OK && (!is_far(&here) || entry_serve(&here, options));
}

/* find_contract -- that of a far region comes with its grant, and promises what its own host finds out of it. */
static void find_contract(struct farlog_contract *contract)
{
	struct farlog_error error = {0};
	struct farlog_contract own;
	struct farlog_grant grant;
	farlog_writer *writer;

	CHECK(farlog_region_probe(here.region_uri, &own, &error) == FARLOG_OK);
	*contract = own;
	if (!is_far(&here))
		return;
	CHECK(farlog_region_probe(here.uri, contract, &error) == FARLOG_UNSUPPORTED);
	grant = entry_take_over(&here);
	writer = open_writer(&here, &grant, FARLOG_LEVEL_VISIBLE);
	if (writer == NULL)
		return;
	*contract = *farlog_writer_contract(writer);
	CHECK(contract->level == own.level && strcmp(contract->kind_name, own.kind_name) == 0 &&
		contract->granularity == own.granularity);
	CHECK(strstr(here.uri, contract->flush_name) != NULL); /* each method is asked for by its name */
	CHECK(farlog_writer_close(writer) == FARLOG_OK);
}

static void check_contract(void)
{
	struct farlog_contract contract = {0};
	farlog_writer *writer = NULL;
	struct farlog_error error = {0};
	struct farlog_grant grant;

	level = FARLOG_LEVEL_PERSISTENT;
	if (strncmp(here.region_uri, "fault:", 6) == 0)
		return;
	find_contract(&contract);
	level = contract.level;
	CHECK(contract.probe[0] != '\0' && contract.flush_name[0] != '\0' && contract.deadline_default_ns > 0);
	if (level == FARLOG_LEVEL_PERSISTENT)
		return;
	/* More than the contract gives is refused when the ring is opened. */
	grant = entry_take_over(&here);
	CHECK(try_writer(&here, &grant, FARLOG_LEVEL_PERSISTENT, &writer, &error) == FARLOG_LEVEL);
}

/* drain_laps -- all there is. */
static uint64_t drain_laps(farlog_writer *writer, farlog_reader *drain)
{
	struct farlog_cursors cursors;
	struct farlog_batch batch;
	uint64_t drained = 0;

	farlog_writer_cursors(writer, &cursors);
	CHECK(farlog_wait(writer, cursors.appended_lsn, 0) == FARLOG_OK);
	while (farlog_reader_read(drain, buffer, sizeof(buffer), &batch) == FARLOG_OK) {
		drained += batch.record_count;
		CHECK(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch) == FARLOG_OK);
	}
	return drained;
}

/* Records of every length come back as they went in, in order, over several laps but of a device, which is larger than
 * what is written here. */
void check_laps(void)
{
	farlog_writer *writer = next_writer();
	farlog_reader *drain = next_drain();
	struct farlog_cursors cursors = {0};
	uint64_t until_ns = clock_after_ns(WAIT_NS);
	uint64_t appended = 0;
	uint64_t drained = 0;

	for (unsigned i = 0; writer != NULL && drain != NULL && appended < 600 && clock_monotonic_ns() < until_ns; i++) {
		static uint8_t payload[RECORD_LEN_MAX];
		struct farlog_entry entry = {.data = payload,
			.len = i * 37 % (RECORD_LEN_MAX - 128),
			.class_id = (uint16_t)i,
			.key = "key",
			.key_len = i % 4};
		struct farlog_position position;
		int result;

		memset(payload, (int)i, entry.len);
		result = i % 3 ? farlog_submit(writer, &entry, &position) : farlog_append(writer, &entry, 0, &position);
		CHECK(result == FARLOG_OK || result == FARLOG_FULL);
		appended += result == FARLOG_OK;
		if (result != FARLOG_FULL && appended != 600)
			continue;
		drained += drain_laps(writer, drain);
		CHECK(drained == appended + farlog_writer_recovery(writer)->record_count + 1); /* and the EPOCH record */
	}
	if (writer != NULL)
		farlog_writer_cursors(writer, &cursors);
	CHECK(appended == 600 && (has_own_size() || cursors.appended_lsn > 2 * cursors.capacity_bytes));
	CHECK(farlog_writer_close(writer) == FARLOG_OK);
	farlog_reader_close(drain);
}

/* Nobody on the ring's own host comes in beside those that a target let in. */
static void check_own_host_waits(void)
{
	struct farlog_writer_config config = {.level = level, .counters_dir = ""};
	farlog_writer *second = NULL;
	farlog_reader *other = NULL;

	CHECK(farlog_writer_open(here.region_uri, &config, &second, NULL) == FARLOG_HELD);
	CHECK(farlog_reader_open(here.region_uri, &(struct farlog_reader_config){.is_drain = 1}, &other, NULL) ==
		FARLOG_HELD);
}

static void check_order_of_locks(void)
{
	farlog_writer *writer = next_writer();
	farlog_writer *second = NULL;
	farlog_reader *drain = next_drain();
	farlog_reader *other = NULL;
	struct farlog_grant grants[] = {entry_grant(&here, FARLOG_GRANT_WRITER), entry_grant(&here, FARLOG_GRANT_DRAIN)};
	struct farlog_error error = {0};

	CHECK(try_writer(&here, &grants[0], level, &second, &error) == FARLOG_HELD);
	CHECK(try_drain(&here, &grants[1], &other, &error) == FARLOG_HELD);
	CHECK(farlog_ring_format(here.region_uri, &(struct farlog_ring_config){.is_forced = 1}, NULL) == FARLOG_HELD);
	if (is_far(&here))
		check_own_host_waits();
	farlog_writer_close(writer);
	farlog_reader_close(drain);
}

/* look -- the ring's state: by its own host, and far also by whoever may read it. */
static void look(struct farlog_ring_status *status)
{
	struct farlog_grant grant = entry_grant(&here, FARLOG_GRANT_READER);
	struct farlog_reader_config config = {.start = FARLOG_START_HEAD, .grant_token = entry_token(&here, &grant)};
	struct farlog_ring_status seen = {0};
	farlog_reader *reader = NULL;
	struct farlog_error error = {0};

	CHECK(farlog_ring_inspect(here.region_uri, status, &error) == FARLOG_OK);
	CHECK(farlog_reader_open(here.uri, &config, &reader, &error) == FARLOG_OK);
	if (reader == NULL)
		return;
	CHECK(farlog_reader_status(reader, &seen) == FARLOG_OK);
	CHECK(memcmp(seen.ring_uuid, status->ring_uuid, sizeof(seen.ring_uuid)) == 0 && seen.salt == status->salt);
	CHECK(seen.writer_epoch == status->writer_epoch && seen.epoch_min == status->epoch_min &&
		seen.head_lsn == status->head_lsn);
	CHECK(seen.is_writer_held == status->is_writer_held && seen.is_drain_held == status->is_drain_held);
	farlog_reader_close(reader);
}

/* What is done to a ring by its own host alone says so. */
static void check_refused_far(const struct farlog_ring_status *status)
{
	struct farlog_error errors[2] = {0};

	CHECK(farlog_ring_format(here.uri, &(struct farlog_ring_config){.size_bytes = SIZE, .is_forced = 1}, &errors[0]) ==
		FARLOG_UNSUPPORTED);
	CHECK(farlog_ring_fence(here.uri, status->writer_epoch + 6, &errors[1]) == FARLOG_UNSUPPORTED);
	CHECK(strstr(errors[0].text, "is on another host") != NULL && strstr(errors[1].text, "is on another host") != NULL);
	printf("conformance: %s: formatting and fencing: refused by name: its own host does that\n", here.uri);
}

static void check_status(void)
{
	struct farlog_ring_status status;
	struct farlog_error error = {0};

	look(&status);
	CHECK(strcmp(status.stream_name, "conformance") == 0);
	CHECK(status.head_lsn <= status.appended_lsn && status.appended_lsn - status.head_lsn <= status.capacity_bytes);
	CHECK(!status.is_writer_held && !status.is_drain_held);
	if (is_far(&here))
		check_refused_far(&status);
	CHECK(entry_fence(&here, status.writer_epoch + 5, &error) == FARLOG_OK);
}

/* An epoch below the fence is refused, and the next one is the fence's. */
static void check_fenced_epoch(void)
{
	struct farlog_ring_status status;
	struct farlog_grant grant;
	farlog_writer *writer = NULL;
	struct farlog_error error = {0};

	CHECK(farlog_ring_inspect(here.region_uri, &status, NULL) == FARLOG_OK);
	grant = entry_grant(&here, FARLOG_GRANT_WRITER);
	grant.epoch = status.epoch_min - 1;
	CHECK(try_writer(&here, &grant, level, &writer, &error) == FARLOG_FENCED);
	grant = entry_grant(&here, FARLOG_GRANT_WRITER);
	writer = open_writer(&here, &grant, level);
	CHECK(writer != NULL && farlog_writer_recovery(writer)->epoch == status.epoch_min);
	farlog_writer_close(writer);
}

void run_cases(const char *options)
{
	unsigned before = failed;

	if (format(options)) {
		check_contract();
		check_laps();
		check_order_of_locks();
		check_kill();
		check_status();
		check_fenced_epoch();
	}
	printf("conformance: %s (level %s): %s\n", here.uri, farlog_level_name((int)level),
		failed == before ? "conforms" : "DOES NOT CONFORM");
}
