/* consume.h -- libfarlog-history: a named live reader of a stream beside its drain: its history in a store joined to
 * its ring. On top of farlog.h.
 *
 * A ring holds what is not yet drained. A consumer that is slower than writer and drain is overtaken there: it is told
 * so, with the positions, and takes what it missed from the store, where every drained record is, and goes on live. It
 * holds no lock of the ring and writes nothing there: it slows down neither the writer nor the drain. Records come in
 * the order of (generation, epoch, lsn), each once; within an epoch that is LSN order.
 *
 * Threads: a consumer is used by one thread at a time. Memory: what a call gives is good until the next call. */
#ifndef FARLOG_CONSUME_H
#define FARLOG_CONSUME_H

#include "farlog.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FARLOG_CONSUMER_NAME_LEN 64

/* The place of a record in its stream. The generation counts the stream's rings, from 1: where a ring was formatted
 * again, lsn, seq and epoch start at 0. */
struct farlog_place {
	uint64_t generation;
	uint64_t lsn;
	uint32_t epoch;
	uint32_t reserved;
};

enum farlog_consumer_start {
	FARLOG_CONSUME_HEAD = 0,   /* what is in the ring: the oldest record that is not drained. Without a ring: OLDEST */
	FARLOG_CONSUME_END = 1,    /* what is appended from now on */
	FARLOG_CONSUME_OLDEST = 2, /* the first record in the store */
	FARLOG_CONSUME_PLACE = 3,  /* config->place, or the first record behind it */
};

struct farlog_key {
	const void *data;
	size_t len;
};

struct farlog_consumer_config {
	/* as farlog_reader_open takes it, also "farlog://stream"; NULL = only what is in the store, as it comes */
	const char *ring_uri;
	/* of the store that the stream is drained into; NULL = none: what was overtaken is lost for this consumer, and it
	 * says so */
	const char *store_dir;
	const char *stream; /* NULL = the name in farlog://, else the one that the ring bears; needed without ring_uri */
	/* under which the position is kept, such as "desk-risk"; NULL = it is not kept. A position that is there goes
	 * before `start` */
	const char *name;
	/* of positions; NULL = farlog in XDG_STATE_HOME, or in ~/.local/state: where `farlog tail --name` keeps its own */
	const char *state_dir;
	uint32_t start; /* enum farlog_consumer_start */
	/* 1: farlog's own records (epochs, heartbeats, gaps) as well, whatever the classes and keys; never PADs */
	uint32_t is_control;
	struct farlog_place place;     /* for FARLOG_CONSUME_PLACE */
	const uint16_t *classes;       /* of any of them */
	const struct farlog_key *keys; /* with any of them */
	uint32_t class_count;          /* 0 = any class */
	uint32_t key_count;            /* 0 = any key or none */
	/* how much is copied out of the ring at once; 0 = 1 MiB. One larger record makes it grow */
	uint64_t buffer_bytes;
	const uint8_t *grant_token; /* as in the reader's configuration */
	/* of encrypted records; NULL = what FARLOG_KEY_FILE names. When it is given all of an application's records have to
	 * be encrypted: another one is CORRUPT, as it is beside encrypted ones of the same ring */
	const char *key_file;
};

enum farlog_notice_kind {
	/* from_lsn to to_lsn was drained before it was read: it comes from the store, nothing is missing */
	FARLOG_NOTICE_CAUGHT = 1,
	FARLOG_NOTICE_LOST = 2, /* from_lsn to to_lsn was drained before it was read, and the consumer has no store */
	/* from from_lsn on, records of earlier epochs are replaced: they were never acknowledged */
	FARLOG_NOTICE_REWOUND = 3,
};

/* What happened to a consumer's place. */
struct farlog_notice {
	uint32_t kind;  /* enum farlog_notice_kind */
	uint32_t epoch; /* of REWOUND: the one that goes on there */
	uint64_t from_lsn;
	uint64_t to_lsn; /* not included */
	/* of CAUGHT and LOST: records between them, farlog's own included; 0 = not known: none was read before */
	uint64_t record_count;
};

/* One record, or a notice. */
struct farlog_consumed {
	struct farlog_place place;
	uint64_t seq;
	uint64_t ts_ns;
	uint32_t clock_err_ns; /* bound on the error of ts_ns, UINT32_MAX = unknown */
	uint32_t payload_len;
	uint16_t class_id;
	uint16_t key_len;
	uint16_t flags;   /* not 0: farlog's own (docs/reference/format.md) */
	uint16_t is_live; /* 1: it came from the ring */
	const void *key;
	const void *payload;
	struct farlog_notice notice; /* with OVERRUN, and then nothing else */
};

