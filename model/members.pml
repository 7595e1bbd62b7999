/* members.pml -- one log on three members: fencing, recovery, takeover, return of a member, draining. In words:
 * docs/explanation/members.md.
 *
 * One process, one place, all state global: each option of the loop at the end is one step that somebody takes, a
 * writer, a member's device, the drain or the power. Who dies takes no more steps; a message that is lost is a step
 * that is not taken. A writer is one incarnation: started again, it is another one. A record is its lsn, its epoch and
 * whether it is the first of that; a slot of a ring holds one. A record is on its way to a member as soon as there is
 * room for it, and may land there until the member's device shuts its writer out.
 *
 * Members are alike, and so are writers: states that differ only in who is who are counted once (canon.h), unless
 * -DPLAIN. */

#ifndef K
#define K 2        /* members that an acknowledgement needs */
#endif
#ifndef WRITERS
#define WRITERS 3  /* incarnations, of any number of hosts */
#endif
#ifndef RECORDS
#define RECORDS 4  /* of the log, EPOCH records among them */
#endif
#ifndef CAPACITY
#define CAPACITY 2 /* of a ring, in records */
#endif
#ifndef CRASHES
#define CRASHES 1  /* power cuts of one member each */
#endif
#ifndef JOINS
#define JOINS 1    /* members that come back */
#endif
#define N 3
#define WINDOW 2   /* records that are not acknowledged, at most */

#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define MIN(a, b) ((a) < (b) -> (a) : (b))
#if K == 1
#define KTH(a, b, c) MAX(MAX(a, b), c)
#elif K == 2
#define KTH(a, b, c) MAX(MIN(a, b), MIN(MAX(a, b), c))
#else
#define KTH(a, b, c) MIN(MIN(a, b), c)
#endif

/* How many are fenced and read before an epoch begins. Any K and any N-K+1 have one in common; and K are needed to go
 * on. */
#ifdef MUTANT_FENCE_FEWER
#define FENCED_MIN (N - K)
#elif K > N - K + 1
#define FENCED_MIN K
#else
#define FENCED_MIN (N - K + 1)
#endif

#define RECORD(lsn, epoch, first) (1 + ((lsn) << 3) + ((epoch) << 1) + (first))
#define LSN(r) (((r) - 1) >> 3)
#define EPOCH(r) ((((r) - 1) >> 1) & 3)
#define IS_FIRST(r) (((r) - 1) & 1)
#define SLOT(m, lsn) ((m) * CAPACITY + (lsn) % CAPACITY)

#ifdef REPLACE
#include "replace.pml"
#else
#define RINGS N
#define USES(w, m) true
#define OF_MEMBERS(w, X) KTH(X(w, 0), X(w, 1), X(w, 2))
#define CREDIT_READ(m) CREDIT(0)
#define IS_READ(m) true
#define IS_SOUND(m) true
#define IS_LEFT(r, lsn) true
#define MAY_KNOW(w, m) true
#define MAY_JOIN(w, m) true
#define FLOOR(w, m) MIN(CREDIT(w), sent[AT(w, m)])
#define BEGUN_AT_LEAST(w, m) 0
#define HAS_ALL(w, m) (sent[AT(w, m)] >= acked[w])
#ifdef MUTANT_HIGHEST_HEAD
#define CREDIT(w) MAX(MAX(head[0], head[1]), head[2])
#else
#define CREDIT(w) KTH(head[0], head[1], head[2])
#endif
#endif

/* Members. All but `seen` survives the power. */
byte seen[RINGS * CAPACITY]; /* what a load sees in each slot; 0 = no valid record */
byte kept[RINGS * CAPACITY]; /* what a power cut leaves at the least */
byte sealed[RINGS];      /* the superblock's epoch */
byte begun[RINGS];       /* and where it began */
byte fence[RINGS];       /* writers of lower epochs are kept out by the device */
byte head[RINGS];        /* all below is in the store */
/* the writer's word to who reads here: so far the log is acknowledged, and this member has it */
byte hint[RINGS];

/* Writers. */
#define IDLE 0
#define FENCING 1
#define COPYING 2
#define OPEN 3
#define GONE 4
byte phase[WRITERS];
byte epoch[WRITERS];
byte start[WRITERS];     /* where the epoch begins: the end of the log that was chosen */
byte from[WRITERS];      /* the head that recovery began at */
byte source[WRITERS];    /* the member whose log was chosen */
byte acked[WRITERS];

