/* canon.h -- fewer states of the same behaviour. First what no step can tell apart any more is forgotten (each time it
 * is said why); then, of all states that differ only in which member and which writer is who, the least stands for
 * them. Built with -DPLAIN the model does without all of this; run.sh checks a part so. */
#include <string.h>

#define MEMBERS 3
/* with -DREPLACE one more than members: 0 is the one that is replaced, and the last one takes its place */
#define RINGS CANON_RINGS
#define LINK(w, m) now.link[(w) * RINGS + (m)]
#define SENT(w, m) now.sent[(w) * RINGS + (m)]

#ifdef CANON_REPLACE
#define KNOWS(w) now.knows[w]
#define MAY_FORGET(m) ((m) == 0) /* its fence, so that it can be fenced once more */
#define ORDERS 2                 /* the other two members are alike */
#else
#define KNOWS(w) 0
#define MAY_FORGET(m) 0
#define ORDERS 6
#endif

static unsigned kth(const unsigned *values)
{
	unsigned count_above;

	for (int i = 0; i < MEMBERS; i++) {
		unsigned above = 0, equal = 0;

		for (int j = 0; j < MEMBERS; j++) {
			above += values[j] > values[i];
			equal += values[j] == values[i];
		}
		if (above < CANON_K && above + equal >= CANON_K)
			return values[i];
	}
	return 0;
}

/* ring_of -- the writer's m-th member. */
static int ring_of(int w, int m)
{
	return m == 0 && KNOWS(w) != 0 ? RINGS - 1 : m;
}

#ifdef CANON_REPLACE
/* is_used -- somebody has the ring that was replaced, or may get it. */
static int is_used(void)
{
	for (int w = 0; w < CANON_WRITERS; w++)
		if (now.knows[w] == 0 && now.phase[w] >= 1 && now.phase[w] <= 3)
			return 1;
	return !now.swapped;
}

/* forget_replaced -- a ring that nobody asks for any more, and what was kept for the writer that was told of the other
 * one. */
static void forget_replaced(void)
{
	int is_told = 0;

	for (int w = 0; w < CANON_WRITERS; w++)
		is_told |= now.knows[w] == 2;
	if (!is_told)
		now.over = 0;
	if (!is_told || now.sealed[RINGS - 1] != 0)
		now.floor = 0;
	if (is_used() || CANON_OLD_COUNTED)
		return;
	memset(now.seen, 0, CANON_CAPACITY);
	memset(now.kept, 0, CANON_CAPACITY);
	now.sealed[0] = now.begun[0] = now.fence[0] = now.head[0] = now.hint[0] = 0;
}
#endif

/* credit_least -- nobody looks below it: neither who has the one ring nor who has the other. */
static unsigned credit_least(void)
{
	unsigned heads[MEMBERS] = {now.head[0], now.head[1], now.head[2]};
	unsigned credit = kth(heads);

#ifdef CANON_REPLACE
	heads[0] = now.head[RINGS - 1];
	if (now.swapped && (!is_used() || kth(heads) < credit))
		credit = kth(heads);
#endif
	return credit;
}

/* is_to_come -- an epoch that somebody may still open. */
static int is_to_come(unsigned e)
{
#ifdef CANON_REPLACE
	if (now.granted < e)
		return 1;
#else
	for (int m = 0; m < MEMBERS; m++)
		if (CANON_HAS_LOCKS || now.fence[m] < e)
			return 1;
#endif
	for (int w = 0; w < CANON_WRITERS; w++)
		if (now.epoch[w] == e && now.phase[w] < 3)
			return 1;
	return 0;
}

/* forget_past -- what was told and stored below the credit is the same, and only the epoch of the last one is ever
 * looked at; an epoch that nobody can open any more may have been used or not. */
static void forget_past(void)
{
	unsigned credit = credit_least();

	for (unsigned i = 0; i + 1 < credit; i++)
		if (now.told[i] == now.stored[i] && now.told[i] != 0)
			now.told[i] = now.stored[i] = 1;
	for (unsigned e = 1; e <= 3; e++)
		if (!is_to_come(e))
			now.used[e] = 0;
}

