/* log/writer_open.c -- becoming a ring's one writer, and ceasing to be it. */
#include "farlog/host.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/stream_uri.h"
#include "log/openers.h"
#include "log/writer.h"
#include "region/superblock.h"

#define HEADER_LEN LAYOUT_DATA_OFF
#define CLAIM_COUNT_MAX 8u

static int check_level(const struct farlog_writer *writer, const char *uri, uint32_t level, struct farlog_error *error)
{
	const struct farlog_contract *contract = &writer->region->contract;

	if (level > FARLOG_LEVEL_PERSISTENT)
		return error_set(error, FARLOG_INVALID, 0,
			"ring \"%s\": level %u is not one a ring can give; expected posted, visible "
			"or persistent",
			uri, level);
	if (level <= contract->level)
		return FARLOG_OK;
	return error_set(error, FARLOG_LEVEL, 0,
		"ring \"%s\": asked for level %s, but this region gives %s at most (%s, flush %s: %s)", uri,
		farlog_level_name((int)level), farlog_level_name((int)contract->level), contract->kind_name,
		contract->flush_name, contract->probe);
}

/* is_of_no_process -- a writer's name is of this host, and of no process on it: whoever holds the lock is another one,
 * which has not opened its epoch. */
static bool is_of_no_process(const char id[FARLOG_WRITER_ID_LEN])
{
	char text[FARLOG_WRITER_ID_LEN + 1] = {0};
	char host[64] = "?";
	char here[sizeof(text)];
	char *pid;

	memcpy(text, id, FARLOG_WRITER_ID_LEN);
	gethostname(host, sizeof(host) - 1);
	snprintf(here, sizeof(here), "host=%.63s pid=", host);
	if (strncmp(text, here, strlen(here)) != 0)
		return false;
	pid = text + strlen(here);
	return strtol(pid, NULL, 10) > 0 && kill((pid_t)strtol(pid, NULL, 10), 0) != 0 && errno == ESRCH;
}

static int check_held(const struct farlog_writer *writer, const char *uri, int result, struct farlog_error *error)
{
	const char *holder = writer->superblock.writer_id;

	if (result == FARLOG_HELD && is_of_no_process(holder))
		return error_set(error, result, 0,
			"ring \"%s\" is held by a process that has not opened its epoch (epoch %u is of %.*s, which is no process "
			"here); stop it first",
			uri, writer->superblock.writer_epoch, FARLOG_WRITER_ID_LEN, holder);
	if (result == FARLOG_HELD)
		return error_set(error, result, 0, "ring \"%s\" has a living writer: epoch %u, %.*s; stop it first", uri,
			writer->superblock.writer_epoch, FARLOG_WRITER_ID_LEN,
			holder[0] != '\0' ? holder : "which has not yet opened its epoch");
	return region_set_lock_error(writer->region, result, uri, error);
}

static int check_uuid(
	const struct farlog_writer *writer, const char *uri, const uint8_t *uuid, struct farlog_error *error)
{
	if (uuid == NULL || writer->region->caps.has_checked_rings ||
		memcmp(uuid, writer->superblock.ring_uuid, sizeof(writer->superblock.ring_uuid)) == 0)
		return FARLOG_OK;
	return error_set(error, FARLOG_NOT_A_RING, 0,
		"region \"%s\" holds another ring than the one asked for (its uuid begins %02x%02x%02x%02x, expected "
		"%02x%02x%02x%02x)",
		uri, writer->superblock.ring_uuid[0], writer->superblock.ring_uuid[1], writer->superblock.ring_uuid[2],
		writer->superblock.ring_uuid[3], uuid[0], uuid[1], uuid[2], uuid[3]);
}

/* flush_header -- what earlier processes stored may still lie in caches, or in a page cache whose write-back failed. It
 * is going to be built upon, so it is made durable first: otherwise a power cut could take a record from below an
 * acknowledged one. */
static int flush_header(struct farlog_writer *writer, const char *uri, struct farlog_error *error)
{
	if (writer->region->ops->data.flush(writer->region, 0, HEADER_LEN) == FARLOG_OK)
		return FARLOG_OK;
	return region_set_error(writer->region, FARLOG_IO, "flush header of ring", uri, error);
}

