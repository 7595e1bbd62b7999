/* reader_members.h -- a reader or drain of a stream with several members, as its files share it.
 *
 * It reads from one member and changes to another one at the same LSN. What it reads may be undone by a takeover, as by a power cut of one ring
 * (docs/adr/0006); a drain therefore moves heads only over what K members have durably: every later writer finds that (docs/adr/0019). */
#ifndef FARLOG_READER_MEMBERS_H
#define FARLOG_READER_MEMBERS_H

#include <pthread.h>

#include "farlog/member.h"
#include "member_uri.h"
#include "reader.h"

struct reader_member {
	struct farlog_reader *reader; /* NULL: not open */
	const char *uri;
	const uint8_t *ring_uuid; /* NULL: whichever is there */
	const uint8_t *token;     /* NULL: none */
	bool is_away;             /* it did not answer the last time */
	uint64_t look_at_ns;      /* with is_away: not before */
	uint64_t reopen_at_ns;    /* and if it is still away then, it is opened anew: its link may have given up */
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

	unsigned current;           /* what is read from */
	uint32_t epoch;             /* the newest that any member has */
	uint32_t read_epoch;        /* of the member that the cursor was read from, and where that began */
	uint64_t read_epoch_start_lsn;
	struct record_identity identity;
	struct record_cursor cursor;  /* where the next batch begins */
	struct record_cursor sure;    /* below it all is on at least `needed` members, durably */
	struct head_slot released;    /* the highest head: all below it is in the store */
	bool is_rewound;              /* the next batch is to say so */
	uint64_t look_at_ns;          /* when all members are to be looked at again */

	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool is_closing;
};

int reader_members_open(const char *uri, const struct farlog_reader_config *config, farlog_reader **reader, struct farlog_error *error);
void reader_members_close(struct reader_members *members);
int reader_members_read(struct reader_members *members, void *buf, size_t buf_len, struct farlog_batch *batch);
int reader_members_release(struct reader_members *members, const struct head_slot *slot);
int reader_members_suspect(struct reader_members *members, struct farlog_suspect *suspect);
int reader_members_status(struct reader_members *members, struct farlog_ring_status *status);
uint64_t reader_members_reads(const struct reader_members *members);

/* reader_members_adopt -- take over what the openers have opened meanwhile. */
void reader_members_adopt(struct reader_members *members);

/* reader_members_reopen -- have a member that is of no use any more opened again. */
void reader_members_reopen(struct reader_member *member, int result);

/* reader_members_away -- it did not answer. */
void reader_members_away(struct reader_member *member, int result);

/* reader_members_place -- let a member read from the stream's position on. */
void reader_members_place(struct reader_members *members, struct reader_member *member);

/* reader_members_moved -- the member that was placed has read, or seen that the log went back: take its position. */
void reader_members_moved(struct reader_members *members, struct reader_member *member);

/* reader_members_raise -- to a member whose head lies below what was released. */
int reader_members_raise(struct reader_members *members, struct reader_member *member);

#endif
