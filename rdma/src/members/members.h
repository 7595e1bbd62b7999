/* members/members.h -- several rings that hold the same records, as one region: what its files share.
 * members/members.c: what it does while it is open; members/send.c: what each of them is sent; members/open.c: opening;
 * members/join.c: members that come back; members/replace_member.c: rings in the place of others; members/log.c: which
 * of their logs is the stream's (docs/explanation/members.md).
 *
 * To the writer it is a region with a copy, as a remote ring. Each member is a region of its own, of any kind, with a
 * position of its own: one persist is in flight, and when it completes the next one takes all that was requested since.
 * A persist of the whole is complete when k members that count have completed it.
 *
 * Owners: a member's fields belong to its thread in MEMBER_AWAY, MEMBER_LEAVING and MEMBER_INSTALLING_EPOCH, to the
 * opener in MEMBER_READY, in all other states to the holder of is_busy. The state is stored last. */
#ifndef FARLOG_REGION_MEMBERS_H
#define FARLOG_REGION_MEMBERS_H

#include <pthread.h>

#include "base/clock.h"
#include "base/member_uri.h"
#include "farlog/replace.h"
#include "region/region.h"
#include "region/staging.h"
#include "ring/layout.h"
#include "scan/recover.h"

enum member_state {
	MEMBER_AWAY = 0,   /* not open: its thread tries to open it */
	MEMBER_READY = 1,  /* open, before the epoch is opened */
	MEMBER_JOINED = 2, /* open, and knows the epoch: the holder of is_busy admits it */
	MEMBER_ACTIVE = 3,
	MEMBER_LEAVING = 4,          /* failed: its thread closes it */
	MEMBER_FENCED = 5,           /* it knows a later epoch: this writer never uses it again */
	MEMBER_WRONG_RING = 6,       /* not the ring that it was: not used until the next opening */
	MEMBER_INSTALLING_EPOCH = 7, /* it has caught up: its thread persists the epoch there */
};

/* Which ring a member is. */
struct member_ring {
	char uri[URI_PATH_LEN_MAX];
	uint8_t uuid[16];
	uint8_t token[FARLOG_TOKEN_LEN];
	bool has_uuid;
	bool has_token;
};

struct member {
	struct region *region;   /* NULL: not open */
	struct member_ring ring; /* changed by its thread, with the mutex held */
	struct member_ring next; /* the ring that replaces it. Guarded by `mutex`; is_replaced is stored after it */
	uint64_t is_replaced;
	uint64_t cancel_requested; /* its thread should stop its current attempt */
	uint64_t replaced_ns;      /* when `next` was set. Guarded by `mutex` */
	const char *uri;           /* ring.uri */
	uint64_t state;            /* enum member_state */
	uint64_t durable_lsn;      /* it has all from the credit up to here, durably */
	uint64_t inflight_from_lsn;
	uint64_t inflight_end_lsn; /* durable_lsn becomes this when the persist in flight completes */
	uint64_t inflight_tag;
	/* Do not reopen earlier: writes posted before the failure may still land. Owner: its thread. */
	uint64_t reopen_after_ns;
	uint64_t started_ns;    /* when the persist in flight started; 0 = the clock was not read yet */
	uint64_t deadline_ns;   /* a persist that takes longer makes it late */
	uint64_t credit_lsn;    /* its head is at or above this LSN */
	uint64_t fence;         /* the highest epoch that it is known to demand */
	uint8_t known_uuid[16]; /* of the ring that was opened as this member; zero: none yet. Guarded by `mutex` */
	bool is_inflight;
	bool is_cut; /* the persist in flight was given up: the copy may be overwritten there */
	bool is_late;
	bool has_been_in; /* it may have records of this writer */
	uint64_t demotion_count;
	uint64_t eviction_count;
	uint64_t rejoin_count;
	uint64_t hinted_lsn; /* the durable hint that was stored there */
	uint64_t hinted_ns;  /* when a hint was repeated to it */
	uint64_t pin_count;  /* readers of it without is_busy: it is not closed meanwhile */
	uint64_t client_id;  /* of all its connections */
	bool knows_epoch;    /* knows the epoch of this writer, and may have records of it */
	uint64_t has_epoch;  /* the same for other threads than its owner's, also while it is not open */
	bool is_new;         /* set by the writer while it ran: it must be empty, and begins at `floor` */
	uint64_t was_empty;  /* it was empty: all that it knows was stored by this writer */
	struct head_slot floor;
	bool is_fresh;   /* never had an epoch, while others have: it may have replaced another ring */
	bool is_sound;   /* its log counts when the log of the stream is chosen */
	bool is_damaged; /* it has lost records that it had confirmed */
	bool has_tried;  /* its first attempt to open has ended */
	bool is_threaded;
	struct superblock superblock;
	struct head_slot head;
	struct recover_scan scan;
	struct farlog_error error;        /* why it is not open. Owner: its thread */
	struct farlog_error public_error; /* the last complete `error`. Guarded by `mutex` */
	struct region_members *whole;
	pthread_t thread;
};

