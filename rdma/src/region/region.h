/* region/region.h -- the seam to media: a byte range with a persistence contract. Knows bytes and durability, not
 * records.
 *
 * The product and the crash tests come in by this same seam. Rules of the seam:
 *   write    queues whole lines (64-byte aligned, multiple of 64). Nothing is durable yet.
 *   persist  starts making the given spans durable: every byte written to them, by this handle, before the call. At
 *            most one is under way. When it is complete, tag_done is its tag: at once, or after a poll.
 *   flush    makes whatever is there durable, whoever stored it: what a dead process wrote may lie in a cache and must
 *            not be built upon before this. Blocks; for opening and recovery.
 *   seal     orders this thread's writes before anything another thread does after it has seen them published; only
 *            several threads that write side by side need it, because a flush by one core says nothing about another's.
 *   word     8 aligned bytes, stored whole; durable only by a flush over them, for a persist need not take it. */
#ifndef FARLOG_REGION_H
#define FARLOG_REGION_H

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

/* What a region can do, and what it asks of those who use it. Its kind sets it when it is opened; then it stays. Nobody
 * else has to know which kind it is. */
struct region_caps {
	bool has_copy;         /* a writer puts records together in `base`, a copy on this host, and persist sends them */
	bool needs_fetch;      /* base shows what fetch has brought: a read is a request, and so is the store of a word */
	bool is_remote;        /* another process has its bytes: a target */
	bool tells_end;        /* a fence is told together with where the log of the fenced writer ended */
	bool is_claimable;     /* a device that several hosts may reach: who is going to write asks it by `claim` */
	bool words_by_poll;    /* poll brings fence and credit into base, as `look` does */
	bool is_spinning;      /* there is nothing to sleep for: who waits for a persist polls */
	bool can_tell;         /* hints can be stored beside the writer; else nobody does, or the region by itself */
	bool reads_ahead;      /* what a drain is going to read is fetched before it does */
	bool may_land_late;    /* a persist that has failed may still land */
	bool is_load_slow;     /* a load crosses a bus (BAR): not on the append path; persist leaves the fence word below */
	bool is_seal_durable;  /* what one thread has sealed is durable: no further flush is needed (memory, not msync) */
	bool is_judged;        /* opening it has looked at each ring by itself: whether it is the one, what it has lost */
	bool needs_epoch_room; /* a ring that is full keeps room for the record of the next epoch */
	uint32_t commit_len;   /* a commit is whole LBAs of so many bytes; 0: it ends anywhere */
	uint64_t hint_interval_ns; /* hints are stored no more often than that */
	/* how long a target may go on with what a broken connection brought it. 0: what was answered is over */
	uint64_t rest_ns;
	uint64_t extra_len; /* what a ring takes of the media beyond size_bytes */
};

#define REGION_HINT_STORE_NS 100000u
/* there a hint is a work request and a doorbell of its own, and an append may take longer than the other interval */
#define REGION_HINT_REQUEST_NS 5000000u

/* Sleeps for a persist that is under way. Each ends by an event, or expires: all the time that the caller gave went
 * by. */
struct region_waits {
	uint64_t count;
	uint64_t expired_count;
};

