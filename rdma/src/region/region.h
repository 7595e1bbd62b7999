/* region/region.h -- the seam to media: a byte range with a persistence contract. Knows bytes and durability, not
 * records.
 *
 * The product and the crash tests come in by this same seam. Rules of the seam:
 *   write    queues whole lines (64-byte aligned, multiple of 64). Nothing is durable yet.
 *   persist  starts to make the given spans durable: every byte that this handle wrote to them before the call. At most
 *            one persist is in flight. When it is complete, tag_done is its tag: at once, or after a poll.
 *   flush    makes all bytes there durable, whoever stored them. Recovery flushes before it relies on the bytes of a
 *            dead process, which may still be in a cache. Blocks.
 *   seal     orders this thread's writes before the publication of its record to other threads. Only concurrent writing
 *            threads need it: a flush on one core does not cover the writes of another.
 *   word     8 aligned bytes, stored atomically. Durable only after a flush over them; a persist may leave them out. */
#ifndef FARLOG_REGION_H
#define FARLOG_REGION_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomics.h"
#include "farlog/farlog.h"
#include "farlog/member.h"
#include "ring/gather.h"
#include "region/ops.h"
#include "ring/layout.h"

struct region;
struct staging;

/* Capabilities of a region, and what it requires of its users. Set when it is opened, constant afterwards. Code above
 * the seam tests these, never the kind. */
struct region_caps {
	bool has_copy;          /* a writer builds records in `base`, a copy on this host; persist sends them */
	bool needs_fetch;       /* base holds only what fetch has copied; reads and word stores are requests */
	bool is_remote;         /* a target owns the bytes */
	bool reports_log_end;   /* a fence is reported together with the end of the fenced writer's log */
	bool is_claimable;      /* several hosts may reach the device: `claim` before writing */
	bool words_by_poll;     /* poll also does what `refresh_words` does */
	bool is_spinning;       /* there is no event to sleep for: callers poll for a persist */
	bool can_store_hints;   /* another thread may call store_hints; else the region stores hints itself, or has none */
	bool can_prefetch;      /* prefetch reads ahead for a drain */
	bool may_land_late;     /* a persist that failed may still land */
	bool is_load_slow;      /* a load crosses a bus (BAR): too slow for appends, so persist sets fence_copy */
	bool is_seal_durable;   /* sealed bytes are durable without a further flush (memory, not msync) */
	bool has_checked_rings; /* opening checked each ring's identity and loss */
	bool needs_epoch_room;  /* a full ring keeps free space for the next EPOCH record */
	uint32_t commit_len;    /* a commit is whole LBAs of this many bytes; 0: it may end at any line */
	uint64_t hint_interval_ns; /* minimum interval between two stores of hints */
	/* how long a target may still process requests of a broken connection before the ring may be reopened. 0: none */
	uint64_t reopen_delay_ns;
	uint64_t extra_len; /* bytes that a ring takes of the media beyond size_bytes */
};

#define REGION_HINT_STORE_NS 100000u
/* a hint that is a work request with a doorbell of its own: an append may take longer than REGION_HINT_STORE_NS */
#define REGION_HINT_REQUEST_NS 5000000u

/* Sleeps for a persist in flight. Each ends by an event, or expires after the caller's timeout. */
struct region_waits {
	uint64_t count;
	uint64_t expired_count;
};

