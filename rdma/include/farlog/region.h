/* region.h -- libfarlog: regions, and the rings in them: contract, format, inspect, fence, remove. Part of farlog.h. */
#ifndef FARLOG_PUBLIC_REGION_H
#define FARLOG_PUBLIC_REGION_H

#include "result.h"

#ifdef __cplusplus
extern "C" {
#endif

enum farlog_region_kind {
	FARLOG_REGION_FILE = 1,    /* mem: plain file, page cache + msync */
	FARLOG_REGION_TMPFS = 2,   /* mem: tmpfs */
	FARLOG_REGION_FSDAX = 3,   /* mem: file on a DAX file system, MAP_SYNC */
	FARLOG_REGION_DEVDAX = 4,  /* mem: /dev/daxX.Y */
	FARLOG_REGION_BAR = 5,     /* mem: PCI resource file */
	FARLOG_REGION_FAULT = 6,   /* fault: adversarial memory, only in test builds */
	FARLOG_REGION_BLOCK = 7,   /* nvme: block device, raw */
	FARLOG_REGION_MEMBERS = 8, /* members: several rings */
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
	FARLOG_FLUSH_FUA = 12,          /* nvme: forced by the device */
	FARLOG_FLUSH_DSYNC = 13,        /* nvme: forced by the kernel */
	FARLOG_FLUSH_WRITE = 14,        /* nvme: no volatile cache */
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

#define FARLOG_STREAM_NAME_LEN 64
#define FARLOG_WRITER_ID_LEN 128
#define FARLOG_TOKEN_LEN 16

/* How key and payload of the application's records are written. */
enum farlog_encryption {
	FARLOG_ENCRYPTION_NONE = 0,
	FARLOG_ENCRYPTION_AES_256_GCM = 1,
};

struct farlog_ring_config {
	uint64_t size_bytes;     /* of the region; multiple of 4096; 0 = the device's or file's own size */
	uint32_t align;          /* 0 = 64 */
	uint32_t record_len_max; /* 0 = 1 MiB or a quarter of the ring, whichever is less */
	uint32_t stream_id;
	uint32_t is_forced;      /* 1: format although a ring is there. Never while somebody holds it. */
	uint64_t salt;           /* 0 = random */
	const char *stream_name; /* NULL = "" */
	uint32_t encryption;     /* enum farlog_encryption: of all records that applications append, for good */
	uint32_t reserved;
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
	uint32_t encryption; /* enum farlog_encryption */
	uint32_t reserved;
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
 * farlog_ring_format makes the ring in the first gap of config->size_bytes, and the directory where the region was
 * never written; a file that is missing is made with ?size= bytes. Its own errors: FULL (no free space: the text says
 * how much is free), EXISTS and NOT_A_RING (the region holds one ring, or foreign bytes). A ring of a directory is
 * opened, drained, inspected, fenced and served like any other, and has locks of its own. A name has 1 to 63 bytes
 * without '&'. */

enum farlog_ring_state {
	FARLOG_RING_READY = 1,
	FARLOG_RING_UNFORMATTED = 2, /* formatting it again was cut short: format it again */
	FARLOG_RING_DAMAGED = 3,     /* both superblocks or both head slots fail their check */
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

/* farlog_region_list -- the rings of a region with a directory, in the order of their places: at most `count_max` of
 * them; status->ring_count says how many there are. Read only, beside whoever uses them. Errors: NOT_FOUND (no such
 * region, or one that was never written), EXISTS (it is one ring), NOT_A_RING, CORRUPT, UNSUPPORTED, IO. */
FARLOG_API int farlog_region_list(const char *uri, struct farlog_region_status *status,
	struct farlog_region_ring *rings, uint32_t count_max, struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_ring_remove -- take the ring of ?ring= out of its region's directory; its space may then hold another. A ring
 * that has a file of its own goes with it. Errors: NOT_FOUND, NOT_A_RING, HELD (a writer or drain lives), EXISTS
 * (undrained records, is_forced is 0), CORRUPT, IO. Blocks for the media. */
FARLOG_API int farlog_ring_remove(const char *uri, int is_forced, struct farlog_error *error) FARLOG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