struct region {
	const struct region_ops *ops;
	struct region_caps caps;
	struct farlog_contract contract;
	uint64_t tag; /* of the last persist that was started; each takes the next */
	/* of the last that is known to be complete; stored by persist and poll, by whichever thread polls */
	uint64_t tag_done;
	const uint8_t *base; /* where the bytes can be loaded directly; of a far drain or reader the header alone */
	/* where the append path may put a record by ring/stream.h itself instead of `gather`, past the cache unless it is a
	 * copy; NULL: nowhere */
	uint8_t *streamed;
	/* where it may put a record together in place of calling `gather`: nobody looks there before it is sent. NULL:
	 * nowhere */
	uint8_t *built;
	uint64_t fence_seen; /* with is_load_slow: the fence word as the last persist read it back */
	/* its device is gone for good, and one that comes under its name has to be opened. Atomic */
	uint64_t is_removed;
	bool is_claimed; /* the device itself shuts a writer out, and what came after it says where its log ended */
	bool is_shut;    /* and has: nothing that is written here lands any more */
	/* no record of a fenced writer lies at or above it; UINT64_MAX = not fenced, or not known */
	uint64_t fence_lsn;
	bool is_fence_exact; /* and below it lies, durable, all that the writer put there */
	/* of members, fenced: below it lies, durable on as many as an acknowledgement needs, all that the writer put there.
	 * Atomic */
	uint64_t kept_lsn;
	/* fenced: fence_lsn is not known yet, and is asked for. Stored behind both */
	uint64_t is_fence_open;
	/* of a ring in a directory: where all of the region begins; NULL = it has the region to itself */
	const uint8_t *directory;
	const uint8_t *directory_copy; /* the directory, as fetch_directory brought it last */
	/* of such a device: this epoch's writer has been closed, as the header had it when it was loaded last */
	uint32_t closed_epoch;
	/* of a device that several hosts reach and that does not fence them: this one, as superblock.writer_host; 0 = no
	 * such device */
	uint64_t host;
	uint64_t directory_off;        /* where in it this ring lies */
	uint64_t directory_generation; /* of its entry */
	uint64_t read_count;           /* with needs_fetch: READs posted */
	struct region_waits waits;     /* for persists. Stored by who has the link */
	uint64_t comeback_count;       /* connections after the first one */
	/* of a drain elsewhere: the persist that went with a connection; it is not sent again, because another drain may
	 * have come */
	uint64_t tag_lost;
	/* of members, recovered: fewer know the newest epoch than an acknowledgement needs, so that no drain goes on
	 * by them */
	bool are_few_told;
	/* of several, which are all to be sent to before any answer is looked for: persist leaves the first look to poll */
	bool is_member;
	/* of members: how many beyond the first have the last persist that was completed */
	uint64_t more_copies;
	const char *trouble;  /* what failed last, "" = nothing yet; NULL: errno tells */
	uint64_t patience_ns; /* how long region_persist_wait may take; 0 = as long as the media */
	uint64_t until_ns;    /* the deadline of who fetches, which may come before patience ends; 0 = none */
};

enum region_access {
	REGION_READ = 0,
	REGION_WRITE = 1,
	REGION_CREATE = 2, /* and make the file when it is missing, size_bytes long */
};

/* Who has another grant for a ring whose target does not take the one that was given. */
struct region_renewal {
	/* renew -- true: `token`, which was refused, is another one now. False: there is none, or none yet: ask again with
	 * the next refusal. Any thread; waits for nothing. */
	bool (*renew)(struct region_renewal *renewal, const uint8_t *ring_uuid, uint8_t *token);
	/* By who owns it, when no region may ask any more. Waits for no answer. */
	void (*free)(struct region_renewal *renewal);
};

/* Who asks for a region, and what for. A far region lets in only whom a grant names. */
struct region_ask {
	enum region_access access;
	enum region_role role;
	bool is_whole;            /* all of the region, although the URI names a ring in it */
	bool has_directory;       /* set by region_open: the region is going to be narrowed to a ring in it, or is_whole */
	uint64_t size_bytes;      /* only for REGION_CREATE */
	const uint8_t *token;     /* of the grant, FARLOG_TOKEN_LEN bytes; NULL = none */
	uint32_t epoch;           /* of the grant; 0 = none */
	uint32_t level;           /* enum farlog_level, of members: who gives less does not count. 0 = any */
	const uint8_t *ring_uuid; /* of members: 16 bytes for each; NULL = whatever is there */
	uint64_t client_id;       /* by which a target knows one that comes again; 0 = none yet */
	/* stored by another thread when nobody waits for the region any more: opening it, and what blocks for the network,
	 * end soon. NULL: never */
	const uint64_t *is_unwanted;
	/* of a reader on another host; outlives the region. NULL: the token is all that there is */
	struct region_renewal *renewal;
	struct staging *staging; /* of a writer: where its copy of the records is to be; NULL = in memory of its own */
};

