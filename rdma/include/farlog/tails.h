/* tails.h -- libfarlog: one READ that reports all rings of a tenant at one target. For drains of many rings; on top of
 * farlog.h. */
#ifndef FARLOG_TAILS_H
#define FARLOG_TAILS_H

#include "farlog.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a target last saw of a ring: hints, up to some milliseconds old. A record is believed by its own CRC alone and
 * the head by the ring's own head slot: farlog_reader_read does. They tell which rings are worth that look. */
struct farlog_tail {
	uint8_t ring_uuid[16];
	uint64_t tail_lsn;    /* below it something lies that looks like records */
	uint64_t durable_lsn; /* the writer's last word */
	uint64_t head_lsn;    /* the credit: first LSN not yet stored */
	uint64_t sequence;    /* +1 per change since the target serves the ring */
	uint32_t writer_epoch;
	uint32_t mark; /* another one: a writer has come, and the log may have gone back behind what was read */
};

#define FARLOG_TAIL_COUNT_MAX 511

/* A connection to a target's page of tails. One thread at a time. */
typedef struct farlog_tails farlog_tails;

/* farlog_tails_open -- of all rings that this target serves to the tenant of the ring that uri names. grant_token: a
 * drain's or reader's on that ring. Blocks for the network. Errors: INVALID (not a far URI, no such grant), NOT_FOUND,
 * UNSUPPORTED (the ring has no line there), IO. */
FARLOG_API int farlog_tails_open(
	const char *uri, const uint8_t *grant_token, farlog_tails **tails, struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_tails_read -- by one READ: what the page holds, at most `count_max` rings in no order. A ring that is not
 * among them has to be looked at itself: its line was being stored just then, or it has none. NOT_YET: the same of the
 * whole page, which may have come to a standstill. IO: the connection is broken and comes back by itself. Blocks for
 * the network, allocates nothing. */
FARLOG_API int farlog_tails_read(
	farlog_tails *tails, struct farlog_tail *rings, size_t count_max, size_t *count) FARLOG_MUST_CHECK;

/* farlog_tails_reads -- READs that this handle has posted. */
FARLOG_API uint64_t farlog_tails_reads(const farlog_tails *tails);
FARLOG_API void farlog_tails_close(farlog_tails *tails);

#ifdef __cplusplus
}
#endif
#endif
