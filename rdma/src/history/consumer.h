/* history/consumer.h -- a consumer, as history/consume.c, history/consume_open.c and history/consume_join.c share
 * it. */
#ifndef FARLOG_CONSUMER_H
#define FARLOG_CONSUMER_H

#include "base/member_uri.h"
#include "farlog/consume.h"
#include "history/position.h"
#include "history/store_reader.h"
#include "ring/encrypt.h"

#define CONSUMER_CLASS_COUNT 65536u

struct farlog_consumer {
	char *ring_uri;  /* NULL: only the store */
	char *store_dir; /* NULL: only the ring */
	char stream[FARLOG_STREAM_NAME_LEN + 1];
	char name[FARLOG_CONSUMER_NAME_LEN]; /* "" = none: position means nothing */
	uint8_t token[FARLOG_TOKEN_LEN * MEMBER_COUNT_MAX];
	bool has_token;
	bool is_ring_known; /* without a store: which ring it began with */
	uint8_t ring_uuid[16];
	uint64_t salt;
	bool is_control;
	uint8_t *classes; /* a bit each; NULL: any */
	struct farlog_key *keys;
	uint8_t *key_bytes; /* of all keys, one behind the other */
	uint32_t key_count;
	struct position position;

	struct farlog_reader *reader; /* NULL while it reads the store */
	struct store_reader *history; /* NULL while it reads the ring. Both NULL: the store is to be opened at its place */
	uint32_t align;               /* of the ring */
	struct farlog_place place;    /* of the last record read */
	uint64_t next_lsn;            /* behind it, in its generation */
	uint64_t next_seq;
	bool is_place;       /* place means something */
	bool is_next;        /* next_lsn does: where the first record was to be looked for, or behind the last one */
	bool is_seq;         /* next_seq does */
	bool is_behind;      /* the store was at its end, and the ring's head is behind that */
	uint32_t told_epoch; /* its REWOUND was told */
	uint8_t *buf;
	size_t buf_len;
	size_t at; /* in buf, of the records that are not yet given */
	size_t len;
	uint64_t appended_lsn; /* as the ring was looked at last */
	struct farlog_consumer_stats stats;
	struct decrypter *decrypter; /* NULL: no keys */
	uint64_t item_salt;          /* of the last record's stream */
	bool is_clear_refused;       /* keys were given for this stream: all of its records are encrypted */
	struct consumer_seen {
		uint64_t salt;
		bool is_seen;
		bool is_encrypted;
	} seen;             /* what the application's records of this ring are, all of them */
	int decrypt_result; /* not OK: that record could not be decrypted. For good */
	struct farlog_error trouble;
};

/* consumer_open_history -- to the store, to the place. Without a store, or where it has nothing of the stream yet, the
 * ring has to do. */
int consumer_open_history(struct farlog_consumer *consumer, const struct farlog_place *place) FARLOG_MUST_CHECK;

/* consumer_open_ring -- at its head, or at its end. What has been read of it is passed over by consumer_from_ring. */
int consumer_open_ring(
	struct farlog_consumer *consumer, bool is_end, struct farlog_ring_status *status) FARLOG_MUST_CHECK;

/* consumer_find_place -- of one that begins in the ring: where that stands in the stream, should it have to go to the
 * store. */
int consumer_find_place(
	struct farlog_consumer *consumer, const struct farlog_ring_status *status, bool is_end) FARLOG_MUST_CHECK;

/* consumer_behind -- the place of the first record that has not been read. */
struct farlog_place consumer_behind(const struct farlog_consumer *consumer);

/* consumer_join -- at the end of the store: what comes next is in the ring, unless that was drained further meanwhile.
 * OK: read on, in the one or the other. */
int consumer_join(struct farlog_consumer *consumer) FARLOG_MUST_CHECK;

/* consumer_from_ring -- the next record of the ring that has not been read. OK, NOT_YET; OVERRUN: *item is a notice;
 * errors. */
int consumer_from_ring(struct farlog_consumer *consumer, struct farlog_consumed *item) FARLOG_MUST_CHECK;

/* consumer_is_rewound -- the log went back behind what was read, and that has not been told: *item tells. */
bool consumer_is_rewound(struct farlog_consumer *consumer, const struct record_header *header, uint64_t generation,
	struct farlog_consumed *item);

/* consumer_leave_history -- the next step opens it again, at the place. */
void consumer_leave_history(struct farlog_consumer *consumer);

/* consumer_take -- a record has been read: *item is it, and the place is its own. */
void consumer_take(struct farlog_consumer *consumer, const struct record_header *header, const uint8_t *raw,
	uint64_t extent, uint64_t generation, bool is_live, struct farlog_consumed *item);

#endif
