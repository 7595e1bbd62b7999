/* farlog.h -- the one public header of libfarlog: a persistent log in far memory.
 *
 * A process formats a ring in a region, opens it as its one writer, and appends records. When append returns
 * FARLOG_OK the record is at the durability level that the position names. A drain reads whole records from the
 * ring, puts them into a store, and releases their space. docs/reference/format.md holds the bytes,
 * docs/explanation/durability.md what each level means on each kind of region.
 *
 * Conventions
 *   Results   0 or a negative enum farlog_result. FULL, NOT_YET and UNKNOWN are ordinary results.
 *   Errors    Cold calls (open, format, inspect) take a struct farlog_error and write one line of text that names
 *             the thing, its value and what was expected. It may be NULL. Hot calls return the code alone.
 *   Units     _ns nanoseconds, _lsn byte positions that never wrap, _bytes and _len bytes, _count things.
 *   Threads   A handle is used by one thread at a time, except farlog_shared, whose append may be called by many.
 *   Fork      Handles stay with the parent; a child opens its own, and closes none of those.
 *   Blocking  Stated at each function. No append, wait or resolve waits beyond its deadline ("What a deadline
 *             bounds" in docs/explanation/durability.md).
 *   Memory    No function keeps a pointer that it was given beyond its return. The bytes of an entry are read once; one
 *             that changes meanwhile gives a record of mixed bytes, but a valid one. (A claim of more than 4096 bytes
 *             is used in place: it must not change during farlog_commit.) append, try_append, submit, poll,
 *             wait, claim and commit allocate nothing, take no lock and make no system call of their own (msync
 *             regions: a helper thread makes it; waiting may sleep).
 */
#ifndef FARLOG_FARLOG_H
#define FARLOG_FARLOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#define FARLOG_API __attribute__((visibility("default")))
/* A result that is not looked at is a warning of the compiler. Closing alone may go without. */
#define FARLOG_MUST_CHECK __attribute__((warn_unused_result))
/* The one table of results: C, the Go sentinels and the Java enum are made from it. name, value, text. */
#define FARLOG_RESULT_TABLE(X) \
	X(OK, 0, "done") \
	X(FULL, -1, "ring is full: the drain has not yet freed enough space") \
	X(FENCED, -2, "writer is fenced: a higher epoch has been opened or ordered") \
	X(TOO_LARGE, -3, "record is larger than the ring's record_len_max") \
	X(CLOSED, -4, "handle is closed") \
	X(UNKNOWN, -5, "record may or may not be written: the deadline passed or the region failed") \
	X(NOT_YET, -6, "nothing new yet") \
	X(NOT_FOUND, -7, "no such record or file") \
	X(INVALID, -8, "argument is out of range") \
	X(HELD, -9, "another process holds this ring") \
	X(NOT_A_RING, -10, "region holds no ring of this kind") \
	X(CORRUPT, -11, "bytes on media fail their check") \
	X(LEVEL, -12, "region cannot give the durability level that was asked for") \
	X(IO, -13, "input or output failed") \
	X(NO_MEMORY, -14, "out of memory") \
	X(EXISTS, -15, "region already holds a ring") \
	X(OVERRUN, -16, "reader was overtaken: the writer reused the bytes it was to read") \
	X(UNSUPPORTED, -17, "not supported on this machine or by this build")

enum farlog_result {
#define FARLOG_RESULT_ENUM(name, value, text) FARLOG_##name = (value),
	FARLOG_RESULT_TABLE(FARLOG_RESULT_ENUM)
#undef FARLOG_RESULT_ENUM
};

/* The version of this header. Before 1.0 another minor number may change structures and functions: a program that loads
 * the library at run time compares it with farlog_version, which gives that of the library. */
#define FARLOG_VERSION "0.1.0"
FARLOG_API const char *farlog_version(void);

/* farlog_result_name -- "FULL" for FARLOG_FULL; never NULL. farlog_result_text -- its sentence. */
FARLOG_API const char *farlog_result_name(int result);
FARLOG_API const char *farlog_result_text(int result);

struct farlog_error {
	int32_t result;   /* enum farlog_result */
	int32_t os_errno; /* errno of the call that failed, 0 = none */
	char text[504];   /* one line, no newline at the end */
};