struct region {
	const struct region_ops *ops;
	struct region_caps caps;
	struct farlog_contract contract;
	uint64_t tag; /* of the last persist that was started; each takes the next */
	/* of the last persist known to be complete; stored by the thread that calls persist or poll */
	uint64_t tag_done;
	const uint8_t *base; /* the bytes for direct loads; of a remote drain or reader only the header */
	/* the append path may write records here with ring/stream.h instead of calling `gather`, with non-temporal stores
	 * unless it is a copy; NULL: it must call gather */
	uint8_t *streamed;
	/* the append path may build records here instead of calling `gather`: no reader sees them before persist. NULL: it
	 * must call gather */
	uint8_t *built;
	uint64_t fence_copy; /* with is_load_slow: the fence word as the last persist read it back */
	/* a page could not be read, and zeros are in its place (mem/map_guard.h): each operation fails. Atomic */
	uint64_t has_lost_page;
	/* the device was removed; a device that appears under its name must be opened again. Atomic */
	uint64_t is_removed;
	bool is_claimed;      /* the device itself fences a writer, and its successor reports where the log ended */
	bool is_write_fenced; /* the device has fenced this writer: its writes no longer land */
	/* no record of a fenced writer lies at or above it; UINT64_MAX = not fenced, or not known */
	uint64_t fence_lsn;
	bool is_fence_exact; /* all records that the writer wrote below fence_lsn are durable */
	/* of members, fenced: below this LSN all records are durable on as many members as an acknowledgement needs.
	 * Atomic */
	uint64_t quorum_durable_lsn;
	/* fenced: fence_lsn is not known yet, a request for it is in flight. Stored after both */
	uint64_t is_fence_lsn_pending;
	/* of a ring in a directory: base of the whole region; NULL = the ring is the whole region */
	const uint8_t *directory;
	const uint8_t *directory_copy; /* the directory as of the last fetch_directory */
	/* with is_claimable: the writer of this epoch has closed, by the header as last loaded */
	uint32_t closed_epoch;
	/* of a device that several hosts reach and that cannot fence: this host, as in superblock.writer_host; 0 = no such
	 * device */
	uint64_t host;
	uint64_t directory_off;        /* offset of this ring in it */
	uint64_t directory_generation; /* of the ring's entry */
	uint64_t read_count;           /* with needs_fetch: READs posted */
	struct region_waits waits;     /* for persists. Stored by the owner of the link */
	uint64_t reconnect_count;      /* connections after the first one */
	/* of a remote drain: the persist that was lost with a connection. It is not sent again: another drain may have
	 * taken over */
	uint64_t tag_lost;
	/* of members, after recovery: fewer have the newest epoch than an acknowledgement needs, so no drain may continue
	 * from them */
	bool lacks_epoch_quorum;
	/* one of several: persist does not poll, so that the requests to all members go out first */
	bool is_member;
	/* of members: copies of the last complete persist beyond the first */
	uint64_t extra_copies;
	const char *last_error;      /* text of the last failure, "" = none; NULL: errno has it */
	uint64_t persist_timeout_ns; /* limit of region_persist_wait; 0 = none */
	uint64_t until_ns;           /* deadline of the caller of fetch, which may be earlier; 0 = none */
};

enum region_access {
	REGION_READ = 0,
	REGION_WRITE = 1,
	REGION_CREATE = 2, /* writes, and creates a missing file, size_bytes long */
};

/* A source of new grants, for a ring whose target rejects the present one. */
struct region_renewal {
	/* renew -- true: `token`, which was rejected, has been replaced. False: there is no other yet: call again after the
	 * next rejection. Any thread; never blocks. */
	bool (*renew)(struct region_renewal *renewal, const uint8_t *ring_uuid, uint8_t *token);
	/* Called by its owner after the last region that may call renew was closed. Does not wait for replies. */
	void (*free)(struct region_renewal *renewal);
};

/* How to open a region. A remote region admits only the client that the grant names. */
struct region_options {
	enum region_access access;
	enum region_role role;
	bool is_whole;            /* the whole region, although the URI names a ring in it */
	bool has_directory;       /* set by region_open: the region will be narrowed to a ring, or is_whole */
	uint64_t size_bytes;      /* only for REGION_CREATE */
	const uint8_t *token;     /* of the grant, FARLOG_TOKEN_LEN bytes; NULL = none */
	uint32_t epoch;           /* of the grant; 0 = none */
	uint32_t level;           /* enum farlog_level: members that give less do not count. 0 = any */
	const uint8_t *ring_uuid; /* of members: 16 bytes for each; NULL = any ring */
	uint64_t client_id;       /* identifies a client that reconnects to a target; 0 = none yet */
	/* another thread sets it to cancel: opening, and calls that block for the network, return soon. NULL: never */
	const uint64_t *cancel_requested;
	/* of a reader on another host; outlives the region. NULL: the token is not renewed */
	struct region_renewal *renewal;
	struct staging *staging; /* of a writer: memory for its copy of the records; NULL = memory of its own */
};

/* region_open -- open by URI. The caller closes it by ops->close. Error texts name the URI. Blocks; for the network
 * where the region is remote. */
