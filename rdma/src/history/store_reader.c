/* history/store_reader.c -- reading a stream of a store across its segments. */
#include "history/store_reader.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* append_one -- room for one more in an array that doubles. NULL: out of memory, and the array is as it was. */
static void *append_one(void *array, size_t count, size_t size)
{
	if (count != 0 && (count & (count - 1)) != 0)
		return array;
	return realloc(array, (count == 0 ? 1 : 2 * count) * size);
}

static int add_mark(struct store_reader *reader, size_t i, const struct store_mark *mark)
{
	struct store_mark *marks = append_one(reader->marks, reader->mark_count, sizeof(*marks));

	if (marks == NULL)
		return FARLOG_NO_MEMORY;
	reader->marks = marks;
	marks[reader->mark_count++] = *mark;
	if (mark->start_lsn < reader->segments[i].low_lsn)
		reader->segments[i].low_lsn = mark->start_lsn;
	memset(&reader->cutoff, 0, sizeof(reader->cutoff));
	return FARLOG_OK;
}

/* look_for -- add a segment when it has begun. OK, NOT_FOUND: it has not; CORRUPT, IO, NO_MEMORY. */
static int look_for(struct store_reader *reader, uint64_t number, struct farlog_error *error)
{
	struct store_segment segment;
	int result = store_segment_look(&reader->dir, number, &segment, error);
	struct store_segment *segments;

	if (result != FARLOG_OK)
		return result;
	segments = append_one(reader->segments, reader->segment_count, sizeof(*segments));
	if (segments == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "stream \"%s\": no memory for its segments", reader->dir.stream);
	reader->segments = segments;
	segments[reader->segment_count++] = segment;
	if (reader->scan.fd >= 0)
		reader->scan.segment = &segments[reader->at];
	return FARLOG_OK;
}

/* highest_number -- of a segment's file in the directory; 0: there is none. */
static int highest_number(const struct store_dir *dir, uint64_t *highest, struct farlog_error *error)
{
	DIR *entries = opendir(dir->path);
	struct dirent *entry;

	*highest = 0;
	if (entries == NULL)
		return error_set(error, FARLOG_IO, errno, "list \"%s\"", dir->path);
	while ((entry = readdir(entries)) != NULL) {
		char *end;
		uint64_t number = strtoull(entry->d_name, &end, 10);

		if (end != entry->d_name && strcmp(end, ".seg") == 0 && number > *highest)
			*highest = number;
	}
	closedir(entries);
	return FARLOG_OK;
}

/* load_behind -- the segments that have begun: from the base on, without a hole. */
static int load_behind(struct store_reader *reader, struct farlog_error *error)
{
	uint64_t highest;
	int result = highest_number(&reader->dir, &highest, error);

	for (uint64_t number = reader->base.segment; result == FARLOG_OK && number <= highest; number++)
		result = look_for(reader, number, error);
	if (result != FARLOG_NOT_FOUND)
		return result;
	/* The first that has not begun is the end, unless one behind it has. */
	for (uint64_t number = reader->base.segment + reader->segment_count + 1; number <= highest; number++) {
		struct store_segment segment;

		result = store_segment_look(&reader->dir, number, &segment, error);
		if (result == FARLOG_OK)
			return error_set(error, FARLOG_CORRUPT, 0, "stream \"%s\" in \"%s\": segment %lu is missing, %lu is there",
				reader->dir.stream, reader->dir.path, number - 1, number);
		if (result != FARLOG_NOT_FOUND)
			return result;
	}
	return FARLOG_OK;
}

/* load_segments -- those from the stream's base on. A removal beside it may take segments away between two looks: then
 * there is a newer base, and it is done again. */
static int load_segments(struct store_reader *reader, struct farlog_error *error)
{
	int result = store_base_find(&reader->dir, &reader->base, error);

	while (result == FARLOG_OK) {
		struct store_base before = reader->base;
		int found;

		reader->segment_count = 0;
		result = load_behind(reader, error);
		if (result == FARLOG_OK)
			result =
				store_base_fits(&reader->dir, &before, reader->segment_count == 0 ? NULL : &reader->segments[0], error);
		if (result == FARLOG_OK)
			return FARLOG_OK;
		found = store_base_find(&reader->dir, &reader->base, error);
		if (found != FARLOG_OK || reader->base.segment == before.segment)
			return found == FARLOG_OK ? result : found;
		result = FARLOG_OK;
	}
	return result;
}

/* check_removed -- where the segment that comes next is not there: NOT_FOUND, and NOT_YET when none has begun. A reader
 * in a segment that was removed would wait for ever: what comes next was removed as well. */
