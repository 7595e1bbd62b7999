/* log/reader_follow.c -- whether what a reader has read is still the ring's log, when another writer has opened it. */
#include "log/reader.h"
#include "scan/walk.h"

static uint32_t load_checksum(const uint8_t *mark)
{
	/* a hint to look closer: any recent value will do */
	return __atomic_load_n((const uint32_t *)mark, __ATOMIC_RELAXED);
}

/* is_epoch_known -- neither superblock has changed. Their checksums tell; the generation would not do: a power cut may
 * undo one that was visible, and the next writer gives its number to another epoch. */
static bool is_epoch_known(const struct farlog_reader *reader)
{
	const uint8_t *base = reader->region->base + offsetof(struct superblock, crc32c);

	return reader->has_marks && load_checksum(base + LAYOUT_SUPERBLOCK_A_OFF) == reader->superblock_checksums[0] &&
		load_checksum(base + LAYOUT_SUPERBLOCK_B_OFF) == reader->superblock_checksums[1];
}

/* reader_refresh -- a new writer may have come. Then the log may have gone back behind our position, unless that writer
 * is the next one and found all that we have read. */
void reader_refresh(struct farlog_reader *reader)
{
	struct superblock seen;

	if (is_epoch_known(reader))
		return;
	/* Marks first: what is loaded after them is at least as new. */
	reader->has_marks = superblock_checksums(reader->region, reader->superblock_checksums);
	if (superblock_load(reader->region, "", &seen, NULL) != FARLOG_OK)
		return; /* half written: look again at the next poll */
	if (seen.crc32c == reader->superblock.crc32c)
		return;
	if (reader->is_member || seen.generation != reader->superblock.generation + 1 ||
		seen.epoch_start_lsn < reader->cursor.lsn)
		reader->is_resync_needed = true;
	reader->superblock = seen;
	reader->cursor.epoch_max = seen.writer_epoch;
	reader->region->ops->data.prefetch(reader->region, reader->cursor.lsn, NULL, 0);
}

/* walk_back -- to the position we are at, or to the epoch that began below it. Of several members only what every log
 * to come has is given out: one in which our position is none, or is not that of the same record, has not the stream's
 * log. */
static int walk_back(struct farlog_reader *reader, struct walk *walk, struct record_cursor *at)
{
	const struct record_cursor *cursor = &reader->cursor;

	while (at->lsn < cursor->lsn) {
		struct record_found found;
		enum record_verdict verdict;
		int result = walk_check(walk, at, &verdict, &found);

		if (result != FARLOG_OK || verdict != RECORD_VALID || !reader_is_of_log(reader, at->lsn, found.epoch))
			return result != FARLOG_OK ? result : FARLOG_NOT_YET; /* the new epoch's first record is still to come */
		if (found.epoch > cursor->epoch && !reader->is_member) {
			reader->is_rewound = true;
			reader->cursor = *at;
			return FARLOG_OK;
		}
		record_advance(at, &found);
	}
	return reader->is_member && (at->lsn != cursor->lsn || at->seq != cursor->seq || at->epoch != cursor->epoch) ?
		FARLOG_NOT_YET :
		FARLOG_OK;
}

/* is_confirmed_by_writer -- a writer told this very member that it has all up to our position, and tells that only of
 * what was acknowledged. */
static bool is_confirmed_by_writer(const struct farlog_reader *reader)
{
	uint64_t durable_lsn = region_load_word(reader->region, LAYOUT_DURABLE_HINT_OFF);

	return reader->is_member && durable_lsn >= reader->cursor.lsn &&
		durable_lsn <= region_load_word(reader->region, LAYOUT_TAIL_HINT_OFF) &&
		durable_lsn - reader->cursor.lsn <= reader->identity.capacity;
}

/* resync_position -- walk from the head to see whether what we have read is still the log: a crash of the region may
 * have undone records that were visible but not acknowledged, and a newer epoch then begins below our position. OK,
 * NOT_YET, or OVERRUN: the head has passed us, so that nothing is left to tell by. */
static int resync_position(struct farlog_reader *reader)
{
	struct record_cursor *cursor = &reader->cursor;
	struct record_cursor at;
	struct walk walk = {.region = reader->region, .identity = &reader->identity};
	struct head_slot head;
	int result;

	if (!head_load(reader->region, &reader->superblock, &head))
		return FARLOG_NOT_YET;
	head_raise_to_floor(&reader->superblock, &head);
	if (head.head_lsn < reader->floor.head_lsn)
		head = reader->floor;
	if (head.head_lsn > cursor->lsn || head.last_epoch > cursor->epoch || /* the newer epoch began below the head */
		(head.head_lsn == cursor->lsn && (head.head_seq != cursor->seq || head.last_epoch != cursor->epoch)))
		return FARLOG_OVERRUN;
	at = (struct record_cursor){.lsn = head.head_lsn,
		.seq = head.head_seq,
		.epoch = head.last_epoch,
		.epoch_max = reader->superblock.writer_epoch};
	result = is_confirmed_by_writer(reader) ? FARLOG_OK : walk_back(reader, &walk, &at);
	walk_end(&walk);
	if (result == FARLOG_OK)
		reader->is_resync_needed = false;
	return result;
}

int reader_follow_log(struct farlog_reader *reader)
{
	reader_refresh(reader);
	return reader->is_resync_needed ? resync_position(reader) : FARLOG_OK;
}
