/* far/open.c -- opening a ring on another host, and the thread that connects again when its link has broken. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/err.h"
#include "base/thread.h"
#include "far/region.h"
#include "ring/stream.h"

/* of an opening: the kernel lets no connection be made while it takes down those of a process that was killed */
#define CONNECT_NS 5000000000u
#define RECONNECT_NS 2000000000u /* of each attempt to come back: another follows */
#define RETRY_LAST_NS 100000000u
/* of a fence that is not confirmed yet; longer takes one that needs somebody to look after it */
#define FENCE_NS 10000000000u
#define OPENING_NS 10000000000u /* from its first connection on, a writer's opening outlasts connections that break */

static const struct far_transport *const transports[] = {&far_verbs, &far_ofi};

void far_wake_connector(struct region_far *far)
{
	__atomic_add_fetch(&far->wakeup, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &far->wakeup, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void futex_wait(uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
	struct timespec timeout = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, timeout_ns == UINT64_MAX ? NULL : &timeout, NULL, 0);
}

/* ---------------------------------------------------------------- coming back */

/* apply_fence -- final, but for where the log ended: a target refuses us from the moment in which a fence is ordered,
 * and knows that when it is confirmed. */
static enum far_state apply_fence(struct region_far *far, const struct far_refusal *refusal)
{
	uint64_t now_ns = clock_monotonic_ns();
	bool is_open;

	if (far->fence_until_ns == 0)
		far->fence_until_ns = now_ns + FENCE_NS;
	is_open = refusal->tail_lsn == UINT64_MAX && now_ns < far->fence_until_ns;
	if (!is_open) {
		far->region.fence_lsn = refusal->tail_lsn;
		far->region.is_fence_exact = refusal->is_tail_exact == 1;
	}
	atomic_store_release(&far->region.is_fence_lsn_pending, is_open);
	atomic_store_release((uint64_t *)(far->link->copy + LAYOUT_FENCE_OFF), refusal->epoch_min);
	return is_open ? FAR_BROKEN : FAR_REFUSED;
}

/* apply_refusal -- what becomes of the region. A target that has just been started may not know our grant yet: that
 * passes. */
static enum far_state apply_refusal(struct region_far *far, int result, const struct far_refusal *refusal)
{
	if (refusal->magic != FAR_REFUSAL_MAGIC)
		return FAR_BROKEN;
	if (result == FARLOG_FENCED && far->role == REGION_ROLE_WRITER)
		return apply_fence(far, refusal);
	if (result == FARLOG_FENCED) {
		far->verdict = FARLOG_HELD; /* another drain or reader has come with our token */
		return FAR_FAILED;
	}
	return result == FARLOG_NOT_A_RING || result == FARLOG_UNSUPPORTED ? FAR_FAILED : FAR_BROKEN;
}

/* renew_token -- a target that does not know our grant, or not any more, may know another one: the next attempt brings
 * it. */
static void renew_token(struct region_far *far, int result, const struct far_refusal *refusal, const uint8_t *ring_uuid)
{
	if (far->renewal != NULL && refusal->magic == FAR_REFUSAL_MAGIC && result == FARLOG_INVALID)
		(void)far->renewal->renew(far->renewal, ring_uuid, far->hello.token);
}

static enum far_state reconnect_once(struct region_far *far)
{
	struct far_link *link = far->link;
	struct far_welcome before = link->welcome;
	struct far_refusal refusal = {0};
	int result;

	link->ops->disconnect(link);
	atomic_store_release(&far->is_torn, 1);
	result = link->ops->connect(link, &far->hello, &refusal, RECONNECT_NS, NULL);
	if (result != FARLOG_OK) {
		if (refusal.magic == FAR_REFUSAL_MAGIC)
			snprintf(link->broken, sizeof(link->broken), "the target refused: %.*s", (int)sizeof(refusal.text),
				refusal.text);
		renew_token(far, result, &refusal, before.ring_uuid);
		return apply_refusal(far, result, &refusal);
	}
	if (memcmp(before.ring_uuid, link->welcome.ring_uuid, sizeof(before.ring_uuid)) != 0 ||
		before.level > link->welcome.level || !(link->welcome.flush_methods & 1u << link->method)) {
		link->ops->disconnect(link);
		return FAR_FAILED; /* another ring, or one that promises less than was asked for at open */
	}
	return FAR_BACK;
}

static void *connector_loop(void *context)
{
	struct region_far *far = context;
	uint64_t pause_ns = RETRY_FIRST_NS;

	for (;;) {
		uint32_t seen = __atomic_load_n(&far->wakeup, __ATOMIC_ACQUIRE); /* before what it announces is looked at */
		enum far_state state;

		if (atomic_load_acquire(&far->is_closing))
			return NULL;
		if (atomic_load_acquire(&far->state) != FAR_BROKEN) {
			pause_ns = RETRY_FIRST_NS;
			futex_wait(&far->wakeup, seen, UINT64_MAX);
			continue;
		}
		state = reconnect_once(far);
		if (state != FAR_BROKEN) {
			atomic_store_release(&far->state, state);
			continue;
		}
		futex_wait(&far->wakeup, seen, pause_ns);
		pause_ns = pause_ns * 2 < RETRY_LAST_NS ? pause_ns * 2 : RETRY_LAST_NS;
	}
}

/* ---------------------------------------------------------------- opening */

static int make_hello(
	struct region_far *far, const struct uri *uri, const struct region_options *options, struct farlog_error *error)
{
	far->hello = (struct far_hello){.magic = FAR_HELLO_MAGIC,
		.version = FAR_VERSION,
		.role = (uint8_t)options->role,
		.epoch = options->epoch,
		.ring_hash = crc32c_update(0, uri->ring, strlen(uri->ring))};
	if (uri->ring[0] == '\0')
		return error_set(
			error, FARLOG_INVALID, 0, "uri \"%s\" names no ring; expected .../ring behind the port", far->text);
	if (options->role == REGION_ROLE_FORMAT)
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"ring \"%s\" is on another host: it is formatted and fenced by its target; run the command there",
			far->text);
	if (options->token == NULL)
		return error_set(error, FARLOG_INVALID, 0,
			"ring \"%s\" is on another host, which lets in nobody without a grant; expected a grant's token",
			far->text);
	memcpy(far->hello.token, options->token, FARLOG_TOKEN_LEN);
	far->hello.client_id = options->client_id;
	if (options->client_id == 0 &&
		getrandom(&far->hello.client_id, sizeof(far->hello.client_id), 0) != sizeof(far->hello.client_id))
		return error_set(error, FARLOG_IO, errno, "ring \"%s\": no random number for the client's identity", far->text);
	return FARLOG_OK;
}

