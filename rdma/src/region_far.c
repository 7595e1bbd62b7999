/* region_far.c -- a ring on another host, as a region: a copy of it here, and a link that carries bytes both ways.
 *
 * The writer stages records in the copy and persist sends them; a drain reads through a window behind its copy of the header. When the link breaks, a thread of the region
 * connects again, and what was not acknowledged is sent again from the copy: the same bytes to the same places. The caller sees only
 * time go by, and its own deadline decides. A target that knows a higher epoch refuses the reconnection, and that is how a writer that was
 * stopped for a while learns that it has been fenced. */
#include "region_far.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "crc32c.h"
#include "err.h"
#include "far.h"
#include "mutant.h"
#include "stream.h"

#define SPAN_COUNT_MAX 2
#define FETCH_LEN_MAX (1u << 20)
#define CONNECT_NS 2000000000u     /* of an opening, and of each attempt to come back */
#define PATIENCE_NS 5000000000u    /* with a target that answers nothing: of cold calls, and of a persist before the link counts as broken */
#define MISS_COUNT 1024u           /* fruitless polls between two looks at how long a persist has been on its way */
#define RETRY_FIRST_NS 1000000u
#define RETRY_LAST_NS 100000000u

/* Who may use the link: the caller in UP, the connector in BROKEN. */
enum far_state {
	FAR_UP = 0,
	FAR_BROKEN = 1,  /* the caller saw it break; the connector is at work */
	FAR_BACK = 2,    /* connected again; the caller sends what is outstanding and goes on */
	FAR_REFUSED = 3, /* fenced: the fence word of the copy says so */
	FAR_FAILED = 4,  /* it will never be that ring again */
};

struct region_far {
	struct region region;
	struct far_link *link;
	const struct far_transport *transport;
	struct far_hello hello;
	uint64_t state;   /* enum far_state */
	uint64_t is_busy; /* the link is in use: in a shared writer one thread may flush while another looks for credit */
	uint64_t tag_asked;
	uint64_t tag_watched; /* on its way since watched_ns, or a little longer */
	uint64_t watched_ns;
	uint64_t miss_count;
	uint64_t read_tag;
	uint32_t request_tag;
	uint8_t role;
	bool is_let_in;     /* once: before that there is nothing to leave */
	bool is_connecting; /* the thread runs */
	unsigned span_count;
	struct region_span spans[SPAN_COUNT_MAX];
	pthread_t connector;
	uint32_t bell; /* futex word of the connector */
	uint64_t is_closing;
	char text[URI_PATH_LEN_MAX];
};

static const struct far_transport *const transports[] = {&far_verbs, &far_ofi};

static struct region_far *far_of(struct region *region)
{
	return (struct region_far *)region;
}