struct region_members {
	struct region region;
	struct member members[MEMBER_COUNT_MAX];
	unsigned count;
	unsigned needed; /* k */
	uint64_t is_busy;
	uint64_t requested_tag;
	uint64_t requested_lsn; /* the writer has requested a persist of all below */
	uint64_t capacity;
	uint64_t poll_count;
	uint8_t *copy;
	uint64_t copy_len;
	uint32_t level;      /* a member that gives less does not count */
	uint32_t level_next; /* the weaker level from level_next_lsn on; 0: no change */
	uint64_t level_next_lsn;
	uint64_t epoch;                /* 0 until the superblock is proposed; also read by member threads */
	uint32_t epoch_last;           /* the highest epoch that a member knew at the opening */
	uint64_t epoch_last_start_lsn; /* where epoch_last began: records of older epochs at or above it are of no log */
	uint32_t requested_epoch;      /* of the grant */
	struct head_slot start;        /* where undrained records began when the epoch was opened */
	struct superblock superblock;  /* as shown to the writer */
	/* The opening continues with the open members. Guarded by `mutex`; so is the next field. */
	bool is_gathered;
	bool is_ticking;
	pthread_t ticker;
	bool is_populating;
	pthread_t populator;
	uint64_t is_opened; /* the epoch is opened: members that open from now on join. Stored with the mutex held */
	uint64_t is_closing;
	struct farlog_member_counters *counters; /* one for each member; NULL: not counted */
	struct staging staging;
	bool has_staging;
	uint8_t first_uuid[16]; /* of the first member, as given by the opener; zero = any */
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	char trouble[200];
	struct member_uri uri;
	char text[URI_PATH_LEN_MAX * 2];
};

static inline struct region_members *members_of(struct region *region)
{
	return (struct region_members *)region;
}

static inline enum member_state member_state(const struct member *member)
{
	return (enum member_state)atomic_load_acquire(&member->state);
}

static inline uint64_t members_word(const struct region_members *whole, uint64_t off)
{
	return atomic_load_acquire((const uint64_t *)(whole->copy + off));
}

static inline void members_set_word(struct region_members *whole, uint64_t off, uint64_t value)
{
	atomic_store_release((uint64_t *)(whole->copy + off), value);
}

/* members_acquire, members_release -- take and give back is_busy, a spin lock. It is held for one pass over
 * MEMBER_COUNT_MAX members at most, each with a bounded number of calls into its region that wait for no device or
 * network (persist, poll, store_word, push, sleepers, cut), and to build the header. Calls that block run without it: a
 * wait sleeps between two passes, a fetch pins its member. On blocks a check for space waits for the device, for 2 ms.
 * So acquiring it needs no deadline. */
static inline void members_acquire(struct region_members *whole)
{
	for (unsigned spins = 1; __builtin_expect(__atomic_exchange_n(&whole->is_busy, 1, __ATOMIC_ACQUIRE) != 0, 0);
		spins++)
		clock_pause(spins);
}

static inline void members_release(struct region_members *whole)
{
	atomic_store_release(&whole->is_busy, 0);
}

/* member_is_open -- and used by the caller's side, before or after the epoch is opened. */
static inline bool member_is_open(const struct member *member)
{
	enum member_state state = member_state(member);

	return state == MEMBER_READY || state == MEMBER_ACTIVE;
}

/* region_members_open -- "members:K URI URI ..."; uri is NULL. */
int region_members_open(const char *text, const struct uri *uri, const struct region_options *options,
	struct region **region, struct farlog_error *error) FARLOG_MUST_CHECK;

/* members_quorum -- how many members are needed to find the log: one of them at least has each acknowledged record. */
static inline unsigned members_quorum(const struct region_members *whole)
{
	return whole->count - whole->needed + 1;
}

/* members_close_one -- before the epoch is opened: close a member that cannot be used. Its thread tries again. */
void members_close_one(struct region_members *whole, struct member *member, const struct farlog_error *why);

/* members_check_count -- are enough members open to open an epoch? OK, HELD, FENCED, IO; the text names the others, and
 * why. */
int members_check_count(struct region_members *whole, struct farlog_error *error) FARLOG_MUST_CHECK;

/* members_check_first -- when no member that is open knows an epoch, it is the stream's first opening only if all
 * members are open: a ring may have been replaced, and the missing member may know better. OK or IO. */
int members_check_first(struct region_members *whole, struct farlog_error *error) FARLOG_MUST_CHECK;

/* members_describe -- each member that cannot be used, and why: "; member 2, ...". The caller does not hold the
 * mutex. */
void members_describe(struct region_members *whole, char *text, size_t size);

/* members_check_ring -- is the ring a member of this stream? OK or NOT_A_RING. */
int members_check_ring(
	struct region_members *whole, struct member *member, struct farlog_error *error) FARLOG_MUST_CHECK;

/* members_check_twin -- no two members are the same ring: a copied ring has the uuid of its original. NOT_A_RING. */
int members_check_twin(
	struct region_members *whole, struct member *member, struct farlog_error *error) FARLOG_MUST_CHECK;

/* members_load_header -- read its superblock, its head and its fence. */
int members_load_header(struct member *member, struct farlog_error *error) FARLOG_MUST_CHECK;

