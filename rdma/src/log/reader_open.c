/* log/reader_open.c -- opening a ring for reading, at its head or elsewhere, and closing it. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/member_uri.h"
#include "base/stream_uri.h"
#include "farlog/reader_ring.h"
#include "farlog/reader_waits.h"
#include "log/openers.h"
#include "log/reader.h"
#include "log/reader_grant.h"
#include "scan/walk.h"

/* walk_to_start -- to where reading starts, or to the last record before it. */
static int walk_to_start(struct farlog_reader *reader, const struct farlog_reader_config *config)
{
	struct walk walk = {.region = reader->region, .identity = &reader->identity};
	int result = FARLOG_OK;

	while (config->start == FARLOG_START_TAIL || reader->cursor.lsn < config->lsn) {
		struct record_found found;
		enum record_verdict verdict;

		result = walk_check(&walk, &reader->cursor, &verdict, &found);
		if (result != FARLOG_OK || verdict != RECORD_VALID ||
			!reader_is_of_log(reader, reader->cursor.lsn, found.epoch))
			break;
		record_advance(&reader->cursor, &found);
	}
	walk_end(&walk);
	return result;
}

/* reader_seek -- from the head to where reading starts. */
int reader_seek(struct farlog_reader *reader, const char *uri, const struct farlog_reader_config *config,
	struct farlog_error *error)
{
	int result;

	if (config->start == FARLOG_START_HEAD)
		return FARLOG_OK;
	if (config->start == FARLOG_START_LSN && config->lsn < reader->cursor.lsn)
		return error_set(error, FARLOG_OVERRUN, 0, "ring \"%s\": lsn %lu is below the head %lu; the store has it", uri,
			config->lsn, reader->cursor.lsn);
	result = walk_to_start(reader, config);
	if (result != FARLOG_OK)
		return region_set_error(reader->region, result, "read records from the head on of ring", uri, error);
	if (config->start == FARLOG_START_LSN && reader->cursor.lsn != config->lsn)
		return error_set(error, FARLOG_NOT_FOUND, 0, "ring \"%s\": no record begins at lsn %lu; the nearest is at %lu",
			uri, config->lsn, reader->cursor.lsn);
	return FARLOG_OK;
}

/* flush_header -- a head that a dead drain stored may still lie in a cache: it is made durable before anything is
 * built on it. */
static int flush_header(struct region *region)
{
	struct region_span header = {0, LAYOUT_DATA_OFF};

	return region->ops->data.flush(region, header.off, header.len);
}

static int open_steps(struct farlog_reader *reader, const char *uri, const struct farlog_reader_config *config,
	struct farlog_error *error)
{
	struct region_claim claim = {.kind = REGION_CLAIM_SHARED, .ring_uuid = reader->superblock.ring_uuid, .uri = uri};
	struct head_slot head;
	int result = superblock_load(reader->region, uri, &reader->superblock, error);

	if (result != FARLOG_OK)
		return result;
	if (config->ring_uuid != NULL && memcmp(config->ring_uuid, reader->superblock.ring_uuid, 16) != 0)
		return error_set(error, FARLOG_NOT_A_RING, 0, "region \"%s\" holds another ring than the one asked for", uri);
	if (config->is_drain)
		result = region_lock(reader->region, REGION_ROLE_DRAIN);
	if (result == FARLOG_HELD)
		return error_set(error, result, 0, "ring \"%s\" is already being drained by a living process", uri);
	if (result != FARLOG_OK)
		return region_set_lock_error(reader->region, result, uri, error);
	if (config->is_drain)
		result = region_claim(reader->region, &claim, error);
	if (result != FARLOG_OK)
		return result;
	if (config->is_drain && flush_header(reader->region) != FARLOG_OK)
		return region_set_error(reader->region, FARLOG_IO, "flush header of ring", uri, error);
	if (!head_load(reader->region, &reader->superblock, &head))
		return error_set(error, FARLOG_CORRUPT, 0, "ring \"%s\": both head slots fail their check", uri);
	reader->identity = superblock_identity(&reader->superblock);
	reader->is_drain = config->is_drain;
	reader->tip_len = READER_TIP_LEN_FIRST;
	reader->empty_lsn = UINT64_MAX;
	reader->released = head;
	reader->dropped_lsn = head.head_lsn;
	if (reader->is_drain)
		reader->region->ops->data.store_word(reader->region, LAYOUT_CREDIT_OFF, head.head_lsn);
	head_raise_to_floor(&reader->superblock, &head); /* below it another member's drain may have given the space away */
	reader->cursor = (struct record_cursor){.lsn = head.head_lsn,
		.seq = head.head_seq,
		.epoch = head.last_epoch,
		.epoch_max = reader->superblock.writer_epoch};
	return reader_seek(reader, uri, config, error);
}

static uint64_t ring_reads(const struct farlog_reader *reader)
{
	return reader->region->read_count;
}

static struct region_waits ring_waits(const struct farlog_reader *reader)
{
	return reader->region->waits;
}

static const struct reader_ops ring_ops = {
	.read = reader_read_ring,
	.release = reader_release_ring,
	.suspect = reader_suspect_ring,
	.status = reader_status_ring,
	.reads = ring_reads,
	.waits = ring_waits,
	.close = reader_close_ring,
};