/* region_open -- open by URI. The errors' texts name the URI. */
int region_open(const char *uri, const struct region_ask *ask, struct region **region,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* region_persist_wait -- persist and wait for it: for superblocks and head slots, off the append path. */
int region_persist_wait(struct region *region, const struct region_span *spans, unsigned span_count) FARLOG_MUST_CHECK;

/* region_settle -- wait again for a persist that was started, but did not complete within the patience of a far region:
 * it still may. */
int region_settle(struct region *region) FARLOG_MUST_CHECK;

/* region_lock -- take a role's lock. Also NOT_FOUND: the ring has been removed from its directory since the region was
 * opened; NO_MEMORY. */
int region_lock(struct region *region, enum region_role role) FARLOG_MUST_CHECK;

/* region_refuse -- what of a region failed with this result, and why: in the words of its device or target, else by
 * errno. Returns the result. */
int region_refuse(const struct region *region, int result, const char *what, const char *uri,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* region_refuse_lock -- as region_lock said, and not HELD, whose text is the caller's. */
int region_refuse_lock(
	const struct region *region, int result, const char *uri, struct farlog_error *error) FARLOG_MUST_CHECK;

/* region_kind_name -- of enum farlog_region_kind, as contracts tell it. */
const char *region_kind_name(uint32_t kind);

/* region_fetch -- for those that read through base: nothing to do where base is the region. OK or IO. */
FARLOG_MUST_CHECK static inline int region_fetch(struct region *region, uint64_t off, uint64_t len)
{
	return region->ops->data.fetch(region, off, len);
}

/* region_is_done -- is the last persist, which has this tag, complete, as far as persist and poll have seen? */
static inline bool region_is_done(const struct region *region, uint64_t tag)
{
	return atomic_load_relaxed(&region->tag_done) == tag;
}

/* region_is_kept -- does a flush here reach all that outlives a power cut, if anything does? Also where nobody says
 * that the memory does: what is on the media is made and judged alike, whoever opens it. */
static inline bool region_is_kept(const struct region *region)
{
	uint32_t kind = region->contract.kind;
	uint32_t method = region->contract.flush_method;

	return region->contract.level >= FARLOG_LEVEL_PERSISTENT ||
		((kind == FARLOG_REGION_DEVDAX || kind == FARLOG_REGION_FSDAX || kind == FARLOG_REGION_BAR) &&
			method >= FARLOG_FLUSH_CLWB && method <= FARLOG_FLUSH_CVAP);
}

/* region_keeps_hints -- is the durable hint left there only together with the records? Then it may accuse the media at
 * the next opening: a file that is not synced may keep the one and lose the other, and on tmpfs both go. */
static inline bool region_keeps_hints(const struct region *region)
{
	return region_is_kept(region) || region->contract.kind == FARLOG_REGION_TMPFS;
}

/* region_push -- nobody is going to wait for the persist that was started last. */
static inline void region_push(struct region *region)
{
	region->ops->data.push(region);
}

/* region_can_be_shut -- by another one than its writer, and tells then where that one's log ended: by the target that
 * has it, or by the device. */
static inline bool region_can_be_shut(const struct region *region)
{
	return region->caps.tells_end || region->is_claimed;
}

/* region_claim -- where a device has to be asked. */
FARLOG_MUST_CHECK static inline int region_claim(
	struct region *region, const struct region_claim *claim, struct farlog_error *error)
{
	return region->ops->fence.claim(region, claim, error);
}

static inline uint64_t region_load_word(const struct region *region, uint64_t off)
{
	return atomic_load_acquire((const uint64_t *)(region->base + off));
}

/* region_fence_word -- where a writer looks at the fence. region_fence -- the epoch that is demanded at least. */
static inline const uint64_t *region_fence_word(const struct region *region)
{
	return region->caps.is_load_slow ? &region->fence_seen : (const uint64_t *)(region->base + LAYOUT_FENCE_OFF);
}

static inline uint64_t region_fence(const struct region *region)
{
	return atomic_load_acquire(region_fence_word(region));
}

/* How to look at a ring, behind "run" in an error's text: what shows it takes a path of the host that has it. */
#define REGION_DUMP "%s: farlog dump '%s'"
#define REGION_DUMP_OF(region, uri) \
	(region)->caps.is_remote ? " on the target's host" : "", (region)->caps.is_remote ? "REGION" : (uri)

#endif
