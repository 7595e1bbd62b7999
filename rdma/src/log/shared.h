/* log/shared.h -- the inside of a shared writer, for who puts records into a ring and leaves it to another thread to
 * make them durable: routes. */
#ifndef FARLOG_SHARED_H
#define FARLOG_SHARED_H

#include "farlog/farlog.h"

struct farlog_writer;

/* shared_submit -- write a record (flags: RECORD_FLAG_GAP, or 0) and wait for nothing: FULL at once. OK, FULL, FENCED,
 * TOO_LARGE, CLOSED, INVALID. Nobody may be closing it. */
int shared_submit(struct farlog_shared *shared, const struct farlog_entry *entry, uint64_t flags,
	struct farlog_position *position) FARLOG_MUST_CHECK;

/* shared_wait_durable -- wait until end_lsn, which is published, is durable, leading the flush when nobody else does.
 * OK or UNKNOWN. */
int shared_wait_durable(struct farlog_shared *shared, uint64_t end_lsn, uint64_t until_ns) FARLOG_MUST_CHECK;

/* shared_published_lsn -- below it all records are whole. shared_durable_lsn -- and durable. From any thread. */
uint64_t shared_published_lsn(const struct farlog_shared *shared);
uint64_t shared_durable_lsn(const struct farlog_shared *shared);

/* shared_beat -- what farlog_shared_heartbeats keeps, NULL = nothing. shared_end_beat -- ends it, before the writer is
 * closed. */
struct shared_beat;
struct shared_beat **shared_beat(struct farlog_shared *shared) FARLOG_MUST_CHECK;
void shared_end_beat(struct farlog_shared *shared);

/* shared_writer -- what it was opened with, which does not change. */
struct farlog_writer *shared_writer(const struct farlog_shared *shared) FARLOG_MUST_CHECK;

#endif