/* forget_slots -- records below the credit were released, and nobody looks for them there. When no power cut is left,
 * it does not matter what one would leave. */
static void forget_slots(void)
{
	unsigned credit = credit_least();

	for (int m = 0; m < RINGS; m++) {
		int is_of_use = 0;

		for (int i = 0; i < RINGS; i++)
			is_of_use |= now.hint[m] > now.head[i];
		if (!is_of_use)
			now.hint[m] = 0; /* nothing is left to be released by it */
		for (int s = m * CANON_CAPACITY; s < (m + 1) * CANON_CAPACITY; s++) {
			unsigned char *both[2] = {&now.seen[s], &now.kept[s]};

			for (int i = 0; i < 2; i++) {
				if (*both[i] != 0 && (*both[i] - 1u) >> 3 < credit)
					*both[i] = 0;
			}
			if (now.crashes == CANON_CRASHES)
				now.kept[s] = now.seen[s];
		}
	}
}

static void forget_writer(int w)
{
	now.phase[w] = 4;
	now.epoch[w] = now.start[w] = now.from[w] = now.source[w] = now.acked[w] = 0;
	for (int m = 0; m < RINGS; m++)
		LINK(w, m) = SENT(w, m) = 0;
#ifdef CANON_REPLACE
	now.knows[w] = 0;
#endif
}

/* forget_writers -- who can never begin, because too many members have been fenced by others. Of who has been fenced:
 * what was on its way, and where it stands on members that can bring it no acknowledgement any more. */
static void forget_writers(void)
{
	for (int w = 0; w < CANON_WRITERS; w++) {
		int fenced = 0, copied = 0, live = 0;
		unsigned possible[MEMBERS];

		for (int i = 0; i < MEMBERS; i++) {
			int m = ring_of(w, i);
			int is_open = now.fence[m] <= now.epoch[w];

			fenced += now.fence[m] < now.epoch[w] || MAY_FORGET(m) || (now.fence[m] == now.epoch[w] && LINK(w, m) == 1);
			copied += LINK(w, m) >= 3 || (LINK(w, m) >= 1 && is_open);
			live += is_open;
			possible[i] = is_open ? CANON_RECORDS : LINK(w, m) >= 3 && now.sealed[m] >= now.epoch[w] ? SENT(w, m) : 0;
		}
		if (now.phase[w] == 3 && live > 0)
			for (int i = 0; i < MEMBERS && !CANON_OLD_COUNTED; i++) {
				int m = ring_of(w, i);

				if (now.fence[m] <= now.epoch[w])
					continue;
				if (LINK(w, m) == 4)
					LINK(w, m) = 3;
				if (kth(possible) <= now.acked[w])
					LINK(w, m) = SENT(w, m) = 0;
			}
		if ((now.phase[w] == 1 && fenced < CANON_FENCED_MIN) || (now.phase[w] == 2 && copied < CANON_K) ||
			(now.phase[w] == 3 && live == 0))
			forget_writer(w);
	}
}

struct view {
	unsigned char writers[CANON_WRITERS][7 + 2 * RINGS];
	unsigned char members[RINGS][2 * CANON_CAPACITY + 6];
};

static const unsigned char orders[6][4] = {
	{0, 1, 2, 3}, {0, 2, 1, 3}, {1, 0, 2, 3}, {1, 2, 0, 3}, {2, 0, 1, 3}, {2, 1, 0, 3}};