/* Durability levels, weakest first. An acknowledgement carries the one that was reached. */
enum farlog_level {
	FARLOG_LEVEL_NONE = 0,
	FARLOG_LEVEL_POSTED = 1,     /* handed over; survives nothing yet */
	FARLOG_LEVEL_VISIBLE = 2,    /* survives this process */
	FARLOG_LEVEL_PERSISTENT = 3, /* survives a power cut; `copies` says on how many regions */
	FARLOG_LEVEL_STORED = 4,     /* in the central store, synced */
	FARLOG_LEVEL_ARCHIVED = 5,
};
FARLOG_API const char *farlog_level_name(int level);

/* ---------------------------------------------------------------- regions */

enum farlog_region_kind {
	FARLOG_REGION_FILE = 1,   /* mem: plain file, page cache + msync */
	FARLOG_REGION_TMPFS = 2,  /* mem: tmpfs */
	FARLOG_REGION_FSDAX = 3,  /* mem: file on a DAX file system, MAP_SYNC */
	FARLOG_REGION_DEVDAX = 4, /* mem: /dev/daxX.Y */
	FARLOG_REGION_BAR = 5,    /* mem: PCI resource file */
	FARLOG_REGION_FAULT = 6,  /* fault: adversarial memory, only in test builds */
	FARLOG_REGION_BLOCK = 7,
	FARLOG_REGION_MEMBERS = 8, /* nvme: block device, raw; members: several rings */
};

enum farlog_flush_method {
	FARLOG_FLUSH_NONE = 0,
	FARLOG_FLUSH_CLWB = 1,
	FARLOG_FLUSH_CLFLUSHOPT = 2,
	FARLOG_FLUSH_NT_STORE = 3, /* non-temporal stores, then sfence */
	FARLOG_FLUSH_CVAP = 4,     /* arm64 dc cvap, then dsb */
	FARLOG_FLUSH_MSYNC = 5,
	FARLOG_FLUSH_FAULT = 6,
	FARLOG_FLUSH_RDMA_FLUSH = 7,    /* verbs: native FLUSH of all that was written */
	FARLOG_FLUSH_RDMA_READ = 8,     /* verbs: a READ behind the WRITE on the same queue pair */
	FARLOG_FLUSH_TARGET_CPU = 9,    /* the target's processor flushes and answers */
	FARLOG_FLUSH_OFI_COMMIT = 10,   /* libfabric: FI_COMMIT_COMPLETE */
	FARLOG_FLUSH_OFI_DELIVERY = 11, /* libfabric: FI_DELIVERY_COMPLETE, visible only */
	/* nvme: forced by the device; by the kernel; no cache forgets */
	FARLOG_FLUSH_FUA = 12,
	FARLOG_FLUSH_DSYNC = 13,
	FARLOG_FLUSH_WRITE = 14
};

/* What a region's owner attests: the highest level its flush gives, and how that was found out. */
struct farlog_contract {
	uint32_t kind;         /* enum farlog_region_kind */
	uint32_t flush_method; /* enum farlog_flush_method */
	uint32_t level;        /* enum farlog_level: the highest this region can give */
	uint32_t granularity;  /* bytes that one flush covers: 64, 4096 or an LBA */
	uint32_t atomic_unit;  /* bytes that a power cut never tears: 8 or an LBA */
	uint32_t is_read_back; /* 1: a read from the region completes the flush (BAR) */
	uint64_t size_bytes;   /* of the whole region; 0 = does not exist yet */
	uint64_t deadline_default_ns;
	char kind_name[16];
	char flush_name[16];
	char probe[160]; /* what was looked at to know this */
};

/* farlog_region_probe -- read a region's contract, not its bytes. uri: "nvme:/dev/...[?flush=auto|fua|dsync|write]",
 * "mem:/path[?flush=auto|clwb|clflushopt|nt|msync&attest=memory_controller|cpu_cache|bar]". flush= overrides the method
 * and never raises the level; attest= does. With ring= the size is that of the whole region. Blocks for file system
 * calls. */
FARLOG_API int farlog_region_probe(
	const char *uri, struct farlog_contract *contract, struct farlog_error *error) FARLOG_MUST_CHECK;

/* ---------------------------------------------------------------- rings */

#define FARLOG_STREAM_NAME_LEN 64
#define FARLOG_WRITER_ID_LEN 128
#define FARLOG_TOKEN_LEN 16