#define OUT 0            /* not in this epoch */
#define FENCED 1
#define COPIED 2
#define IN 3
#define LANDED 4         /* in, and its next record is visible there */
byte link[WRITERS * RINGS];
byte sent[WRITERS * RINGS]; /* the next record for that member: all below is durable there, and the writer knows */

/* The drain's store, which is durable. The drain itself remembers nothing. */
byte stored[RECORDS];    /* the epoch of the record that readers get at that lsn; 0 = none */

byte crashes, joins;
#ifdef MUTANT_REUSE_EARLY
byte ghost[RINGS];           /* a record on its way by a connection that its writer has given up */
#endif

/* What the world has been told: the specification, not the system. */
byte told[RECORDS];      /* the epoch of the record that was acknowledged at that lsn, or recovered and built upon */
bool used[4];

hidden byte i, j, k, r, best, low, high, prev, top, top_begun;

#define AT(w, m) ((w) * RINGS + (m))
#define IS_IN(w, m) (link[AT(w, m)] >= IN)
#if defined(MUTANT_COUNT_JOINER) || defined(MUTANT_GRANT_EARLY)
#define COUNTS(w, m) IS_IN(w, m)
#else
#define COUNTS(w, m) (IS_IN(w, m) && sealed[m] >= epoch[w])
#endif
#define DURABLE(w, m) (COUNTS(w, m) -> sent[AT(w, m)] : 0)
#ifdef MUTANT_OLD_COUNTED
#define NOW_DURABLE(w) SECOND_OF_FOUR(DURABLE(w, 0), DURABLE(w, 1), DURABLE(w, 2), DURABLE(w, NEW))
#else
#define NOW_DURABLE(w) OF_MEMBERS(w, DURABLE)
#endif
#define APPENDED(w) MIN(MIN(acked[w] + (acked[w] == start[w] -> 1 : WINDOW), RECORDS), CREDIT(w) + CAPACITY)
/* What the writer sends next: a record of its own, or for who comes back one of the log that it recovered. */
#define IS_FIRST_AT(w, lsn) ((lsn) == start[w] || ((lsn) < start[w] && ((lsn) == 0 || told[(lsn) - 1] != told[lsn])))
#define NEXT(w, m) RECORD(sent[AT(w, m)], (sent[AT(w, m)] >= start[w] -> \
	epoch[w] : told[sent[AT(w, m)]]), (IS_FIRST_AT(w, sent[AT(w, m)]) -> 1 : 0))

/* The record at that lsn follows one of epoch `before`, in a log whose latest superblock is of epoch `latest` that
 * began at `at`: what lies there of older ones is no longer of the log, also before the EPOCH record has come. */
#if defined(MUTANT_LAST_RECORD) || defined(MUTANT_LONGEST)
#define IS_CUT(lsn, r, latest, at) false
#else
#define IS_CUT(lsn, r, latest, at) ((lsn) >= (at) && EPOCH(r) != (latest))
#endif
#define IS_VALID_RECORD(lsn, before, r, latest, at) ((r) != 0 && LSN(r) == (lsn) && EPOCH(r) <= (latest) && \
	EPOCH(r) >= (before) && \
	(EPOCH(r) == (before) || IS_FIRST(r)) && !IS_CUT(lsn, r, latest, at))
/* To the drain the member's own superblock is the latest. */
#define IS_VALID(m, lsn, before) IS_VALID_RECORD(lsn, before, seen[SLOT(m, lsn)], sealed[m], begun[m])

/* scan -- j = the end of member m's log, read from lsn `low`; prev = the epoch of its last record. */
inline scan(m)
{
	j = low;
	prev = (low > 0 -> stored[low - 1] : 0);
	do
	:: j < RECORDS && j < low + CAPACITY && IS_VALID_RECORD(j, prev, seen[SLOT(m, j)], top, top_begun) ->
		prev = EPOCH(seen[SLOT(m, j)]); j++
	:: else -> break
	od
}

inline flush(m)
{
	for (i : 0 .. CAPACITY - 1) { kept[(m) * CAPACITY + i] = seen[(m) * CAPACITY + i] }
}

/* tell -- the record of that epoch at that lsn has been acknowledged: no two at one lsn, and what lies below a head is
 * in the store as that. */
