/* history/store_reader.h -- along one stream of a store, oldest first, across segments, also while its drain writes it.
 * No locks, no writes. */
#ifndef FARLOG_STORE_READER_H
#define FARLOG_STORE_READER_H

#include "farlog/consume.h"
#include "history/store_base.h"
#include "history/store_scan.h"

struct store_reader {
	struct store_dir dir;
	struct store_base base; /* where the stream began when this was opened */
	struct store_segment *segments;
	size_t segment_count;
	struct store_mark *marks;
	size_t mark_count;
	size_t at; /* index in segments */
	struct store_scan scan;
	struct store_chain chain;
	struct farlog_place from; /* skips what lies before it; generation 0: nothing */
	struct farlog_place last; /* of the last record given; generation 0: none */
	struct {
		uint64_t generation;
		uint64_t lsn;
	} from_lsn; /* as from, by lsn alone, of one generation */
	/* kept: from where on records of an epoch are superseded */
	struct {
		uint64_t generation;
		uint64_t lsn;
		uint32_t epoch;
	} cutoff;
	bool is_rechecked; /* where this segment seems to end was read again */
};

struct store_item {
	struct store_record record;
	uint64_t generation;
};

/* store_reader_open -- at the stream's start. Blocks for reading headers and, of the segment that is still written,
 * records. Errors: as store_dir_open; CORRUPT: a segment is missing, or a header is none; NO_MEMORY. */
int store_reader_open(const char *store_dir, const char *stream, struct store_reader **reader,
	struct farlog_error *error) FARLOG_MUST_CHECK;
void store_reader_close(struct store_reader *reader);

/* store_reader_seek -- to the first record at or behind a place; generation 0: where the stream begins. One beyond the
 * end is waited for. OK, NOT_FOUND: records at or behind it were removed. IO. */
int store_reader_seek(
	struct store_reader *reader, const struct farlog_place *place, struct farlog_error *error) FARLOG_MUST_CHECK;

/* store_reader_seek_lsn -- to the record that counts at lsn in the newest generation, or the first behind it.
 * NOT_FOUND: that begins later. IO. */
int store_reader_seek_lsn(struct store_reader *reader, uint64_t lsn, struct farlog_error *error) FARLOG_MUST_CHECK;

/* store_reader_next -- the next record that is not superseded, PADs and farlog's own included. NOT_YET: the present end
 * of the stream; a later call gives what came since. NOT_FOUND: what comes next was removed. CORRUPT, IO, NO_MEMORY.
 * Errors come the same again at the next call. */
int store_reader_next(
	struct store_reader *reader, struct store_item *item, struct farlog_error *error) FARLOG_MUST_CHECK;

/* store_reader_newest -- the newest segment that is known; NULL: the stream is empty. */
static inline const struct store_segment *store_reader_newest(const struct store_reader *reader)
{
	return reader->segment_count == 0 ? NULL : &reader->segments[reader->segment_count - 1];
}

/* place_is_before -- along a stream places grow. */
static inline bool place_is_before(const struct farlog_place *a, const struct farlog_place *b)
{
	if (a->generation != b->generation)
		return a->generation < b->generation;
	return a->epoch != b->epoch ? a->epoch < b->epoch : a->lsn < b->lsn;
}

#endif