typedef struct farlog_consumer farlog_consumer;

/* farlog_consumer_open -- stand where the position, or else start, says. Blocks for the ring's opening and, where it
 * begins in the store, for reading the segment that is still written. Errors: INVALID, HELD (a living consumer has this
 * name: the text says which), NOT_FOUND (no store, no such stream in it), CORRUPT, IO, and as farlog_reader_open. */
FARLOG_API int farlog_consumer_open(const struct farlog_consumer_config *config, farlog_consumer **consumer,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_consumer_next -- the next record that is wanted. deadline_ns: from now, how long to wait for one; 0 = do not
 * wait.
 *
 *   OK         *item is a record
 *   NOT_YET    there is none at present
 *   OVERRUN    *item is a notice, told once, before the records that follow it: item->notice. Go on with the next call.
 *              With a store nothing is missing
 *   NOT_FOUND  the ring is drained further than the store is: that is another drain's store, or a copy that lags.
 *              farlog_consumer_trouble says from which lsn to which; the next call looks again, and nothing is passed
 *              over
 *   NO_KEY     for good: the record is encrypted, and the consumer does not have its key: trouble says which
 *   CORRUPT    bytes in the ring or in the store fail their check; trouble says where. No record is given beyond that
 *              place
 *   IO         of a ring on another host: what did not come, call again. Of a store: what could not be read
 *   NOT_A_RING for good, without a store: the ring is another one than it began with. It was formatted again; what was
 *   not read of the former one is gone
 *   HELD       for good: another client has come with the token of the grant
 *
 * Errors of opening the ring, where the consumer comes to it, are given here too. Allocates when it opens or goes over
 * to another segment, and for larger records; waits by sleeping, 50 us at first and 2 ms at most. A walk over what is
 * not wanted looks at the time every 64 records. */
FARLOG_API int farlog_consumer_next(
	farlog_consumer *consumer, uint64_t deadline_ns, struct farlog_consumed *item) FARLOG_MUST_CHECK;

/* farlog_consumer_commit -- keep the position behind the last record that next gave, durably, under the name; `farlog
 * tail --name`, Go's consumers and C's go on there. After a crash what was given since the last commit comes again.
 * Without a name, or before the first record, it does nothing. Blocks for the file system. IO. */
FARLOG_API int farlog_consumer_commit(farlog_consumer *consumer) FARLOG_MUST_CHECK;

#define FARLOG_CONSUMER_COUNTER_TABLE(X) \
	X(record_count, "counter", "Records given.") \
	X(skipped_count, "counter", "Records read and not wanted by the filter.") \
	X(overrun_count, "counter", "Times it was overtaken.") \
	X(notice_count, "counter", "Notices given.") \
	X(lost_bytes, "counter", "Bytes of the log that were nowhere to be had.") \
	X(lag_bytes, "gauge", "Appended and not yet read, as the ring was looked at last.") \
	X(lag_records, "gauge", "The same in records; all ones = not known: the writer's counters are not on this host.")

struct farlog_consumer_stats {
#define FARLOG_CONSUMER_COUNTER_FIELD(name, kind, help) uint64_t name;
	FARLOG_CONSUMER_COUNTER_TABLE(FARLOG_CONSUMER_COUNTER_FIELD)
#undef FARLOG_CONSUMER_COUNTER_FIELD
	struct farlog_place place; /* of the last record read */
	uint64_t next_lsn;         /* behind it */
	uint32_t is_live;          /* 1: it reads the ring; 0: the store */
	uint32_t reserved;
	char name[FARLOG_CONSUMER_NAME_LEN];
	char stream[FARLOG_STREAM_NAME_LEN + 1];
};

/* farlog_consumer_stats_read -- counts since it was opened. Looks at the ring where it is live, which of one on another
 * host is a READ; never fails. */
FARLOG_API void farlog_consumer_stats_read(farlog_consumer *consumer, struct farlog_consumer_stats *stats);

/* farlog_consumer_trouble -- one line on why the last call failed; "" = it did not. Good until the next call. */
FARLOG_API const char *farlog_consumer_trouble(const farlog_consumer *consumer);

/* farlog_consumer_close -- give ring, store and name back. A position that was not committed is not kept. Safe on
 * NULL. */
FARLOG_API void farlog_consumer_close(farlog_consumer *consumer);

#ifdef __cplusplus
}
#endif
#endif