/* members_flush_header -- flush and read its superblock and head: bytes that an earlier process stored may still be in
 * a cache, and the opening builds on them. */
int members_flush_header(struct member *member, struct farlog_error *error) FARLOG_MUST_CHECK;

/* members_build_header -- as the writer sees it: the newest superblock, the highest head, the fence and the credit of
 * the whole. */
void members_build_header(struct region_members *whole);

/* members_recover -- region_members_ops.recover. members_store_superblock -- region_fence_ops.propose.
 * members_store_epoch -- persist the epoch in a member. */
int members_recover(struct region *region, struct farlog_error *error) FARLOG_MUST_CHECK;
int members_store_superblock(
	struct region *region, uint64_t off, const void *src, size_t len, bool is_persisted) FARLOG_MUST_CHECK;
int members_store_epoch(struct region_members *whole, struct member *member) FARLOG_MUST_CHECK;

/* members_fence -- the highest epoch that `nth` members at least demand. */
uint64_t members_fence(const struct region_members *whole, unsigned nth);

/* members_spans -- the ring's bytes from one LSN to another, in one or two spans. Returns their number. */
unsigned members_spans(
	const struct region_members *whole, uint64_t from_lsn, uint64_t to_lsn, struct region_span spans[2]);

/* members_write -- these bytes from the copy into a member that does not send from the copy. */
void members_write(
	struct region_members *whole, struct member *member, const struct region_span *spans, unsigned span_count);

/* members_evict -- a member has failed: its thread closes and reopens it. The caller holds is_busy. */
void members_evict(struct region_members *whole, struct member *member);

/* members_hint -- store a hint in an active member that knows the epoch, not above its durable_lsn. The caller holds
 * is_busy. */
void members_hint(const struct region_members *whole, struct member *member, uint64_t off);

/* members_update_credit -- from the members' heads. is_urgent: the writer waits for space, and takes it from a late
 * member. The caller holds is_busy. */
void members_update_credit(struct region_members *whole, bool is_urgent);

/* members_publish_counters -- the state of each member. The caller holds is_busy. */
void members_publish_counters(struct region_members *whole);

/* members_check_level -- do enough members give this level now? OK or LEVEL. */
int members_check_level(struct region *region, uint32_t level, struct farlog_error *error) FARLOG_MUST_CHECK;

/* members_set_level -- of records from from_lsn on, which have not been requested yet. A stronger level holds at once,
 * a weaker one when all below from_lsn is complete. */
void members_set_level(struct region *region, uint32_t level, uint64_t from_lsn);

/* members_advance -- send what can be sent, and process completions. is_clock_due: also find late members. The caller
 * holds is_busy. */
void members_advance(struct region_members *whole, bool is_clock_due);

/* member_try_open -- one attempt to open it, and to join when there is an epoch. Called by its thread. Blocks. */
void member_try_open(struct member *member);

/* member_install_epoch -- persist the epoch in a member that has caught up. Called by its thread. Blocks. */
void member_install_epoch(struct member *member);

/* member_try_close -- of one that is leaving. False: writes that were sent to it may still land. */
bool member_try_close(struct member *member);

/* members_replace_member -- region_members_ops.replace. */
int members_replace_member(struct region *region, unsigned index, const struct farlog_member_ring *given,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* member_adopt_ring -- make `next` its ring, when it is set and the member is not open. False: nothing changed. Called
 * by its thread, with the mutex held. */
bool member_adopt_ring(struct member *member);

/* member_find_floor -- where the records of a new member begin: at a head, at or above all that was ever overwritten.
 * False: not known now. The caller holds is_busy. */
bool member_find_floor(struct region_members *whole, struct member *member);

/* member_may_install_epoch -- a new member may know the epoch only when so many others do that no earlier epoch can be
 * opened without them. */
bool member_may_install_epoch(const struct region_members *whole, const struct member *member);

/* members_public_state -- as counters and views report it. Reads no field of the member's thread. */
enum farlog_member_state members_public_state(const struct region_members *whole, const struct member *member);

/* members_list -- region_members_ops.view. */
unsigned members_list(struct region *region, struct farlog_writer_member *members, unsigned count_max);

/* members_attach_counters -- region_members_ops.count. */
void members_attach_counters(struct region *region, struct farlog_counters *counters);

/* members_advance_idle -- members_advance, unless is_busy is held. */
void members_advance_idle(struct region_members *whole);

/* member_close -- if it is open. */
void member_close(struct member *member);

/* members_start_threads, members_stop_threads -- one for each member. members_pause -- until `changed` is signalled,
 * for pause_ns at most; the caller holds the mutex. members_start_populator -- after the epoch is opened: a thread that
 * touches the pages of the copy. members_request_stop -- before members_stop_threads. */
int members_start_threads(struct region_members *whole, struct farlog_error *error) FARLOG_MUST_CHECK;
void members_start_populator(struct region_members *whole);
void members_request_stop(struct region_members *whole);
void members_stop_threads(struct region_members *whole);
void members_pause(struct region_members *whole, uint64_t pause_ns);

void members_close(struct region *region);

extern const struct region_ops members_ops;

#endif