static int check_removed(struct store_reader *reader, struct farlog_error *error)
{
	struct store_base base;
	int result;

	if (store_scan_is_linked(&reader->scan))
		return FARLOG_NOT_YET;
	result = store_base_find(&reader->dir, &base, error);
	if (result != FARLOG_OK)
		return result;
	if (base.segment > reader->base.segment + reader->segment_count)
		return store_base_refuse(&reader->dir, &base, error);
	return FARLOG_NOT_YET;
}

/* walk_marks -- where epochs begin in a segment, by its records. */
static int walk_marks(struct store_reader *reader, size_t i, struct farlog_error *error)
{
	struct store_scan scan = {.fd = -1};
	struct store_chain chain = store_chain_start(&reader->segments[i]);
	struct store_record record;
	const char *why;
	int result = store_scan_open(&scan, &reader->dir, &reader->segments[i], error);

	while (result == FARLOG_OK && (result = store_scan_next(&scan, &record, &why, error)) == FARLOG_OK &&
		store_chain_takes(&chain, &record.header)) {
		struct store_mark mark = {
			.generation = reader->segments[i].generation, .start_lsn = record.header.lsn, .epoch = record.header.epoch};

		if (record.header.epoch > chain.cursor.epoch)
			result = add_mark(reader, i, &mark);
		chain.is_begun = true;
		chain.cursor = (struct record_cursor){.lsn = record.header.lsn + record.extent,
			.epoch = record.header.epoch,
			.seq = record.header.seq + !(record.header.flags & RECORD_FLAG_PAD)};
		store_scan_skip(&scan, &record);
	}
	store_scan_free(&scan);
	return result == FARLOG_NOT_YET ? FARLOG_OK : result;
}

/* load_marks -- headers tell which segments hold a place where an epoch begins; only those are looked into. */
static int load_marks(struct store_reader *reader, struct farlog_error *error)
{
	for (size_t i = 0; i < reader->segment_count; i++) {
		const struct store_segment *segment = &reader->segments[i];
		struct store_mark *marks = NULL;
		size_t count = 0;
		int result;

		if (i + 1 < reader->segment_count && segment->prev_epoch != 0 && segment[1].prev_epoch == segment->prev_epoch)
			continue;
		result = store_segment_marks(&reader->dir, segment, &marks, &count);
		if (result == FARLOG_NOT_FOUND)
			result = walk_marks(reader, i, error);
		for (size_t j = 0; result == FARLOG_OK && j < count; j++)
			result = add_mark(reader, i, &marks[j]);
		free(marks);
		if (result != FARLOG_OK)
			return error_set(error, result, 0, "stream \"%s\": where epochs begin in segment %lu", reader->dir.stream,
				segment->number);
	}
	return FARLOG_OK;
}

int store_reader_open(
	const char *store_dir, const char *stream, struct store_reader **opened, struct farlog_error *error)
{
	struct store_reader *reader = calloc(1, sizeof(*reader));
	int result;

	*opened = NULL;
	if (reader == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "read stream \"%s\": out of memory", stream);
	reader->scan.fd = -1;
	result = store_dir_open(&reader->dir, store_dir, stream, error);
	if (result == FARLOG_OK)
		result = load_segments(reader, error);
	if (result == FARLOG_OK)
		result = load_marks(reader, error);
	if (result != FARLOG_OK) {
		store_reader_close(reader);
		return result;
	}
	*opened = reader;
	return FARLOG_OK;
}

void store_reader_close(struct store_reader *reader)
{
	if (reader == NULL)
		return;
	store_scan_free(&reader->scan);
	free(reader->segments);
	free(reader->marks);
	free(reader);
}

static int open_segment(struct store_reader *reader, size_t i, struct farlog_error *error)
{
	struct store_base base;
	int result;

	store_scan_close(&reader->scan);
	reader->at = i;
	reader->is_rechecked = false;
	if (i >= reader->segment_count)
		return FARLOG_OK;
	reader->chain = store_chain_start(&reader->segments[i]);
	result = store_scan_open(&reader->scan, &reader->dir, &reader->segments[i], error);
	if (result == FARLOG_OK || store_base_find(&reader->dir, &base, NULL) != FARLOG_OK ||
		reader->segments[i].number >= base.segment)
		return result;
	return store_base_refuse(&reader->dir, &base, error);
}

int store_reader_seek(struct store_reader *reader, const struct farlog_place *place, struct farlog_error *error)
{
	size_t at = 0;

	if (reader->base.is_there && place->generation != 0 && !place_is_before(&reader->base.last, place))
		return store_base_refuse(&reader->dir, &reader->base, error);
	for (size_t i = 0; i < reader->segment_count; i++) {
		const struct store_segment *segment = &reader->segments[i];
		struct farlog_place start = {.generation = segment->generation,
			.epoch = segment->prev_epoch,
			.lsn = segment->prev_epoch == 0 ? 0 : segment->prev_next_lsn};

		if (!place_is_before(place, &start))
			at = i;
	}
	reader->from = *place;
	memset(&reader->from_lsn, 0, sizeof(reader->from_lsn));
	memset(&reader->last, 0, sizeof(reader->last));
	return open_segment(reader, at, error);
}

