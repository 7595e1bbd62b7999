/* admin/ring_admin.c -- formatting, inspecting and fencing a ring: cold calls, no writer's state. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "admin/ring_admin.h"
#include "base/clock.h"
#include "base/err.h"
#include "farlog/takeover.h"
#include "region/directory.h"
#include "region/superblock.h"
#include "scan/recover.h"
#include "scan/walk.h"

#include <time.h>

#define ALIGN_DEFAULT 64u
#define RECORD_LEN_DEFAULT (1u << 20)
#define FENCE_STEP_MAX 65536u

static uint64_t utc_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int ring_check_config(
	const char *uri, const struct farlog_ring_config *config, uint64_t size, struct farlog_error *error)
{
	uint32_t align = config->align != 0 ? config->align : ALIGN_DEFAULT;

	if (size % LAYOUT_BLOCK_LEN != 0 || size < LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN)
		return error_set(error, FARLOG_INVALID, 0, "ring \"%s\": size %lu is not a multiple of %u of at least %u bytes",
			uri, size, LAYOUT_BLOCK_LEN, LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN);
	if ((align & (align - 1)) != 0 || align < LAYOUT_LINE_LEN || align > LAYOUT_BLOCK_LEN)
		return error_set(
			error, FARLOG_INVALID, 0, "ring \"%s\": align %u is not a power of two from 64 to 4096", uri, align);
	if (config->record_len_max % align != 0 || config->record_len_max > (size - LAYOUT_DATA_OFF) / 4)
		return error_set(error, FARLOG_INVALID, 0,
			"ring \"%s\": record_len_max %u is not a multiple of %u, or above a quarter of the ring (%lu bytes)", uri,
			config->record_len_max, align, (size - LAYOUT_DATA_OFF) / 4);
	if (config->stream_name != NULL && strlen(config->stream_name) >= FARLOG_STREAM_NAME_LEN)
		return error_set(error, FARLOG_INVALID, 0, "ring \"%s\": stream name \"%s\" is longer than %d bytes", uri,
			config->stream_name, FARLOG_STREAM_NAME_LEN - 1);
	if (config->encryption > FARLOG_ENCRYPTION_AES_256_GCM)
		return error_set(error, FARLOG_INVALID, 0, "ring \"%s\": encryption %u is not one of those in farlog.h", uri,
			config->encryption);
	if (config->salt != 0 && (uint32_t)config->salt == 0)
		return error_set(error, FARLOG_INVALID, 0, "ring \"%s\": salt has a zero low half", uri);
	return FARLOG_OK;
}

/* check_rings -- nobody is in the region, and nobody may come: not to a ring in it, either. */
static int check_rings(struct region *region, const char *uri, struct farlog_error *error)
{
	struct directory *directory;
	uint32_t ring_count = 0;
	int result;

	for (int role = REGION_ROLE_WRITER; role <= REGION_ROLE_FORMAT; role++) {
		result = region_lock(region, (enum region_role)role);
		if (result == FARLOG_HELD)
			return error_set(
				error, result, 0, "region \"%s\" is in use by a writer, a drain or another format; stop it first", uri);
		if (result != FARLOG_OK)
			return region_set_lock_error(region, result, uri, error);
	}
	if (region->directory != NULL)
		return FARLOG_OK;
	directory = malloc(sizeof(*directory));
	if (directory == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "format region \"%s\": out of memory", uri);
	result = directory_load(region, uri, directory, error);
	if (result == FARLOG_OK)
		ring_count = directory->header.entry_count;
	free(directory);
	if (result == FARLOG_IO || result == FARLOG_NO_MEMORY)
		/* its other results are of a region without a directory, or with a damaged one, which is not empty */
		return result;
	if (ring_count > 0)
		return error_set(error, FARLOG_EXISTS, 0,
			"region \"%s\" has a directory with %u rings; remove them first, or name one of them by ring= to format it "
			"alone",
			uri, ring_count);
	return FARLOG_OK;
}

static int check_present(
	struct region *region, const char *uri, const struct farlog_ring_config *config, struct farlog_error *error)
{
	struct superblock present;
	struct region_claim claim = {.kind = config->is_forced ? REGION_CLAIM_EXCLUSIVE : REGION_CLAIM_IF_FREE, .uri = uri};
	char foreign[200] = "";
	int result = check_rings(region, uri, error);