static void futex_ring(uint32_t *word)
{
	__atomic_add_fetch(word, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void futex_wait(uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
	struct timespec timeout = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, timeout_ns == UINT64_MAX ? NULL : &timeout, NULL, 0);
}

static bool take_link(struct region_far *far)
{
	return __atomic_exchange_n(&far->is_busy, 1, __ATOMIC_ACQUIRE) == 0;
}

static void give_link(struct region_far *far)
{
	atomic_store_release(&far->is_busy, 0);
}

/* break_off -- the caller's last act on a broken link. */
static void break_off(struct region_far *far)
{
	atomic_store_release(&far->state, FAR_BROKEN);
	futex_ring(&far->bell);
}

/* resume -- the first act on a new one: what the old one did not confirm. The words that nobody waits for may have been lost, too. */
static void resume(struct region_far *far)
{
	struct far_link *link = far->link;
	int result = FARLOG_OK;

	atomic_store_release(&far->state, FAR_UP);
	if (MUTANT(NOT_SENT_AGAIN)) /* but for its last line */
		far->spans[0] = (struct region_span){far->spans[0].off + far->spans[0].len - LAYOUT_LINE_LEN, LAYOUT_LINE_LEN};
	if (far->tag_asked != link->done.persist_tag)
		result = link->ops->persist(link, far->spans, far->span_count, far->tag_asked);
	if (result == FARLOG_OK && far->role == REGION_ROLE_DRAIN)
		result = link->ops->write(link, LAYOUT_CREDIT_OFF, 8);
	if (result != FARLOG_OK)
		break_off(far);
}

/* look -- what has come back by a link that is up. The caller has taken it. */
static inline __attribute__((always_inline)) void look(struct region_far *far)
{
	if (__builtin_expect(far->link->ops->poll(far->link) != FARLOG_OK, 0))
		break_off(far);
	atomic_store_relaxed(&far->region.tag_done, far->link->done.persist_tag);
}

/* turn -- progress of whatever state the link is in. The caller has taken it. */
static inline __attribute__((always_inline)) void turn(struct region_far *far)
{
	uint64_t state = atomic_load_acquire(&far->state);

	if (__builtin_expect(state != FAR_UP, 0)) {
		if (state != FAR_BACK)
			return;
		resume(far);
		if (atomic_load_relaxed(&far->state) != FAR_UP)
			return;
	}
	look(far);
}

static void far_write(struct region *region, uint64_t off, const void *src, size_t len)
{
	memcpy(far_of(region)->link->copy + off, src, len);
}

static void far_gather(struct region *region, uint64_t off, struct gather *gather)
{
	gather_build(far_of(region)->link->copy + off, gather);
}

static int far_persist(struct region *region, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	struct region_far *far = far_of(region);

	while (!take_link(far))
		cpu_relax();
	/* A cold call gave up on the last one: with a new connection nothing of it is on its way any more. */
	if (__builtin_expect(far->tag_asked != far->link->done.persist_tag, 0) && atomic_load_acquire(&far->state) == FAR_UP)
		break_off(far);
	for (unsigned i = 0; i < span_count; i++)
		far->spans[i] = spans[i];
	far->span_count = span_count;
	far->tag_asked = tag;
	/* A link that is not up sends it when it is back. The first look is taken while we have the link. */
	if (__builtin_expect(atomic_load_acquire(&far->state) == FAR_UP, 1)) {
		if (__builtin_expect(far->link->ops->persist(far->link, spans, span_count, tag) == FARLOG_OK, 1))
			look(far);
		else
			break_off(far);
	}
	give_link(far);
	return FARLOG_OK;
}

/* break_off_if_silent -- a target whose host died without a word acknowledged our bytes to the last and sends none itself: no transport ever finds
 * that out. The link is taken, and a persist is on its way. */
__attribute__((noinline, cold)) static void break_off_if_silent(struct region_far *far)
{
	uint64_t now_ns = clock_monotonic_ns();

	if (atomic_load_relaxed(&far->state) != FAR_UP || far->tag_watched != far->tag_asked) {
		far->tag_watched = far->tag_asked;
		far->watched_ns = now_ns;
	} else if (now_ns - far->watched_ns >= PATIENCE_NS) {
		far->watched_ns = now_ns;
		break_off(far);
	}
}

static int far_poll(struct region *region)
{
	struct region_far *far = far_of(region);

	if (take_link(far)) {
		turn(far);
		if (__builtin_expect(far->tag_asked != far->link->done.persist_tag, 0) && ++far->miss_count % MISS_COUNT == 0)
			break_off_if_silent(far);
		give_link(far);
	}
	return __builtin_expect(atomic_load_acquire(&far->state) == FAR_FAILED, 0) ? FARLOG_IO : FARLOG_OK;
}

static void far_wait(struct region *region, uint64_t timeout_ns)
{
	struct region_far *far = far_of(region);
	uint64_t a_while_ns = timeout_ns < RETRY_FIRST_NS ? timeout_ns : RETRY_FIRST_NS;

	if (atomic_load_acquire(&far->state) == FAR_UP && take_link(far)) {
		far->link->ops->wait(far->link, timeout_ns < PATIENCE_NS ? timeout_ns : PATIENCE_NS);
		if (far->tag_asked != far->link->done.persist_tag)
			break_off_if_silent(far);
		give_link(far);
	} else {
		nanosleep(&(struct timespec){0, (long)a_while_ns}, NULL);
	}
}

/* await -- for cold calls: turn until `is_done` says so. OK, or IO when the link broke or patience ran out. */
static int await(struct region_far *far, bool (*is_done)(const struct region_far *far, uint64_t tag), uint64_t tag)
{
	uint64_t until_ns = clock_after_ns(PATIENCE_NS);

	for (;;) {
		while (!take_link(far))
			cpu_relax();
		turn(far);
		give_link(far);
		if (is_done(far, tag))
			return FARLOG_OK;
		if (atomic_load_acquire(&far->state) != FAR_UP || clock_monotonic_ns() >= until_ns)
			return FARLOG_IO;
		if (far->link->ops->wait != NULL)
			far_wait(&far->region, RETRY_FIRST_NS);
		else
			cpu_relax();
	}
}

static bool is_read(const struct region_far *far, uint64_t tag)
{
	return far->link->done.read_tag == tag;
}

static bool is_answered(const struct region_far *far, uint64_t tag)
{
	return region_load_word(&far->region, FAR_ANSWER_OFF) >> 32 == tag;
}

/* begin -- take the link for a cold call. False: it is not up. */
static bool begin(struct region_far *far)
{
	while (!take_link(far))
		cpu_relax();
	if (atomic_load_acquire(&far->state) == FAR_BACK)
		resume(far);
	if (atomic_load_acquire(&far->state) == FAR_UP)
		return true;
	give_link(far);
	return false;
}

static int fetch_piece(struct region_far *far, struct region_span span)
{
	int result;

	if (!begin(far))
		return FARLOG_IO;
	far->region.read_count++;
	result = far->link->ops->read(far->link, span, ++far->read_tag);
	if (result != FARLOG_OK)
		break_off(far);
	give_link(far);
	if (result != FARLOG_OK)
		return FARLOG_IO;
	result = await(far, is_read, far->read_tag);
	/* Given up on: with a new connection, what comes of it late lands in no one's way. */
	if (result != FARLOG_OK && atomic_load_acquire(&far->state) == FAR_UP)
		break_off(far);
	return result;
}

static int far_fetch(struct region *region, uint64_t off, uint64_t len)
{
	int result = FARLOG_OK;

	if (off >= LAYOUT_DATA_OFF && far_of(region)->link->window_len != 0)
		return FARLOG_UNSUPPORTED; /* the copy has no place for it; read has */
	/* What lies behind the header's words in the copy is not the target's. */
	if (off < LAYOUT_DATA_OFF && off + len > FAR_HEADER_LEN)
		len = FAR_HEADER_LEN - off;
	for (uint64_t done = 0; done < len && result == FARLOG_OK; done += FETCH_LEN_MAX)
		result = fetch_piece(far_of(region),
			(struct region_span){off + done, len - done < FETCH_LEN_MAX ? len - done : FETCH_LEN_MAX});
	return result;
}

static int ask(struct region_far *far, struct far_request *request, uint32_t *answer)
{
	int result;

	if (!begin(far))
		return FARLOG_IO;
	request->tag = far->request_tag = far->request_tag + 1 == FAR_LINK_TAG ? 1 : far->request_tag + 1;
	result = far->link->ops->send(far->link, request);
	if (result != FARLOG_OK)
		break_off(far);
	give_link(far);
	if (result == FARLOG_OK)
		result = await(far, is_answered, request->tag);
	if (result == FARLOG_OK)
		*answer = (uint32_t)region_load_word(&far->region, FAR_ANSWER_OFF);
	return result;
}

static int far_flush(struct region *region, uint64_t off, uint64_t len)
{
	struct far_request request = {.operation = FAR_FLUSH, .span_count = 1, .spans = {{off, len}}};
	uint32_t answer;
	int result = ask(far_of(region), &request, &answer);

	return result == FARLOG_OK ? -(int)answer : result;
}

static void far_seal(struct region *region)
{
	(void)region; /* the link reads the copy as this processor does; the leader's persist sends it */
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

static int far_read(struct region *region, uint64_t off, void *dst, size_t len)
{
	struct region_far *far = far_of(region);
	struct far_link *link = far->link;
	int result = FARLOG_OK;

	/* A writer's copy is the ring: nobody else stores records. */
	if (link->window_len == 0 || off < LAYOUT_DATA_OFF) {
		if (link->window_len != 0)
			result = far_fetch(region, off, len);
		memcpy(dst, link->copy + off, len);
		return result;
	}
	for (size_t done = 0; done < len && result == FARLOG_OK; done += link->window_len) {
		size_t piece_len = len - done < link->window_len ? len - done : link->window_len;

		link->window_off = off + done - LAYOUT_DATA_OFF;
		result = fetch_piece(far, (struct region_span){off + done, piece_len});
		if (result == FARLOG_OK)
			memcpy((uint8_t *)dst + done, far_place(link, off + done), piece_len);
	}
	return result;
}

static void far_store_word(struct region *region, uint64_t off, uint64_t value)
{
	struct region_far *far = far_of(region);

	atomic_store_release((uint64_t *)(far->link->copy + off), value);
	while (!take_link(far))
		cpu_relax();
	if (atomic_load_acquire(&far->state) == FAR_UP && far->link->ops->write(far->link, off, 8) != FARLOG_OK)
		break_off(far);
	give_link(far);
}

static void far_populate(struct region *region)
{
	struct region_far *far = far_of(region);

	madvise(far->link->copy, far->link->copy_len, MADV_POPULATE_WRITE);
}

static void far_forget(struct region *region, uint64_t off, uint64_t len)
{
	(void)region; /* pages that a device has registered must stay */
	(void)off;
	(void)len;
}

static int far_lock(struct region *region, enum region_role role)
{
	return role == far_of(region)->role ? FARLOG_OK : FARLOG_UNSUPPORTED; /* who was let in holds it */
}

static void far_unlock(struct region *region, enum region_role role)
{
	(void)region; /* the connection holds it */
	(void)role;
}

static int far_is_locked(struct region *region, enum region_role role)
{
	struct far_request request = {.operation = FAR_LOCKED};
	uint32_t answer;
	int result = ask(far_of(region), &request, &answer);

	return result == FARLOG_OK ? (int)(answer >> role & 1) : result;
}

static void far_close(struct region *region)
{
	struct region_far *far = far_of(region);

	if (far->is_connecting) {
		atomic_store_release(&far->is_closing, 1);
		atomic_store_release(&far->link->is_given_up, 1);
		futex_ring(&far->bell);
		pthread_join(far->connector, NULL);
	}
	if (far->link != NULL) {
		uint8_t *copy = far->link->copy;
		uint64_t copy_len = far->link->copy_len;

		if (far->is_let_in && (far->state == FAR_UP || far->state == FAR_BACK))
			far_leave(far->link);
		far->link->ops->disconnect(far->link);
		far->link->ops->close(far->link);
		if (copy != NULL)
			munmap(copy, copy_len);
	}
	free(far);
}

#define FAR_OPS(wait_op)                                                                              \
	{                                                                                                 \
		.write = far_write, .gather = far_gather, .persist = far_persist, .poll = far_poll, .wait = wait_op, .flush = far_flush,      \
		.seal = far_seal, .read = far_read, .fetch = far_fetch, .store_word = far_store_word, .populate = far_populate,               \
		.forget = far_forget, .lock = far_lock, .unlock = far_unlock, .is_locked = far_is_locked, .close = far_close                                      \
	}

static const struct region_ops spinning_ops = FAR_OPS(NULL);
static const struct region_ops waiting_ops = FAR_OPS(far_wait);

/* ---------------------------------------------------------------- coming back */

/* take_refusal -- what becomes of the region. A target that has just been started may not know our grant yet: that passes. */
static enum far_state take_refusal(struct region_far *far, int result, const struct far_refusal *refusal)
{
	if (refusal->magic != FAR_REFUSAL_MAGIC)
		return FAR_BROKEN;
	if (result == FARLOG_FENCED && far->role == REGION_ROLE_WRITER) {
		far->region.fence_lsn = refusal->tail_lsn;
		far->region.is_fence_exact = refusal->is_tail_exact == 1;
		atomic_store_release((uint64_t *)(far->link->copy + LAYOUT_FENCE_OFF), refusal->epoch_min);
		return FAR_REFUSED;
	}
	return result == FARLOG_NOT_A_RING || result == FARLOG_UNSUPPORTED ? FAR_FAILED : FAR_BROKEN;
}

static enum far_state try_again(struct region_far *far)
{
	struct far_link *link = far->link;
	struct far_welcome before = link->welcome;
	struct far_refusal refusal = {0};
	int result;

	link->ops->disconnect(link);
	result = link->ops->connect(link, &far->hello, &refusal, CONNECT_NS, NULL);
	if (result != FARLOG_OK)
		return take_refusal(far, result, &refusal);
	if (memcmp(before.ring_uuid, link->welcome.ring_uuid, sizeof(before.ring_uuid)) != 0 || before.level > link->welcome.level ||
		!(link->welcome.flush_methods & 1u << link->method)) {
		link->ops->disconnect(link);
		return FAR_FAILED; /* another ring, or one that promises less than was asked for at open */
	}
	return FAR_BACK;
}

static void *connector_loop(void *context)
{
	struct region_far *far = context;
	uint64_t pause_ns = RETRY_FIRST_NS;

	while (!atomic_load_acquire(&far->is_closing)) {
		uint32_t seen = __atomic_load_n(&far->bell, __ATOMIC_ACQUIRE);
		enum far_state state;

		if (atomic_load_acquire(&far->state) != FAR_BROKEN) {
			pause_ns = RETRY_FIRST_NS;
			futex_wait(&far->bell, seen, UINT64_MAX);
			continue;
		}
		state = try_again(far);
		if (state != FAR_BROKEN) {
			atomic_store_release(&far->state, state);
			continue;
		}
		futex_wait(&far->bell, seen, pause_ns);
		pause_ns = pause_ns * 2 < RETRY_LAST_NS ? pause_ns * 2 : RETRY_LAST_NS;
	}
	return NULL;
}

/* ---------------------------------------------------------------- opening */

static int make_hello(struct region_far *far, const struct uri *uri, const struct region_ask *ask, struct farlog_error *error)
{
	far->hello = (struct far_hello){.magic = FAR_HELLO_MAGIC, .version = FAR_VERSION, .role = (uint8_t)ask->role, .epoch = ask->epoch,
		.ring_hash = crc32c_update(0, uri->ring, strlen(uri->ring))};
	if (uri->ring[0] == '\0')
		return error_set(error, FARLOG_INVALID, 0, "uri \"%s\" names no ring; expected .../ring behind the port", far->text);
	if (ask->role == REGION_ROLE_FORMAT)
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"ring \"%s\" is on another host: it is formatted and fenced by its target; run the command there", far->text);
	if (ask->token == NULL)
		return error_set(error, FARLOG_INVALID, 0, "ring \"%s\" is on another host, which lets in nobody without a grant; expected a grant's token",
			far->text);
	memcpy(far->hello.token, ask->token, FARLOG_TOKEN_LEN);
	if (getrandom(&far->hello.client_id, sizeof(far->hello.client_id), 0) != sizeof(far->hello.client_id))
		return error_set(error, FARLOG_IO, 0, "ring \"%s\": no random number for the client's identity", far->text);
	return FARLOG_OK;
}

static int start_connector(struct region_far *far, struct farlog_error *error)
{
	int failure = pthread_create(&far->connector, NULL, connector_loop, far);

	if (failure != 0)
		return error_set(error, FARLOG_IO, failure, "start connector of ring \"%s\"", far->text);
	far->is_connecting = true;
	return FARLOG_OK;
}

/* connect_first -- and fetch the header. What is undrained a writer fetches when it scans it; the free part of a ring never comes. */
static int connect_first(struct region_far *far, const struct uri *uri, struct farlog_error *error)
{
	struct far_link *link = far->link;
	struct far_refusal refusal = {0};
	int result = link->ops->connect(link, &far->hello, &refusal, CONNECT_NS, error);

	if (refusal.magic == FAR_REFUSAL_MAGIC)
		return error_set(error, result, 0, "target of \"%s\" refused: %.*s", far->text, (int)sizeof(refusal.text), refusal.text);
	far->is_let_in = result == FARLOG_OK;
	if (result == FARLOG_OK)
		result = far_choose_method(link, far->transport, far->text, uri, error);
	if (result != FARLOG_OK)
		return result;
	far_fill_contract(link, far->transport, &far->region.contract);
	far->region.base = link->copy;
	far->region.trouble = link->broken;
	if (far->role == REGION_ROLE_WRITER && stream_is_supported())
		far->region.streamed = link->copy;
	if (far_fetch(&far->region, 0, FAR_HEADER_LEN) != FARLOG_OK)
		return error_set(error, FARLOG_IO, 0, "read ring \"%s\" from its target: %s", far->text,
			link->broken[0] != '\0' ? link->broken : "no answer");
	return FARLOG_OK;
}

int region_far_open(const char *text, const struct uri *uri, const struct region_ask *ask, struct region **region,
	struct farlog_error *error)
{
	struct region_far *far = calloc(1, sizeof(*far));
	int result;

	if (far == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "open region \"%s\": out of memory", text);
	snprintf(far->text, sizeof(far->text), "%s", text);
	for (size_t i = 0; i < sizeof(transports) / sizeof(transports[0]); i++)
		if (strcmp(uri->scheme, transports[i]->scheme) == 0)
			far->transport = transports[i];
	far->role = (uint8_t)ask->role;
	far->region.is_far = true;
	far->region.fence_lsn = UINT64_MAX;
	far->region.patience_ns = PATIENCE_NS;
	result = make_hello(far, uri, ask, error);
	if (result == FARLOG_OK)
		result = far->transport->open(text, uri, &far->link, error);
	if (result == FARLOG_OK) {
		far->link->window_len = far->role == REGION_ROLE_WRITER ? 0 : FETCH_LEN_MAX;
		far->region.ops = far->link->ops->wait != NULL ? &waiting_ops : &spinning_ops;
		result = connect_first(far, uri, error);
	}
	if (result == FARLOG_OK)
		result = start_connector(far, error);
	if (result != FARLOG_OK) {
		far_close(&far->region);
		return result;
	}
	*region = &far->region;
	return FARLOG_OK;
}

#ifdef FARLOG_FAULT
struct far_link *region_far_link(struct region *region)
{
	return far_of(region)->link;
}
#endif