static void look(struct view *view, const unsigned char *writers, const unsigned char *members)
{
	unsigned char place[RINGS];

	for (int i = 0; i < RINGS; i++) {
		int m = members[i];
		unsigned char *to = view->members[i];

		place[m] = i;
		memcpy(to, &now.seen[m * CANON_CAPACITY], CANON_CAPACITY);
		memcpy(to + CANON_CAPACITY, &now.kept[m * CANON_CAPACITY], CANON_CAPACITY);
		to += 2 * CANON_CAPACITY;
		*to++ = now.sealed[m];
		*to++ = now.begun[m];
		*to++ = now.fence[m];
		*to++ = now.head[m];
		*to++ = now.hint[m];
		*to = CANON_GHOST(m);
	}
	for (int i = 0; i < CANON_WRITERS; i++) {
		int w = writers[i];
		unsigned char *to = view->writers[i];

		*to++ = 255 - now.phase[w]; /* those that have not begun come last */
		*to++ = now.epoch[w];
		*to++ = now.start[w];
		*to++ = now.from[w];
		*to++ = now.acked[w];
		*to++ = now.phase[w] == 2 ? place[now.source[w]] : 0;
		*to++ = KNOWS(w);
		for (int j = 0; j < RINGS; j++) {
			*to++ = LINK(w, members[j]);
			*to++ = SENT(w, members[j]);
		}
	}
}

static void put(const struct view *view)
{
	for (int m = 0; m < RINGS; m++) {
		const unsigned char *from = view->members[m];

		memcpy(&now.seen[m * CANON_CAPACITY], from, CANON_CAPACITY);
		memcpy(&now.kept[m * CANON_CAPACITY], from + CANON_CAPACITY, CANON_CAPACITY);
		from += 2 * CANON_CAPACITY;
		now.sealed[m] = *from++;
		now.begun[m] = *from++;
		now.fence[m] = *from++;
		now.head[m] = *from++;
		now.hint[m] = *from++;
		CANON_SET_GHOST(m, *from);
	}
	for (int w = 0; w < CANON_WRITERS; w++) {
		const unsigned char *from = view->writers[w];

		now.phase[w] = 255 - *from++;
		now.epoch[w] = *from++;
		now.start[w] = *from++;
		now.from[w] = *from++;
		now.acked[w] = *from++;
		now.source[w] = *from++;
#ifdef CANON_REPLACE
		now.knows[w] = *from;
#endif
		from++;
		for (int m = 0; m < RINGS; m++) {
			LINK(w, m) = *from++;
			SENT(w, m) = *from++;
		}
	}
}

static int writer_key(int w)
{
	return now.phase[w] << 20 | now.epoch[w] << 16 | now.start[w] << 12 | now.from[w] << 8 | now.acked[w];
}

static int member_key(int m)
{
	return now.sealed[m] << 28 | now.fence[m] << 24 | now.head[m] << 16 | now.seen[m * CANON_CAPACITY] << 8 |
		now.seen[m * CANON_CAPACITY + 1];
}

/* is_needless -- writers in this order are not the least, or the same as in another order. */
static int is_needless(const unsigned char *order)
{
	for (int i = 0; i + 1 < CANON_WRITERS; i++)
		if (order[i] >= CANON_WRITERS || order[i + 1] >= CANON_WRITERS ||
			writer_key(order[i]) < writer_key(order[i + 1]) ||
			(order[i] > order[i + 1] && (now.phase[order[i]] == 0 || now.phase[order[i]] == 4) &&
				now.phase[order[i]] == now.phase[order[i + 1]]))
			return 1;
	return 0;
}

static void canon(void)
{
	struct view least, view;
	int is_first = 1;

	if (!CANON_HAS_LOCKS)
		forget_writers(); /* a fence that is only a lock may be lost, and they go on */
#ifdef CANON_REPLACE
	forget_replaced();
#endif
	forget_slots();
	forget_past();
	for (int w = 0; w < 6; w++) {
		if (is_needless(orders[w]))
			continue;
		for (int m = 0; m < ORDERS; m++) {
			const unsigned char *order = orders[m];

			if ((ORDERS == 6 && member_key(order[0]) < member_key(order[1])) ||
				member_key(order[1]) < member_key(order[2]))
				continue;
			look(&view, orders[w], orders[m]);
			if (is_first || memcmp(&view, &least, sizeof(view)) < 0)
				least = view;
			is_first = 0;
		}
	}
	put(&least);
}
