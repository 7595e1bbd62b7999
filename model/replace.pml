/* replace.pml -- a member's ring is replaced for good (docs/explanation/members-replace.md, R1 to R8), with -DREPLACE.
 * Part of members.pml.
 *
 * Ring 0 is A. Ring NEW, which was never written, takes its place at any time. Which member is replaced makes no
 * difference. Grants come in order, from the control plane's counter: grants before the change name A, grants after it
 * name NEW. Writers and drains that know A continue to use it. From the moment that NEW counts, A may have lost all its
 * records. */
#define RINGS (N + 1)
#define NEW N
#define EPOCHS 3

#define BEFORE 0 /* a writer that has A */
#define AFTER 1  /* one that was granted the stream behind the change */
#define TOLD 2   /* one of before, that was told of it while it was open */
byte knows[WRITERS];
byte granted;
bool swapped;
byte over;       /* the credit when the writer was told: so far was written over, by whatever heads */
byte floor;      /* where the records of NEW begin that it is sent by the writer that was told */

#define USES(w, m) ((m) == 0 -> knows[w] == BEFORE : ((m) == NEW -> knows[w] != BEFORE : true))
#define OF_MEMBERS(w, X) KTH((knows[w] == BEFORE -> X(w, 0) : X(w, NEW)), X(w, 1), X(w, 2))
#define HEAD(w, m) head[m]
#define CREDIT(w) MAX((knows[w] == TOLD -> over : 0), OF_MEMBERS(w, HEAD))

/* Where a drain begins at the least: at the highest of the heads of any n-k+1 members that know an epoch. */
#if K == 2
#define HEAD_OF_OTHERS MAX(head[1], head[2])
#else
#define HEAD_OF_OTHERS MIN(head[1], head[2])
#endif
#define CREDIT_READ(m) (!swapped -> KTH(head[0], head[1], head[2]) : \
	(sealed[NEW] == 0 -> HEAD_OF_OTHERS : KTH(head[NEW], head[1], head[2])))
#define IS_READ(m) ((m) != (swapped -> 0 : NEW)) /* the drain hears of it at once */

/* R2: a ring that is blank tells nothing. */
#ifdef MUTANT_BLANK_COUNTED
#define IS_SOUND(m) true
#else
#define IS_SOUND(m) ((m) != NEW || sealed[NEW] != 0)
#endif

/* A writer of before that says late that it is open, when A has forgotten how far all is stored: what it recovered may
 * have been written over. */
#define IS_LEFT(r, lsn) ((r) != 0 && LSN(r) == (lsn))

/* R3, R8: how many of the others know the epoch. */
#define KNOWING(w) (ONE_IF(sealed[1] >= epoch[w]) + ONE_IF(sealed[2] >= epoch[w]))
#ifdef MUTANT_NEW_ALONE
#define MAY_KNOW(w, m) true
#else
#define MAY_KNOW(w, m) ((m) != NEW || sealed[NEW] != 0 || KNOWING(w) >= MIN(N - K + 1, N - 1))
#endif

/* grant -- R1: in order, and by the configuration of now. */
#define START_ALL(w) \
:: d_step { phase[w] == IDLE && (w == 0 || phase[w - (w > 0 -> 1 : 0)] != IDLE) && granted < EPOCHS -> \
	granted++; phase[w] = FENCING; epoch[w] = granted; knows[w] = (swapped -> AFTER : BEFORE); CANON }

/* swap -- R5: by a ring that is blank, and not by one that the member had: A, say, as it was. */
#ifdef MUTANT_NEW_USED
#define BIND \
	for (i : 0 .. CAPACITY - 1) { seen[SLOT(NEW, i)] = seen[SLOT(0, i)]; kept[SLOT(NEW, i)] = kept[SLOT(0, i)] } \
	sealed[NEW] = sealed[0]; begun[NEW] = begun[0]; fence[NEW] = fence[0]; head[NEW] = head[0]
#else
#define BIND skip
#endif
#define SWAP \
:: d_step { !swapped && granted > 0 -> swapped = true; BIND; CANON }

/* tell_writer -- R6: while no later epoch has been granted. It gives A up. */
#ifdef MUTANT_TOLD_LATE
#define IS_NEWEST(w) true
#else
#define IS_NEWEST(w) (epoch[w] == granted)
#endif
#ifdef MUTANT_OLD_COUNTED
#define GIVE_UP(w) skip
#else
#define GIVE_UP(w) link[AT(w, 0)] = OUT; sent[AT(w, 0)] = 0
#endif
#define TELL_WRITER(w) \
:: d_step { phase[w] == OPEN && swapped && knows[w] == BEFORE && IS_NEWEST(w) -> \
	over = CREDIT(w); knows[w] = TOLD; GIVE_UP(w); CANON }

/* join_new -- R7: NEW is sent what lies behind a head of another member, that is above all that was written over, and
 * above a record of the log. */
#define JOIN_NEW(w) \
:: d_step { phase[w] == OPEN && knows[w] == TOLD && link[AT(w, NEW)] == OUT && sealed[NEW] == 0 && \
	fence[NEW] <= epoch[w] && \
	MAX(head[1], head[2]) >= CREDIT(w) && MAX(head[1], head[2]) < APPENDED(w) -> \
	fence[NEW] = epoch[w]; flush(NEW); floor = MAX(head[1], head[2]); \
	link[AT(w, NEW)] = IN; sent[AT(w, NEW)] = floor; CANON }
#ifdef MUTANT_FLOOR_LOW
#define FLOOR(w, m) 0
#else
#define FLOOR(w, m) ((m) == NEW && knows[w] == TOLD -> floor : MIN(CREDIT(w), sent[AT(w, m)]))
#endif
#define BEGUN_AT_LEAST(w, m) ((m) == NEW && knows[w] == TOLD -> floor : 0)
#ifdef MUTANT_NEW_EARLY
#define HAS_ALL(w, m) ((m) == NEW || sent[AT(w, m)] >= acked[w])
#else
#define HAS_ALL(w, m) (sent[AT(w, m)] >= acked[w])
#endif

/* forget -- A comes back as it was at the beginning. Who had it notices, and it is out. */
#define FORGET_LINK(w) \
	if \
	:: link[AT(w, 0)] != OUT -> link[AT(w, 0)] = OUT; sent[AT(w, 0)] = 0 \
	:: else \
	fi
#if WRITERS == 3
#define FORGET_LINKS FORGET_LINK(0); FORGET_LINK(1); FORGET_LINK(2)
#else
#define FORGET_LINKS FORGET_LINK(0); FORGET_LINK(1)
#endif
#define FORGET \
:: d_step { swapped && sealed[NEW] != 0 && fence[0] != 0 -> \
	for (i : 0 .. CAPACITY - 1) { seen[SLOT(0, i)] = 0; kept[SLOT(0, i)] = 0 } \
	sealed[0] = 0; begun[0] = 0; fence[0] = 0; head[0] = 0; hint[0] = 0; FORGET_LINKS; CANON }
#define MAY_JOIN(w, m) ((m) == NEW -> (knows[w] != TOLD || sealed[NEW] != 0) : ((m) != 0 || !swapped || sealed[0] != 0))

#if K == 2
#define SECOND_OF_FOUR(a, b, c, d) MAX(KTH(a, b, c), MIN(d, MAX(MAX(a, b), c)))
#endif
