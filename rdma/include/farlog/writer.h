/* writer.h -- libfarlog: the writer of a ring, by one thread or by many. Part of farlog.h. */
#ifndef FARLOG_PUBLIC_WRITER_H
#define FARLOG_PUBLIC_WRITER_H

#include "region.h"

#ifdef __cplusplus
extern "C" {
#endif

enum farlog_policy {
	FARLOG_POLICY_BLOCK = 0,  /* ring full: wait for the drain until the deadline, then FULL */
	FARLOG_POLICY_REJECT = 1, /* ring full: FULL at once */
};

enum farlog_wait {
	FARLOG_WAIT_BACKOFF = 0, /* spin, then yield, then sleep 50 us at a time */
	FARLOG_WAIT_SPIN = 1,    /* spin only: for a pinned thread on a core of its own */
};

struct farlog_writer_config {
	uint32_t level;             /* 0 = FARLOG_LEVEL_PERSISTENT */
	uint32_t policy;            /* enum farlog_policy */
	uint32_t wait;              /* enum farlog_wait */
	uint32_t epoch;             /* from a grant; 0 = one more than the ring's last. Lower than that: FENCED */
	uint64_t deadline_ns;       /* default deadline of an append; 0 = the contract's (memory 1 ms, msync 1 s) */
	uint32_t warn_percent;      /* of the ring in use; 0 = 70 */
	uint32_t alarm_percent;     /* 0 = 85 */
	const char *writer_name;    /* goes into the writer's identity; NULL = the program's name */
	const char *counters_dir;   /* NULL = /dev/shm/farlog; "" = counters private to this process */
	const uint8_t *ring_uuid;   /* 16 bytes: refuse any other ring (NOT_A_RING); NULL = take what is there */
	const uint8_t *grant_token; /* FARLOG_TOKEN_LEN bytes, for far regions: what lets this writer in; NULL = none */
	/* of an encrypted ring: the file with its keys, of which the first one encrypts; NULL = what FARLOG_KEY_FILE names;
	 * "" = none. A ring that is not encrypted is refused (INVALID) where this is given, and ignores the variable */
	const char *key_file;
};

/* What an acknowledgement says. */
struct farlog_position {
	uint64_t lsn;
	uint64_t seq;
	uint32_t epoch; /* with FENCED: the epoch that fenced */
	uint8_t level;  /* enum farlog_level that was reached */
	uint8_t copies; /* regions that hold it at that level */
	uint16_t reserved;
	uint64_t end_lsn; /* lsn + extent: durable when the durable position has reached it */
};

struct farlog_entry {
	const void *data;
	uint32_t len;
	uint16_t class_id;
	uint16_t key_len;
	const void *key; /* may be NULL when key_len is 0 */
};

typedef struct farlog_writer farlog_writer;

/* What opening found: printed by tools as "recovered: ...". */
struct farlog_recovery {
	uint32_t epoch; /* opened */
	uint32_t prev_epoch;
	uint64_t head_lsn;
	uint64_t tail_lsn; /* where the new epoch starts */
	uint64_t next_seq;
	uint64_t record_count; /* undrained records found */
	uint64_t orphan_count; /* valid records behind an unreadable one, dropped: of unknown acknowledgement */
	uint64_t scanned_bytes;
	uint64_t duration_ns;
};

/* farlog_writer_open -- take the ring's writer lock, recover, persist a new epoch, append its EPOCH record. Errors:
 * NOT_FOUND, NOT_A_RING (text gives the command that would format it), HELD (text says by whom), LEVEL (text names the
 * level asked for and the contract's), FENCED (config->epoch too low), CORRUPT, FULL (no space for the EPOCH record),
 * IO, NO_KEY (the ring is encrypted), and those of reading the file of keys: NOT_FOUND, INVALID, UNSUPPORTED (no
 * libcrypto). Blocks for the scan of the undrained part (about one CRC pass over it); of a ring on another host also
 * for connecting (5 s) and for fetching that part: a connection that breaks meanwhile is made again until 10 s after
 * the first. */
FARLOG_API int farlog_writer_open(const char *uri, const struct farlog_writer_config *config, farlog_writer **writer,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_writer_close -- flush what is staged, give the lock back, free. Safe on NULL. Blocks up to the default
 * deadline, and on an msync region until the call to the disk that is under way comes back. Returns the last flush's
 * result. */
FARLOG_API int farlog_writer_close(farlog_writer *writer);

FARLOG_API const struct farlog_recovery *farlog_writer_recovery(const farlog_writer *writer);
FARLOG_API const struct farlog_contract *farlog_writer_contract(const farlog_writer *writer);

/* farlog_append -- append one record and wait until it is at the writer's level.
 * deadline_ns: from now; 0 = the writer's default. OK fills *position. FULL, FENCED, TOO_LARGE, CLOSED: nothing was
 * written. UNKNOWN: position->lsn is set; the record may or may not be there: farlog_resolve. */
FARLOG_API int farlog_append(farlog_writer *writer, const struct farlog_entry *entry, uint64_t deadline_ns,
	struct farlog_position *position) FARLOG_MUST_CHECK;

/* farlog_try_append -- as farlog_append, but FULL at once whatever the policy. */
FARLOG_API int farlog_try_append(
	farlog_writer *writer, const struct farlog_entry *entry, struct farlog_position *position) FARLOG_MUST_CHECK;

/* farlog_submit -- write one record without waiting for durability. Never blocks; FULL when there is no free space.
 * *position is what a later acknowledgement will name, its level still POSTED. It becomes durable by farlog_poll or
 * farlog_wait (or by the next append): one flush covers everything submitted before. */
FARLOG_API int farlog_submit(
	farlog_writer *writer, const struct farlog_entry *entry, struct farlog_position *position) FARLOG_MUST_CHECK;

/* farlog_poll -- start a flush of what was submitted when none is under way, and report the durable position.
 * Never blocks. OK: *durable_lsn is set; every record whose end_lsn <= *durable_lsn is acknowledged at the
 * writer's level. FENCED, CLOSED, UNKNOWN (the region failed) otherwise. */
FARLOG_API int farlog_poll(farlog_writer *writer, uint64_t *durable_lsn) FARLOG_MUST_CHECK;

/* farlog_wait -- wait until the durable position reaches end_lsn. OK; UNKNOWN at the
 * deadline, or when the region failed; INVALID: nothing was appended up to end_lsn. */
FARLOG_API int farlog_wait(farlog_writer *writer, uint64_t end_lsn, uint64_t deadline_ns) FARLOG_MUST_CHECK;

/* farlog_append_batch -- submit `count` entries, then wait once: one group commit, one crossing from another language.
 * positions[0..*done) are acknowledged. On a result other than OK the entries from *done on were not acknowledged;
 * of UNKNOWN, positions[*done..*submitted) are those that may be written. Up to 32 records behind one another share a
 * reading of the clock, taken before the first of them is written. done, submitted: never NULL. */
FARLOG_API int farlog_append_batch(farlog_writer *writer, const struct farlog_entry *entries, size_t count,
	uint64_t deadline_ns, struct farlog_position *positions, size_t *done, size_t *submitted) FARLOG_MUST_CHECK;

/* farlog_claim -- space for a payload of `len` bytes in the staging buffer, to be filled in place. One claim at a time:
 * a second one replaces the first. key is copied. Errors: TOO_LARGE, CLOSED, FENCED, INVALID. Nothing is reserved in
 * the ring until farlog_commit, which may return FULL and leaves the claim standing then. */
FARLOG_API int farlog_claim(farlog_writer *writer, uint32_t len, uint16_t class_id, const void *key, uint16_t key_len,
	void **payload) FARLOG_MUST_CHECK;
FARLOG_API int farlog_commit(
	farlog_writer *writer, uint64_t deadline_ns, struct farlog_position *position) FARLOG_MUST_CHECK;

/* farlog_resolve -- after UNKNOWN: is the record with this lsn durable? Flushes again and waits until the deadline. OK:
 * a record begins there and is durable, *position says which. On a writer that was opened since, compare
 * position->epoch with the epoch that came with UNKNOWN: another one means that the record asked for was lost and a
 * later one took its place. NOT_FOUND: no record begins there, the one asked for is not and never will be. UNKNOWN:
 * still not known, or appended by an earlier writer and drained since: then the store has it or nobody.
 * A writer of another host that was fenced, where its target knows where its log ended: OK, or FENCED, which is
 * NOT_FOUND with its cause. */
FARLOG_API int farlog_resolve(
	farlog_writer *writer, uint64_t lsn, uint64_t deadline_ns, struct farlog_position *position) FARLOG_MUST_CHECK;

/* farlog_heartbeat -- append a HEARTBEAT record (no payload), so that merges past an idle writer can move on. */
FARLOG_API int farlog_heartbeat(
	farlog_writer *writer, uint64_t deadline_ns, struct farlog_position *position) FARLOG_MUST_CHECK;

/* The writer's cursors. head <= appended, durable <= appended, appended - head <= capacity. */
struct farlog_cursors {
	uint64_t head_lsn; /* the writer's credit */
	uint64_t durable_lsn;
	uint64_t appended_lsn;
	uint64_t capacity_bytes;
	uint64_t next_seq;
	uint32_t epoch;
	uint32_t pressure; /* 0 below warn, 1 at or above warn, 2 at or above alarm */
};
FARLOG_API void farlog_writer_cursors(farlog_writer *writer, struct farlog_cursors *cursors);

/* ---------------------------------------------------------------- shared writer */

typedef struct farlog_shared farlog_shared;

/* farlog_shared_open -- one writer for up to 64 threads at a time; same configuration and errors as
 * farlog_writer_open. */
FARLOG_API int farlog_shared_open(const char *uri, const struct farlog_writer_config *config, farlog_shared **shared,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_shared_append -- append from any thread. Threads write their records side by side and share the flush;
 * acknowledgements are in LSN order. Results as farlog_append; UNKNOWN and FULL also behind a thread that is held
 * up. */
FARLOG_API int farlog_shared_append(farlog_shared *shared, const struct farlog_entry *entry, uint64_t deadline_ns,
	struct farlog_position *position) FARLOG_MUST_CHECK;
FARLOG_API int farlog_shared_resolve(
	farlog_shared *shared, uint64_t lsn, uint64_t deadline_ns, struct farlog_position *position) FARLOG_MUST_CHECK;
FARLOG_API void farlog_shared_cursors(farlog_shared *shared, struct farlog_cursors *cursors);
FARLOG_API const struct farlog_recovery *farlog_shared_recovery(const farlog_shared *shared);
FARLOG_API const struct farlog_contract *farlog_shared_contract(const farlog_shared *shared);

/* farlog_shared_close -- refuse new appends (CLOSED), wait for those under way, flush, free. */
FARLOG_API int farlog_shared_close(farlog_shared *shared);

#ifdef __cplusplus
}
#endif
#endif
