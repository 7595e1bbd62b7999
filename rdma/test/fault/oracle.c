/* oracle.c -- see oracle.h. */
#include "oracle.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FLAG_PAD 1u
#define FLAG_EPOCH 2u

/* The fields of a record's header that are looked at, taken from the bytes by their offsets in
 * docs/reference/format.md. */
struct header {
	uint16_t flags;
	uint64_t lsn;
	uint32_t epoch;
	uint32_t payload_len;
	uint64_t seq;
	uint16_t class_id;
	uint16_t key_len;
	uint64_t extent;
	uint64_t stored_len;
};

void oracle_fail(struct oracle *oracle, const char *format, ...)
{
	va_list args;

	if (oracle_has_failed(oracle))
		return;
	va_start(args, format);
	vsnprintf(oracle->failure, sizeof(oracle->failure), format, args);
	va_end(args);
}

void oracle_start(struct oracle *oracle, const struct farlog_ring_status *status, uint32_t block_len)
{
	oracle->record_count = 0;
	oracle->unacked_from = 0;
	oracle->proven_count = 0;
	oracle->entry_count = 0;
	oracle->synced_count = 0;
	oracle->epoch_count = 0;
	oracle->epoch_opened = 0;
	oracle->salt = status->salt;
	oracle->capacity = status->capacity_bytes;
	oracle->align = status->align;
	oracle->block_len = block_len;
	memcpy(oracle->ring_uuid, status->ring_uuid, sizeof(oracle->ring_uuid));
	oracle->failure[0] = '\0';
}

static uint64_t mix(uint64_t value)
{
	value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
	value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
	return value ^ (value >> 31);
}

static void fill(uint64_t state, uint8_t *bytes, uint32_t len)
{
	for (uint32_t off = 0; off < len; off += 8) {
		uint64_t word = mix(state += 0x9E3779B97F4A7C15ull);

		memcpy(bytes + off, &word, len - off < 8 ? len - off : 8);
	}
}

void oracle_content(uint64_t id, uint8_t *key, uint32_t key_len, uint8_t *payload, uint32_t len)
{
	fill(id * 2 + 1, key, key_len);
	fill(~id, payload, len);
}

void oracle_submitted(
	struct oracle *oracle, const struct farlog_entry *entry, uint64_t id, const struct farlog_position *position)
{
	struct oracle_record *record = &oracle->records[oracle->record_count];
	const struct oracle_record *before = oracle->record_count > 0 ? record - 1 : NULL;

	if (oracle->record_count == ORACLE_RECORD_MAX) {
		oracle_fail(oracle, "the test's own table of records is full");
		return;
	}
	if (before != NULL &&
		(position->epoch < before->epoch ||
			(position->epoch == before->epoch &&
				(position->lsn < before->end_lsn || position->seq != before->seq + 1))))
		oracle_fail(oracle,
			"record (epoch %u, lsn %lu, seq %lu) was given a place at or before (epoch %u, lsn %lu..%lu, seq %lu)",
			position->epoch, position->lsn, position->seq, before->epoch, before->lsn, before->end_lsn, before->seq);
	*record = (struct oracle_record){
		.id = id,
		.lsn = position->lsn,
		.end_lsn = position->end_lsn,
		.seq = position->seq,
		.epoch = position->epoch,
		.len = entry->len,
		.class_id = entry->class_id,
		.key_len = entry->key_len,
	};
	oracle->record_count++;
}

void oracle_acked(struct oracle *oracle, uint64_t durable_lsn)
{
	while (oracle->unacked_from < oracle->record_count) {
		struct oracle_record *record = &oracle->records[oracle->unacked_from];

		if (!record->is_dropped && record->end_lsn > durable_lsn)
			return;
		record->is_acked |= !record->is_dropped;
		oracle->unacked_from++;
	}
}

int64_t oracle_find(const struct oracle *oracle, uint32_t epoch, uint64_t lsn)
{
	uint32_t low = 0;
	uint32_t high = oracle->record_count;

	while (low < high) {
		uint32_t middle = (low + high) / 2;
		const struct oracle_record *record = &oracle->records[middle];

		if (record->epoch < epoch || (record->epoch == epoch && record->lsn < lsn))
			low = middle + 1;
		else
			high = middle;
	}
	if (low < oracle->record_count && oracle->records[low].epoch == epoch && oracle->records[low].lsn == lsn)
		return low;
	return -1;
}