	if (result == FARLOG_OK)
		result = region_claim(region, &claim, error);
	if (result != FARLOG_OK || config->is_forced)
		return result;
	if (superblock_load(region, uri, &present, NULL) != FARLOG_OK &&
		region->ops->block.name_foreign(region, foreign, sizeof(foreign)) == FARLOG_IO)
		return error_set(error, FARLOG_IO, errno, "read what region \"%s\" holds", uri);
	if (foreign[0] != '\0')
		return error_set(error, FARLOG_EXISTS, 0,
			"region \"%s\" holds %s; formatting destroys it; add --force (is_forced) if that is meant", uri, foreign);
	if (superblock_is_zero(region))
		return result;
	if (superblock_load(region, uri, &present, NULL) == FARLOG_OK)
		return error_set(error, FARLOG_EXISTS, 0,
			"region \"%s\" already holds a ring of stream \"%.*s\" (epoch %u); formatting destroys it; add --force "
			"(is_forced) if that is meant",
			uri, FARLOG_STREAM_NAME_LEN, present.stream_name, present.writer_epoch);
	return error_set(error, FARLOG_EXISTS, 0,
		"region \"%s\" holds other data and no ring; formatting destroys what it holds; add --force (is_forced) if "
		"that is meant",
		uri);
}

static bool fill_random(void *bytes, size_t len)
{
	return getrandom(bytes, len, 0) == (ssize_t)len;
}

static int make_superblock(const struct region *region, const char *uri, const struct farlog_ring_config *config,
	struct superblock *superblock, struct farlog_error *error)
{
	uint64_t size = region->contract.size_bytes;
	uint64_t quarter = (size - LAYOUT_DATA_OFF) / 4;

	memset(superblock, 0, sizeof(*superblock));
	superblock->magic = LAYOUT_SUPERBLOCK_MAGIC;
	superblock->superblock_len = sizeof(*superblock);
	superblock->capacity = size - LAYOUT_DATA_OFF;
	superblock->align = config->align != 0 ? config->align : ALIGN_DEFAULT;
	superblock->record_len_max = config->record_len_max;
	if (superblock->record_len_max == 0)
		superblock->record_len_max =
			(uint32_t)(quarter < RECORD_LEN_DEFAULT ? quarter : RECORD_LEN_DEFAULT) & ~(superblock->align - 1);
	superblock->stream_id = config->stream_id;
	superblock->block_len = region->caps.commit_len;
	superblock->encryption = config->encryption;
	superblock->version = superblock_version(superblock);
	superblock->created_ns = utc_now_ns();
	superblock->salt = config->salt;
	if (config->stream_name != NULL)
		strcpy(superblock->stream_name, config->stream_name);
	while ((uint32_t)superblock->salt == 0)
		if (!fill_random(&superblock->salt, sizeof(superblock->salt)))
			return error_set(error, FARLOG_IO, errno, "ring \"%s\": no random number for its salt", uri);
	if (!fill_random(superblock->ring_uuid, sizeof(superblock->ring_uuid)))
		return error_set(error, FARLOG_IO, errno, "ring \"%s\": no random number for its identity", uri);
	return FARLOG_OK;
}

int ring_write_new(
	struct region *region, const char *uri, const struct farlog_ring_config *config, struct farlog_error *error)
{
	struct superblock superblock;
	struct head_slot head = {0};
	int result = make_superblock(region, uri, config, &superblock, error);

	if (result != FARLOG_OK)
		return result;
	/* The data, too: with a salt that was used here before, old records would prove themselves again. */
	result = region->ops->block.zero(region);
	if (result == FARLOG_OK)
		result = head_store(region, &superblock, &head);
	if (result == FARLOG_OK)
		result = superblock_store(region, &superblock, true);
	if (result == FARLOG_OK)
		return result;
	may_fail(region_set_error(region, result, "write new ring to region", uri, error)); /* it only words why */
	may_fail(region->ops->block.zero(
		region)); /* half of a ring counts as other data: the next attempt would ask for --force */
	return result;
}

