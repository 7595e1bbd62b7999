/* history/store_scan.h -- whole, checked records one after the other from a segment's file. It knows nothing of their
 * order. */
#ifndef FARLOG_STORE_SCAN_H
#define FARLOG_STORE_SCAN_H

#include "history/store_segment.h"

struct store_scan {
	const struct store_segment *segment;
	uint64_t off; /* in the file, of the next record */
	uint8_t *buf;
	size_t buf_len;
	size_t at;  /* in buf, of what lies at off */
	size_t len; /* bytes of the file in buf from there on */
	int fd;     /* -1: none is open */
};

/* A record where it was read; its bytes are good until the next call. */
struct store_record {
	struct record_header header;
	uint64_t extent;
	uint64_t stored_len;
	const uint8_t *raw;
};

/* store_scan_open -- a segment's file, at its first record. The buffer is kept from one to the next. OK, IO. */
int store_scan_open(struct store_scan *scan, const struct store_dir *dir, const struct store_segment *segment,
	struct farlog_error *error) FARLOG_MUST_CHECK;
void store_scan_close(struct store_scan *scan);

/* store_scan_is_linked -- whether the segment that is open is still in its directory. */
bool store_scan_is_linked(const struct store_scan *scan);
void store_scan_free(struct store_scan *scan);

/* store_scan_next -- the record at off, without moving. OK; NOT_YET: there is none, *why says what it is; IO,
 * NO_MEMORY. */
int store_scan_next(struct store_scan *scan, struct store_record *record, const char **why,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* store_scan_skip -- move over a record that next gave. */
static inline void store_scan_skip(struct store_scan *scan, const struct store_record *record)
{
	scan->off += record->stored_len;
	scan->at += record->stored_len;
	scan->len -= record->stored_len;
}

/* store_scan_forget -- drop what was read, so that the next call sees what a drain did since. */
static inline void store_scan_forget(struct store_scan *scan)
{
	scan->len = 0;
}

#endif