static uint64_t take(const uint8_t *bytes, unsigned len)
{
	uint64_t value = 0;

	memcpy(&value, bytes, len);
	return value;
}

static bool decode(struct oracle *oracle, const uint8_t *bytes, uint64_t len, struct header *header)
{
	if (len < 64 || memcmp(bytes, "FLG1\1\7", 6) != 0) {
		oracle_fail(oracle, "the reader returned %lu bytes that are not a record", len);
		return false;
	}
	*header = (struct header){
		.flags = (uint16_t)take(bytes + 6, 2),
		.lsn = take(bytes + 8, 8),
		.epoch = (uint32_t)take(bytes + 16, 4),
		.payload_len = (uint32_t)take(bytes + 20, 4),
		.seq = take(bytes + 24, 8),
		.class_id = (uint16_t)take(bytes + 44, 2),
		.key_len = (uint16_t)take(bytes + 46, 2),
	};
	header->extent =
		((uint64_t)64 + header->key_len + header->payload_len + oracle->align - 1) / oracle->align * oracle->align;
	if (header->flags & FLAG_PAD)
		header->extent = (uint64_t)header->payload_len + 64;
	header->stored_len = header->flags & FLAG_PAD ? 64 : header->extent;
	if (header->stored_len > len || take(bytes + header->stored_len - 8, 8) != (header->lsn ^ oracle->salt)) {
		oracle_fail(oracle, "the record at lsn %lu is cut short or has a wrong trailer", header->lsn);
		return false;
	}
	return true;
}

/* check_pad -- it ends with the ring, or less than an LBA long with an LBA. */
static void check_pad(struct oracle *oracle, const struct header *header)
{
	uint64_t end_lsn = header->lsn + header->extent;
	bool is_at_lba = oracle->block_len != 0 && end_lsn % oracle->block_len == 0 && header->extent < oracle->block_len;

	if (end_lsn % oracle->capacity != 0 && !is_at_lba)
		oracle_fail(oracle, "the PAD at lsn %lu ends at %lu, neither with the ring nor with the LBA it lies in",
			header->lsn, end_lsn);
}

static void check_order(struct oracle *oracle, const struct oracle_walk *walk, const struct header *header)
{
	if (header->lsn != walk->lsn)
		oracle_fail(oracle, "lsn %lu expected, the reader returned a record of lsn %lu (epoch %u)", walk->lsn,
			header->lsn, header->epoch);
	if (walk->has_seq && header->seq != walk->seq)
		oracle_fail(oracle, "seq %lu expected at lsn %lu, found %lu", walk->seq, header->lsn, header->seq);
	if (header->epoch < walk->epoch)
		oracle_fail(oracle, "epoch goes down from %u to %u at lsn %lu", walk->epoch, header->epoch, header->lsn);
	if (header->lsn % oracle->capacity + header->extent > oracle->capacity)
		oracle_fail(oracle, "the record at lsn %lu crosses the end of the ring", header->lsn);
	if (header->flags & FLAG_PAD)
		check_pad(oracle, header);
}

/* check_epoch -- an epoch begins in one place only. */
static void check_epoch(
	struct oracle *oracle, const struct oracle_walk *walk, const struct header *header, const uint8_t *bytes)
{
	uint64_t start_lsn = take(bytes + 56 + 8, 8);
	uint64_t expected_lsn = walk->pad_epoch == header->epoch ? walk->pad_lsn : header->lsn;

