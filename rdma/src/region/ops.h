/* region/ops.h -- what a kind of region does: the tables that it fills in. Each pointer is set: a kind that has nothing
 * to do at some point names the function of region/defaults.c or region/single.c that says so. */
#ifndef FARLOG_REGION_OPS_H
#define FARLOG_REGION_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "farlog/farlog.h"
#include "ring/gather.h"

struct region;
struct farlog_counters;
struct farlog_member_ring;
struct farlog_writer_member;

struct region_span {
	uint64_t off;
	uint64_t len;
};

enum region_role {
	REGION_ROLE_WRITER = 0,
	REGION_ROLE_DRAIN = 1,
	REGION_ROLE_FORMAT = 2,
	REGION_ROLE_READER = 3,  /* takes no lock */
	REGION_ROLE_TAILS = 4,   /* only of a remote client: reads the target's page of tails instead of a ring */
	REGION_ROLE_OPENING = 5, /* of a device with many rings: one lock for all, held while one is opened */
};

enum region_claim_kind {
	REGION_CLAIM_EXCLUSIVE = 0, /* a writer: writers on other hosts are fenced */
	REGION_CLAIM_SHARED = 1,    /* a drain, or who raises the fence: admitted beside the writer */
	REGION_CLAIM_IF_FREE = 2,   /* who formats: HELD where a writer on another host may be alive */
	/* of a ring in a directory: claims nothing; HELD where its former writer may be alive on another host */
	REGION_CLAIM_CHECK_FORMER = 3,
	REGION_CLAIM_EPOCH_STORED = 4, /* a writer: its epoch is persistent in the superblock */
	/* the target: the former writer, of this epoch, is on a host that can no longer reach the device */
	REGION_CLAIM_FORMER_GONE = 5,
};

/* A request for the right to write to a device that several hosts can reach. */
struct region_claim {
	enum region_claim_kind kind;
	uint32_t epoch;           /* of a writer; 0 = none */
	const uint8_t *ring_uuid; /* 16 bytes; NULL = there is no ring yet */
	bool is_fence;            /* REGION_CLAIM_SHARED: to raise the fence */
	const char *uri;
};

/* Load and store the bytes, and make them durable. */
struct region_data_ops {
	void (*write)(struct region *region, uint64_t off, const void *src, size_t len);
	/* As write, of a record whose parts lie in several places. Computes the record's CRC while it copies. */
	void (*gather)(struct region *region, uint64_t off, struct gather *gather);
	/* OK: started, or already complete if tag_done equals tag. Else an enum farlog_result. Does not block, except for a
	 * memory fence. */
	int (*persist)(
		struct region *region, const struct region_span *spans, unsigned span_count, uint64_t tag) FARLOG_MUST_CHECK;
	/* Process completions. OK: tag_done is the last complete persist. Else an enum farlog_result: the persist in flight
	 * failed, and tag_done is unchanged. */
	int (*poll)(struct region *region) FARLOG_MUST_CHECK;
	/* Block until the result of poll may have changed, at most timeout_ns. With is_spinning it returns at once: the
	 * caller polls. */
	void (*wait)(struct region *region, uint64_t timeout_ns);
	/* Submit what persist has queued, when no caller is going to wait for it. */
	void (*push)(struct region *region);
	int (*flush)(struct region *region, uint64_t off, uint64_t len) FARLOG_MUST_CHECK;
	void (*seal)(struct region *region);
	/* OK or IO. Blocks for the network where the region is remote. */
	int (*read)(struct region *region, uint64_t off, void *dst, size_t len) FARLOG_MUST_CHECK;
	/* Copy these bytes from a remote region into `base`: for a remote drain or reader the header only. OK, also where
	 * base is the region itself; IO. Blocks for the network. */
	int (*fetch)(struct region *region, uint64_t off, uint64_t len) FARLOG_MUST_CHECK;
	/* Start to read the bytes that a drain reads next: at most two spans, in this order. Nobody may change them before
	 * they are read. Replaces the spans of the call before; span_count 0 discards what was prefetched. `at`: the LSN of
	 * the first byte. Blocks no longer than a system call. */
	void (*prefetch)(struct region *region, uint64_t at, const struct region_span *spans, unsigned span_count);
	/* Read fence word and credit, which others store, into `base`. is_urgent false: at most once every few ms.
	 * Blocks for at most one request. */
	void (*refresh_words)(struct region *region, bool is_urgent);
	void (*store_word)(struct region *region, uint64_t off, uint64_t value);
	/* Of a writer, called by another thread than the writer's: store both hints, durably where that needs no wait.
	 * False: not now, call again. Never blocks. Only with can_store_hints. */
	bool (*store_hints)(struct region *region, uint64_t tail_lsn, uint64_t durable_lsn);
	/* Map every page now, so that no append takes a page fault. Best effort. */
	void (*populate)(struct region *region);
	/* Unmap the pages of these bytes, which are not read again soon. */
	void (*drop_pages)(struct region *region, uint64_t off, uint64_t len);
	/* Fill in the descriptors to poll(2) in place of `wait`, at most count_max, and return their number. 0: a
	 * completion has arrived already, or this kind has no descriptors. */
	unsigned (*list_wait_fds)(struct region *region, int *fds, unsigned count_max);
};