int store_reader_seek_lsn(struct store_reader *reader, uint64_t lsn, struct farlog_error *error)
{
	const struct store_segment *newest = store_reader_newest(reader);

	/* analyzer: where there is a segment, one is the newest */
	for (size_t i = reader->segment_count; i > 0 && reader->segments[i - 1].generation == newest->generation; i--) {
		if (reader->segments[i - 1].low_lsn > lsn)
			continue;
		memset(&reader->from, 0, sizeof(reader->from));
		memset(&reader->last, 0, sizeof(reader->last));
		reader->from_lsn.generation = newest->generation;
		reader->from_lsn.lsn = lsn;
		return open_segment(reader, i - 1, error);
	}
	return error_set(error, FARLOG_NOT_FOUND, 0, "stream \"%s\" in \"%s\": nothing at lsn %lu: it begins later",
		reader->dir.stream, reader->dir.path, lsn);
}

/* learn_epoch -- one that began after the reader was opened. */
static int learn_epoch(struct store_reader *reader, const struct record_header *header)
{
	struct store_mark mark = {
		.generation = reader->segments[reader->at].generation, .start_lsn = header->lsn, .epoch = header->epoch};

	for (size_t i = 0; i < reader->mark_count; i++) {
		if (reader->marks[i].generation == mark.generation && reader->marks[i].epoch >= mark.epoch)
			return FARLOG_OK;
	}
	return add_mark(reader, reader->at, &mark);
}

/* cutoff_of -- the lsn from which on records of an epoch are superseded: the least at which a higher one begins. */
static uint64_t cutoff_of(struct store_reader *reader, uint64_t generation, uint32_t epoch)
{
	if (reader->cutoff.generation == generation && reader->cutoff.epoch == epoch)
		return reader->cutoff.lsn;
	reader->cutoff.generation = generation;
	reader->cutoff.epoch = epoch;
	reader->cutoff.lsn = UINT64_MAX;
	for (size_t i = 0; i < reader->mark_count; i++) {
		const struct store_mark *mark = &reader->marks[i];

		if (mark->generation == generation && mark->epoch > epoch && mark->start_lsn < reader->cutoff.lsn)
			reader->cutoff.lsn = mark->start_lsn;
	}
	return reader->cutoff.lsn;
}

/* decode -- the next record of the segment into the chain. */
static int decode(struct store_reader *reader, struct store_item *item, const char **why, struct farlog_error *error)
{
	const struct store_segment *segment = &reader->segments[reader->at];
	struct record_header *header = &item->record.header;
	int result = store_scan_next(&reader->scan, &item->record, why, error);

	if (result != FARLOG_OK)
		return result;
	*why = "a record that does not continue the log";
	if (!store_chain_takes(&reader->chain, header))
		return FARLOG_NOT_YET;
	if (!reader->chain.is_begun || header->epoch > reader->chain.cursor.epoch)
		result = learn_epoch(reader, header);
	if (result != FARLOG_OK)
		return error_set(error, result, 0, "stream \"%s\": no memory for its epochs", reader->dir.stream);
	item->generation = segment->generation;
	reader->chain.is_begun = true;
	reader->chain.cursor = (struct record_cursor){.lsn = header->lsn + item->record.extent,
		.epoch = header->epoch,
		.seq = header->seq + !(header->flags & RECORD_FLAG_PAD)};
	reader->is_rechecked = false;
	store_scan_skip(&reader->scan, &item->record);
	return FARLOG_OK;
}

static bool is_wanted(struct store_reader *reader, const struct store_item *item)
{
	const struct record_header *header = &item->record.header;
	struct farlog_place place = {.generation = item->generation, .epoch = header->epoch, .lsn = header->lsn};

	if (reader->last.generation != 0 && !place_is_before(&reader->last, &place))
		return false;
	if (place_is_before(&place, &reader->from) ||
		(item->generation == reader->from_lsn.generation && header->lsn < reader->from_lsn.lsn))
		return false;
	if (header->lsn >= cutoff_of(reader, item->generation, header->epoch))
		return false;
	reader->last = place;
	memset(&reader->from, 0, sizeof(reader->from));
	memset(&reader->from_lsn, 0, sizeof(reader->from_lsn));
	return true;
}

static int damaged(const struct store_reader *reader, const char *why, const char *expected, uint64_t expected_value,
	struct farlog_error *error)
{
	return error_set(error, FARLOG_CORRUPT, 0,
		"stream \"%s\", segment %lu in \"%s\": at offset %lu, behind lsn %lu, lies %s; expected records: %s %lu; see "
		"farlog verify",
		reader->dir.stream, reader->segments[reader->at].number, reader->dir.path, reader->scan.off,
		reader->chain.cursor.lsn, why, expected, expected_value);
}

