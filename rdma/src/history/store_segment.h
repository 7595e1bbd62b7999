/* history/store_segment.h -- a segment of a store, as a reader sees it: its header, its mark, where epochs begin in it
 * (docs/reference/format.md section 5). */
#ifndef FARLOG_STORE_SEGMENT_H
#define FARLOG_STORE_SEGMENT_H

#include <limits.h>
#include <stdbool.h>

#include "ring/record.h"

#define STORE_DATA_OFF 4096u

/* What is known of a segment by its header. */
struct store_segment {
	uint64_t number;
	uint64_t generation;
	uint64_t salt;
	uint64_t first_lsn;
	uint64_t first_seq;
	uint64_t prev_next_lsn; /* where the segment before ended; 0 when the generation begins here */
	uint64_t prev_next_seq;
	uint64_t low_lsn;    /* least lsn in it that is known of */
	uint64_t synced_off; /* everything below it was synced when this was read */
	uint32_t prev_epoch; /* 0 when the generation begins here */
	uint32_t align;
	uint32_t record_len_max;
	uint32_t header_crc; /* two headers of one segment are told apart by it */
	uint8_t ring_uuid[16];
};

/* Where an epoch begins. */
struct store_mark {
	uint64_t generation;
	uint64_t start_lsn;
	uint32_t epoch;
};

/* Where the log of one generation stands. */
struct store_chain {
	bool is_begun;
	struct record_cursor cursor;
};

/* One stream's directory. */
struct store_dir {
	char path[PATH_MAX];
	char stream[FARLOG_STREAM_NAME_LEN + 1];
};

/* store_dir_open -- the directory of a stream in a store. INVALID (name or path too long), NOT_FOUND (no store there,
 * or no such stream in it), IO. */
int store_dir_open(
	struct store_dir *dir, const char *store_dir, const char *stream, struct farlog_error *error) FARLOG_MUST_CHECK;

/* store_segment_path -- of a segment's file; suffix ".seg", ".idx" or ".json". */
void store_segment_path(const struct store_dir *dir, uint64_t number, const char *suffix, char path[PATH_MAX + 32]);

/* store_file_load -- all of a small file, with a 0 behind it; malloc'ed. OK, NOT_FOUND, IO, NO_MEMORY. */
int store_file_load(const char *path, uint8_t **raw, size_t *len) FARLOG_MUST_CHECK;

/* store_segment_look -- the header of a segment. NOT_FOUND: it has not begun. CORRUPT: it has, and its header is none.
 * IO. */
int store_segment_look(const struct store_dir *dir, uint64_t number, struct store_segment *segment,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* store_segment_used -- the used_bytes of a sealed segment's manifest, as it says; its signature is `farlog verify`'s
 * to check. NOT_FOUND: not sealed. CORRUPT, IO. */
int store_segment_used(
	const struct store_dir *dir, uint64_t number, uint64_t *used_bytes, struct farlog_error *error) FARLOG_MUST_CHECK;

/* store_segment_marks -- where epochs begin in a sealed segment, by its index: *marks is malloc'ed. NOT_FOUND: there is
 * no index beyond doubt, the records tell. NO_MEMORY. */
int store_segment_marks(const struct store_dir *dir, const struct store_segment *segment, struct store_mark **marks,
	size_t *count) FARLOG_MUST_CHECK;

/* store_chain_start -- before the first record of a segment. */
static inline struct store_chain store_chain_start(const struct store_segment *segment)
{
	return (struct store_chain){.is_begun = segment->prev_epoch != 0,
		.cursor = {.lsn = segment->prev_next_lsn, .seq = segment->prev_next_seq, .epoch = segment->prev_epoch}};
}

/* store_chain_takes -- whether a record continues the log, or goes back behind records that a power cut undid (section
 * 5, Order). */
bool store_chain_takes(const struct store_chain *chain, const struct record_header *header);

#endif