/* Operations that differ where a region is several rings with the same records. REGION_SINGLE: of one ring. */
struct region_members_ops {
	/* Find the longest log of the members, copy it into base, and make it durable on all of them. Called with the locks
	 * held, before a writer opens its epoch. OK, CORRUPT, HELD, IO. Blocks until it is done. Single: does nothing. */
	int (*recover)(struct region *region, struct farlog_error *error) FARLOG_MUST_CHECK;
	/* Do as many members as are needed give this level now? OK or LEVEL. Any thread. */
	int (*check_level)(struct region *region, uint32_t level, struct farlog_error *error) FARLOG_MUST_CHECK;
	/* Set the level that records from from_lsn on need. None of them has been persisted yet. The writer's thread.
	 * Single: does nothing. */
	void (*set_level)(struct region *region, uint32_t level, uint64_t from_lsn);
	/* Before an orderly close, after the last persist is complete: wait, at most timeout_ns, for the members that no
	 * acknowledgement waited for. Single: there are none. */
	void (*finish_copies)(struct region *region, uint64_t timeout_ns);
	/* As farlog_writer_members, of its writer. Any thread. */
	unsigned (*list_members)(struct region *region, struct farlog_writer_member *members, unsigned count_max);
	/* As farlog_writer_replace_member, with all fields of the ring set. Any thread. Single: UNSUPPORTED. */
	int (*replace_member)(struct region *region, unsigned member, const struct farlog_member_ring *ring,
		struct farlog_error *error) FARLOG_MUST_CHECK;
	/* From now on each member reports its state in the writer's counters. Single: does nothing. */
	void (*attach_counters)(struct region *region, struct farlog_counters *counters);
};

/* Who may write here. */
struct region_fence_ops {
	/* Take or test the exclusive lock of a role, which the death of its process frees. 0, FARLOG_HELD, FARLOG_IO. Taken
	 * by region_lock. */
	int (*lock)(struct region *region, enum region_role role) FARLOG_MUST_CHECK;
	void (*unlock)(struct region *region, enum region_role role);
	int (*is_locked)(struct region *region, enum region_role role) FARLOG_MUST_CHECK;
	/* Make the device admit writes of this host, and with REGION_CLAIM_EXCLUSIVE reject those of all other writers. OK,
	 * also where the device has no reservations; HELD, IO. Called with the role's lock held. Blocks. */
	int (*claim)(struct region *region, const struct region_claim *claim, struct farlog_error *error) FARLOG_MUST_CHECK;
	/* Store a superblock durably. Of a remote region its target checks and stores it. Else this handle does, and
	 * is_persisted false leaves the persist to the caller. OK, IO; FENCED: a later epoch has been granted; INVALID:
	 * it is no valid successor of the present one. Blocks for the network. */
	int (*store_superblock)(
		struct region *region, uint64_t off, const void *src, size_t len, bool is_persisted) FARLOG_MUST_CHECK;
	/* Abort the persist in flight, and the connection with it. OK: it reads no local bytes any more, and cannot land
	 * after what is sent later. NOT_YET: it still may. UNSUPPORTED: it can only complete, or end with close. Never
	 * blocks. */
	int (*abort_persist)(struct region *region) FARLOG_MUST_CHECK;
};

/* The media as a whole, which rings may share. */
struct region_block_ops {
	/* Restrict the region to these bytes: base, offsets, size and locks become theirs. off counts from the first
	 * byte of the media; len includes extra_len; both are multiples of a block. Called before any other operation.
	 * OK; of blocks also NO_MEMORY, IO. UNSUPPORTED: the kind holds one ring. */
	int (*narrow)(struct region *region, uint64_t off, uint64_t len) FARLOG_MUST_CHECK;
	/* Make `directory_copy` point to DIRECTORY_TAILS_OFF bytes of the directory. OK; of blocks also NO_MEMORY, IO.
	 * Blocks. */
	int (*fetch_directory)(struct region *region) FARLOG_MUST_CHECK;
	/* Store whole lines of the directory durably; of blocks whole LBAs. OK or IO. Blocks. */
	int (*store_directory)(struct region *region, uint64_t off, const void *src, size_t len) FARLOG_MUST_CHECK;
	/* Zero the whole region durably, header first: a crash in the middle leaves no ring, not a damaged one. OK, IO or
	 * NO_MEMORY. Blocks. */
	int (*zero)(struct region *region) FARLOG_MUST_CHECK;
	/* Describe foreign contents (a file system, a partition table); "" = none found, or this kind cannot find any. OK,
	 * UNSUPPORTED (text names the missing tool), IO. */
	int (*name_foreign)(struct region *region, char *text, size_t size) FARLOG_MUST_CHECK;
	/* Remove the file of the whole region durably: a name that comes back after a power cut would be a ring of a
	 * deleted stream. OK; INVALID: it has no file; IO with errno. */
	int (*unlink)(const struct region *region, const char *path) FARLOG_MUST_CHECK;
};