struct farlog_ring_config {
	uint64_t size_bytes;     /* of the region; multiple of 4096; 0 = the device's or file's own size */
	uint32_t align;          /* 0 = 64 */
	uint32_t record_len_max; /* 0 = 1 MiB or a quarter of the ring, whichever is less */
	uint32_t stream_id;
	uint32_t is_forced;      /* 1: format although a ring is there. Never while somebody holds it. */
	uint64_t salt;           /* 0 = random */
	const char *stream_name; /* NULL = "" */
};

/* farlog_ring_format -- make a new, empty ring and persist it. Creates the file where the path names none.
 * Errors: EXISTS (is_forced not set), HELD, INVALID, IO, UNSUPPORTED. Blocks for the media. */
FARLOG_API int farlog_ring_format(
	const char *uri, const struct farlog_ring_config *config, struct farlog_error *error) FARLOG_MUST_CHECK;

struct farlog_ring_status {
	uint8_t ring_uuid[16];
	uint64_t salt;
	uint64_t capacity_bytes;
	uint32_t align;
	uint32_t record_len_max;
	uint32_t stream_id;
	uint32_t writer_epoch;
	uint32_t epoch_min;
	uint32_t is_writer_held; /* 1: a living process holds the writer's lock */
	uint32_t is_drain_held;
	uint32_t last_epoch; /* of the last drained record */
	uint64_t head_lsn;
	uint64_t head_seq;
	uint64_t credit_lsn;
	uint64_t appended_lsn; /* from the writer's counters when it lives, else by scan */
	uint64_t durable_lsn;  /* above appended_lsn: records up to here were acknowledged, and cannot be read */
	uint64_t epoch_start_lsn;
	uint64_t epoch_start_seq;
	uint64_t epoch_opened_ns;
	uint64_t created_ns;
	uint64_t lag_bytes; /* the higher of appended and durable - head */
	uint64_t lag_records;
	uint64_t oldest_ts_ns; /* ts of the oldest undrained record, 0 = none */
	uint64_t newest_ts_ns; /* ts of the newest undrained record found by the scan, 0 = none */
	char stream_name[FARLOG_STREAM_NAME_LEN];
	char writer_id[FARLOG_WRITER_ID_LEN];
	struct farlog_contract contract;
};

/* farlog_ring_inspect -- identity, cursors and lag of a ring, read only, beside any writer and drain. Reads the record
 * at the head and, when no writer lives, scans the undrained part. Errors: NOT_FOUND, NOT_A_RING, CORRUPT, IO. */
