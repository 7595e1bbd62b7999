/* far/far.h -- the seam between a far region and what carries it: librdmacm and verbs, or libfabric.
 *
 * A far writer keeps a copy of the whole ring in registered memory, byte for byte at the same offsets: records are
 * staged in it, written from it to the target in one piece, and read back into it. A drain or reader has a copy of the
 * header alone, and behind it a window through which it reads: its memory does not grow with the ring. The links move
 * bytes and know neither records nor reconnecting: far/region.c does.
 *
 * Threads: a link is used by one thread at a time; connect and disconnect may come from another one than the rest. */
#ifndef FARLOG_FAR_H
#define FARLOG_FAR_H

#include <poll.h>
#include <string.h>

#include "base/uri.h"
#include "region/region.h"
#include "wire/piece.h"

struct far_link;
struct sockaddr;
struct staging;

/* What has come back. Both only grow. Stored by who uses the link; the first may be loaded meanwhile by another
 * thread. */
struct far_done {
	uint64_t persist_tag;
	uint64_t read_tag;
};

struct far_link_ops {
	/* Resolve, connect, say hello, fill link->welcome, make and register the copy, tell the target where its header
	 * lies. Blocks at most timeout_ns. OK; NOT_FOUND: nobody answers there; IO: the transport failed; or the target's
	 * refusal, whose result is returned and which is in *refusal (magic 0 when there was none). After another result
	 * than OK it may be called again. */
	int (*connect)(struct far_link *link, const struct far_hello *hello, struct far_refusal *refusal,
		uint64_t timeout_ns, struct farlog_error *error) FARLOG_MUST_CHECK;
	/* Write the spans from the copy and flush them by link->method, all under one doorbell; only the flush is
	 * signalled. One at a time. OK or IO. Never blocks. */
	int (*persist)(
		struct far_link *link, const struct region_span *spans, unsigned span_count, uint64_t tag) FARLOG_MUST_CHECK;
	/* Read a span into the copy, at far_place; complete when poll gives the tag. One at a time, beside a persist. OK or
	 * IO. */
	int (*read)(struct far_link *link, struct region_span span, uint64_t tag) FARLOG_MUST_CHECK;
	/* Write a few bytes (a multiple of 8, at most 64, inside a line) from the copy; nobody waits for them. OK or IO. */
	int (*write)(struct far_link *link, uint64_t off, uint32_t len) FARLOG_MUST_CHECK;
	/* Send a request; its answer appears in the copy at FAR_ANSWER_OFF. OK or IO. */
	int (*send)(struct far_link *link, const struct far_request *request) FARLOG_MUST_CHECK;
	/* Take what has come back into link->done, and progress for a transport that needs it. OK; IO: the link is broken,
	 * and link->broken says by what. */
	int (*poll)(struct far_link *link) FARLOG_MUST_CHECK;
	/* What to poll(2) for until poll's answer may have changed since this call began, at most count_max; 0: something
	 * has come back meanwhile. *nap_ns is lowered to the longest sleep where something may come that wakes nobody. The
	 * caller has found nothing, and nobody has used the link since. Who uses it during the sleep, and finds something,
	 * wakes the sleeper. Never blocks. NULL: spin on poll. */
	unsigned (*sleepers)(struct far_link *link, int *fds, unsigned count_max, uint64_t *nap_ns);
	/* With sleepers: an answer is expected sooner than a sleeper would wake up; so long poll is called. */
	uint64_t spin_ns;
	/* Tear the connection down. When it returns nothing touches the copy any more. Harmless without a connection. */
	void (*disconnect)(struct far_link *link);
	/* And free what was registered. */
	void (*close)(struct far_link *link);
};

struct far_link {
	const struct far_link_ops *ops;
	uint8_t *copy; /* page-aligned, of copy_len bytes; belongs to far/region.c, which frees it after close */
	uint64_t copy_len;
	uint64_t ring_len; /* of the ring that the copy is of */
	/* of a writer that is one of several: where the copy's records lie; NULL = with the header. Set before the first
	 * connect */
	struct staging *staging;
	uint64_t window_len; /* set before the first connect; 0 = the copy is of all the ring */
	uint64_t window_off; /* what the window shows now: of the ring's data, this offset first */
	struct far_welcome welcome;
	struct far_done done;
	enum farlog_flush_method method; /* set by far/region.c after connect */
	/* stored by another thread than connect's: nobody wants the connection any more, and connect returns soon */
	uint64_t is_connect_cancelled;
	/* as that, for all that one caller has; outlives the link. NULL: there is none. Set before the first connect */
	const uint64_t *cancel_requested;
	const char *caveat; /* of the path to the target, for the contract's text; NULL: none. Set by connect */
	char path[48];      /* and its properties, "" = not known. Set by connect */
	char broken[144];   /* why poll said IO: the first cause, not what followed from it */
};