#define TOP_HEAD MAX(MAX(head[0], head[1]), head[2])
inline tell(lsn, its_epoch)
{
	assert(told[lsn] == 0 || told[lsn] == its_epoch);
	assert(lsn >= TOP_HEAD || stored[lsn] == its_epoch);
	told[lsn] = its_epoch
}

/* find_last -- prev = the epoch of the last record that is stored. */
inline find_last()
{
	prev = 0;
	for (i : 0 .. RECORDS - 1) { prev = (stored[i] != 0 -> stored[i] : prev) }
}

/* check_store -- whatever the drain has stored, it can go on to what is acknowledged now: where the two part, the log
 * has the first record of a later epoch. */
#ifdef MUTANT_LONGEST /* is to be seen losing records, not to be seen here first */
inline check_store() { skip }
#else
inline check_store()
{
	find_last();
	for (i : 0 .. RECORDS - 1) {
		if
		:: prev != 255 && stored[i] != 0 && told[i] != 0 && stored[i] != told[i] ->
			assert(told[i] > prev && (i == 0 || told[i - 1] != told[i]));
			prev = 255
		:: else
		fi
	}
}
#endif

/* ---- what writers do ---- */

/* fence -- the target shuts all others out, makes durable what they left, persists the fence, and then confirms. The
 * number comes from a counter, or is one more than members have seen. */
#define FENCE_AT(w, m, n) fence[m] = n; flush(m); link[AT(w, m)] = FENCED; DROP_GHOST(m)
#define START(w, m, n) \
:: d_step { phase[w] == IDLE && (w == 0 || phase[w - (w > 0 -> 1 : 0)] != IDLE) && \
	n <= 1 + MAX(MAX(fence[0], fence[1]), fence[2]) && fence[m] < n -> \
	phase[w] = FENCING; epoch[w] = n; FENCE_AT(w, m, n); CANON }
#define FENCE(w, m) \
:: d_step { phase[w] == FENCING && USES(w, m) && fence[m] < epoch[w] -> FENCE_AT(w, m, epoch[w]); CANON }

#define IS_FENCED(w, m) (link[AT(w, m)] == FENCED && fence[m] == epoch[w])
#define HEAD_IF_FENCED(w, m) (IS_FENCED(w, m) -> head[m] : 0)
#define ONE_IF(condition) ((condition) -> 1 : 0)

/* choose -- of those that are fenced, from the largest head on, and cut where the latest superblock says: the log with
 * the latest last record, of several the longest. */
#ifdef MUTANT_LONGEST
#define RANK(m) (j << 4)
#else
#define RANK(m) ((prev << 4) + j)
#endif
#define FIND_TOP(w, m) \
	if \
	:: IS_FENCED(w, m) && sealed[m] >= top -> top = sealed[m]; top_begun = begun[m] \
	:: else \
	fi
#define CONSIDER(w, m) \
	if \
	:: IS_FENCED(w, m) && IS_SOUND(m) -> scan(m); \
		if \
		:: RANK(m) + 1 > best -> best = RANK(m) + 1; source[w] = m; high = j \
		:: else \
		fi \
	:: !IS_FENCED(w, m) -> link[AT(w, m)] = OUT \
	:: else /* it is brought what the others have */ \
	fi
#define COUNT_OF(w, X) (X(w, 0) + X(w, 1) + X(w, 2) PLUS_NEW(w, X))
#define ONE_IF_FENCED(w, m) ONE_IF(IS_FENCED(w, m))
#define ONE_IF_SOUND(w, m) ONE_IF(IS_FENCED(w, m) && IS_SOUND(m))
#define ONE_IF_READY(w, m) ONE_IF(IS_READY(w, m))
#ifdef REPLACE
#define PLUS_NEW(w, X) + X(w, NEW)
#define OF_NEW(x) x
#else
#define PLUS_NEW(w, X)
#define OF_NEW(x)
#endif
#define CHOOSE(w) \
:: d_step { phase[w] == FENCING && COUNT_OF(w, ONE_IF_FENCED) >= FENCED_MIN && \
	COUNT_OF(w, ONE_IF_SOUND) >= MIN(FENCED_MIN, N - K + 1) -> \
	low = MAX(MAX(HEAD_IF_FENCED(w, 0), HEAD_IF_FENCED(w, 1)), HEAD_IF_FENCED(w, 2)); \
	OF_NEW(low = MAX(low, HEAD_IF_FENCED(w, NEW));) \
	best = 0; top = 0; top_begun = 0; \
	FIND_TOP(w, 0); FIND_TOP(w, 1); FIND_TOP(w, 2); OF_NEW(FIND_TOP(w, NEW);) \
	CONSIDER(w, 0); CONSIDER(w, 1); CONSIDER(w, 2); OF_NEW(CONSIDER(w, NEW);) \
	from[w] = low; start[w] = high; phase[w] = COPYING; link[AT(w, source[w])] = COPIED; \
	for (i : 0 .. RECORDS - 1) { /* no acknowledged record is lost or changed */ \
		assert(told[i] == 0 || i >= low || stored[i] == told[i]); \
		assert(told[i] == 0 || i < low || (i < high && EPOCH(seen[SLOT(source[w], i)]) == told[i])) \
	} \
	TAKE_UNFENCED(w); CANON }
