/* members/members.h -- several rings that hold the same records, as one region: what its files share.
 * members/members.c: what it does while it is open; members/send.c: what each of them is sent; members/open.c: opening;
 * members/join.c: members that come back; members/replace_member.c: rings in the place of others; members/log.c: which
 * of their logs is the stream's (docs/explanation/members.md).
 *
 * To the writer it is a region with a copy, as a far one. Each member is a region of its own, of any kind, and has a
 * position of its own: one persist under way, and when it is back the next takes all that has come since. A persist of
 * the whole is complete when k members that count have it.
 *
 * Owners: the fields of a member in MEMBER_AWAY, MEMBER_LEAVING and MEMBER_TOLD are its thread's, in MEMBER_READY the
 * opener's, in all other states they are whose is_busy is. The state is stored last. */
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
	MEMBER_READY = 1,  /* open, before the epoch is */
	MEMBER_JOINED = 2, /* open, and knows the epoch: whoever is_busy takes it in */
	MEMBER_IN = 3,
	MEMBER_LEAVING = 4, /* failed: its thread closes it */
	MEMBER_FENCED = 5,  /* a later epoch is known there: for this writer for good */
	MEMBER_OTHER = 6,   /* not the ring that it was: out until the next opening */
	MEMBER_TOLD = 7,    /* it has caught up, and its thread tells it the epoch */
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
	struct region *region;   /* NULL: away */
	struct member_ring ring; /* changed by its thread alone, and with the mutex held */
	struct member_ring next; /* what it is going to be. Guarded by `mutex`; is_replaced is stored behind it */
	uint64_t is_replaced;
	uint64_t is_unwanted; /* nobody waits for what its thread is at any more */
	uint64_t replaced_ns; /* when it was told of `next`. Guarded by `mutex` */
	const char *uri;      /* ring.uri */
	uint64_t state;       /* enum member_state */
	uint64_t done_lsn;    /* it has, durably, all from the credit up to here */
	uint64_t going_from_lsn;
	uint64_t going_lsn; /* done_lsn when what is under way is back */
	uint64_t going_tag;
	uint64_t rests_until_ns; /* it is not opened before: what it was sent may still be on its way. Its thread's */
	uint64_t started_ns;     /* when that was sent; 0 = not looked at yet */
	uint64_t deadline_ns;    /* longer than this, and it is late */
	uint64_t credit_lsn;     /* its head is known to be here or beyond */
	uint64_t fence;          /* the highest epoch it is known to demand */
	uint8_t known_uuid[16];  /* of the ring that was taken for it; zero: none was yet. Guarded by `mutex` */
	bool is_going;
	bool is_cut; /* what is under way is given up: its bytes here may change */
	bool is_late;
	bool has_been_in; /* it may have records of this writer */
	uint64_t demotion_count;
	uint64_t eviction_count;
	uint64_t rejoin_count;
	uint64_t hinted_lsn; /* the durable hint that it was told */
	uint64_t hinted_ns;  /* when it was told behind the others */
	uint64_t pin_count;  /* who reads from it without is_busy: it is not closed meanwhile */
	uint64_t client_id;  /* of all its connections */
	bool is_of_epoch;    /* knows this writer's epoch, so that it may have records of it */
	uint64_t has_epoch;  /* the same, for other threads than its owner's, and also while it is away */
	bool is_new;         /* the writer was told of it while it ran: it must be blank, and begins at `floor` */
	uint64_t was_blank;  /* and has been: what it knows now is from us */
	struct head_slot floor;
	bool is_fresh;   /* never had an epoch, while others have: it may stand where another ring was */
	bool is_sound;   /* its log counts when the stream's is looked for */
	bool is_damaged; /* it has lost what it had acknowledged */
	bool has_tried;  /* once, at the opening */
	bool is_threaded;
	struct superblock superblock;
	struct head_slot head;
	struct recover_scan scan;
	struct farlog_error error; /* why it is away: what its owner writes */
	struct farlog_error told;  /* and its last state that was whole. Guarded by `mutex` of the whole */
	struct region_members *whole;
	pthread_t thread;
};