int ring_check_blocks(
	const struct region *region, const char *uri, const struct farlog_ring_config *config, struct farlog_error *error)
{
	uint32_t lba_len = region->caps.commit_len;
	uint64_t quarter = (region->contract.size_bytes - LAYOUT_DATA_OFF) / 4;

	if (lba_len == 0)
		return FARLOG_OK;
	if (quarter < lba_len)
		return error_set(error, FARLOG_INVALID, 0,
			"ring \"%s\": %lu bytes are too few for LBAs of %u; expected at least %u", uri, region->contract.size_bytes,
			lba_len, LAYOUT_DATA_OFF + 4 * lba_len);
	if (config->record_len_max != 0 && config->record_len_max < lba_len)
		return error_set(error, FARLOG_INVALID, 0,
			"ring \"%s\": record_len_max %u is less than an LBA of this device (%u bytes)", uri, config->record_len_max,
			lba_len);
	return FARLOG_OK;
}

int ring_format_region(
	struct region *region, const char *uri, const struct farlog_ring_config *config, struct farlog_error *error)
{
	int result = ring_check_config(uri, config, region->contract.size_bytes, error);

	if (result == FARLOG_OK)
		result = ring_check_blocks(region, uri, config, error);
	if (result == FARLOG_OK)
		result = check_present(region, uri, config, error);
	if (result == FARLOG_OK && config->size_bytes != 0 && config->size_bytes != region->contract.size_bytes)
		result = error_set(error, FARLOG_INVALID, 0, "region \"%s\" has %lu bytes, not the %lu asked for", uri,
			region->contract.size_bytes, config->size_bytes);
	return result == FARLOG_OK ? ring_write_new(region, uri, config, error) : result;
}

int farlog_ring_format(const char *text, const struct farlog_ring_config *asked, struct farlog_error *error)
{
	static const struct farlog_ring_config defaults;
	const struct farlog_ring_config *config = asked != NULL ? asked : &defaults;
	struct region_options options = {
		.access = REGION_CREATE, .role = REGION_ROLE_FORMAT, .size_bytes = config->size_bytes};
	struct farlog_contract contract;
	struct region *region;
	struct uri uri;
	int result = uri_parse(text, &uri, error);

	if (result == FARLOG_OK && uri.ring[0] != '\0' && !uri_is_remote(&uri))
		return directory_format(text, &uri, config, error);
	/* Everything is checked before a file is made. */
	if (result == FARLOG_OK && config->size_bytes != 0)
		result = ring_check_config(text, config, config->size_bytes, error);
	else if (result == FARLOG_OK && farlog_region_probe(text, &contract, error) == FARLOG_OK &&
		contract.size_bytes == 0)
		result = error_set(
			error, FARLOG_INVALID, 0, "region \"%s\" does not exist yet; expected a size to make it with", text);
	if (result == FARLOG_OK)
		result = region_open(text, &options, &region, error);
	if (result != FARLOG_OK)
		return result;
	result = ring_format_region(region, text, config, error);
	region->ops->close(region);
	return result;
}

static int raise_fence(struct region *region, const char *uri, uint32_t epoch_min, struct farlog_error *error)
{
	struct region_claim claim = {.kind = REGION_CLAIM_SHARED, .is_fence = true, .uri = uri};
	struct region_span fence = {LAYOUT_FENCE_OFF, LAYOUT_LINE_LEN};
	struct superblock superblock;
	int result = superblock_load(region, uri, &superblock, error);

	if (result != FARLOG_OK)
		return result;
	/* An epoch is never used again: a slip of the finger must not use them up. */
	if (epoch_min > (uint64_t)superblock.writer_epoch + FENCE_STEP_MAX)
		return error_set(error, FARLOG_INVALID, 0,
			"ring \"%s\": fence at epoch %u is more than %u above its last epoch %u", uri, epoch_min, FENCE_STEP_MAX,
			superblock.writer_epoch);
	result = region_lock(region, REGION_ROLE_FORMAT); /* two fences at once could lower the word */
	if (result == FARLOG_HELD)
		return error_set(error, result, 0, "ring \"%s\": another process is fencing or formatting it; try again", uri);
	if (result != FARLOG_OK)
		return region_set_lock_error(region, result, uri, error);
	claim.ring_uuid = superblock.ring_uuid;
	result = region_claim(region, &claim, error);
	if (result != FARLOG_OK || epoch_min <= region_load_word(region, LAYOUT_FENCE_OFF))
		return result; /* as fenced as that already */
	region->ops->data.store_word(region, LAYOUT_FENCE_OFF, epoch_min);
	result = region->ops->data.flush(region, fence.off, fence.len);
	if (result != FARLOG_OK)
		return region_set_error(region, result, "persist fence of ring", uri, error);
	return FARLOG_OK;
}