#ifdef MUTANT_FENCE_FEWER
#define TAKE_UNFENCED(w) for (i : 0 .. N - 1) { \
	if \
	:: link[AT(w, i)] == OUT && fence[i] <= epoch[w] -> link[AT(w, i)] = FENCED \
	:: else \
	fi }
#define MAY_WRITE(w, m) (fence[m] <= epoch[w])
#else
#define TAKE_UNFENCED(w) skip
#define MAY_WRITE(w, m) (fence[m] == epoch[w])
#endif

/* drop -- where nothing but a lock fences, before the superblock does: the writer loses a member, and with it the
 * lock. */
#ifdef LOCKS
#define DROP(w, m) \
:: d_step { (phase[w] == FENCING || phase[w] == COPYING) && (link[AT(w, m)] == FENCED || link[AT(w, m)] == COPIED) && \
	fence[m] == epoch[w] && \
	(phase[w] == FENCING || source[w] != m) -> \
	link[AT(w, m)] = OUT; fence[m] = sealed[m]; CANON }
#else
#define DROP(w, m)
#endif

/* copy -- what the chosen log has, and durable. */
#define COPY(w, m) \
:: d_step { phase[w] == COPYING && link[AT(w, m)] == FENCED && MAY_WRITE(w, m) && MAY_WRITE(w, source[w]) -> \
	for (i : 0 .. RECORDS - 1) { \
		if \
		:: i >= from[w] && i < start[w] -> seen[SLOT(m, i)] = seen[SLOT(source[w], i)]; \
			kept[SLOT(m, i)] = seen[SLOT(m, i)] \
		:: else \
		fi \
	} \
	link[AT(w, m)] = COPIED; CANON }

/* seal -- the superblock: epoch, where it begins, and the head that recovery began at. */
#ifdef MUTANT_HEADS_APART
#define RAISE_HEAD(m, lsn) skip
#else
#define RAISE_HEAD(m, lsn) head[m] = MAX(head[m], lsn)
#endif
#define SEAL(w, m) \
:: d_step { phase[w] == COPYING && link[AT(w, m)] == COPIED && MAY_WRITE(w, m) && MAY_KNOW(w, m) -> \
	sealed[m] = epoch[w]; begun[m] = start[w]; RAISE_HEAD(m, from[w]); link[AT(w, m)] = IN; sent[AT(w, m)] = start[w]; \
		CANON }

/* grant -- so many superblocks are durable: now, and not before, the EPOCH record. What was recovered counts as
 * acknowledged from here on. */
#ifdef MUTANT_EPOCH_ON_K
#define SEALED_MIN K
#else
#define SEALED_MIN FENCED_MIN
#endif
#ifdef MUTANT_GRANT_EARLY
#define IS_READY(w, m) (link[AT(w, m)] >= COPIED)
#else
#define IS_READY(w, m) IS_IN(w, m)
#endif
#define TAKE_IN(w, m) \
	if \
	:: IS_READY(w, m) -> link[AT(w, m)] = IN; sent[AT(w, m)] = start[w] \
	:: else -> link[AT(w, m)] = OUT \
	fi
