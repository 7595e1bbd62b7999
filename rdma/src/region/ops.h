/* region/ops.h -- what a kind of region does: the tables that it fills in. Each pointer is set: a kind that has nothing
 * to do at some point names the function of region/plain.c or region/alone.c that says so. */
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
	REGION_ROLE_READER = 3,  /* has no lock */
	REGION_ROLE_TAILS = 4,   /* of a far client alone: a reader of the target's page of tails, in place of a ring */
	REGION_ROLE_OPENING = 5, /* of a device with many rings: a lock for all of them, held while one is opened */
};

enum region_claim_kind {
	REGION_CLAIM_ALONE = 0,   /* a writer: those on other hosts are shut out */
	REGION_CLAIM_BESIDE = 1,  /* a drain, a fence: let in beside the writer */
	REGION_CLAIM_IF_FREE = 2, /* who formats: HELD where a writer on another host may live */
	/* of a ring in a directory: nothing; HELD where its last writer may live on another host */
	REGION_CLAIM_FORMER = 3,
	REGION_CLAIM_DONE = 4, /* a writer: its epoch is in the superblock, durably */
	/* the target: the last writer, of this epoch, is on a host that reaches the device no more */
	REGION_CLAIM_OUT = 5,
};

/* What whoever is going to write asks of a device that several hosts reach. */
struct region_claim {
	enum region_claim_kind kind;
	uint32_t epoch;           /* of a writer; 0 = none */
	const uint8_t *ring_uuid; /* 16 bytes; NULL = there is no ring yet */
	bool is_fence;            /* beside: to raise the fence */
	const char *uri;
};

/* Its bytes, and what makes them durable. */
struct region_data_ops {
	void (*write)(struct region *region, uint64_t off, const void *src, size_t len);
	/* As write, of a record that lies in several places; seals it on the way. */
	void (*gather)(struct region *region, uint64_t off, struct gather *gather);
	/* 0: started or already complete; tag_done tells. Negative: enum farlog_result. Never blocks longer than a
	 * fence. */
	int (*persist)(
		struct region *region, const struct region_span *spans, unsigned span_count, uint64_t tag) FARLOG_MUST_CHECK;
	/* Look what has come back. 0: tag_done is the last completed; negative: the persist under way failed and tag_done
	 * stays. */
	int (*poll)(struct region *region) FARLOG_MUST_CHECK;
	/* Block until poll's answer may have changed, at most timeout_ns. With is_spinning a moment: who waits polls. */
	void (*wait)(struct region *region, uint64_t timeout_ns);
	/* Send what persist has prepared, when nobody is going to wait for it. */
	void (*push)(struct region *region);
	int (*flush)(struct region *region, uint64_t off, uint64_t len) FARLOG_MUST_CHECK;
	void (*seal)(struct region *region);
	/* OK or IO; only a far region can fail. Blocks for the network there. */
	int (*read)(struct region *region, uint64_t off, void *dst, size_t len) FARLOG_MUST_CHECK;
	/* Bring these bytes from afar into what `base` shows: of a far drain or reader the header alone. OK, also
	 * where base is the region itself; IO. Blocks for the network. */
	int (*fetch)(struct region *region, uint64_t off, uint64_t len) FARLOG_MUST_CHECK;
	/* These bytes are going to be read next, in this order, at most two spans, and nothing will change them before they
	 * are: they may be fetched now. Takes the place of what was expected before; with none, nothing that was fetched is
	 * used. `at` counts the bytes of the log before the first: it goes on over the laps of a ring. Of a drain. Blocks
	 * no longer than a system call. */
	void (*expect)(struct region *region, uint64_t at, const struct region_span *spans, unsigned span_count);
	/* Bring fence and credit, which others store, into `base`; without urgency not more often than every few ms. Blocks
	 * a little. */
	void (*look)(struct region *region, bool is_urgent);
	void (*store_word)(struct region *region, uint64_t off, uint64_t value);
	/* Of a writer: store both hints, by another thread than its own, and where that waits for nothing durably.
	 * False: not now, ask again. Never blocks. Only with can_tell. */
	bool (*tell)(struct region *region, uint64_t tail_lsn, uint64_t durable_lsn);
	/* Map every page now, so that no append meets a page fault. Best effort. */
	void (*populate)(struct region *region);
	/* These bytes will not be read again soon: the pages that map them may go. */
	void (*forget)(struct region *region, uint64_t off, uint64_t len);
	/* What to poll(2) for in place of `wait`, at most room; 0: something has come back meanwhile, or it cannot be
	 * told. */
	unsigned (*sleepers)(struct region *region, int *fds, unsigned room);
};

