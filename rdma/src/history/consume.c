/* history/consume.c -- the records of a stream one by one: from the store, from the ring, from the store again. */
#include "history/consumer.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"

#define SLEEP_NS_FIRST 50000
#define SLEEP_NS_MAX 2000000
#define SKIP_COUNT 64 /* records that are not wanted between two looks at the time */

void consumer_take(struct farlog_consumer *consumer, const struct record_header *header, const uint8_t *raw,
	uint64_t extent, uint64_t generation, bool is_live, struct farlog_consumed *item)
{
	consumer->place = (struct farlog_place){.generation = generation, .epoch = header->epoch, .lsn = header->lsn};
	consumer->next_lsn = header->lsn + extent;
	consumer->next_seq = header->seq + !(header->flags & RECORD_FLAG_PAD);
	consumer->is_place = consumer->is_next = consumer->is_seq = true;
	consumer->told_epoch = 0;
	memset(item, 0, sizeof(*item));
	item->place = consumer->place;
	item->seq = header->seq;
	item->ts_ns = header->ts_ns;
	item->clock_err_ns = header->clock_err_ns;
	item->flags = header->flags;
	item->class_id = header->class_id;
	item->is_live = is_live;
	if (header->flags & RECORD_FLAG_PAD)
		return;
	item->key_len = header->key_len;
	item->payload_len = header->payload_len;
	item->key = raw + RECORD_HEADER_LEN;
	item->payload = raw + RECORD_HEADER_LEN + header->key_len;
	memcpy(&consumer->item_salt, raw + extent - RECORD_TRAILER_LEN, sizeof(consumer->item_salt));
	consumer->item_salt ^= header->lsn; /* the trailer was checked */
}

/* decrypt_item -- in its buffer, where nobody looks at it again. OK, NO_KEY, CORRUPT, UNSUPPORTED. */
static int decrypt_item(struct farlog_consumer *consumer, struct farlog_consumed *item)
{
	uint8_t *raw = (uint8_t *)(uintptr_t)item->payload - item->key_len - RECORD_HEADER_LEN;

	if (consumer->decrypter == NULL)
		consumer->decrypt_result = error_set(&consumer->trouble, FARLOG_NO_KEY, 0,
			"record at lsn %lu is encrypted, and the consumer has no keys; expected a file of keys in the "
			"configuration "
			"or in FARLOG_KEY_FILE",
			item->place.lsn);
	else
		consumer->decrypt_result = decrypter_open_record(
			consumer->decrypter, consumer->item_salt, raw, &item->key_len, &item->payload_len, &consumer->trouble);
	if (consumer->decrypt_result != FARLOG_OK)
		return consumer->decrypt_result;
	item->flags &= (uint16_t)~RECORD_FLAG_ENCRYPTED;
	item->payload = raw + RECORD_HEADER_LEN + item->key_len;
	return FARLOG_OK;
}

/* check_encryption -- a ring's application records are encrypted, or none of them is. OK, CORRUPT. */
static int check_encryption(struct farlog_consumer *consumer, const struct farlog_consumed *item)
{
	bool is_encrypted = (item->flags & RECORD_FLAG_ENCRYPTED) != 0;
	bool is_known = consumer->seen.is_seen && consumer->seen.salt == consumer->item_salt;
	bool was_encrypted = is_known ? consumer->seen.is_encrypted : is_encrypted;

	consumer->seen = (struct consumer_seen){consumer->item_salt, true, was_encrypted};
	if (!is_encrypted && (was_encrypted || consumer->is_clear_refused))
		consumer->decrypt_result = decrypter_refuse_clear(item->place.lsn, item->place.epoch, &consumer->trouble);
	else if (is_encrypted && !was_encrypted)
		consumer->decrypt_result = error_set(&consumer->trouble, FARLOG_CORRUPT, 0,
			"record at lsn %lu, epoch %u is encrypted, and records of the same ring before it were not: somebody "
			"without a key wrote those",
			item->place.lsn, item->place.epoch);
	return consumer->decrypt_result;
}

static bool is_wanted(const struct farlog_consumer *consumer, const struct farlog_consumed *item)
{
	if (item->flags != 0)
		return consumer->is_control && !(item->flags & RECORD_FLAG_PAD);
	if (consumer->classes != NULL && !(consumer->classes[item->class_id / 8] >> item->class_id % 8 & 1))
		return false;
	for (uint32_t i = 0; i < consumer->key_count; i++) {
		if (consumer->keys[i].len == item->key_len && memcmp(consumer->keys[i].data, item->key, item->key_len) == 0)
			return true;
	}
	return consumer->key_count == 0;
}