static int open_wakeup(struct region_far *far, struct farlog_error *error)
{
	if (far->link->ops->sleepers == NULL)
		return FARLOG_OK;
	far->wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return far->wakeup_fd >= 0 ?
		FARLOG_OK :
		error_set(error, FARLOG_IO, errno, "open region \"%s\": eventfd for its waiting thread", far->text);
}

static int start_connector(struct region_far *far, struct farlog_error *error)
{
	int failure = thread_start(&far->connector, connector_loop, far);

	if (failure != 0)
		return error_set(error, FARLOG_IO, failure, "start connector of ring \"%s\"", far->text);
	far->is_connecting = true;
	return FARLOG_OK;
}

static int fetch_header(struct region_far *far, struct farlog_error *error)
{
	const char *trouble = far->link->broken;

	if (far->region.ops->data.fetch(&far->region, 0, FAR_HEADER_LEN) != FARLOG_OK)
		return error_set(error, FARLOG_IO, 0, "read ring \"%s\" from its target: %s", far->text,
			trouble[0] != '\0' ? trouble : "no answer");
	return FARLOG_OK;
}

static int connect_first(struct region_far *far, const struct uri *uri, struct farlog_error *error)
{
	struct far_link *link = far->link;
	struct far_refusal refusal = {0};
	int result = link->ops->connect(link, &far->hello, &refusal, CONNECT_NS, error);

	if (refusal.magic == FAR_REFUSAL_MAGIC)
		return error_set(
			error, result, 0, "target of \"%s\" refused: %.*s", far->text, (int)sizeof(refusal.text), refusal.text);
	far->was_admitted = result == FARLOG_OK;
	if (result == FARLOG_OK)
		result = far_choose_method(link, far->transport, far->text, uri, error);
	if (result != FARLOG_OK)
		return result;
	far_fill_contract(link, far->transport, &far->region.contract);
	far->region.base = link->copy;
	far->region.last_error = link->broken;
	if (far->role == REGION_ROLE_WRITER)
		far->region.built = link->copy;
	if (stream_is_supported())
		far->region.streamed = far->region.built;
	return FARLOG_OK;
}

int region_far_open(const char *text, const struct uri *uri, const struct region_options *options,
	struct region **region, struct farlog_error *error)
{
	struct region_far *far = calloc(1, sizeof(*far));
	int result;

	if (far == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "open region \"%s\": out of memory", text);
	snprintf(far->text, sizeof(far->text), "%s", text);
	for (size_t i = 0; i < sizeof(transports) / sizeof(transports[0]); i++)
		if (strcmp(uri->scheme, transports[i]->scheme) == 0)
			far->transport = transports[i];
	far->role = (uint8_t)options->role;
	far->verdict = FARLOG_IO;
	far->renewal = options->renewal;
	far->region.caps = (struct region_caps){.has_copy = true,
		.needs_fetch = true,
		.is_remote = true,
		.reports_log_end = true,
		.words_by_poll = true,
		.can_store_hints = true,
		.may_land_late = true,
		.hint_interval_ns = REGION_HINT_REQUEST_NS};
	far->wakeup_fd = -1;
	far->region.fence_lsn = UINT64_MAX;
	far->region.tag_lost = UINT64_MAX;
	far->region.persist_timeout_ns = PATIENCE_NS;
	result = make_hello(far, uri, options, error);
	if (result == FARLOG_OK)
		result = far->transport->open(text, uri, &far->link, error);
	if (result == FARLOG_OK) {
		far->link->staging = options->staging;
		far->link->cancel_requested = options->cancel_requested;
		far->link->window_len = far->role == REGION_ROLE_WRITER ? 0 : FETCH_LEN_MAX;
		far->region.caps.is_spinning = far->link->ops->sleepers == NULL;
		far->region.ops = far->link->ops->sleepers != NULL ? &far_waiting_ops : &far_spinning_ops;
		result = open_wakeup(far, error);
	}
	if (result == FARLOG_OK)
		result = connect_first(far, uri, error);
	if (result == FARLOG_OK) {
		far->opening_until_ns = clock_after_ns(OPENING_NS);
		result = start_connector(far, error);
	}
	/* What is undrained a writer fetches when it scans it; the free part of a ring never comes. */
	if (result == FARLOG_OK)
		result = fetch_header(far, error);
	if (result != FARLOG_OK) {
		far_close(&far->region);
		return result;
	}
	*region = &far->region;
	return FARLOG_OK;
}