/* What is another thing where a region is several rings that hold the same. One ring answers for itself:
 * REGION_ALONE. */
struct region_members_ops {
	/* Find the longest of their logs, bring it into base, and have all of them hold it, durably. Before a writer's
	 * epoch is opened, behind the locks. OK, CORRUPT, HELD, IO. Blocks for all of that. Alone: its log lies in base or
	 * is fetched. */
	int (*recover)(struct region *region, struct farlog_error *error) FARLOG_MUST_CHECK;
	/* Can as many as are needed give this level now? OK or LEVEL. Any thread. */
	int (*check_level)(struct region *region, uint32_t level, struct farlog_error *error) FARLOG_MUST_CHECK;
	/* The level of what lies from from_lsn on, none of which has been persisted yet. The writer's thread. Alone: it
	 * makes no difference. */
	void (*set_level)(struct region *region, uint32_t level, uint64_t from_lsn);
	/* Before an orderly close, behind a persist that is complete: let copies that were not waited for have it as well,
	 * at most timeout_ns. Alone: there are none. */
	void (*finish)(struct region *region, uint64_t timeout_ns);
	/* As farlog_writer_members, of its writer. Any thread. */
	unsigned (*view)(struct region *region, struct farlog_writer_member *members, unsigned room);
	/* As farlog_writer_replace_member, of a ring that is given in full. Any thread. Alone: UNSUPPORTED. */
	int (*replace)(struct region *region, unsigned member, const struct farlog_member_ring *ring,
		struct farlog_error *error) FARLOG_MUST_CHECK;
	/* From now on each tells in the writer's counters how it is. Alone: there is nothing beside the writer's own. */
	void (*count)(struct region *region, struct farlog_counters *counters);
};

/* Who may write here. */
struct region_fence_ops {
	/* Take or test the exclusive lock of a role, which the death of its process frees. 0, FARLOG_HELD, FARLOG_IO. Taken
	 * by region_lock. */
	int (*lock)(struct region *region, enum region_role role) FARLOG_MUST_CHECK;
	void (*unlock)(struct region *region, enum region_role role);
	int (*is_locked)(struct region *region, enum region_role role) FARLOG_MUST_CHECK;
	/* Have the device let this host write, and with REGION_CLAIM_ALONE no other writer's any more. OK, also where it
	 * has nothing of the kind; HELD, IO. Behind the role's lock. Blocks. */
	int (*claim)(struct region *region, const struct region_claim *claim, struct farlog_error *error) FARLOG_MUST_CHECK;
	/* Have a superblock stored here, durably, by who owns the header: of a far region its target, which looks at it
	 * first. Where that is this handle, is_persisted false leaves to the caller what makes it durable. OK, IO; FENCED:
	 * a later epoch has been granted; INVALID: it is not what may follow the one that is there. Blocks for the
	 * network. */
	int (*propose)(
		struct region *region, uint64_t off, const void *src, size_t len, bool is_persisted) FARLOG_MUST_CHECK;
	/* Give up the persist under way, and the connection with it. OK: nothing of it touches bytes on this side any more,
	 * nor lands behind what is sent later. NOT_YET: it still may. UNSUPPORTED: it ends by itself alone, or with close.
	 * Never blocks. */
	int (*cut)(struct region *region) FARLOG_MUST_CHECK;
};

/* The media as a whole, which rings may share: what it holds, and where in it they lie. */
struct region_block_ops {
	/* From now on the region is these bytes of it: base, offsets, size and locks are theirs. Counted from its very
	 * first byte, with extra_len; multiples of a block; before anything else is asked of it. OK; of blocks also
	 * NO_MEMORY, IO. UNSUPPORTED: it is one ring. */
	int (*narrow)(struct region *region, uint64_t off, uint64_t len) FARLOG_MUST_CHECK;
	/* Have `directory_copy` show DIRECTORY_TAILS_OFF bytes of the directory. OK; of blocks also NO_MEMORY, IO.
	 * Blocks. */
	int (*fetch_directory)(struct region *region) FARLOG_MUST_CHECK;
	/* Store whole lines, of blocks whole LBAs, of the directory, durably. OK or IO. Blocks. */
	int (*store_directory)(struct region *region, uint64_t off, const void *src, size_t len) FARLOG_MUST_CHECK;
	/* All of it zero, and durable, header first: a crash in the middle leaves no ring rather than a damaged one. OK, IO
	 * or NO_MEMORY. */
	int (*zero)(struct region *region) FARLOG_MUST_CHECK;
	/* What is there that is not farlog's, as text for people; "" = nothing, or it cannot be told. OK, UNSUPPORTED (text
	 * says what is missing), IO. */
	int (*name_foreign)(struct region *region, char *text, size_t room) FARLOG_MUST_CHECK;
	/* Remove the file of the whole region, durably: a name that a power cut brings back would be a ring of a stream
	 * that is no more. OK; INVALID: it has no file; IO with errno. */
	int (*unlink)(const struct region *region, const char *path) FARLOG_MUST_CHECK;
};