/* check_end -- records reach as far as a manifest and the mark say. OK: they do, or it is to be read again, for it may
 * have grown since it was read. */
static int check_end(struct store_reader *reader, const char *why, bool *is_again, struct farlog_error *error)
{
	struct store_segment now;
	uint64_t used_bytes = 0;
	int result = store_segment_used(&reader->dir, reader->segments[reader->at].number, &used_bytes, error);
	const char *expected = "its manifest's used_bytes is";

	*is_again = false;
	if (result == FARLOG_NOT_FOUND) {
		result = store_segment_look(&reader->dir, reader->segments[reader->at].number, &now, error);
		used_bytes = now.synced_off;
		expected = "its mark says that it was synced up to";
	}
	if (result == FARLOG_NOT_FOUND)
		return FARLOG_OK; /* it is just being begun again */
	if (result != FARLOG_OK || reader->scan.off >= used_bytes)
		return result;
	if (reader->is_rechecked)
		return damaged(reader, why, expected, used_bytes, error);
	*is_again = reader->is_rechecked = true;
	return FARLOG_OK;
}

/* begin_anew -- whether the segment at whose start the reader waits has got another header: the batch that it was begun
 * for did not come into it, and then the stream got another ring. It is asked after the look for the next segment,
 * which begins behind records of this one. */
static bool begin_anew(struct store_reader *reader)
{
	struct store_segment *segment = &reader->segments[reader->at];
	struct store_segment now;

	if (reader->scan.off != STORE_DATA_OFF ||
		store_segment_look(&reader->dir, segment->number, &now, NULL) != FARLOG_OK ||
		now.header_crc == segment->header_crc)
		return false;
	*segment = now;
	return true;
}

/* go_over -- to the next segment, which must go on where this one ends. A chain that is ahead of its header has seen
 * records that a failed sync took back; they come again and are skipped. */
static int go_over(struct store_reader *reader, const char *why, bool *is_again, struct farlog_error *error)
{
	const struct store_segment *segment = &reader->segments[reader->at];
	const struct store_segment *next = segment + 1;
	int result = FARLOG_OK;

	if (next->generation != segment->generation)
		result = check_end(reader, why, is_again, error);
	else if (!reader->chain.is_begun || next->prev_epoch > reader->chain.cursor.epoch ||
		next->prev_next_lsn > reader->chain.cursor.lsn)
		result = damaged(reader, why, "the next segment begins behind lsn", next->prev_next_lsn, error);
	return result != FARLOG_OK || *is_again ? result : open_segment(reader, reader->at + 1, error);
}

/* at_end -- where the segment holds no further record. OK: there is something to read; NOT_YET: the stream's present
 * end. */
static int at_end(struct store_reader *reader, const char *why, struct farlog_error *error)
{
	bool is_last = reader->at == reader->segment_count - 1;
	bool is_again = false;
	int result = FARLOG_NOT_FOUND;

	store_scan_forget(&reader->scan);
	if (is_last)
		result = look_for(reader, reader->segments[reader->at].number + 1, error);
	if (result != FARLOG_OK && result != FARLOG_NOT_FOUND)
		return result;
	if (begin_anew(reader))
		return open_segment(reader, reader->at, error);
	if (is_last && result == FARLOG_NOT_FOUND) {
		result = check_removed(reader, error);
		if (result != FARLOG_NOT_YET)
			return result;
		result = check_end(reader, why, &is_again, error);
		return result != FARLOG_OK || is_again ? result : FARLOG_NOT_YET;
	}
	if (is_last)
		reader->is_rechecked = false; /* records may have come before the next one began */
	if (!reader->is_rechecked) {
		reader->is_rechecked = true;
		return FARLOG_OK;
	}
	return go_over(reader, why, &is_again, error);
}

int store_reader_next(struct store_reader *reader, struct store_item *item, struct farlog_error *error)
{
	for (;;) {
		const char *why;
		int result = FARLOG_OK;

		if (reader->segment_count == 0)
			result = look_for(reader, reader->base.segment, error);
		if (result == FARLOG_NOT_FOUND)
			return check_removed(reader, error);
		if (result == FARLOG_OK && reader->scan.fd < 0)
			result = open_segment(reader, reader->at, error);
		if (result != FARLOG_OK)
			return result;
		result = decode(reader, item, &why, error);
		if (result == FARLOG_OK && is_wanted(reader, item))
			return FARLOG_OK;
		if (result == FARLOG_NOT_YET)
			result = at_end(reader, why, error);
		if (result != FARLOG_OK)
			return result;
	}
}