	if (header->payload_len != 32 || memcmp(bytes + 56 + 16, oracle->ring_uuid, 16) != 0 ||
		(walk->has_seq && start_lsn != expected_lsn))
		oracle_fail(oracle, "EPOCH record %u at lsn %lu names start %lu, expected %lu, or another ring", header->epoch,
			header->lsn, start_lsn, expected_lsn);
	for (uint32_t i = 0; i < oracle->epoch_count; i++) {
		if (oracle->epochs[i].epoch != header->epoch)
			continue;
		if (oracle->epochs[i].start_lsn != start_lsn)
			oracle_fail(oracle, "epoch %u was used twice: it began at lsn %lu and at lsn %lu", header->epoch,
				oracle->epochs[i].start_lsn, start_lsn);
		return;
	}
	if (oracle->epoch_count < ORACLE_EPOCH_MAX)
		oracle->epochs[oracle->epoch_count++] = (struct oracle_epoch){header->epoch, start_lsn};
}

static bool is_content_right(const struct oracle_record *record, const uint8_t *body)
{
	uint8_t expected[4096];

	if ((size_t)record->key_len + record->len > sizeof(expected))
		return false;
	oracle_content(record->id, expected, record->key_len, expected + record->key_len, record->len);
	return memcmp(expected, body, (size_t)record->key_len + record->len) == 0;
}

/* check_record -- a record of the application: submitted, whole, and not one that a recovery had given up. */
static int64_t check_record(struct oracle *oracle, const struct header *header, const uint8_t *bytes)
{
	int64_t index = oracle_find(oracle, header->epoch, header->lsn);
	struct oracle_record *record;

	if (index < 0) {
		oracle_fail(oracle, "INVENTED: (epoch %u, lsn %lu, seq %lu) was never submitted", header->epoch, header->lsn,
			header->seq);
		return -1;
	}
	record = &oracle->records[index];
	if (record->seq != header->seq || record->len != header->payload_len || record->key_len != header->key_len ||
		record->class_id != header->class_id || !is_content_right(record, bytes + 56))
		oracle_fail(oracle, "TORN: (epoch %u, lsn %lu, seq %lu) differs from what was submitted", header->epoch,
			header->lsn, header->seq);
	if (record->is_dropped)
		oracle_fail(oracle, "RESURRECTED: (epoch %u, lsn %lu) came back after a recovery had dropped it", header->epoch,
			header->lsn);
	record->is_found = true;
	return index;
}

/* check_place -- a new entry continues the store, or a higher epoch replaces an unacknowledged end of it. */
static void check_place(struct oracle *oracle, const struct header *header)
{
	uint32_t count = oracle->entry_count;

	if (count == 0)
		return;
	if (header->epoch > oracle->entries[count - 1].epoch)
		while (count > 0 && oracle->entries[count - 1].lsn >= header->lsn)
			count--;
	if (count > 0 &&
		(oracle->entries[count - 1].end_lsn != header->lsn || oracle->entries[count - 1].next_seq != header->seq))
		oracle_fail(oracle, "store: after (epoch %u, lsn %lu..%lu, next seq %lu) comes (epoch %u, lsn %lu, seq %lu)",
			oracle->entries[count - 1].epoch, oracle->entries[count - 1].lsn, oracle->entries[count - 1].end_lsn,
			oracle->entries[count - 1].next_seq, header->epoch, header->lsn, header->seq);
	for (uint32_t i = count; i < oracle->entry_count; i++) {
		const struct oracle_entry *entry = &oracle->entries[i];

		if (entry->record_index >= 0 && oracle->records[entry->record_index].is_acked)
			oracle_fail(oracle, "LOST: acknowledged (epoch %u, lsn %lu) is superseded by epoch %u at lsn %lu",
				entry->epoch, entry->lsn, header->epoch, header->lsn);
	}
}

static void store(struct oracle *oracle, const struct header *header, int64_t index)
{
	const struct oracle_entry *last = oracle->entry_count > 0 ? &oracle->entries[oracle->entry_count - 1] : NULL;

	if (last != NULL && (header->epoch < last->epoch || (header->epoch == last->epoch && header->lsn <= last->lsn)))
		return; /* the store has it */
	check_place(oracle, header);
	if (oracle->entry_count == ORACLE_RECORD_MAX * 2) {
		oracle_fail(oracle, "the test's own store is full");
		return;
	}
	oracle->entries[oracle->entry_count++] = (struct oracle_entry){
		.lsn = header->lsn,
		.end_lsn = header->lsn + header->extent,
		.next_seq = header->seq + !(header->flags & FLAG_PAD),
		.epoch = header->epoch,
		.record_index = index,
	};
	if (index < 0)
		return;
	if (oracle->records[index].stored != ORACLE_NOT_STORED)
		oracle_fail(oracle, "TWICE: (epoch %u, lsn %lu) is in the store already", header->epoch, header->lsn);
	oracle->records[index].stored = ORACLE_UNSYNCED;
}