static int choose_epoch(struct farlog_writer *writer, const char *uri, uint32_t granted, struct farlog_error *error)
{
	uint64_t epoch_min = region_load_word(writer->region, LAYOUT_FENCE_OFF);
	uint32_t last = writer->superblock.writer_epoch;

	if (granted != 0 && (granted <= last || granted < epoch_min))
		return error_set(error, FARLOG_FENCED, 0,
			"ring \"%s\": epoch %u was granted, but the ring has seen epoch %u and requires at least %lu; "
			"acquire a new grant",
			uri, granted, last, epoch_min);
	if (last == UINT32_MAX || epoch_min > UINT32_MAX)
		return error_set(
			error, FARLOG_CORRUPT, 0, "ring \"%s\": epochs are used up (last %u, fence %lu)", uri, last, epoch_min);
	writer->epoch = granted != 0 ? granted : last + 1;
	if (writer->epoch < epoch_min)
		writer->epoch = (uint32_t)epoch_min;
	return FARLOG_OK;
}

/* fence_others -- writers of other hosts, by the device and before anything is built on what they left: what they still
 * had under way has landed then, or never will. The fence word is for those that the device does not hold back, because
 * it cannot or has forgotten. */
static int fence_others(struct farlog_writer *writer, const char *uri, const struct farlog_writer_config *config,
	struct farlog_error *error)
{
	struct region *region = writer->region;
	struct region_claim claim = {.kind = REGION_CLAIM_EXCLUSIVE, .ring_uuid = writer->superblock.ring_uuid, .uri = uri};
	int result = FARLOG_OK;

	for (unsigned turn = 0; turn < CLAIM_COUNT_MAX && region->caps.is_claimable && result == FARLOG_OK; turn++) {
		uint32_t last = writer->superblock.writer_epoch;

		result = choose_epoch(writer, uri, config->epoch, error);
		claim.epoch = writer->epoch;
		if (result == FARLOG_OK)
			result = region_claim(region, &claim, error);
		if (result == FARLOG_OK && region_fetch(region, 0, HEADER_LEN) != FARLOG_OK)
			result = region_set_error(writer->region, FARLOG_IO, "read header of ring", uri, error);
		if (result == FARLOG_OK)
			/* it may have opened an epoch in the last moment */
			result = superblock_load(region, uri, &writer->superblock, error);
		if (result != FARLOG_OK || writer->superblock.writer_epoch != last)
			continue;
		if (region_load_word(region, LAYOUT_FENCE_OFF) < writer->epoch)
			region->ops->data.store_word(region, LAYOUT_FENCE_OFF, writer->epoch);
		return FARLOG_OK;
	}
	return result != FARLOG_OK || !region->caps.is_claimable ?
		result :
		error_set(error, FARLOG_HELD, 0, "ring \"%s\": others are opening it at the same time; try again", uri);
}

static void write_identity(const struct farlog_writer_config *config, char id[FARLOG_WRITER_ID_LEN])
{
	char host[64] = "?";

	gethostname(host, sizeof(host) - 1);
	memset(id, 0, FARLOG_WRITER_ID_LEN);
	snprintf(id, FARLOG_WRITER_ID_LEN, "host=%s pid=%ld name=%.40s", host, (long)getpid(),
		config->writer_name != NULL ? config->writer_name : program_invocation_short_name);
	for (char *c = id; *c != '\0'; c++)
		if ((uint8_t)*c < ' ' || *c == 0x7F)
			*c = '?'; /* it is shown to people, and a target takes no other */
}

static int set_full_error(const struct farlog_writer *writer, const char *uri, struct farlog_error *error)
{
	return error_set(error, FARLOG_FULL, 0,
		"ring \"%s\" is full (%lu of %lu bytes undrained): no space for the EPOCH record of a new writer; start its "
		"drain and try again",
		uri, ring_used(&writer->ring), writer->identity.capacity);
}

/* open_epoch -- the superblock first, persisted, then the EPOCH record: an epoch number is never used that a crash
 * could make forget. Where too few members for their drain know the newest epoch, and the ring has no space, they are
 * sent this epoch all the same: then the ring can be drained, and the next opening finds space. */
static int open_epoch(struct farlog_writer *writer, const char *uri, const struct farlog_writer_config *config,
	struct farlog_error *error)
{
	struct clock_reading now;
	struct record_epoch_payload payload = {.prev_epoch = writer->superblock.writer_epoch};
	struct farlog_entry entry = {.data = &payload, .len = sizeof(payload)};
	struct deadline deadline = {.duration_ns = 1000000000u + 10 * writer->deadline_ns};
	struct farlog_position position;
	struct ring_place place;
	uint64_t extent = record_extent(writer->identity.align, 0, sizeof(payload));
	bool is_full;
	int result;