/* What a transport can do: far/region.c takes the first method that the welcome allows. */
struct far_transport {
	const char *scheme;
	enum farlog_flush_method methods[4]; /* best first; FARLOG_FLUSH_NONE ends it */
	/* A link to uri->host and port over uri->provider; nothing is connected yet, and copy is NULL until the first
	 * connect, which makes it by far_copy. OK, UNSUPPORTED (library or device not there), NO_MEMORY. */
	int (*open)(
		const char *text, const struct uri *uri, struct far_link **link, struct farlog_error *error) FARLOG_MUST_CHECK;
};

extern const struct far_transport far_verbs;
extern const struct far_transport far_ofi;

#define FAR_WAIT_FD_COUNT_MAX 3u /* descriptors of a link */

/* A sleep until something may have come back by a link; one more descriptor may be added to it. */
struct far_link_sleep {
	struct pollfd fds[FAR_WAIT_FD_COUNT_MAX + 1];
	unsigned count;
	uint64_t nap_ns; /* at most timeout_ns: `sleepers` may have lowered it */
};

/* far_sleep_prepare -- with the link, of which nobody else makes use: get ready. False: do not sleep, something has
 * come back meanwhile. far_sleep_run -- others may use the link. A connection that is torn down meanwhile takes its
 * descriptors along: the thread that does so wakes the sleeper, or the sleep is short. True: all of nap_ns went by
 * without an event. */
bool far_sleep_prepare(struct far_link *link, struct far_link_sleep *nap, uint64_t timeout_ns);
bool far_sleep_run(struct far_link_sleep *nap);

/* far_is_connect_cancelled -- connect is to return. */
static inline bool far_is_connect_cancelled(const struct far_link *link)
{
	return atomic_load_acquire(&link->is_connect_cancelled) ||
		(link->cancel_requested != NULL && atomic_load_acquire(link->cancel_requested));
}

/* What a poll would find changed: completions, and the words that the target writes. */
struct far_snapshot {
	struct far_done done;
	uint64_t words[4];
};

static inline struct far_snapshot far_snapshot(const struct far_link *link)
{
	static const uint32_t offs[4] = {LAYOUT_CREDIT_OFF, LAYOUT_FENCE_OFF, FAR_ANSWER_OFF, FAR_FLUSHED_OFF};
	struct far_snapshot snapshot = {.done = link->done};

	for (unsigned i = 0; i < 4; i++)
		snapshot.words[i] = atomic_load_relaxed((const uint64_t *)(link->copy + offs[i]));
	return snapshot;
}

static inline bool far_snapshot_is_same(const struct far_snapshot *one, const struct far_snapshot *other)
{
	return memcmp(one, other, sizeof(*one)) == 0;
}

/* far_place -- where in the copy a byte of the ring lies. */
static inline uint8_t *far_place(const struct far_link *link, uint64_t off)
{
	return link->copy + (off < LAYOUT_DATA_OFF ? off : off - link->window_off);
}

/* far_read_key -- for these bytes of the ring. */
static inline uint64_t far_read_key(const struct far_link *link, struct region_span span)
{
	return link->welcome.keys[far_piece_to_read(span.off, span.len)];
}

/* far_copy -- allocate link->copy for a ring of this many bytes, once: page-aligned, zeroed, kept out of forked
 * children. OK or NO_MEMORY; NOT_A_RING: it is there, for a ring of another size. */
int far_copy(struct far_link *link, uint64_t size_bytes) FARLOG_MUST_CHECK;

/* far_leave -- ask the target to end this connection, and wait until it has: the role is free then, and whoever opens
 * next does not find it taken. What was sent before has been taken in, or never will be. Returns at once from a link
 * that is broken, and half a second later from a target that does not answer. The last call before disconnect. */
void far_leave(struct far_link *link);

/* far_probe_listener -- after an attempt to connect that no target answered: if something else accepts connections at
 * this address, *error says so and quotes its answer, instead of saying that nobody listens. Blocks at most half a
 * second; not at all where error is NULL. */
void far_probe_listener(const char *text, const struct uri *uri, const struct sockaddr *address, size_t address_len,
	const char *answer, struct farlog_error *error);

/* far_parse_welcome -- what the target of link->welcome says, checked before it is believed; its text ends. `foreign`:
 * the result for what is no target's welcome. UNSUPPORTED: another version; CORRUPT: a region that no target has. */
int far_parse_welcome(struct far_link *link, const char *text, const void *data, size_t len, int foreign,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* far_choose_method -- link->method: what the URI names, or the best that the target allows. Never another than the one
 * that was named: LEVEL. */
int far_choose_method(struct far_link *link, const struct far_transport *transport, const char *text,
	const struct uri *uri, struct farlog_error *error) FARLOG_MUST_CHECK;

/* far_fill_contract -- from the welcome and the method chosen. */
void far_fill_contract(
	const struct far_link *link, const struct far_transport *transport, struct farlog_contract *contract);

#endif