int farlog_ring_fence(const char *uri, uint32_t epoch_min, struct farlog_error *error)
{
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_FORMAT};
	struct region *region;
	int result = region_open(uri, &options, &region, error);

	if (result != FARLOG_OK)
		return result;
	result = raise_fence(region, uri, epoch_min, error);
	region->ops->close(region);
	return result;
}

/* describe_ring -- is_drain_held was asked for before the head was read: a head that is reported of a ring which nobody
 * drains is then the last one. */
static int describe_ring(struct region *region, const char *uri, const struct superblock *superblock,
	const struct head_slot *head, int is_drain_held, struct farlog_ring_status *status, struct farlog_error *error)
{
	int is_writer_held = region->ops->fence.is_locked(region, REGION_ROLE_WRITER);

	if (is_writer_held < 0 || is_drain_held < 0)
		return region_set_error(region, FARLOG_IO, "ask for the locks of ring", uri, error);
	superblock_describe(superblock, status);
	status->epoch_min = (uint32_t)region_load_word(region, LAYOUT_FENCE_OFF);
	status->last_epoch = head->last_epoch;
	status->head_lsn = head->head_lsn;
	status->head_seq = head->head_seq;
	status->credit_lsn = region_load_word(region, LAYOUT_CREDIT_OFF);
	status->is_writer_held = is_writer_held > 0;
	status->is_drain_held = is_drain_held > 0;
	status->contract = region->contract;
	return FARLOG_OK;
}

/* find_first_ts -- time of the first record at the head that is not a PAD; 0 when the head has been reached. OK, IO,
 * NO_MEMORY. */
static int find_first_ts(
	struct region *region, const struct superblock *superblock, const struct head_slot *head, uint64_t *ts_ns)
{
	struct record_identity identity = superblock_identity(superblock);
	struct record_cursor cursor = {
		.lsn = head->head_lsn, .seq = head->head_seq, .epoch = head->last_epoch, .epoch_max = superblock->writer_epoch};
	struct walk walk = {.region = region, .identity = &identity};
	struct record_found found;
	enum record_verdict verdict = RECORD_VALID;
	int result = FARLOG_OK;

	*ts_ns = 0;
	while (*ts_ns == 0 && verdict == RECORD_VALID && result == FARLOG_OK) {
		result = walk_check(&walk, &cursor, &verdict, &found);
		if (result != FARLOG_OK || verdict != RECORD_VALID)
			continue;
		if (!(found.flags & RECORD_FLAG_PAD))
			*ts_ns = found.ts_ns;
		record_advance(&cursor, &found);
	}
	walk_end(&walk);
	return result;
}

/* measure_living -- cursors from the living writer's counters: no scan beside it. */
static bool measure_living(const struct superblock *superblock, struct farlog_ring_status *status)
{
	struct farlog_counters counters;
	uint64_t next_seq;

	if (!status->is_writer_held || farlog_counters_read(NULL, superblock->ring_uuid, &counters, NULL) != FARLOG_OK ||
		counters.epoch != superblock->writer_epoch || counters.appended_lsn < status->head_lsn)
		return false;
	next_seq = superblock->epoch_start_seq + 1 + counters.record_count;
	status->appended_lsn = counters.appended_lsn;
	status->durable_lsn = counters.durable_lsn;
	status->lag_records = next_seq > status->head_seq ? next_seq - status->head_seq : 0;
	return true;
}

/* is_marked -- what an earlier look found in this ring is still of its log: a record never changes within its epoch,
 * and who opens another one stores a superblock. */