	is_full = writer_find_place(
				  writer, record_pad_len(&writer->identity, writer->ring.appended_lsn) + extent, &place) != FARLOG_OK;
	if (is_full && !writer->region->lacks_epoch_quorum)
		return set_full_error(writer, uri, error);
	clock_read(clock_ticks(), &now);
	writer->superblock.writer_epoch = writer->epoch;
	writer->superblock.epoch_start_lsn = writer->ring.appended_lsn;
	writer->superblock.epoch_start_seq = writer->ring.next_seq;
	writer->superblock.epoch_opened_ns = now.utc_ns;
	write_identity(config, writer->superblock.writer_id);
	memcpy(writer->superblock.writer_host, &writer->region->host, sizeof(writer->superblock.writer_host));
	result = superblock_store(writer->region, &writer->superblock, true);
	if (result == FARLOG_FENCED)
		return error_set(error, result, 0,
			"ring \"%s\": a later epoch than %u has been granted meanwhile; acquire a new grant", uri, writer->epoch);
	if (result != FARLOG_OK)
		return region_set_error(writer->region, FARLOG_IO, "persist superblock of ring", uri, error);
	/* Takes back the announcement of this opening: one that stays only makes the next opener wait. */
	may_fail(region_claim(writer->region, &(struct region_claim){.kind = REGION_CLAIM_EPOCH_STORED, .uri = uri}, NULL));
	if (is_full)
		return set_full_error(writer, uri, error);
	payload.start_lsn = writer->ring.appended_lsn;
	memcpy(payload.ring_uuid, writer->superblock.ring_uuid, sizeof(payload.ring_uuid));
	if (writer->is_packed)
		writer_end_commit(writer);
	errno = ETIMEDOUT; /* of what has not failed, but is not done in time */
	if (writer_wait_durable(writer, writer->ring.appended_lsn, &deadline) != FARLOG_OK ||
		writer_stage(writer, &entry, RECORD_FLAG_EPOCH, clock_ticks(), &position) != FARLOG_OK ||
		writer_wait_durable(writer, position.end_lsn, &deadline) != FARLOG_OK)
		return region_set_error(writer->region, FARLOG_IO, "append EPOCH record to ring", uri, error);
	return FARLOG_OK;
}

/* keep_epoch_space -- a drain of several members moves heads over what as many as are needed have who know the newest
 * epoch. When too few are left of those, only the next writer's epoch makes them enough again: a full ring has space
 * for that, or neither the drain nor a writer could ever go on. With what fills the ring's end, and on blocks the LBA,
 * before and behind it. */
static void keep_epoch_space(struct farlog_writer *writer)
{
	uint64_t len = 2 *
		(record_extent(writer->identity.align, 0, sizeof(struct record_epoch_payload)) + writer->identity.block_len);

	if (writer->region->caps.needs_epoch_room)
		writer->ring.kept_bytes = len < writer->identity.capacity / 4 ? len : writer->identity.capacity / 4;
	writer->plain_limit_lsn = 0; /* the EPOCH record moved it, before this was kept: the next record does again */
}

static void publish_constants(struct farlog_writer *writer)
{
	struct farlog_counters *counters = writer->counters;
	struct clock_reading now;

	clock_read(clock_ticks(), &now);
	atomic_store_relaxed(&counters->capacity_bytes, writer->identity.capacity);
	atomic_store_relaxed(&counters->epoch, writer->epoch);
	atomic_store_relaxed(&counters->level, writer->level);
	atomic_store_relaxed(&counters->pid, (uint64_t)getpid());
	atomic_store_relaxed(&counters->clock_err_ns, now.error_ns);
	atomic_store_relaxed(&counters->orphan_count, writer->recovery.orphan_count);
	atomic_store_relaxed(&counters->credit_lsn, writer->ring.credit_lsn);
}

static int acquire_resources(
	struct farlog_writer *writer, const struct farlog_writer_config *config, struct farlog_error *error)
{
	int failure = clock_start();
	int result;