void oracle_walked(
	struct oracle *oracle, struct oracle_walk *walk, const uint8_t *bytes, uint64_t len, bool is_for_store)
{
	struct header header;

	for (uint64_t at = 0; at < len && !oracle_has_failed(oracle); at += header.stored_len) {
		int64_t index = -1;

		if (!decode(oracle, bytes + at, len - at, &header))
			return;
		check_order(oracle, walk, &header);
		if (header.flags & FLAG_EPOCH)
			check_epoch(oracle, walk, &header, bytes + at);
		else if (!(header.flags & FLAG_PAD))
			index = check_record(oracle, &header, bytes + at);
		if (is_for_store)
			store(oracle, &header, index);
		walk->lsn = header.lsn + header.extent;
		walk->seq = header.seq + !(header.flags & FLAG_PAD);
		walk->epoch = header.epoch;
		walk->has_seq = true;
		walk->pad_epoch = header.flags & FLAG_PAD ? header.epoch : 0;
		walk->pad_lsn = header.lsn;
	}
}

void oracle_recovering(struct oracle *oracle)
{
	for (uint32_t i = oracle->proven_count; i < oracle->record_count; i++)
		oracle->records[i].is_found = false;
}

void oracle_recovered(struct oracle *oracle, uint64_t head_lsn)
{
	oracle_head(oracle, head_lsn);
	for (uint32_t i = oracle->proven_count; i < oracle->record_count; i++) {
		struct oracle_record *record = &oracle->records[i];

		if (record->is_dropped)
			continue;
		if (record->is_found) {
			record->is_acked = true; /* a new epoch was built upon it: from here on it may not go */
			continue;
		}
		if (record->lsn < head_lsn && record->stored == ORACLE_SYNCED)
			continue;
		if (record->is_acked)
			oracle_fail(oracle,
				"LOST: acknowledged (epoch %u, lsn %lu, seq %lu) is not in the ring (head %lu), in the store: %s",
				record->epoch, record->lsn, record->seq, head_lsn,
				record->stored == ORACLE_SYNCED       ? "yes" :
					record->stored == ORACLE_UNSYNCED ? "not synced" :
														"no");
		record->is_dropped = true;
	}
	oracle->unacked_from = oracle->record_count;
}

void oracle_head(struct oracle *oracle, uint64_t head_lsn)
{
	while (oracle->proven_count < oracle->record_count) {
		const struct oracle_record *record = &oracle->records[oracle->proven_count];

		if (!record->is_dropped && record->lsn >= head_lsn)
			return;
		if (!record->is_dropped && record->stored != ORACLE_SYNCED) {
			if (record->is_acked)
				oracle_fail(oracle,
					"LOST: the head is at %lu, acknowledged (epoch %u, lsn %lu) below it is not synced in the store",
					head_lsn, record->epoch, record->lsn);
			return;
		}
		oracle->proven_count++;
	}
}

void oracle_sync(struct oracle *oracle)
{
	for (uint32_t i = oracle->synced_count; i < oracle->entry_count; i++)
		if (oracle->entries[i].record_index >= 0)
			oracle->records[oracle->entries[i].record_index].stored = ORACLE_SYNCED;
	oracle->synced_count = oracle->entry_count;
}

void oracle_cut_store(struct oracle *oracle, uint32_t keep_count)
{
	for (uint32_t i = oracle->synced_count + keep_count; i < oracle->entry_count; i++)
		if (oracle->entries[i].record_index >= 0)
			oracle->records[oracle->entries[i].record_index].stored = ORACLE_NOT_STORED;
	if (oracle->synced_count + keep_count < oracle->entry_count)
		oracle->entry_count = oracle->synced_count + keep_count;
	oracle_sync(oracle); /* what survived a power cut is on the disk */
}
