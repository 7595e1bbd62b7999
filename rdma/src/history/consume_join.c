/* history/consume_join.c -- from the store to the ring and back. */
#include "history/consumer.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "farlog/member.h"
#include "farlog/reader_ring.h"

static void leave_ring(struct farlog_consumer *consumer)
{
	farlog_reader_close(consumer->reader);
	consumer->reader = NULL;
	consumer->len = 0;
}

void consumer_leave_history(struct farlog_consumer *consumer)
{
	store_reader_close(consumer->history);
	consumer->history = NULL;
}

struct farlog_place consumer_behind(const struct farlog_consumer *consumer)
{
	struct farlog_place place = consumer->place;

	place.lsn++;
	return place;
}

static int read_status(struct farlog_consumer *consumer, struct farlog_ring_status *status)
{
	int result = farlog_reader_status(consumer->reader, status);

	if (result != FARLOG_OK)
		return error_set(&consumer->trouble, result, 0, "read status of ring \"%s\"", consumer->ring_uri);
	consumer->appended_lsn = status->appended_lsn;
	return FARLOG_OK;
}

/* check_ring -- without a store one ring's lsns look like another's: what was formatted again is no longer
 * what it began with. Of several members any may have been replaced; what they have in common is the salt. */
static int check_ring(struct farlog_consumer *consumer, const uint8_t uuid[16], uint64_t salt)
{
	bool are_members = farlog_reader_members(consumer->reader, NULL, 0) > 1;

	if (consumer->store_dir != NULL)
		return FARLOG_OK;
	if (!consumer->is_ring_known) {
		memcpy(consumer->ring_uuid, uuid, sizeof(consumer->ring_uuid));
		consumer->salt = salt;
		consumer->is_ring_known = true;
	}
	if (salt == consumer->salt && (are_members || memcmp(uuid, consumer->ring_uuid, sizeof(consumer->ring_uuid)) == 0))
		return FARLOG_OK;
	return error_set(&consumer->trouble, FARLOG_NOT_A_RING, 0,
		"ring \"%s\" is another one than this consumer began with (its uuid begins %02x%02x%02x%02x, expected "
		"%02x%02x%02x%02x): it was formatted again, and what was not read of the former one is gone; "
		"open another consumer",
		consumer->ring_uri, uuid[0], uuid[1], uuid[2], uuid[3], consumer->ring_uuid[0], consumer->ring_uuid[1],
		consumer->ring_uuid[2], consumer->ring_uuid[3]);
}

int consumer_open_ring(struct farlog_consumer *consumer, bool is_end, struct farlog_ring_status *status)
{
	struct farlog_reader_config config = {.start = is_end ? FARLOG_START_TAIL : FARLOG_START_HEAD,
		.grant_token = consumer->has_token ? consumer->token : NULL,
		.key_file = ""}; /* records of the store are decrypted here, and so are those of the ring */
	int result = farlog_reader_open(consumer->ring_uri, &config, &consumer->reader, &consumer->trouble);

	if (result != FARLOG_OK)
		return result;
	result = read_status(consumer, status);
	if (result == FARLOG_OK)
		result = check_ring(consumer, status->ring_uuid, status->salt);
	if (result != FARLOG_OK)
		leave_ring(consumer);
	if (result == FARLOG_OK && status->encryption != FARLOG_ENCRYPTION_NONE)
		consumer->seen = (struct consumer_seen){.salt = status->salt, .is_seen = true, .is_encrypted = true};
	consumer->align = status->align;
	consumer->len = 0;
	return result;
}

int consumer_open_history(struct farlog_consumer *consumer, const struct farlog_place *place)
{
	struct farlog_ring_status status;
	int result;

	if (consumer->store_dir == NULL)
		return consumer_open_ring(consumer, false, &status);
	result = store_reader_open(consumer->store_dir, consumer->stream, &consumer->history, &consumer->trouble);
	if (result == FARLOG_NOT_FOUND && consumer->ring_uri != NULL && !consumer->is_next) {
		result = consumer_open_ring(consumer, false, &status);
		if (result != FARLOG_OK || status.head_lsn == 0)
			return result;    /* nothing was drained yet */
		leave_ring(consumer); /* it is by now, or into another store */
		result = store_reader_open(consumer->store_dir, consumer->stream, &consumer->history, &consumer->trouble);
	}
	if (result != FARLOG_OK)
		return result;
	if (!consumer->is_place && consumer->is_next)
		/* overtaken before it had read anything */
		result = store_reader_seek_lsn(consumer->history, consumer->next_lsn, &consumer->trouble);
	else
		result = store_reader_seek(consumer->history, place, &consumer->trouble);
	if (result != FARLOG_OK)
		consumer_leave_history(consumer);
	consumer->is_behind = false;
	return result;
}