	if (failure != 0)
		return error_set(error, FARLOG_IO, failure, "start clock sampler");
	writer->has_clock = true;
	writer->region->ops->data.populate(writer->region);
	writer->hint_interval_ticks = clock_ticks_of(writer->region->caps.hint_interval_ns);
	writer->staging = aligned_alloc(LAYOUT_BLOCK_LEN,
		((uint64_t)writer->identity.record_len_max + LAYOUT_BLOCK_LEN - 1) / LAYOUT_BLOCK_LEN * LAYOUT_BLOCK_LEN);
	if (writer->staging == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "allocate %u bytes of staging", writer->identity.record_len_max);
	writer->counters_dir = config->counters_dir != NULL ? strdup(config->counters_dir) : NULL;
	if (config->counters_dir != NULL && writer->counters_dir == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "keep the counters' directory");
	result = stats_open(
		writer->counters_dir, writer->superblock.ring_uuid, &writer->counters, &writer->counters_lock_fd, error);
	if (result == FARLOG_OK)
		writer->region->ops->members.attach_counters(writer->region, writer->counters);
	return result;
}

static int check_config(const char *uri, const struct farlog_writer_config *config, struct farlog_error *error)
{
	uint32_t warn_percent = config->warn_percent ? config->warn_percent : WRITER_WARN_PERCENT;
	uint32_t alarm_percent = config->alarm_percent ? config->alarm_percent : WRITER_ALARM_PERCENT;

	if (config->policy > FARLOG_POLICY_REJECT || config->wait > FARLOG_WAIT_SPIN)
		return error_set(error, FARLOG_INVALID, 0, "ring \"%s\": policy %u or wait %u is not one of those in farlog.h",
			uri, config->policy, config->wait);
	if (warn_percent > alarm_percent || alarm_percent > 100)
		return error_set(error, FARLOG_INVALID, 0,
			"ring \"%s\": warn %u%% and alarm %u%%: expected warn <= alarm <= 100", uri, warn_percent, alarm_percent);
	return FARLOG_OK;
}

/* open_steps -- in this order: who may (lock), what is there (superblock, after a flush), what is asked (level, epoch),
 * where the log ends (recover), and only then the first write. */
static int open_steps(struct farlog_writer *writer, const char *uri, const struct farlog_writer_config *config,
	const struct writer_watch *watch, struct farlog_error *error)
{
	int locked;
	int result = superblock_load(writer->region, uri, &writer->superblock, error);

	if (result != FARLOG_OK)
		return result;
	result = check_uuid(writer, uri, config->ring_uuid, error);
	if (result == FARLOG_OK && (watch == NULL || !watch->is_cutting))
		result = writer_open_encrypter(writer, uri, config, error);
	if (result != FARLOG_OK)
		return result;
	locked = region_lock(writer->region, REGION_ROLE_WRITER);
	if (locked != FARLOG_OK)
		return check_held(writer, uri, locked, error);
	result = fence_others(writer, uri, config, error);
	if (result == FARLOG_OK)
		result = flush_header(writer, uri, error);
	if (result == FARLOG_OK)
		/* the last holder may have raised it */
		result = superblock_load(writer->region, uri, &writer->superblock, error);
	if (result == FARLOG_OK)
		result = check_level(writer, uri, writer->level, error);
	if (result != FARLOG_OK)
		return result;
	writer->identity = superblock_identity(&writer->superblock);
	writer->is_packed = writer->identity.block_len != 0;
	result = choose_epoch(writer, uri, config->epoch, error);
	if (result == FARLOG_OK)
		result = acquire_resources(writer, config, error);
	if (result == FARLOG_OK)
		result = writer_recover(writer, uri, config, watch, error);
	if (result == FARLOG_OK && watch != NULL && watch->recovered != NULL)
		result = watch->recovered(watch->context, writer, error);
	if (result == FARLOG_OK)
		result = open_epoch(writer, uri, config, error);
	if (result != FARLOG_OK)
		return result;
	keep_epoch_space(writer);
	writer->recovery.epoch = writer->epoch;
	return FARLOG_OK;
}

void writer_stop_follower(struct farlog_writer *writer, bool is_ended)
{
	struct writer_follower *follower = writer->follower;

	writer->follower = NULL;
	if (follower != NULL)
		follower->end(follower, is_ended);
}

static void free_writer(struct farlog_writer *writer)
{
	writer_stop_follower(writer, false);
	clock_remove_task(&writer->guest);
	writer_end_settings(writer);
	if (writer->has_clock)
		clock_stop();
	if (writer->region != NULL)
		writer->region->ops->close(writer->region); /* which still updates the counters of its members */
	stats_close(writer->counters, writer->counters_lock_fd);
	free(writer->counters_dir);
	free(writer->staging);
	encrypter_close(writer->encrypter);
	free(writer);
}

