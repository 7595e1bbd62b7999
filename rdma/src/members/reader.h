/* members/reader.h -- a reader or drain of a stream with several members, as its files share it.
 *
 * It reads from one member and changes to another one at the same LSN. It returns, and a drain moves heads over, only
 * records that every later writer finds: records that K members have, with a record of the newest epoch behind them
 * (docs/adr/0019). So no record that was returned is ever undone. */
#ifndef FARLOG_READER_MEMBERS_H
#define FARLOG_READER_MEMBERS_H

#include <pthread.h>

#include "base/member_uri.h"
#include "farlog/member.h"
#include "log/reader.h"

struct reader_member {
	struct farlog_reader *reader; /* NULL: not open */
	const char *uri;
	const uint8_t *ring_uuid; /* NULL: any */
	const uint8_t *token;     /* NULL: none */
	uint8_t known_uuid[16];   /* of the ring that was opened as this member; zero: none yet */
	bool is_copy;             /* the ring that was opened is that of another member, or a copy of it */
	bool is_away;             /* it did not answer the last request */
	uint64_t check_at_ns;     /* with is_away: not asked earlier */
	uint64_t reopen_at_ns;    /* and reopened then, if still away: its link may have given up */
	uint64_t reconnect_count; /* of its region, before its last batch was read */
	uint64_t held_lsn;        /* end of the last batch that was held back; 0: none */
	uint32_t reached_epoch;   /* its log reaches the first record of that epoch without a gap */
	struct farlog_error trouble;

	/* Shared with its opener thread, under the mutex: opening blocks for seconds when the target does not answer. */
	struct reader_members *members;
	pthread_t opener;
	bool has_opener;
	bool is_wanted;
	uint64_t attempt_count;
	struct farlog_reader *opened; /* opened, not yet adopted; NULL: none */
	struct farlog_error opening_error;
};

struct reader_members {
	struct farlog_reader front; /* the handle of the caller */
	struct member_uri *uri;
	unsigned count;
	unsigned needed;
	bool is_drain;
	uint8_t uuids[MEMBER_COUNT_MAX][16];
	uint8_t tokens[MEMBER_COUNT_MAX][FARLOG_TOKEN_LEN];
	struct reader_member member[MEMBER_COUNT_MAX];

	struct region_renewal *renewal; /* renews grants; NULL: none */
	unsigned current;               /* index of the member that is read from */
	uint32_t epoch;                 /* the newest that a member knows */
	struct record_identity identity;
	struct record_cursor cursor; /* where the next batch begins: every later log has this position */
	struct head_slot released;   /* the highest head: all records below are in the store */
	uint64_t check_at_ns;        /* when all members are checked again */

	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool is_closing;
};

extern const struct reader_ops reader_members_ops;

/* reader_members_open -- a reader of "members:K URI URI ...". reader_members_close -- and free it. */
int reader_members_open(const char *uri, const struct farlog_reader_config *config, struct region_renewal *renewal,
	farlog_reader **reader, struct farlog_error *error) FARLOG_MUST_CHECK;
void reader_members_close(struct reader_members *members);

/* reader_members_read, reader_members_release -- reader_ops.read and reader_ops.release. */
int reader_members_read(
	struct farlog_reader *front, void *buf, size_t buf_len, struct farlog_batch *batch) FARLOG_MUST_CHECK;
int reader_members_release(struct farlog_reader *front, const struct head_slot *slot) FARLOG_MUST_CHECK;

/* reader_member_start -- its opener thread, which opens its ring whenever it is wanted. OK or NO_MEMORY.
 * reader_member_try_open -- one attempt, by its opener; the caller does not hold the mutex. True: it is open.
 * Blocks. */
int reader_member_start(struct reader_member *member, struct farlog_error *error) FARLOG_MUST_CHECK;
bool reader_member_try_open(struct reader_member *member);

/* reader_members_adopt -- use the readers that the openers have opened. */
void reader_members_adopt(struct reader_members *members);

/* reader_members_reopen -- close a member that cannot be used, and let its opener open it again. */
void reader_members_reopen(struct reader_member *member, int result);

/* reader_members_mark_away -- it did not answer. */
void reader_members_mark_away(struct reader_member *member, int result);

/* reader_members_set_position -- of a member, to the stream's. */
void reader_members_set_position(struct reader_members *members, struct reader_member *member);

/* reader_members_limit_batch -- to the records that every later writer finds, and the reader of the member to the end
 * of these. OK; NOT_YET: none of them; IO. */
int reader_members_limit_batch(struct reader_members *members, struct reader_member *member, const uint8_t *buf,
	struct farlog_batch *batch) FARLOG_MUST_CHECK;

/* reader_members_store_head -- in a member whose head is below `released`. */
int reader_members_store_head(struct reader_members *members, struct reader_member *member) FARLOG_MUST_CHECK;

#endif
