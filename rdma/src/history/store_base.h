/* history/store_base.h -- where a stream of a store begins, when its oldest segments were removed
 * (docs/reference/format-store-base.md). */
#ifndef FARLOG_STORE_BASE_H
#define FARLOG_STORE_BASE_H

#include "farlog/consume.h"
#include "history/store_segment.h"

/* What the newest base manifest says. */
struct store_base {
	uint64_t segment; /* the first that is there; 1 without a base manifest */
	bool is_there;
	/* of the last removed record */
	struct farlog_place last;
	uint64_t next_lsn;
	uint64_t next_seq;
	uint64_t removed_segments;
};

/* store_base_find -- the newest base manifest of a stream; without one OK and is_there false. It is checked against the
 * first segment by store_base_fits, its signature by `farlog verify`. CORRUPT, IO, NO_MEMORY. */
int store_base_find(const struct store_dir *dir, struct store_base *base, struct farlog_error *error) FARLOG_MUST_CHECK;

/* store_base_fits -- whether the first segment continues what was removed. CORRUPT: it does not. */
int store_base_fits(const struct store_dir *dir, const struct store_base *base, const struct store_segment *first,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* store_base_refuse -- NOT_FOUND, with a text that says where the stream begins. */
int store_base_refuse(
	const struct store_dir *dir, const struct store_base *base, struct farlog_error *error) FARLOG_MUST_CHECK;

#endif