FARLOG_API int farlog_ring_inspect(
	const char *uri, struct farlog_ring_status *status, struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_ring_fence -- order that writers below epoch_min stop, and persist the order. A living writer returns
 * FENCED from its next call; that the old writer is gone is confirmed only when farlog_writer_open succeeds,
 * because it holds the ring's lock until it closes or dies. Never lowers the fence. Errors: INVALID (more than 65536
 * above the ring's last epoch), HELD (another fence is under way), NOT_FOUND, NOT_A_RING, IO. */
FARLOG_API int farlog_ring_fence(const char *uri, uint32_t epoch_min, struct farlog_error *error) FARLOG_MUST_CHECK;

/* A region may hold many rings, behind a directory at its start: "mem:/dev/dax0.0?ring=desk7/orders".
 * farlog_ring_format makes the ring where the first room for config->size_bytes is, and the directory where the region
 * is blank; a file that is missing is made with ?size= bytes. Its own errors: FULL (no room: the text says how much is
 * free), EXISTS and NOT_A_RING (the region holds one ring, or foreign bytes). A ring of a directory is opened, drained,
 * inspected, fenced and served like any other, and has locks of its own. A name has 1 to 63 bytes without '&'. */

enum farlog_ring_state {
	FARLOG_RING_READY = 1,
	FARLOG_RING_BLANK = 2,   /* formatting it anew was cut short: format it again */
	FARLOG_RING_DAMAGED = 3, /* both superblocks or both head slots fail their check */
};

struct farlog_region_ring {
	uint64_t offset_bytes; /* of the ring in its region */
	uint64_t size_bytes;
	uint64_t generation; /* of the directory when the ring was made: no two rings of a region have the same */
	uint64_t created_ns;
	uint32_t state; /* enum farlog_ring_state */
	uint32_t reserved;
	char name[FARLOG_STREAM_NAME_LEN];
};

struct farlog_region_status {
	uint8_t region_uuid[16];
	uint64_t generation; /* of the directory: +1 for every ring made or removed */
	uint64_t size_bytes;
	uint64_t free_bytes;
	uint64_t largest_free_bytes; /* the largest ring that can be made */
	uint32_t ring_count;
	uint32_t ring_count_max;
};

/* farlog_region_list -- the rings of a region with a directory, in the order of their places: at most `room` of them;
 * status->ring_count says how many there are. Read only, beside whoever uses them. Errors: NOT_FOUND (no such region,
 * or a blank one), EXISTS (it is one ring), NOT_A_RING, CORRUPT, UNSUPPORTED, IO. */
FARLOG_API int farlog_region_list(const char *uri, struct farlog_region_status *status,
	struct farlog_region_ring *rings, uint32_t room, struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_ring_remove -- take the ring of ?ring= out of its region's directory; its space may then hold another. A ring
 * that has a file of its own goes with it. Errors: NOT_FOUND, NOT_A_RING, HELD (a writer or drain lives), EXISTS
 * (undrained records, is_forced is 0), CORRUPT, IO. Blocks for the media. */
FARLOG_API int farlog_ring_remove(const char *uri, int is_forced, struct farlog_error *error) FARLOG_MUST_CHECK;

/* ---------------------------------------------------------------- writer */

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
 * level asked for and the contract's), FENCED (config->epoch too low), CORRUPT, FULL (no room for the EPOCH record),
 * IO. Blocks for the scan of the undrained part (about one CRC pass over it); of a ring on another host also for
 * connecting (5 s) and for fetching that part: a connection that breaks meanwhile is made again until 10 s after the
 * first. */
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

/* farlog_submit -- write one record without waiting for durability. Never blocks; FULL when there is no room.
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

/* farlog_claim -- room for a payload of `len` bytes in the staging buffer, to be filled in place. One claim at a time:
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

/* ---------------------------------------------------------------- reader and drain */

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
};

struct farlog_batch {
	uint64_t first_lsn;
	uint64_t next_lsn; /* position after the last record of the batch */
	uint64_t next_seq;
	uint64_t record_count; /* PADs not counted */
	uint32_t last_epoch;
	uint32_t
		is_rewound; /* 1: the log went back: records from first_lsn on replace, with a higher epoch, ones read before that
					   a crash of the region had undone before they were acknowledged */
	uint64_t len;   /* bytes used in the buffer */
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
 * come, try again; HELD, for good: another drain has taken the place of this one, or another client has come with the
 * token of its grant. */
FARLOG_API int farlog_reader_read(
	farlog_reader *reader, void *buf, size_t buf_len, struct farlog_batch *batch) FARLOG_MUST_CHECK;

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

/* ---------------------------------------------------------------- target */

/* A target lets far writers and drains into rings of this process's host: by verbs or by libfabric, each only with a
 * grant that the target was told of. It owns the regions' mappings; a local drain or inspection may go on beside it.
 * Threads: all functions from any thread; each transport has a thread of its own. */
typedef struct farlog_target farlog_target;

/* farlog_target_open -- listen. uri: "verbs://host:port" or "ofi:tcp://host:port[?wait=spin|block]"; port 0 takes a
 * free one (farlog_target_uri tells). Errors: INVALID, UNSUPPORTED (library or device not there), IO (port in use). */
FARLOG_API int farlog_target_open(
	const char *uri, farlog_target **target, struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_target_uri -- where it listens: "ofi:tcp://127.0.0.1:7471". */
FARLOG_API const char *farlog_target_uri(const farlog_target *target);

/* What survives a power cut, in the words of the kernel's persistence_domain of an nvdimm region. */
enum farlog_persistence_domain {
	FARLOG_DOMAIN_UNKNOWN = 0,           /* the kernel names none */
	FARLOG_DOMAIN_MEMORY_CONTROLLER = 1, /* what the memory controller accepted (ADR) */
	FARLOG_DOMAIN_CPU_CACHE = 2          /* also what is in a processor's cache (eADR) */
};

/* Why a READ behind a WRITE, on the same queue pair, makes the WRITE persistent. */
enum farlog_read_flush {
	FARLOG_READ_FLUSH_NONE = 0,
	/* the card's writes pass the processor's caches by; the READ pushes them to the memory controller */
	FARLOG_READ_FLUSH_DDIO_OFF = 1,
	FARLOG_READ_FLUSH_EADR = 2, /* the caches survive as well; the READ pushes the writes into them */
	FARLOG_READ_FLUSH_BAR = 3   /* a PCI device's memory, which no cache holds */
};

#define FARLOG_ATTESTED_BY_LEN 25 /* with the 0 at its end: all of it has to fit a far client's contract */
/* What the operator of a target's host says of a region because no program finds it out; domain, BAR: as attest= */
struct farlog_attestation {
	uint32_t read_flush; /* enum farlog_read_flush */
	uint32_t domain;     /* enum farlog_persistence_domain; UNKNOWN = not attested: the kernel's word counts */
	/* 1: a READ of any of its bytes flushes all WRITEs before it, not only one of those written last. With a
	 * read_flush */
	uint32_t is_any_read;
	const char *by;   /* who: 1 to FARLOG_ATTESTED_BY_LEN - 1 bytes */
	const char *date; /* "2026-11-21" */
	/* of libfabric, "tcp": its FI_COMMIT_COMPLETE comes after a flush by this host's processor. At most 15 bytes; NULL
	 * = none */
	const char *commit_provider;
};

/* farlog_target_attest -- rings of this region that are served from now on have, beyond what is probed, what is
 * attested: with read_flush far writers are offered FARLOG_FLUSH_RDMA_READ, with is_any_read by a READ of the head,
 * which is their credit as well; with commit_provider, at a target that listens by it, FARLOG_FLUSH_OFI_COMMIT.
 * region_uri: its path is what counts. Errors: INVALID, of what contradicts the probe, names key, value and what was
 * expected; EXISTS: it is attested already; and as farlog_region_probe. */
FARLOG_API int farlog_target_attest(farlog_target *target, const char *region_uri,
	const struct farlog_attestation *attestation, struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_target_serve -- open a formatted ring and let granted clients reach it as <target uri>/<name>. tenant: rings
 * of different tenants are in different protection domains; NULL = one for all. Errors: EXISTS (name taken), and as
 * farlog_reader_open. */
FARLOG_API int farlog_target_serve(farlog_target *target, const char *name, const char *region_uri, const char *tenant,
	struct farlog_error *error) FARLOG_MUST_CHECK;

enum farlog_grant_role {
	FARLOG_GRANT_WRITER = 0,
	FARLOG_GRANT_DRAIN = 1,
	FARLOG_GRANT_READER = 3,
};

struct farlog_grant {
	uint8_t token[FARLOG_TOKEN_LEN]; /* drawn at random by who grants; all zero is refused */
	uint32_t role;                   /* enum farlog_grant_role */
	uint32_t epoch;                  /* of a writer */
	uint64_t expires_ns;             /* UTC; admission ends then, a connection does not; 0 = never */
};

/* farlog_target_grant -- from now on a client with this token is let in, in this role. A writer is let in once no
 * writer of a lower epoch is: fence it first. Errors: NOT_FOUND (no such ring), FENCED (epoch below the ring's floor:
 * nobody is let in by it, but who comes with its token is told that it is fenced; so a target that was started again is
 * told of the writers that were fenced before), INVALID. */
FARLOG_API int farlog_target_grant(farlog_target *target, const char *name, const struct farlog_grant *grant,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_target_fence -- make writers of epochs below epoch_min unable to write: their connections are torn down and
 * their keys invalid, then the floor is persisted. OK is the confirmation: nothing of theirs lands any more, the log
 * ends at *tail_lsn (may be NULL). IO: not confirmed; the text says what device or media did not do, and no other
 * writer is let in until a fence is. A fenced client's append gives FENCED. Blocks for the transport and the media. */
FARLOG_API int farlog_target_fence(farlog_target *target, const char *name, uint32_t epoch_min, uint64_t *tail_lsn,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_target_forget -- end a ring: its connections are torn down, its grants forgotten. NOT_FOUND; IO: a client may
 * still write to it, and it stays. */
FARLOG_API int farlog_target_forget(
	farlog_target *target, const char *name, struct farlog_error *error) FARLOG_MUST_CHECK;

#define FARLOG_TARGET_COUNTER_TABLE(X) \
	X(admitted_count, "counter", "Connections let in.") \
	X(refused_count, "counter", "Connections refused: grant, epoch, ring or version.") \
	X(fenced_count, "counter", "Connections torn down by a fence.") \
	X(lost_count, "counter", "Connections that ended by an error.") \
	X(denied_count, "counter", "Operations of a peer that the device refused.") \
	X(registration_count, "counter", "Connections by verbs whose key is a registration: no window was bound.") \
	X(request_count, "counter", "Requests served.") \
	X(flush_count, "counter", "Flushes by this host's processor.") \
	X(bad_request_count, "counter", "Requests that made no sense.") \
	X(writer_count, "gauge", "Writers connected.") X(drain_count, "gauge", "Drains connected.")

struct farlog_target_counters {
#define FARLOG_TARGET_COUNTER_FIELD(name, kind, help) uint64_t name;
	FARLOG_TARGET_COUNTER_TABLE(FARLOG_TARGET_COUNTER_FIELD)
#undef FARLOG_TARGET_COUNTER_FIELD
};

/* farlog_target_counters_read -- of one ring. NOT_FOUND. */
FARLOG_API int farlog_target_counters_read(
	farlog_target *target, const char *name, struct farlog_target_counters *counters) FARLOG_MUST_CHECK;

/* farlog_target_close -- tear down all connections, stop, free. Safe on NULL. */
FARLOG_API void farlog_target_close(farlog_target *target);

/* ---------------------------------------------------------------- counters */

/* One table for every number a writer exports: name, kind ("counter" or "gauge"), help. Shared memory, one writer,
 * readable by any process at any time, also after the writer's death. */
#define FARLOG_COUNTER_TABLE(X) \
	X(appended_lsn, "gauge", "First LSN not yet appended.") \
	X(durable_lsn, "gauge", "First LSN not yet durable at the writer's level.") \
	X(credit_lsn, "gauge", "First LSN not yet stored, as the writer knows it.") \
	X(capacity_bytes, "gauge", "Size of the ring's data.") \
	X(epoch, "gauge", "Epoch of the writer.") \
	X(level, "gauge", "Durability level of acknowledgements.") \
	X(pid, "gauge", "Process of the writer.") \
	X(pressure, "gauge", "0 below warn, 1 at or above warn, 2 at or above alarm.") \
	X(clock_err_ns, "gauge", "Bound on the error of timestamps; 4294967295 = unknown.") \
	X(record_count, "counter", "Records appended.") \
	X(payload_bytes, "counter", "Payload and key bytes appended.") \
	X(flush_count, "counter", "Flushes completed.") \
	X(full_count, "counter", "Appends refused because the ring was full.") \
	X(fenced_count, "counter", "Appends refused because the writer was fenced.") \
	X(unknown_count, "counter", "Appends whose outcome was unknown at their deadline.") \
	X(too_large_count, "counter", "Appends refused because the record was too large.") \
	X(warn_count, "counter", "Times the ring passed its warning mark.") \
	X(alarm_count, "counter", "Times the ring passed its alarm mark.") \
	X(orphan_count, "counter", \
		"Records behind an unreadable one, dropped when this writer opened: whether they were acknowledged is not " \
		"known.")

#define FARLOG_HISTOGRAM_BUCKET_COUNT 1408

/* Log-linear histogram of append latencies in ns: 32 buckets an octave, at most 3.2 % wide.
 * farlog_histogram_bucket_ns gives the upper bound of bucket i. */
struct farlog_counters {
#define FARLOG_COUNTER_FIELD(name, kind, help) uint64_t name;
	FARLOG_COUNTER_TABLE(FARLOG_COUNTER_FIELD)
#undef FARLOG_COUNTER_FIELD
	uint64_t latency_count;
	uint64_t latency_sum_ns;
	uint64_t latency_max_ns;
	uint64_t latency_bucket[FARLOG_HISTOGRAM_BUCKET_COUNT];
};

/* farlog_counters_read -- copy the counters of the ring's present or last writer. NOT_FOUND: none were exported on this
 * machine. */
FARLOG_API int farlog_counters_read(const char *counters_dir, const uint8_t ring_uuid[16],
	struct farlog_counters *counters, struct farlog_error *error) FARLOG_MUST_CHECK;
FARLOG_API uint64_t farlog_histogram_bucket_ns(unsigned bucket);
/* farlog_histogram_quantile_ns -- quantile in [0, 1]; 1 gives the maximum recorded. 0 when nothing was recorded. */
FARLOG_API uint64_t farlog_histogram_quantile_ns(const struct farlog_counters *counters, double quantile);

#ifdef __cplusplus
}
#endif
#endif