int writer_open_ring(const char *uri, const struct farlog_writer_config *asked, const struct writer_watch *watch,
	farlog_writer **opened, struct farlog_error *error)
{
	static const struct farlog_writer_config defaults;
	const struct farlog_writer_config *config = asked != NULL ? asked : &defaults;
	struct region_options options = {.access = REGION_WRITE,
		.role = REGION_ROLE_WRITER,
		.token = config->grant_token,
		.epoch = config->epoch,
		.level = config->level != 0 ? config->level : FARLOG_LEVEL_PERSISTENT,
		.ring_uuid = config->ring_uuid};
	struct farlog_writer *writer;
	int result = check_config(uri, config, error);

	*opened = NULL;
	if (result != FARLOG_OK)
		return result;
	writer =
		aligned_alloc(LAYOUT_LINE_LEN, (sizeof(*writer) + LAYOUT_LINE_LEN - 1) / LAYOUT_LINE_LEN * LAYOUT_LINE_LEN);
	if (writer == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "open ring \"%s\": out of memory", uri);
	memset(writer, 0, sizeof(*writer));
	writer->level = (uint8_t)(config->level != 0 ? config->level : FARLOG_LEVEL_PERSISTENT);
	writer->policy = (uint8_t)config->policy;
	writer->wait = (uint8_t)config->wait;
	result = region_open(uri, &options, &writer->region, error);
	if (result == FARLOG_OK) {
		writer->deadline_ns =
			config->deadline_ns != 0 ? config->deadline_ns : writer->region->contract.deadline_default_ns;
		result = open_steps(writer, uri, config, watch, error);
	}
	if (result != FARLOG_OK) {
		free_writer(writer);
		return result;
	}
	publish_constants(writer);
	writer_begin_settings(writer);
	writer_store_hints(writer, clock_ticks(), writer->ring.appended_lsn, writer->durable_lsn);
	writer_start_hints(writer);
	*opened = writer;
	return FARLOG_OK;
}

int writer_open(const char *uri, const struct farlog_writer_config *config, const struct writer_watch *watch,
	farlog_writer **writer, struct farlog_error *error)
{
	return stream_uri_is(uri) ? log_openers.writer_by_name(uri, config, watch, writer, error) :
								writer_open_ring(uri, config, watch, writer, error);
}

int farlog_writer_open(
	const char *uri, const struct farlog_writer_config *config, farlog_writer **writer, struct farlog_error *error)
{
	return writer_open(uri, config, NULL, writer, error);
}

int farlog_writer_close(farlog_writer *writer)
{
	struct deadline deadline = {0};
	int result;

	if (writer == NULL)
		return FARLOG_OK;
	clock_remove_task(&writer->guest); /* the last word is ours */
	deadline.duration_ns = writer->deadline_ns;
	result = writer_wait_durable(writer, writer->ring.appended_lsn, &deadline);
	if (result == FARLOG_OK)
		writer->region->ops->members.finish_copies(writer->region, writer->deadline_ns);
	if (result == FARLOG_OK)
		writer_store_hints(writer, clock_ticks(), writer->ring.appended_lsn, writer->durable_lsn);
	writer_stop_follower(writer, result == FARLOG_OK);
	free_writer(writer);
	return result;
}

const struct farlog_recovery *farlog_writer_recovery(const farlog_writer *writer)
{
	return &writer->recovery;
}

const struct farlog_contract *farlog_writer_contract(const farlog_writer *writer)
{
	return &writer->region->contract;
}

uint32_t farlog_writer_policy(const farlog_writer *writer)
{
	return __atomic_load_n(&writer->policy, __ATOMIC_RELAXED);
}

const char *farlog_writer_trouble(const farlog_writer *writer)
{
	return writer->region->last_error != NULL ? writer->region->last_error : "";
}

void farlog_writer_ring(const farlog_writer *writer, struct farlog_ring_status *status)
{
	memset(status, 0, sizeof(*status));
	superblock_describe(&writer->superblock, status);
	status->is_writer_held = 1;
	status->head_lsn = writer->recovery.head_lsn;
	status->appended_lsn = writer->recovery.tail_lsn;
	status->durable_lsn = writer->recovery.tail_lsn;
	status->lag_bytes = status->appended_lsn - status->head_lsn;
	status->lag_records = writer->recovery.record_count;
	status->contract = writer->region->contract;
}
