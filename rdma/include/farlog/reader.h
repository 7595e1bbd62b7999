/* reader.h -- libfarlog: the reader of a ring, and its drain. Part of farlog.h. */
#ifndef FARLOG_PUBLIC_READER_H
#define FARLOG_PUBLIC_READER_H

#include "region.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct farlog_reader farlog_reader;

enum farlog_reader_start {
	FARLOG_START_HEAD = 0, /* the oldest undrained record */
	FARLOG_START_LSN = 1,  /* config->lsn: a record's start, not below the head */
	FARLOG_START_TAIL = 2, /* what is appended from now on */
};

struct farlog_reader_config {
	uint32_t start;             /* enum farlog_reader_start */
	uint32_t is_drain;          /* 1: take the ring's drain lock (HELD if taken); only then farlog_reader_release */
	uint64_t lsn;               /* for FARLOG_START_LSN */
	const uint8_t *ring_uuid;   /* as in the writer's configuration */
	const uint8_t *grant_token; /* as in the writer's configuration */
	/* the file with the keys of encrypted records: each is then given as the plain record that was encrypted, with a
	 * CRC of its own. NULL = what FARLOG_KEY_FILE names; nothing either, or "": encrypted records are given as they
	 * are, with flag 32. With keys an application's record that is not encrypted is CORRUPT, in a ring that is
	 * encrypted, and in any ring when the file is given here. Not for a drain, which never decrypts (INVALID) */
	const char *key_file;
};

struct farlog_batch {
	uint64_t first_lsn;
	uint64_t next_lsn; /* position after the last record of the batch */
	uint64_t next_seq;
	uint64_t record_count; /* PADs not counted */
	uint32_t last_epoch;
	/* 1: the log went back. Records from first_lsn on have a higher epoch and replace ones read before, which a crash
	 * of the region had undone before they were acknowledged */
	uint32_t is_rewound;
	uint64_t len; /* bytes used in the buffer */
	uint64_t last_ts_ns;
};

/* farlog_reader_open -- read a ring from outside. Errors: NOT_FOUND, NOT_A_RING, HELD, OVERRUN (lsn below the head),
 * CORRUPT, IO. */
FARLOG_API int farlog_reader_open(const char *uri, const struct farlog_reader_config *config, farlog_reader **reader,
	struct farlog_error *error) FARLOG_MUST_CHECK;
FARLOG_API void farlog_reader_close(farlog_reader *reader);
/* farlog_reader_reads -- READs that this handle has posted to its ring's target; 0 of a ring on this host. */
FARLOG_API uint64_t farlog_reader_reads(const farlog_reader *reader);

/* farlog_reader_read -- copy whole, checked records, verbatim and back to back, into buf; a PAD as its 64 bytes. Every
 * record is checked on the copy (magic, LSN, epoch order, trailer, salted CRC, seq). Never blocks longer than the 10 us
 * of the tip rule: the newest record beyond the tail hint is copied twice and must be the same. OK: batch->len > 0.
 * NOT_YET: nothing new behind batch->first_lsn. TOO_LARGE: the next record does not fit into buf (batch->len is what it
 * needs). CORRUPT: the record at batch->first_lsn is unreadable although later ones are there. OVERRUN (not for a
 * drain): reopen at the head. Of a ring on another host, where the call blocks for the network, also IO: what did not
 * come, try again; NO_KEY and CORRUPT, for good, of a reader with keys: the next record is encrypted with another key,
 * or is not what was encrypted (farlog_reader_trouble says which); HELD, for good: another drain has taken the place
 * of this one, or another client has come with the token of its grant. IO of a ring on this host, after
 * farlog_guard_mappings: its media lost a page; open it again. */
FARLOG_API int farlog_reader_read(
	farlog_reader *reader, void *buf, size_t buf_len, struct farlog_batch *batch) FARLOG_MUST_CHECK;

/* farlog_reader_trouble -- one line on why a record could not be decrypted; "" = none was in the way. */
FARLOG_API const char *farlog_reader_trouble(const farlog_reader *reader);

/* farlog_reader_release -- the drain's last step: everything below head_lsn is synced in the store. Persists a head
 * slot, then lets the writer have the space. head_lsn, head_seq and last_epoch are next_lsn, next_seq and last_epoch of
 * a batch that was read; going back is refused (INVALID), and so is what the log has gone back behind: read again. IO
 * of a ring on another host: try again with the same, or with those of a later batch. HELD, for good: another drain has
 * taken the place of this one, or has moved the head. */
FARLOG_API int farlog_reader_release(
	farlog_reader *reader, uint64_t head_lsn, uint64_t head_seq, uint32_t last_epoch) FARLOG_MUST_CHECK;

/* What lies where a reader's next record would. */
struct farlog_suspect {
	uint64_t lsn;
	uint32_t fingerprint; /* CRC32C of the bytes that were looked at: two looks tell whether they stand still */
	uint32_t is_claimed;  /* it has a record's magic and this lsn: it wants to be the next record */
	char text[192];       /* which check it fails, with the value and what was expected */
};

/* farlog_reader_suspect -- after NOT_YET or CORRUPT: why what lies at the reader's position is no record. Claimed bytes
 * that stand still for a second are not on their way: a writer died there, or somebody has scribbled. OK; NOT_YET: it
 * is a record by now; IO, HELD and blocking as farlog_reader_read. */
FARLOG_API int farlog_reader_suspect(farlog_reader *reader, struct farlog_suspect *suspect) FARLOG_MUST_CHECK;

/* farlog_reader_status -- cheap state of the ring for metrics; no scan: appended_lsn is the writer's last word. */
FARLOG_API int farlog_reader_status(farlog_reader *reader, struct farlog_ring_status *status) FARLOG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
