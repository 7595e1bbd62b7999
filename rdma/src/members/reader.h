/* members/reader.h -- a reader or drain of a stream with several members, as its files share it.
 *
 * It reads from one member and changes to another one at the same LSN. It gives out, and a drain moves heads over, only
 * what every later writer finds: what K members have, and behind it a record of the newest epoch (docs/adr/0019). So
 * nothing that was given out is ever undone. */
#ifndef FARLOG_READER_MEMBERS_H
#define FARLOG_READER_MEMBERS_H

#include <pthread.h>

#include "base/member_uri.h"
#include "farlog/member.h"
#include "log/reader.h"

struct reader_member {
	struct farlog_reader *reader; /* NULL: not open */
	const char *uri;
	const uint8_t *ring_uuid; /* NULL: whichever is there */
	const uint8_t *token;     /* NULL: none */
	uint8_t known_uuid[16];   /* of the ring that was taken for it; zero: none was yet */
	bool is_copy;             /* what was opened is another member's ring, or a copy of it */
	bool is_away;             /* it did not answer the last time */
	uint64_t look_at_ns;      /* with is_away: not before */
	uint64_t reopen_at_ns;    /* and if it is still away then, it is opened anew: its link may have given up */
	uint64_t comeback_count;  /* of its region, before the batch was read that it showed last */
	uint64_t held_lsn;        /* end of what it showed last and was held back; 0: nothing */
	uint32_t reached_epoch;   /* its log goes, without a gap, as far as the first record of that epoch */
	struct farlog_error trouble;

	/* What its opener does, under the mutex: opening blocks for seconds where nobody answers. */
	struct reader_members *members;
	pthread_t opener;
	bool has_opener;
	bool is_wanted;
	uint64_t attempt_count;
	struct farlog_reader *opened; /* handed over; NULL: nothing yet */
	struct farlog_error opening_error;
};

struct reader_members {
	struct farlog_reader front; /* what the caller has */
	struct member_uri *uri;
	unsigned count;
	unsigned needed;
	bool is_drain;
	uint8_t uuids[MEMBER_COUNT_MAX][16];
	uint8_t tokens[MEMBER_COUNT_MAX][FARLOG_TOKEN_LEN];
	struct reader_member member[MEMBER_COUNT_MAX];

	struct region_renewal *renewal; /* who has other grants; NULL: nobody */
	unsigned current;               /* what is read from */
	uint32_t epoch;                 /* the newest that any member has */
	struct record_identity identity;
	struct record_cursor cursor; /* where the next batch begins: every log to come has this position */
	struct head_slot released;   /* the highest head: all below it is in the store */
	uint64_t look_at_ns;         /* when all members are to be looked at again */

	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool is_closing;
};

extern const struct reader_ops reader_members_ops;

int reader_members_open(const char *uri, const struct farlog_reader_config *config, struct region_renewal *renewal,
	farlog_reader **reader, struct farlog_error *error) FARLOG_MUST_CHECK;
void reader_members_close(struct reader_members *members);
int reader_members_read(
	struct reader_members *members, void *buf, size_t buf_len, struct farlog_batch *batch) FARLOG_MUST_CHECK;
int reader_members_release(struct reader_members *members, const struct head_slot *slot) FARLOG_MUST_CHECK;
int reader_members_suspect(struct reader_members *members, struct farlog_suspect *suspect) FARLOG_MUST_CHECK;
int reader_members_status(struct reader_members *members, struct farlog_ring_status *status) FARLOG_MUST_CHECK;
uint64_t reader_members_reads(const struct reader_members *members);
struct region_waits reader_members_waits(const struct reader_members *members);

/* reader_members_adopt -- take over what the openers have opened meanwhile. */
void reader_members_adopt(struct reader_members *members);

/* reader_members_reopen -- have a member that is of no use any more opened again. */
void reader_members_reopen(struct reader_member *member, int result);

/* reader_members_away -- it did not answer. */
void reader_members_away(struct reader_member *member, int result);

/* reader_members_place -- let a member read from the stream's position on. */
void reader_members_place(struct reader_members *members, struct reader_member *member);

/* reader_members_hold_back -- of what a member has read, leave in the batch what every later writer finds, and its
 * reader at the end of that. OK; NOT_YET: nothing of it; IO. */
int reader_members_hold_back(struct reader_members *members, struct reader_member *member, const uint8_t *buf,
	struct farlog_batch *batch) FARLOG_MUST_CHECK;

/* reader_members_raise -- to a member whose head lies below what was released. */
int reader_members_raise(struct reader_members *members, struct reader_member *member) FARLOG_MUST_CHECK;

#endif