/* is_ring_of -- of a stream with several rings another one may be the first by now than when the store began it: all of
 * them have its salt, and a stream that is created again has another one. */
static bool is_ring_of(const struct store_segment *segment, const struct farlog_consumer *consumer,
	const struct farlog_ring_status *status)
{
	return segment->salt == status->salt &&
		(farlog_reader_members(consumer->reader, NULL, 0) > 1 ||
			memcmp(segment->ring_uuid, status->ring_uuid, sizeof(status->ring_uuid)) == 0);
}

/* generation_of -- which generation of the stream the ring is, and up to where that was read. */
static uint64_t generation_of(const struct farlog_consumer *consumer, const struct store_reader *history,
	const struct farlog_ring_status *status, uint64_t *next_lsn)
{
	const struct store_segment *newest = store_reader_newest(history);

	*next_lsn = 0;
	if (newest == NULL)
		return 1;
	if (!is_ring_of(newest, consumer, status))
		return newest->generation + 1;
	if (consumer->place.generation == newest->generation)
		*next_lsn = consumer->next_lsn;
	return newest->generation;
}

int consumer_find_place(struct farlog_consumer *consumer, const struct farlog_ring_status *status, bool is_end)
{
	struct store_reader *history;
	uint64_t next_lsn;
	int result;

	consumer->place = (struct farlog_place){.generation = 1};
	consumer->next_lsn = is_end ? status->appended_lsn : status->head_lsn;
	consumer->is_next = true;
	consumer->next_seq = status->head_seq;
	consumer->is_seq = !is_end;
	if (consumer->store_dir == NULL)
		return FARLOG_OK;
	result = store_reader_open(consumer->store_dir, consumer->stream, &history, &consumer->trouble);
	if (result == FARLOG_NOT_FOUND)
		return FARLOG_OK;
	if (result != FARLOG_OK)
		return result;
	consumer->place.generation = generation_of(consumer, history, status, &next_lsn);
	store_reader_close(history);
	return FARLOG_OK;
}

/* The ring is read from its head on, and not from the store's end: after a power cut the log may have gone back behind
 * it. */
int consumer_join(struct farlog_consumer *consumer)
{
	struct farlog_ring_status status;
	uint64_t generation, next_lsn;
	int result = consumer_open_ring(consumer, false, &status);

	if (result != FARLOG_OK)
		return result;
	generation = generation_of(consumer, consumer->history, &status, &next_lsn);
	if (status.head_lsn > next_lsn) {
		leave_ring(consumer);
		if (!consumer->is_behind) {
			consumer->is_behind = true; /* the store has it: it was synced before the head moved */
			return FARLOG_OK;
		}
		return error_set(&consumer->trouble, FARLOG_NOT_FOUND, 0,
			"ring \"%s\" was drained up to lsn %lu, store \"%s\" has stream \"%s\" only up to lsn %lu: it is drained "
			"into another store, or that one is damaged or lags",
			consumer->ring_uri, status.head_lsn, consumer->store_dir, consumer->stream, next_lsn);
	}
	if (generation != consumer->place.generation) {
		consumer->place = (struct farlog_place){.generation = generation};
		consumer->next_lsn = 0;
		consumer->is_seq = false;
		consumer->is_next = consumer->is_place = true;
	}
	consumer_leave_history(consumer);
	return FARLOG_OK;
}

/* give_notice -- the gap from where it stands to to_lsn, where seq is to_seq. */
static int give_notice(
	struct farlog_consumer *consumer, uint32_t kind, uint64_t to_lsn, uint64_t to_seq, struct farlog_consumed *item)
{
	memset(item, 0, sizeof(*item));
	item->notice = (struct farlog_notice){.kind = kind,
		.from_lsn = consumer->next_lsn,
		.to_lsn = to_lsn,
		.record_count = consumer->is_seq && to_seq > consumer->next_seq ? to_seq - consumer->next_seq : 0};
	consumer->stats.notice_count++;
	return FARLOG_OVERRUN;
}

/* overrun -- what was drained before it was read comes from the store; without one the ring's head is next, and
 * tell_lost says what is missing. */
static int overrun(struct farlog_consumer *consumer, struct farlog_consumed *item)
{
	struct farlog_ring_status status;
	int result = read_status(consumer, &status);

	if (result != FARLOG_OK)
		return result;
	consumer->stats.overrun_count++;
	leave_ring(consumer);
	if (consumer->store_dir == NULL)
		return consumer_open_ring(consumer, false, &status);
	/* the next call opens the store */
	return give_notice(consumer, FARLOG_NOTICE_CAUGHT, status.head_lsn, status.head_seq, item);
}