int reader_open_ring(const char *uri, const struct farlog_reader_config *config, struct region_renewal *renewal,
	farlog_reader **opened, struct farlog_error *error)
{
	struct region_options options = {.access = config->is_drain ? REGION_WRITE : REGION_READ,
		.role = config->is_drain ? REGION_ROLE_DRAIN : REGION_ROLE_READER,
		.token = config->grant_token,
		.renewal = renewal};
	struct farlog_reader *reader = calloc(1, sizeof(*reader));
	int result;

	*opened = NULL;
	if (reader == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "read ring \"%s\": out of memory", uri);
	reader->ops = &ring_ops;
	result = region_open(uri, &options, &reader->region, error);
	if (result == FARLOG_OK)
		result = open_steps(reader, uri, config, error);
	if (result != FARLOG_OK) {
		reader_close_ring(reader);
		return result;
	}
	*opened = reader;
	return FARLOG_OK;
}

void reader_close_ring(struct farlog_reader *reader)
{
	if (reader == NULL)
		return;
	if (reader->region != NULL)
		reader->region->ops->close(reader->region);
	free(reader->again);
	free(reader);
}

int reader_open(const char *uri, const struct farlog_reader_config *config, struct region_renewal *renewal,
	farlog_reader **opened, struct farlog_error *error)
{
	return member_uri_is(uri) ? log_openers.reader_of_members(uri, config, renewal, opened, error) :
								reader_open_ring(uri, config, renewal, opened, error);
}

/* open_granted -- by a token of the caller's own, in whose place he may give another one later. */
static int open_granted(
	const char *uri, const struct farlog_reader_config *config, farlog_reader **opened, struct farlog_error *error)
{
	struct reader_grants *grants = reader_grants_new();
	struct region_renewal *renewal;
	int result;

	*opened = NULL;
	if (grants == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "read ring \"%s\": out of memory", uri);
	renewal = reader_grants_renewal(grants);
	result = reader_open(uri, config, renewal, opened, error);
	if (result != FARLOG_OK) {
		renewal->free(renewal);
		return result;
	}
	(*opened)->grants = grants;
	(*opened)->renewal = renewal;
	return FARLOG_OK;
}

static int open_place(
	const char *uri, const struct farlog_reader_config *config, farlog_reader **opened, struct farlog_error *error)
{
	if (stream_uri_is(uri))
		return log_openers.reader_by_name(uri, config, opened, error);
	if (config->grant_token != NULL && !config->is_drain)
		return open_granted(uri, config, opened, error);
	return reader_open(uri, config, NULL, opened, error);
}

int farlog_reader_open(
	const char *uri, const struct farlog_reader_config *asked, farlog_reader **opened, struct farlog_error *error)
{
	static const struct farlog_reader_config defaults;
	const struct farlog_reader_config *config = asked != NULL ? asked : &defaults;
	int result = open_place(uri, config, opened, error);

	if (result == FARLOG_OK && (*opened)->decrypter == NULL) /* a stream's name is opened by the URI of its ring */
		result = reader_open_decrypter(*opened, uri, config, error);
	if (result != FARLOG_OK) {
		farlog_reader_close(*opened);
		*opened = NULL;
	}
	return result;
}

int farlog_reader_read(farlog_reader *reader, void *buf, size_t buf_len, struct farlog_batch *batch)
{
	int result = reader->decrypt_result;

	if (result != FARLOG_OK) {
		*batch = (struct farlog_batch){.first_lsn = reader->decrypt_lsn};
		return result;
	}
	result = reader->ops->read(reader, buf, buf_len, batch);
	return result == FARLOG_OK && reader->decrypter != NULL ? reader_decrypt_batch(reader, buf, batch) : result;
}

int farlog_reader_release(farlog_reader *reader, uint64_t head_lsn, uint64_t head_seq, uint32_t last_epoch)
{
	struct head_slot slot = {.head_lsn = head_lsn, .head_seq = head_seq, .last_epoch = last_epoch};

	return reader->ops->release(reader, &slot);
}

int farlog_reader_suspect(farlog_reader *reader, struct farlog_suspect *suspect)
{
	return reader->ops->suspect(reader, suspect);
}

int farlog_reader_status(farlog_reader *reader, struct farlog_ring_status *status)
{
	return reader->ops->status(reader, status);
}

uint64_t farlog_reader_reads(const farlog_reader *reader)
{
	return reader->ops->reads(reader);
}

uint64_t farlog_reader_waits(const farlog_reader *reader, uint64_t *expired_count)
{
	struct region_waits waits = reader->ops->waits(reader);

	if (expired_count != NULL)
		*expired_count = waits.expired_count;
	return waits.count;
}

int farlog_reader_ring(const farlog_reader *reader, uint8_t *ring_uuid, uint64_t *salt)
{
	if (reader->members != NULL)
		return 0;
	memcpy(ring_uuid, reader->superblock.ring_uuid, sizeof(reader->superblock.ring_uuid));
	*salt = reader->superblock.salt;
	return 1;
}

void farlog_reader_close(farlog_reader *reader)
{
	struct region_renewal *renewal = reader != NULL ? reader->renewal : NULL;

	if (reader != NULL) {
		decrypter_close(reader->decrypter);
		reader->ops->close(reader);
	}
	if (renewal != NULL) /* the regions asked it until they were closed */
		renewal->free(renewal);
}