#define GRANT(w) \
:: d_step { phase[w] == COPYING && start[w] < RECORDS && start[w] < CREDIT(w) + CAPACITY && \
	COUNT_OF(w, ONE_IF_READY) >= SEALED_MIN -> \
	assert(!used[epoch[w]]); /* epochs are never shared */ \
	used[epoch[w]] = true; \
	TAKE_IN(w, 0); TAKE_IN(w, 1); TAKE_IN(w, 2); OF_NEW(TAKE_IN(w, NEW);) \
	for (j : 0 .. RECORDS - 1) { \
		if \
		:: j >= from[w] && j >= CREDIT(w) && j < start[w] && \
			IS_LEFT(seen[SLOT(source[w], j)], j) -> r = seen[SLOT(source[w], j)]; tell(j, EPOCH(r)) \
		:: else \
		fi \
	} \
	check_store(); \
	phase[w] = OPEN; acked[w] = start[w]; GIVE_HINTS(w); from[w] = 0; source[w] = 0; CANON }

/* What lies below the credit nobody will ask for. */
#define LAND(w, m) \
:: d_step { phase[w] == OPEN && link[AT(w, m)] == IN && fence[m] <= epoch[w] && \
	MAX(sent[AT(w, m)], CREDIT(w)) < APPENDED(w) -> \
	sent[AT(w, m)] = MAX(sent[AT(w, m)], CREDIT(w)); \
	seen[SLOT(m, sent[AT(w, m)])] = NEXT(w, m); link[AT(w, m)] = LANDED; CANON }

#define GIVE_HINT(w, m) hint[m] = (COUNTS(w, m) && fence[m] <= epoch[w] -> MIN(acked[w], sent[AT(w, m)]) : hint[m])
#define GIVE_HINTS(w) GIVE_HINT(w, 0); GIVE_HINT(w, 1); GIVE_HINT(w, 2) OF_NEW(; GIVE_HINT(w, NEW))

/* acknowledge -- what lies durable on K members that count. The writer may learn it, and say it, long after others have
 * taken over; what it could say is held against the others from now on. */
inline acknowledge(w)
{
	k = NOW_DURABLE(w);
	if
	:: k > acked[w] ->
		for (j : 0 .. RECORDS - 1) {
			if
			:: j >= acked[w] && j >= CREDIT(w) && j < k -> tell(j, epoch[w])
			:: else
			fi
		}
		check_store();
		acked[w] = k
	:: else
	fi;
	GIVE_HINTS(w)
}

#define FLUSH(w, m) \
:: d_step { phase[w] == OPEN && link[AT(w, m)] == LANDED && fence[m] <= epoch[w] -> \
	kept[SLOT(m, sent[AT(w, m)])] = seen[SLOT(m, sent[AT(w, m)])]; link[AT(w, m)] = IN; sent[AT(w, m)]++; \
		acknowledge(w); CANON }

/* join -- a member that was evicted, or was never in, comes back. First its connections are torn down, for sure; then
 * it is sent what it lacks, from the credit on, by the same way as all that is appended. */
#ifdef MUTANT_REUSE_EARLY
#define TEAR_DOWN(w, m) ghost[m] = (IS_IN(w, m) && sent[AT(w, m)] >= CREDIT(w) && \
	sent[AT(w, m)] < APPENDED(w) -> NEXT(w, m) : 0)
#define DROP_GHOST(m) ghost[m] = 0
#else
#define TEAR_DOWN(w, m) skip
#define DROP_GHOST(m) skip
#endif
#ifdef MUTANT_COUNT_JOINER
#define LACKS_FROM(w) acked[w]
#else
#define LACKS_FROM(w) CREDIT(w)
#endif
#define JOIN(w, m) \
:: d_step { phase[w] == OPEN && USES(w, m) && fence[m] <= epoch[w] && joins < JOINS && MAY_JOIN(w, m) -> \
	joins++; TEAR_DOWN(w, m); fence[m] = epoch[w]; flush(m); \
	sent[AT(w, m)] = (IS_IN(w, m) -> sent[AT(w, m)] : LACKS_FROM(w)); link[AT(w, m)] = IN; \
	acknowledge(w); CANON }

/* seal_back -- it has caught up: now it is told the epoch, and from when on it is whole; from then on it counts. */
#define SEAL_BACK(w, m) \
:: d_step { phase[w] == OPEN && IS_IN(w, m) && sealed[m] < epoch[w] && link[AT(w, m)] == IN && fence[m] <= epoch[w] && \
	HAS_ALL(w, m) && MAY_KNOW(w, m) -> \
	sealed[m] = epoch[w]; begun[m] = MAX(start[w], BEGUN_AT_LEAST(w, m)); RAISE_HEAD(m, FLOOR(w, m)); acknowledge(w); \
		CANON }

