/* member.h -- libfarlog: the rings of a stream that has several, as its reader, its drain and its writer see them. On
 * top of farlog.h.
 *
 * Their URI is "members:K URI URI ...", K of which an acknowledgement needs; ring_uuid and grant_token of a
 * configuration then point to as many of them, one behind the other, in the order of the URIs. One that is all zero is
 * none. */
#ifndef FARLOG_MEMBER_H
#define FARLOG_MEMBER_H

#include "farlog.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FARLOG_MEMBER_COUNT_MAX 9

enum farlog_member_state {
	FARLOG_MEMBER_UP = 1, /* it has the stream's newest epoch */
	/* a writer has come that did not have it: what it holds is not believed until it has joined again */
	FARLOG_MEMBER_STALE = 2,
	FARLOG_MEMBER_AWAY = 3, /* it does not answer, or cannot be opened: text says why. It is tried again */
	/* to a writer: it did not confirm within its deadline, and has not caught up since. Nobody waits for it */
	FARLOG_MEMBER_LATE = 4,
	FARLOG_MEMBER_OUT = 5, /* to a writer: fenced there, or another ring than it was. Not before the next writer */
};

struct farlog_member_status {
	uint32_t state;        /* enum farlog_member_state */
	uint32_t is_read;      /* 1: records come from this one */
	uint32_t writer_epoch; /* of its superblock; 0 = it was never seen */
	uint32_t reserved;
	uint64_t head_lsn; /* first LSN not yet stored, as it keeps it */
	uint64_t tail_lsn; /* the writer's last word there */
	/* end of records that it has and that are not given out, as too few members have them: seen at its last look; 0 =
	 * none */
	uint64_t held_lsn;
	char text[200]; /* "" = nothing is wrong with it */
};

/* farlog_reader_members -- how the members are, in the order of their URIs: at most `count_max` of them; the result is
 * how many there are, 0 of a reader of one ring. It does no input or output: what was seen last. As old as the last
 * farlog_reader_read. */
FARLOG_API unsigned farlog_reader_members(
	const farlog_reader *reader, struct farlog_member_status *members, unsigned count_max);

/* ---------------------------------------------------------------- as the writer sees them */

/* One table for every number that a writer exports of a member, as FARLOG_COUNTER_TABLE is of the stream. Some 10 ms
 * old at most while it appends or is idle. */
#define FARLOG_MEMBER_COUNTER_TABLE(X) \
	X(state, "gauge", \
		"1 up, 2 stale: it catches up and does not count, 3 away, 4 late: demoted, 5 out until the next writer.") \
	X(confirmed_lsn, "gauge", "First LSN that it has not confirmed.") \
	X(lag_bytes, "gauge", "Undrained bytes that were given to members and that it has not confirmed.") \
	X(head_lsn, "gauge", "First LSN not yet stored, as it is known to keep it.") \
	X(demotion_count, "counter", "Times it fell behind its deadline.") \
	X(eviction_count, "counter", "Times it was evicted after an error.") \
	X(rejoin_count, "counter", "Times it came, or came back, after the writer had opened.")

struct farlog_member_counters {
#define FARLOG_MEMBER_COUNTER_FIELD(name, kind, help) uint64_t name;
	FARLOG_MEMBER_COUNTER_TABLE(FARLOG_MEMBER_COUNTER_FIELD)
#undef FARLOG_MEMBER_COUNTER_FIELD
};

/* farlog_member_counters_read -- copy what the stream's present or last writer exported of its members, in the order of
 * its URI: at most `count_max`; *count is how many there are, 0 of a stream with one ring. ring_uuid: that of the first
 * member, where the writer was given uuids; else that of the first that was there when it opened; that of a ring that
 * has been put in the first one's place since is as good. Any thread; opens a file. NOT_FOUND: nothing was exported on
 * this machine. IO, CORRUPT. */
FARLOG_API int farlog_member_counters_read(const char *counters_dir, const uint8_t ring_uuid[16],
	struct farlog_member_counters *members, unsigned count_max, unsigned *count,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_ring_accept_loss -- a ring that was put in the place of another one, and never had an epoch, counts in the
 * stream's quorums from now on as one that holds nothing. Records that only the other one had are lost by it, those
 * that were acknowledged too: it is for when no other way is left to open the stream. Durable when it returns. Cold: it
 * reads and writes the ring's header. Of a ring that had an epoch nothing is changed. Errors: HELD (a writer has it),
 * NOT_FOUND, NOT_A_RING, IO. */
FARLOG_API int farlog_ring_accept_loss(const char *uri, struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_ring_cut -- accept that one ring has lost what was acknowledged from lsn on, which is where its opening
 * was refused as CORRUPT: a new epoch begins there, and what lies behind it is dropped. Until then no writer opens
 * it. Durable when it returns OK; else the ring may have been cut, and its opening then names a higher lsn, if any.
 * Errors: INVALID (it has lost nothing that is known of, or its log ends elsewhere: nothing was changed), UNSUPPORTED
 * (several members), and those of farlog_writer_open. */
FARLOG_API int farlog_ring_cut(const char *uri, uint64_t lsn, struct farlog_error *error) FARLOG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