struct region_members {
	struct region region;
	struct member members[MEMBER_COUNT_MAX];
	unsigned count;
	unsigned needed; /* k */
	uint64_t is_busy;
	uint64_t tag_asked;
	uint64_t asked_lsn; /* all below has been handed to persist */
	uint64_t capacity;
	uint64_t poll_count;
	uint8_t *copy;
	uint64_t copy_len;
	uint32_t level;      /* who gives less does not count */
	uint32_t level_next; /* the one from level_next_lsn on, which is weaker; 0: it stays */
	uint64_t level_next_lsn;
	uint64_t epoch;                /* 0 until the superblock is proposed; loaded by members' threads, too */
	uint32_t epoch_last;           /* the highest that was found */
	uint64_t epoch_last_start_lsn; /* and where it began: what lies there of older ones is of no log any more */
	uint32_t epoch_asked;          /* of the grant */
	struct head_slot start;        /* where undrained records began when the epoch was opened */
	struct superblock superblock;  /* as the writer sees it */
	bool is_gathered; /* the opening goes on with those that are open. Guarded by `mutex`, and so is the next */
	bool is_ticking;
	pthread_t ticker;
	bool is_populating;
	pthread_t populator;
	uint64_t is_opened; /* the epoch is: members that come from now on join. Stored with the mutex held */
	uint64_t is_closing;
	struct farlog_member_counters *counters; /* one for each: where to tell how they are. NULL: nobody asks */
	struct staging staging;
	bool has_staging;
	uint8_t first_uuid[16]; /* of the first member, as it was asked for; all zero = any */
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

/* members_take, members_give -- is_busy, for those who need it. Nobody sleeps with it: it is held for a turn over
 * MEMBER_COUNT_MAX members at most, each a bounded number of calls into its region that wait for no device or network
 * (persist, poll, store_word, push, sleepers, cut), and to see the header. What blocks runs without it: a wait sleeps
 * between two turns, a fetch pins its member instead. On blocks a look for room waits for the device, for 2 ms. So
 * taking it needs no deadline. */
static inline void members_take(struct region_members *whole)
{
	for (unsigned spins = 1; __builtin_expect(__atomic_exchange_n(&whole->is_busy, 1, __ATOMIC_ACQUIRE) != 0, 0);
		spins++)
		clock_pause(spins);
}

static inline void members_give(struct region_members *whole)
{
	atomic_store_release(&whole->is_busy, 0);
}

/* member_is_open -- and this side's to use, before the epoch is opened or after. */
static inline bool member_is_open(const struct member *member)
{
	enum member_state state = member_state(member);

	return state == MEMBER_READY || state == MEMBER_IN;
}

/* region_members_open -- "members:K URI URI ..."; uri is NULL. */
int region_members_open(const char *text, const struct uri *uri, const struct region_ask *ask, struct region **region,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* members_quorum -- how many members are needed to know the log: one at least has each record that was acknowledged. */
static inline unsigned members_quorum(const struct region_members *whole)
{
	return whole->count - whole->needed + 1;
}

/* members_drop -- one that is open before the epoch is, and cannot be used. Its thread tries again. */
void members_drop(struct region_members *whole, struct member *member, const struct farlog_error *why);

/* members_check_count -- are enough open to open an epoch? OK, HELD, FENCED, IO; the text names those that are not, and
 * why. */
int members_check_count(struct region_members *whole, struct farlog_error *error) FARLOG_MUST_CHECK;

/* members_check_first -- where nobody who is reached knows an epoch, it is the stream's first only when all are
 * reached: a ring may stand where another one was, and the one that is away may know better. OK or IO. */
int members_check_first(struct region_members *whole, struct farlog_error *error) FARLOG_MUST_CHECK;

/* members_describe -- each member that cannot be used, and why: "; member 2, ...". The mutex is not held. */
void members_describe(struct region_members *whole, char *text, size_t room);

/* members_check_ring -- is what is there a member of this stream? OK or NOT_A_RING. */
int members_check_ring(
	struct region_members *whole, struct member *member, struct farlog_error *error) FARLOG_MUST_CHECK;

/* members_claim_ring -- no two members are one ring: a copy has the uuid of what it was copied from, by which members
 * are told. NOT_A_RING. */
int members_claim_ring(
	struct region_members *whole, struct member *member, struct farlog_error *error) FARLOG_MUST_CHECK;

/* members_load_one -- its superblock, where it says that undrained records begin, and which epoch it demands. */
int members_load_one(struct member *member, struct farlog_error *error) FARLOG_MUST_CHECK;

/* members_settle_one -- read its superblock and head, and make them durable: what earlier processes stored there may
 * lie in caches, and is going to be built upon. */
int members_settle_one(struct member *member, struct farlog_error *error) FARLOG_MUST_CHECK;

/* members_show_header -- what the writer sees: the newest superblock, the highest head, the fence and the credit that
 * hold for the whole. */
void members_show_header(struct region_members *whole);

/* members_recover -- region_members_ops.recover. members_propose -- region_fence_ops.propose. members_tell_epoch --
 * have one know the epoch. */
int members_recover(struct region *region, struct farlog_error *error) FARLOG_MUST_CHECK;
int members_propose(
	struct region *region, uint64_t off, const void *src, size_t len, bool is_persisted) FARLOG_MUST_CHECK;
int members_tell_epoch(struct region_members *whole, struct member *member) FARLOG_MUST_CHECK;

/* members_fence -- the epoch that so many members demand at least. */
uint64_t members_fence(const struct region_members *whole, unsigned nth);

/* members_spans -- the ring's bytes from one LSN to another. How many spans. */
unsigned members_spans(
	const struct region_members *whole, uint64_t from_lsn, uint64_t to_lsn, struct region_span spans[2]);

/* members_write -- those bytes, from the copy into a member that has none of them there. */
void members_write(
	struct region_members *whole, struct member *member, const struct region_span *spans, unsigned span_count);

/* members_evict -- is_busy is taken. It failed; its thread takes it down, and opens it again. */
void members_evict(struct region_members *whole, struct member *member);

/* members_hint -- is_busy is taken: a hint to one that is in, no higher than what it has. */
void members_hint(const struct region_members *whole, struct member *member, uint64_t off);

/* members_take_credit -- learn how far the members' heads have gone; urgently, where room is wanted, of one that is
 * late the place is taken. */
void members_take_credit(struct region_members *whole, bool is_urgent);

/* members_tell_counters -- is_busy is taken: how each member is, to whoever looks from outside. */
void members_tell_counters(struct region_members *whole);

/* members_check_level -- do so many members as are needed give it now? OK or LEVEL. */
int members_check_level(struct region *region, uint32_t level, struct farlog_error *error) FARLOG_MUST_CHECK;

/* members_set_level -- of records from from_lsn on, none of which has been asked for yet. A stronger one is asked for
 * at once; a weaker one is allowed when all below is complete. */
void members_set_level(struct region *region, uint32_t level, uint64_t from_lsn);

/* members_turn -- is_busy is taken: whatever has come back, and what can be sent; and now and then, or at once, how
 * late it is. */
void members_turn(struct region_members *whole, bool is_clock_due);

/* member_try -- one attempt to open it, and once there is an epoch to join. For its thread, and for tests that have
 * none. */
void member_try(struct member *member);

/* member_tell -- the epoch, to one that has caught up. For its thread, and for tests that have none. */
void member_tell(struct member *member);

/* member_leave -- one attempt to close one that is leaving. False: what it was sent may still land. */
bool member_leave(struct member *member);

/* members_replace -- region_members_ops.replace. */
int members_replace(struct region *region, unsigned index, const struct farlog_member_ring *given,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* member_adopt -- for its thread, with the mutex held: be the ring that it was told of, when it is not open and was
 * told of one. */
bool member_adopt(struct member *member);

/* member_find_floor -- is_busy is taken: where the records of one that is new begin: at a head, at or above everything
 * that was ever written over. False: not now. */
bool member_find_floor(struct region_members *whole, struct member *member);

/* member_may_know -- may one that is new know the epoch? Not before those others do without whom no earlier epoch can
 * be opened. */
bool member_may_know(const struct region_members *whole, const struct member *member);

/* members_tell_state -- as others are told. Nothing of what is a member's thread's is looked at. */
enum farlog_member_state members_tell_state(const struct region_members *whole, const struct member *member);

/* members_view -- region_members_ops.view. */
unsigned members_view(struct region *region, struct farlog_writer_member *members, unsigned room);

/* members_count -- region_members_ops.count. */
void members_count(struct region *region, struct farlog_counters *counters);

/* members_tick -- a turn, when nobody else is at it. */
void members_tick(struct region_members *whole);

/* member_shut -- close it, when it is open. */
void member_shut(struct member *member);

/* members_start_threads, members_stop_threads -- one for each member. members_pause -- until `changed` is signalled, or
 * so long; the mutex is held. members_start_populator -- the epoch is open: one that makes the copy's pages, and ends.
 * members_tell_closing -- before they are stopped. */
int members_start_threads(struct region_members *whole, struct farlog_error *error) FARLOG_MUST_CHECK;
void members_start_populator(struct region_members *whole);
void members_tell_closing(struct region_members *whole);
void members_stop_threads(struct region_members *whole);
void members_pause(struct region_members *whole, uint64_t pause_ns);

void members_close(struct region *region);

extern const struct region_ops members_ops;

#ifdef FARLOG_FAULT
/* With it no threads are started, a reader's neither: members are opened where they are asked for, and members_tend
 * takes one step of what threads would do. */
extern bool members_are_tended;
void members_tend(struct region *region);
#define MEMBERS_ARE_TENDED members_are_tended
#else
#define MEMBERS_ARE_TENDED false
#endif

#endif