#ifdef MUTANT_REUSE_EARLY
#define HAUNT(m) \
:: d_step { ghost[m] != 0 -> seen[SLOT(m, LSN(ghost[m]))] = ghost[m]; kept[SLOT(m, LSN(ghost[m]))] = ghost[m]; \
	ghost[m] = 0; CANON }
#else
#define HAUNT(m)
#endif

/* ---- what the power does ---- */

#define KEEP 0 /* a slot that was not flushed is there all the same */
#define LOSE 1 /* it is as it was */
#define TEAR 2 /* it is neither */
#define CUT(s, how) \
	if \
	:: how == LOSE -> seen[s] = kept[s] \
	:: how == TEAR -> seen[s] = 0; kept[s] = 0 \
	:: else -> kept[s] = seen[s] \
	fi
#define IS_DIRTY(s) (seen[s] != kept[s])
#define MAY_CUT(s, how) (how == KEEP || IS_DIRTY(s))
#define CUT_LINK(w, m) \
	if \
	:: link[AT(w, m)] == LANDED -> link[AT(w, m)] = IN /* and it is sent again */ \
	:: else \
	fi
#if WRITERS == 3
#define CUT_LINKS(m) CUT_LINK(0, m); CUT_LINK(1, m); CUT_LINK(2, m)
#else
#define CUT_LINKS(m) CUT_LINK(0, m); CUT_LINK(1, m)
#endif
#define FIRST_SLOT(m) ((m) * CAPACITY)
#define CRASH(m, a, b) \
:: d_step { crashes < CRASHES && (IS_DIRTY(FIRST_SLOT(m)) || IS_DIRTY(FIRST_SLOT(m) + 1)) && \
	MAY_CUT(FIRST_SLOT(m), a) && MAY_CUT(FIRST_SLOT(m) + 1, b) -> \
	crashes++; CUT(FIRST_SLOT(m), a); CUT(FIRST_SLOT(m) + 1, b); CUT_LINKS(m); CANON }

/* ---- what the drain does ---- */

/* store -- whatever is visible on a member. Where the store has another record, only the first one of a later epoch
 * takes its place. */
#define STORE(m) \
:: d_step { IS_READ(m) && (seen[FIRST_SLOT(m)] != 0 || seen[FIRST_SLOT(m) + 1] != 0) -> \
	low = MAX(head[m], CREDIT_READ(m)); \
	k = (low > 0 -> stored[low - 1] : 0); \
	find_last(); \
	j = low; \
	do \
	:: j < RECORDS && j < low + CAPACITY && IS_VALID(m, j, k) && \
		(stored[j] == 0 || stored[j] == EPOCH(seen[SLOT(m, j)]) || \
		(IS_FIRST(seen[SLOT(m, j)]) && EPOCH(seen[SLOT(m, j)]) > prev)) -> \
		k = EPOCH(seen[SLOT(m, j)]); \
		if \
		:: stored[j] == k \
		:: else -> \
			for (i : 0 .. RECORDS - 1) { stored[i] = (i >= j -> 0 : stored[i]) } \
			stored[j] = k; prev = k \
		fi; \
		j++ \
	:: else -> break \
	od; CANON }

/* release -- on member t, what the log of member m and the store have in common, as far as the writer of that log knew
 * it to lie on K members; or as far as an epoch begins that K members have been told: a member is told when it has,
 * durably, all that lies below. So a ring is drained whose last opening found no room for its EPOCH record. */