static bool is_marked(
	const struct farlog_ring_mark *mark, const struct superblock *superblock, const struct head_slot *head)
{
	return memcmp(mark->ring_uuid, superblock->ring_uuid, sizeof(mark->ring_uuid)) == 0 &&
		mark->generation == superblock->generation &&
		mark->lsn - head->head_lsn <= superblock->capacity; /* and not of a mark that the head has passed */
}

/* measure_dead -- cursors from the records themselves, from the mark on; records that were acknowledged and cannot be
 * read are not drained. OK; IO: nothing is known. */
static int measure_dead(struct region *region, const struct superblock *superblock, const struct head_slot *head,
	struct farlog_ring_mark *mark, struct farlog_ring_status *status)
{
	struct head_slot start = *head;
	uint64_t acknowledged_lsn = recover_acknowledged_lsn(region, superblock, head);
	struct recover_scan scan;

	if (is_marked(mark, superblock, head))
		start = (struct head_slot){.head_lsn = mark->lsn, .head_seq = mark->seq, .last_epoch = mark->epoch};
	else
		mark->newest_ts_ns = 0;
	if (recover_scan(region, superblock, &start, &scan) != FARLOG_OK)
		return FARLOG_IO;
	if (scan.record_count > 0)
		mark->newest_ts_ns = scan.newest_ts_ns;
	memcpy(mark->ring_uuid, superblock->ring_uuid, sizeof(mark->ring_uuid));
	mark->generation = superblock->generation;
	mark->lsn = scan.tail.lsn;
	mark->seq = scan.tail.seq;
	mark->epoch = scan.tail.epoch;
	status->appended_lsn = scan.tail.lsn;
	status->durable_lsn = scan.tail.lsn > acknowledged_lsn ? scan.tail.lsn : acknowledged_lsn;
	status->lag_records = scan.tail.seq - head->head_seq;
	status->newest_ts_ns = status->lag_records > 0 ? mark->newest_ts_ns : 0;
	return FARLOG_OK;
}

/* measure_undrained -- what lies between head and tail. OK, IO, NO_MEMORY. */
static int measure_undrained(struct region *region, const struct superblock *superblock, const struct head_slot *head,
	struct farlog_ring_mark *mark, struct farlog_ring_status *status)
{
	int result = find_first_ts(region, superblock, head, &status->oldest_ts_ns);

	if (result == FARLOG_OK && !measure_living(superblock, status))
		result = measure_dead(region, superblock, head, mark, status);
	status->lag_bytes =
		(status->appended_lsn > status->durable_lsn ? status->appended_lsn : status->durable_lsn) - status->head_lsn;
	return result;
}

int farlog_ring_inspect(const char *uri, struct farlog_ring_status *status, struct farlog_error *error)
{
	struct farlog_ring_mark mark = {0};

	return farlog_ring_look(uri, &mark, status, error);
}

int farlog_ring_look(
	const char *uri, struct farlog_ring_mark *mark, struct farlog_ring_status *status, struct farlog_error *error)
{
	struct region_options options = {.access = REGION_READ, .role = REGION_ROLE_READER};
	struct superblock superblock;
	struct head_slot head;
	struct region *region;
	int is_drain_held;
	int result = region_open(uri, &options, &region, error);

	memset(status, 0, sizeof(*status));
	if (result != FARLOG_OK)
		return result;
	is_drain_held = region->ops->fence.is_locked(region, REGION_ROLE_DRAIN);
	result = superblock_load(region, uri, &superblock, error);
	if (result == FARLOG_OK && !head_load(region, &superblock, &head))
		result = error_set(error, FARLOG_CORRUPT, 0, "ring \"%s\": both head slots fail their check", uri);
	if (result == FARLOG_OK)
		result = describe_ring(region, uri, &superblock, &head, is_drain_held, status, error);
	if (result == FARLOG_OK) {
		result = measure_undrained(region, &superblock, &head, mark, status);
		if (result != FARLOG_OK)
			/* it only words why */
			may_fail(region_set_error(region, result, "read undrained records of ring", uri, error));
	}
	region->ops->close(region);
	return result;
}
