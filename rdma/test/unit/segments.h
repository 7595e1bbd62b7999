/* segments.h -- a store for tests, made as docs/reference/format.md section 5 says, by a drain that stops where a test
 * wants it to. */
#ifndef FARLOG_TEST_SEGMENTS_H
#define FARLOG_TEST_SEGMENTS_H

#include "history/store_segment.h"
#include "unit.h"

struct segments {
	char store_dir[128];
	char stream_dir[192];
	const char *uri;
	uint64_t segment_bytes;
	uint64_t number; /* of the open segment; 0: none */
	uint64_t generation;
	uint64_t off; /* in it, behind the last record */
	uint64_t mark_count;
	struct record_cursor cursor; /* behind the last record stored */
	struct farlog_ring_status ring;
	struct farlog_batch last; /* that was stored; len 0: none */
	farlog_reader *drain;     /* NULL: dead */
	int fd;
};

#define SEGMENTS_STREAM "desk7/orders"

/* segments_open -- a store with a stream's empty directory; segments_close removes it. */
void segments_open(struct segments *segments, const char *uri, uint64_t segment_bytes);
void segments_close(struct segments *segments);

/* segments_store -- what is in the ring and not in the store goes there, batches of at most batch_len; segments_mark --
 * it is synced; segments_release -- the ring gets the space. segments_kill -- the drain dies between two of them; the
 * next store begins a new one. */
void segments_store(struct segments *segments, size_t batch_len);
void segments_mark(struct segments *segments);
void segments_release(struct segments *segments);
void segments_kill(struct segments *segments);
void segments_drain(struct segments *segments);

/* segments_path -- of the open segment. */
const char *segments_path(const struct segments *segments);

#endif