#ifdef MUTANT_RELEASE_FEW_TOLD
#define TOLD_MIN (K - 1)
#else
#define TOLD_MIN K
#endif
#define IS_TOLD_ALIKE(m, x) ONE_IF(sealed[x] == sealed[m] && IS_READ(x))
#define TOLD_COUNT(m) (IS_TOLD_ALIKE(m, 0) + IS_TOLD_ALIKE(m, 1) + IS_TOLD_ALIKE(m, 2) OF_NEW(+ IS_TOLD_ALIKE(m, NEW)))
#define SURE(m) MAX(hint[m], (sealed[m] > 0 && TOLD_COUNT(m) >= TOLD_MIN -> begun[m] : 0))
#ifdef MUTANT_RELEASE_SEEN
#define MAY_RELEASE(m) j
#define HAS_HINT(m, t) (sealed[m] > 0)
#else
#define MAY_RELEASE(m) MIN(j, SURE(m))
#define HAS_HINT(m, t) (SURE(m) > head[t])
#endif
#ifdef MUTANT_RELEASE_UNCOMPARED
#define IS_SAME(m) (stored[j] != 0)
#else
#define IS_SAME(m) (IS_VALID(m, j, k) && stored[j] == EPOCH(seen[SLOT(m, j)]))
#endif
#define RELEASE(m, t) \
:: d_step { HAS_HINT(m, t) && IS_READ(m) && IS_READ(t) -> \
	low = MAX(head[m], CREDIT_READ(m)); \
	k = (low > 0 -> stored[low - 1] : 0); \
	j = low; \
	do \
	:: j < RECORDS && j < low + CAPACITY && IS_SAME(m) -> k = stored[j]; j++ \
	:: else -> break \
	od; \
	k = MAY_RELEASE(m); \
	head[t] = MAX(head[t], k); CANON }

#ifdef PLAIN
#define CANON skip
#else
#ifdef LOCKS
#define HAS_LOCKS 1
#else
#define HAS_LOCKS 0
#endif
c_code {
	enum { CANON_K = K, CANON_WRITERS = WRITERS, CANON_RECORDS = RECORDS, CANON_CAPACITY = CAPACITY,
		CANON_CRASHES = CRASHES,
		CANON_FENCED_MIN = FENCED_MIN, CANON_HAS_LOCKS = HAS_LOCKS, CANON_RINGS = RINGS };
#ifdef REPLACE
\#define CANON_REPLACE 1
#endif
#ifdef MUTANT_OLD_COUNTED
\#define CANON_OLD_COUNTED 1
#else
\#define CANON_OLD_COUNTED 0
#endif
#ifdef MUTANT_REUSE_EARLY
\#define CANON_GHOST(m) now.ghost[m]
\#define CANON_SET_GHOST(m, value) now.ghost[m] = (value)
#else
\#define CANON_GHOST(m) 0
\#define CANON_SET_GHOST(m, value)
#endif
\#include "canon.h"
}
#define CANON c_code { canon(); }
#endif

#define EACH(X, w) X(w, 0) X(w, 1) X(w, 2) OF_NEW(X(w, NEW))
#define EACH_CRASH(m) CRASH(m, KEEP, LOSE) CRASH(m, KEEP, TEAR) CRASH(m, LOSE, KEEP) CRASH(m, LOSE, LOSE) \
	CRASH(m, LOSE, TEAR) CRASH(m, TEAR, KEEP) CRASH(m, TEAR, LOSE) CRASH(m, TEAR, TEAR) CRASH(m, KEEP, KEEP)
#ifndef REPLACE
#define START_ALL(w) START(w, 0, 1) START(w, 1, 1) START(w, 2, 1) START(w, 0, 2) START(w, 1, 2) START(w, 2, 2) \
	START(w, 0, 3) START(w, 1, 3) START(w, 2, 3)
#endif
#define WRITER(w) START_ALL(w) EACH(FENCE, w) EACH(DROP, w) CHOOSE(w) EACH(COPY, w) EACH(SEAL, w) GRANT(w) \
	EACH(LAND, w) \
	EACH(FLUSH, w) EACH(JOIN, w) EACH(SEAL_BACK, w)

active proctype world()
{
end:
	do
	WRITER(0)
	WRITER(1)
#if WRITERS == 3
	WRITER(2)
#endif
	HAUNT(0) HAUNT(1) HAUNT(2)
	EACH_CRASH(0) EACH_CRASH(1) EACH_CRASH(2)
	STORE(0) STORE(1) STORE(2)
	EACH(RELEASE, 0) EACH(RELEASE, 1) EACH(RELEASE, 2)
#ifdef REPLACE
	SWAP FORGET TELL_WRITER(0) TELL_WRITER(1) JOIN_NEW(0) JOIN_NEW(1)
#if WRITERS == 3
	TELL_WRITER(2) JOIN_NEW(2)
#endif
	EACH_CRASH(NEW) STORE(NEW) EACH(RELEASE, NEW)
#endif
	od
}