struct region_ops {
	struct region_data_ops data;
	struct region_fence_ops fence;
	struct region_members_ops members;
	struct region_block_ops block;
	void (*close)(struct region *region);
};

/* region_default_... -- for kinds without an operation of their own. wait: one pause instruction. list_wait_fds: none.
 * fetch, refresh_words: base is the region, so there is nothing to copy. prefetch, push, populate, drop_pages: do
 * nothing. store_hints: for kinds without can_store_hints. claim: no other host reaches the region. store_superblock:
 * write and persist. abort_persist, narrow: UNSUPPORTED. unlink: INVALID, there is no file. fetch_directory,
 * store_directory, zero: by write and persist. name_foreign: finds nothing. */
void region_default_wait(struct region *region, uint64_t timeout_ns);
unsigned region_default_list_wait_fds(struct region *region, int *fds, unsigned count_max);
void region_default_push(struct region *region);
int region_default_fetch(struct region *region, uint64_t off, uint64_t len) FARLOG_MUST_CHECK;
void region_default_prefetch(struct region *region, uint64_t at, const struct region_span *spans, unsigned span_count);
void region_default_refresh_words(struct region *region, bool is_urgent);
bool region_default_store_hints(struct region *region, uint64_t tail_lsn, uint64_t durable_lsn);
void region_default_populate(struct region *region);
void region_default_drop_pages(struct region *region, uint64_t off, uint64_t len);
int region_default_claim(
	struct region *region, const struct region_claim *claim, struct farlog_error *error) FARLOG_MUST_CHECK;
int region_default_store_superblock(
	struct region *region, uint64_t off, const void *src, size_t len, bool is_persisted) FARLOG_MUST_CHECK;
int region_default_abort_persist(struct region *region) FARLOG_MUST_CHECK;
int region_default_narrow(struct region *region, uint64_t off, uint64_t len) FARLOG_MUST_CHECK;
int region_default_fetch_directory(struct region *region) FARLOG_MUST_CHECK;
int region_default_store_directory(struct region *region, uint64_t off, const void *src, size_t len) FARLOG_MUST_CHECK;
int region_default_zero(struct region *region) FARLOG_MUST_CHECK;
int region_default_name_foreign(struct region *region, char *text, size_t size) FARLOG_MUST_CHECK;
int region_default_unlink(const struct region *region, const char *path) FARLOG_MUST_CHECK;

/* region_single_... -- region_members_ops of one ring. */
int region_single_recover(struct region *region, struct farlog_error *error) FARLOG_MUST_CHECK;
int region_single_check_level(struct region *region, uint32_t level, struct farlog_error *error) FARLOG_MUST_CHECK;
void region_single_set_level(struct region *region, uint32_t level, uint64_t from_lsn);
void region_single_finish_copies(struct region *region, uint64_t timeout_ns);
unsigned region_single_list_members(struct region *region, struct farlog_writer_member *members, unsigned count_max);
int region_single_replace_member(struct region *region, unsigned member, const struct farlog_member_ring *ring,
	struct farlog_error *error) FARLOG_MUST_CHECK;
void region_single_attach_counters(struct region *region, struct farlog_counters *counters);

/* REGION_LOCKS -- region_fence_ops of a region that has locks and no other fencing. */
#define REGION_LOCKS(lock_op, unlock_op, is_locked_op) \
	{.lock = lock_op, \
		.unlock = unlock_op, \
		.is_locked = is_locked_op, \
		.claim = region_default_claim, \
		.store_superblock = region_default_store_superblock, \
		.abort_persist = region_default_abort_persist}

/* REGION_BYTES -- region_block_ops of memory, and of regions that have no media of their own. */
#define REGION_BYTES(narrow_op, unlink_op) \
	{.narrow = narrow_op, \
		.fetch_directory = region_default_fetch_directory, \
		.store_directory = region_default_store_directory, \
		.zero = region_default_zero, \
		.name_foreign = region_default_name_foreign, \
		.unlink = unlink_op}

#define REGION_SINGLE \
	{.recover = region_single_recover, \
		.check_level = region_single_check_level, \
		.set_level = region_single_set_level, \
		.finish_copies = region_single_finish_copies, \
		.list_members = region_single_list_members, \
		.replace_member = region_single_replace_member, \
		.attach_counters = region_single_attach_counters}

#endif