static int grow(struct farlog_consumer *consumer, size_t need)
{
	uint8_t *grown = realloc(consumer->buf, need);

	if (grown == NULL)
		return error_set(&consumer->trouble, FARLOG_NO_MEMORY, 0, "ring \"%s\": no memory for a record of %zu bytes",
			consumer->ring_uri, need);
	consumer->buf = grown;
	consumer->buf_len = need;
	return FARLOG_OK;
}

/* tell_lost -- OVERRUN: records are missing below the place where the ring is read, only at the head of one that was
 * opened again without a store. Otherwise OK. */
static int tell_lost(
	struct farlog_consumer *consumer, uint64_t first_lsn, uint64_t first_seq, struct farlog_consumed *item)
{
	if (!consumer->is_next || first_lsn <= consumer->next_lsn)
		return FARLOG_OK;
	consumer->stats.lost_bytes += first_lsn - consumer->next_lsn;
	may_fail(give_notice(consumer, FARLOG_NOTICE_LOST, first_lsn, first_seq, item)); /* always OVERRUN, as said below */
	consumer->next_lsn = first_lsn;
	consumer->is_seq = false;
	return FARLOG_OVERRUN;
}

/* read_ring -- a batch. OK: there is one, or it is to be asked for again. */
static int read_ring(struct farlog_consumer *consumer, struct farlog_consumed *item)
{
	struct farlog_batch batch;
	struct record_header first;
	uint8_t ring_uuid[16];
	uint64_t salt;
	int result = farlog_reader_read(consumer->reader, consumer->buf, consumer->buf_len, &batch);

	if (farlog_reader_ring(consumer->reader, ring_uuid, &salt) && check_ring(consumer, ring_uuid, salt) != FARLOG_OK)
		return FARLOG_NOT_A_RING;
	if (result == FARLOG_TOO_LARGE)
		return grow(consumer, batch.len);
	if (result == FARLOG_OVERRUN)
		return overrun(consumer, item);
	if (result == FARLOG_NOT_YET) /* what is missing is told also when nothing follows */
		return tell_lost(consumer, batch.first_lsn, batch.next_seq, item) == FARLOG_OK ? result : FARLOG_OVERRUN;
	if (result != FARLOG_OK)
		return error_set(&consumer->trouble, result, 0, "read ring \"%s\" at lsn %lu: %s", consumer->ring_uri,
			batch.first_lsn, farlog_result_text(result));
	consumer->at = 0;
	consumer->len = batch.len;
	memcpy(&first, consumer->buf, sizeof(first));
	return tell_lost(consumer, batch.first_lsn, first.seq, item);
}

bool consumer_is_rewound(struct farlog_consumer *consumer, const struct record_header *header, uint64_t generation,
	struct farlog_consumed *item)
{
	if (!consumer->is_place || generation != consumer->place.generation || consumer->place.lsn == 0 ||
		header->lsn >= consumer->next_lsn || header->epoch <= consumer->place.epoch ||
		header->epoch == consumer->told_epoch)
		return false;
	may_fail(give_notice(consumer, FARLOG_NOTICE_REWOUND, 0, 0, item)); /* always OVERRUN, as the caller says */
	item->notice = (struct farlog_notice){
		.kind = FARLOG_NOTICE_REWOUND, .epoch = header->epoch, .from_lsn = header->lsn, .to_lsn = consumer->next_lsn};
	consumer->told_epoch = header->epoch;
	return true;
}

/* from_batch -- the next record of it that has not been read. NOT_YET: there is none. */
static int from_batch(struct farlog_consumer *consumer, struct farlog_consumed *item)
{
	while (consumer->len > 0) {
		const uint8_t *raw = consumer->buf + consumer->at;
		struct record_header header;
		struct farlog_place place = {.generation = consumer->place.generation == 0 ? 1 : consumer->place.generation};
		uint64_t extent, stored_len;

		memcpy(&header, raw, sizeof(header));
		extent = header.flags & RECORD_FLAG_PAD ? (uint64_t)header.payload_len + RECORD_PAD_STORED_LEN :
												  record_extent(consumer->align, header.key_len, header.payload_len);
		stored_len = header.flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN : extent;
		place.epoch = header.epoch;
		place.lsn = header.lsn;
		if (consumer_is_rewound(consumer, &header, place.generation, item))
			return FARLOG_OVERRUN;
		consumer->at += stored_len;
		consumer->len -= stored_len;
		if (consumer->is_place && !place_is_before(&consumer->place, &place))
			continue;
		consumer_take(consumer, &header, raw, extent, place.generation, true, item);
		return FARLOG_OK;
	}
	return FARLOG_NOT_YET;
}

int consumer_from_ring(struct farlog_consumer *consumer, struct farlog_consumed *item)
{
	int result;

	do {
		result = from_batch(consumer, item);
		if (result != FARLOG_NOT_YET)
			return result;
		result = read_ring(consumer, item);
	} while (result == FARLOG_OK);
	return result;
}