int region_open(const char *uri, const struct region_options *options, struct region **region,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* region_persist_wait -- persist, and wait until it is complete: for superblocks and head slots, off the append path.
 * OK, IO, FENCED. Blocks up to persist_timeout_ns. */
int region_persist_wait(struct region *region, const struct region_span *spans, unsigned span_count) FARLOG_MUST_CHECK;

/* region_wait_inflight -- wait once more for the persist that region_persist_wait started and that did not complete
 * within persist_timeout_ns. OK, IO, FENCED. Blocks as long again. */
int region_wait_inflight(struct region *region) FARLOG_MUST_CHECK;

/* region_lock -- acquire a role's lock. OK, HELD, IO, NO_MEMORY; NOT_FOUND: the ring was removed from its directory
 * after the region was opened. Does not wait for the lock. */
int region_lock(struct region *region, enum region_role role) FARLOG_MUST_CHECK;

/* region_set_error -- fill in the error: what failed (a verb and its object), on which URI, and the cause that the
 * device or target gave, else errno. Returns the result. */
int region_set_error(const struct region *region, int result, const char *what, const char *uri,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* region_set_lock_error -- the same for a result of region_lock other than HELD, for which callers have texts of their
 * own. */
int region_set_lock_error(
	const struct region *region, int result, const char *uri, struct farlog_error *error) FARLOG_MUST_CHECK;

/* region_kind_name -- name of an enum farlog_region_kind, as in contracts. */
const char *region_kind_name(uint32_t kind);

/* region_fetch -- ops.data.fetch, before reading through base. OK or IO. */
FARLOG_MUST_CHECK static inline int region_fetch(struct region *region, uint64_t off, uint64_t len)
{
	return region->ops->data.fetch(region, off, len);
}

/* region_has_lost_page -- asked after bytes of `base` were read or written: true, they may be zeros instead of what the
 * media hold; sets errno. The fence keeps the load of the word behind those of the bytes; on x86 it is no
 * instruction. */
static inline bool region_has_lost_page(const struct region *region)
{
	bool has_lost;

	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	has_lost = atomic_load_relaxed(&region->has_lost_page) != 0;
	if (__builtin_expect(has_lost, false))
		errno = EIO;
	return has_lost;
}

/* region_is_done -- is the last persist, which has this tag, complete? Does not poll. */
static inline bool region_is_done(const struct region *region, uint64_t tag)
{
	return atomic_load_relaxed(&region->tag_done) == tag;
}

/* region_is_flush_durable -- does a flush reach the media that outlive a power cut, if the region has any? True also of
 * memory whose persistence nobody attests: the format must not depend on who opens the ring. */
static inline bool region_is_flush_durable(const struct region *region)
{
	uint32_t kind = region->contract.kind;
	uint32_t method = region->contract.flush_method;

	return region->contract.level >= FARLOG_LEVEL_PERSISTENT ||
		((kind == FARLOG_REGION_DEVDAX || kind == FARLOG_REGION_FSDAX || kind == FARLOG_REGION_BAR) &&
			method >= FARLOG_FLUSH_CLWB && method <= FARLOG_FLUSH_CVAP);
}

/* region_hint_implies_records -- do the records below the durable hint survive whenever the hint does? Then a hint
 * above the tail proves loss on the media. False of a file: without a sync it may keep the hint and lose the
 * records. */
static inline bool region_hint_implies_records(const struct region *region)
{
	return region_is_flush_durable(region) || region->contract.kind == FARLOG_REGION_TMPFS;
}

/* region_push -- ops.data.push: no caller is going to wait for the persist that was started last. */
static inline void region_push(struct region *region)
{
	region->ops->data.push(region);
}

/* region_can_fence_writer -- can the target or the device fence the writer, and report where its log ended? */
static inline bool region_can_fence_writer(const struct region *region)
{
	return region->caps.reports_log_end || region->is_claimed;
}

/* region_claim -- ops.fence.claim. */
FARLOG_MUST_CHECK static inline int region_claim(
	struct region *region, const struct region_claim *claim, struct farlog_error *error)
{
	return region->ops->fence.claim(region, claim, error);
}

static inline uint64_t region_load_word(const struct region *region, uint64_t off)
{
	return atomic_load_acquire((const uint64_t *)(region->base + off));
}

/* region_fence_word -- address of the fence word that a writer checks. region_load_fence -- its value: the lowest epoch
 * that may write. */
static inline const uint64_t *region_fence_word(const struct region *region)
{
	return region->caps.is_load_slow ? &region->fence_copy : (const uint64_t *)(region->base + LAYOUT_FENCE_OFF);
}

static inline uint64_t region_load_fence(const struct region *region)
{
	return atomic_load_acquire(region_fence_word(region));
}

/* The command that shows a ring, after "run" in an error text: farlog dump takes a path of the host that has the
 * ring. */
#define REGION_DUMP "%s: farlog dump '%s'"
#define REGION_DUMP_OF(region, uri) \
	(region)->caps.is_remote ? " on the target's host" : "", (region)->caps.is_remote ? "REGION" : (uri)

#endif