struct region_ops {
	struct region_data_ops data;
	struct region_fence_ops fence;
	struct region_members_ops members;
	struct region_block_ops block;
	void (*close)(struct region *region);
};

/* region_plain_... -- of a kind that has nothing of its own for it. wait: a moment. sleepers: none. fetch, look: what
 * others store is seen in base as it is stored. expect, push, populate, forget: nothing is to be done. tell: without
 * can_tell. claim: nobody comes from elsewhere. propose: write and persist do. cut: nothing that outlasts a call can be
 * ended. narrow, unlink: it is one ring, without a file. The directory, and zeros, are stored as records are.
 * name_foreign: it cannot be told. */
void region_plain_wait(struct region *region, uint64_t timeout_ns);
unsigned region_plain_sleepers(struct region *region, int *fds, unsigned room);
void region_plain_push(struct region *region);
int region_plain_fetch(struct region *region, uint64_t off, uint64_t len) FARLOG_MUST_CHECK;
void region_plain_expect(struct region *region, uint64_t at, const struct region_span *spans, unsigned span_count);
void region_plain_look(struct region *region, bool is_urgent);
bool region_plain_tell(struct region *region, uint64_t tail_lsn, uint64_t durable_lsn);
void region_plain_populate(struct region *region);
void region_plain_forget(struct region *region, uint64_t off, uint64_t len);
int region_plain_claim(
	struct region *region, const struct region_claim *claim, struct farlog_error *error) FARLOG_MUST_CHECK;
int region_plain_propose(
	struct region *region, uint64_t off, const void *src, size_t len, bool is_persisted) FARLOG_MUST_CHECK;
int region_plain_cut(struct region *region) FARLOG_MUST_CHECK;
int region_plain_narrow(struct region *region, uint64_t off, uint64_t len) FARLOG_MUST_CHECK;
int region_plain_fetch_directory(struct region *region) FARLOG_MUST_CHECK;
int region_plain_store_directory(struct region *region, uint64_t off, const void *src, size_t len) FARLOG_MUST_CHECK;
int region_plain_zero(struct region *region) FARLOG_MUST_CHECK;
int region_plain_name_foreign(struct region *region, char *text, size_t room) FARLOG_MUST_CHECK;
int region_plain_unlink(const struct region *region, const char *path) FARLOG_MUST_CHECK;

/* region_alone_... -- region_members_ops of one ring. */
int region_alone_recover(struct region *region, struct farlog_error *error) FARLOG_MUST_CHECK;
int region_alone_check_level(struct region *region, uint32_t level, struct farlog_error *error) FARLOG_MUST_CHECK;
void region_alone_set_level(struct region *region, uint32_t level, uint64_t from_lsn);
void region_alone_finish(struct region *region, uint64_t timeout_ns);
unsigned region_alone_view(struct region *region, struct farlog_writer_member *members, unsigned room);
int region_alone_replace(struct region *region, unsigned member, const struct farlog_member_ring *ring,
	struct farlog_error *error) FARLOG_MUST_CHECK;
void region_alone_count(struct region *region, struct farlog_counters *counters);

/* REGION_LOCKS -- region_fence_ops of a region that has locks, and nothing else that keeps anybody out. */
#define REGION_LOCKS(lock_op, unlock_op, is_locked_op) \
	{.lock = lock_op, \
		.unlock = unlock_op, \
		.is_locked = is_locked_op, \
		.claim = region_plain_claim, \
		.propose = region_plain_propose, \
		.cut = region_plain_cut}

/* REGION_BYTES -- region_block_ops of memory, and of what is no media of its own. */
#define REGION_BYTES(narrow_op, unlink_op) \
	{.narrow = narrow_op, \
		.fetch_directory = region_plain_fetch_directory, \
		.store_directory = region_plain_store_directory, \
		.zero = region_plain_zero, \
		.name_foreign = region_plain_name_foreign, \
		.unlink = unlink_op}

#define REGION_ALONE \
	{.recover = region_alone_recover, \
		.check_level = region_alone_check_level, \
		.set_level = region_alone_set_level, \
		.finish = region_alone_finish, \
		.view = region_alone_view, \
		.replace = region_alone_replace, \
		.count = region_alone_count}

#endif