/* step -- the next record, wanted or not, or a notice. NOT_YET: there is none at present. */
static int step(struct farlog_consumer *consumer, struct farlog_consumed *item)
{
	for (;;) {
		struct store_item stored;
		int result = FARLOG_OK;

		if (consumer->reader != NULL)
			return consumer_from_ring(consumer, item);
		if (consumer->history == NULL) {
			struct farlog_place place = consumer_behind(consumer);

			result = consumer_open_history(consumer, &place);
			if (result != FARLOG_OK)
				return result;
			continue;
		}
		result = store_reader_next(consumer->history, &stored, &consumer->trouble);
		if (result == FARLOG_OK) {
			consumer->is_behind = false;
			if (consumer_is_rewound(consumer, &stored.record.header, stored.generation, item)) {
				consumer_leave_history(consumer); /* the record comes again */
				return FARLOG_OVERRUN;
			}
			consumer_take(consumer, &stored.record.header, stored.record.raw, stored.record.extent, stored.generation,
				false, item);
			return FARLOG_OK;
		}
		if (result != FARLOG_NOT_YET || consumer->ring_uri == NULL)
			return result;
		result = consumer_join(consumer);
		if (result != FARLOG_OK)
			return result;
	}
}

/* step_decrypted -- no further than a record that cannot be decrypted: a position that is committed stays before it. */
static int step_decrypted(struct farlog_consumer *consumer, struct farlog_consumed *item)
{
	struct farlog_place place = consumer->place;
	uint64_t next_lsn = consumer->next_lsn;
	bool is_place = consumer->is_place;
	int result = consumer->decrypt_result != FARLOG_OK ? consumer->decrypt_result : step(consumer, item);

	if (result != FARLOG_OK || (item->flags & RECORD_FLAGS_CONTROL) != 0)
		return result;
	result = check_encryption(consumer, item);
	if (result == FARLOG_OK && (item->flags & RECORD_FLAG_ENCRYPTED) != 0)
		result = decrypt_item(consumer, item);
	if (result != FARLOG_OK) {
		consumer->place = place;
		consumer->next_lsn = next_lsn;
		consumer->is_place = is_place;
	}
	return result;
}

static void sleep_ns(uint64_t duration_ns)
{
	struct timespec duration = {
		.tv_sec = (time_t)(duration_ns / 1000000000u), .tv_nsec = (long)(duration_ns % 1000000000u)};

	nanosleep(&duration, NULL);
}

int farlog_consumer_next(farlog_consumer *consumer, uint64_t deadline_ns, struct farlog_consumed *item)
{
	uint64_t end_ns = deadline_ns == 0 ? 0 : clock_after_ns(deadline_ns);
	uint64_t pause_ns = SLEEP_NS_FIRST;
	unsigned skipped = 0;

	for (;;) {
		int result = step_decrypted(consumer, item);
		uint64_t now_ns;

		if (result == FARLOG_OK || result == FARLOG_NOT_YET)
			consumer->trouble.text[0] = '\0'; /* of what went well at the second try */
		if (result == FARLOG_OK && is_wanted(consumer, item)) {
			consumer->stats.record_count++;
			return FARLOG_OK;
		}
		if (result != FARLOG_OK && result != FARLOG_NOT_YET)
			return result;
		if (result == FARLOG_OK) {
			consumer->stats.skipped_count += !(item->flags & RECORD_FLAG_PAD);
			if (++skipped % SKIP_COUNT != 0 || deadline_ns == 0)
				continue;
		}
		now_ns = clock_monotonic_ns();
		if (end_ns <= now_ns)
			return FARLOG_NOT_YET;
		if (result == FARLOG_OK)
			continue;
		sleep_ns(pause_ns < end_ns - now_ns ? pause_ns : end_ns - now_ns);
		pause_ns = pause_ns * 2 < SLEEP_NS_MAX ? pause_ns * 2 : SLEEP_NS_MAX;
	}
}

int farlog_consumer_commit(farlog_consumer *consumer)
{
	consumer->trouble.text[0] = '\0';
	if (consumer->name[0] == '\0' || !consumer->is_place)
		return FARLOG_OK;
	return position_keep(&consumer->position, &consumer->place, consumer->next_lsn, &consumer->trouble);
}

/* appended_seq -- of the writer's counters, where they are on this host; 0: not known. */
static uint64_t appended_seq(const struct farlog_ring_status *status)
{
	struct farlog_counters counters;

	if (farlog_counters_read(NULL, status->ring_uuid, &counters, NULL) != FARLOG_OK ||
		counters.epoch != status->writer_epoch)
		return 0;
	return status->epoch_start_seq + 1 + counters.record_count;
}

void farlog_consumer_stats_read(farlog_consumer *consumer, struct farlog_consumer_stats *stats)
{
	struct farlog_ring_status status;
	uint64_t seq;

	*stats = consumer->stats;
	stats->lag_records = UINT64_MAX;
	if (consumer->reader != NULL && farlog_reader_status(consumer->reader, &status) == FARLOG_OK) {
		consumer->appended_lsn = status.appended_lsn;
		seq = appended_seq(&status);
		if (seq != 0 && consumer->is_seq)
			stats->lag_records = seq > consumer->next_seq ? seq - consumer->next_seq : 0;
	}
	if (consumer->is_next && consumer->appended_lsn > consumer->next_lsn)
		stats->lag_bytes = consumer->appended_lsn - consumer->next_lsn;
	stats->place = consumer->place;
	stats->next_lsn = consumer->next_lsn;
	stats->is_live = consumer->reader != NULL;
	memcpy(stats->name, consumer->name, sizeof(stats->name));
	memcpy(stats->stream, consumer->stream, sizeof(stats->stream));
}

const char *farlog_consumer_trouble(const farlog_consumer *consumer)
{
	return consumer->trouble.text;
}
