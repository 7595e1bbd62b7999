/* scan/walk.c -- walking a ring's records. See scan/walk.h. */
#include "scan/walk.h"

#include <stdlib.h>

#include "ring/layout.h"

#define PIECE_LEN (256u << 10)

static int load_piece(struct walk *walk, uint64_t lsn, uint64_t len)
{
	int result;

	if (len > walk->bytes_size) {
		free(walk->bytes);
		walk->bytes = malloc(len);
		walk->bytes_size = walk->bytes != NULL ? len : 0;
	}
	walk->lsn = lsn;
	walk->len = 0;
	if (walk->bytes == NULL)
		return FARLOG_NO_MEMORY;
	result =
		walk->region->ops->data.read(walk->region, LAYOUT_DATA_OFF + lsn % walk->identity->capacity, walk->bytes, len);
	if (result == FARLOG_OK)
		walk->len = len;
	return result;
}

int walk_check(
	struct walk *walk, const struct record_cursor *cursor, enum record_verdict *verdict, struct record_found *found)
{
	uint64_t off = cursor->lsn % walk->identity->capacity;
	uint64_t left = walk->identity->capacity - off;
	uint64_t need = walk->piece_len != 0 ? walk->piece_len : PIECE_LEN;

	if (!walk->region->caps.needs_fetch) {
		*verdict = record_check(walk->identity, cursor, walk->region->base + LAYOUT_DATA_OFF + off, left, found);
		return region_has_lost_page(walk->region) ? FARLOG_IO : FARLOG_OK;
	}
	for (;;) {
		uint64_t skipped = cursor->lsn - walk->lsn;
		uint64_t have = cursor->lsn >= walk->lsn && skipped < walk->len ? walk->len - skipped : 0;
		int result;

		*verdict = RECORD_CUT;
		if (have > 0)
			*verdict = record_check(walk->identity, cursor, walk->bytes + skipped, have, found);
		if (*verdict != RECORD_CUT || have == left)
			return FARLOG_OK;
		if (have >= RECORD_PAD_STORED_LEN && found->stored_len > need)
			need = found->stored_len; /* no header is cut: a piece ends on a line */
		result = load_piece(walk, cursor->lsn, need < left ? need : left);
		if (result != FARLOG_OK)
			return result;
	}
}

void walk_end(struct walk *walk)
{
	free(walk->bytes);
	walk->bytes = NULL;
	walk->bytes_size = 0;
}
