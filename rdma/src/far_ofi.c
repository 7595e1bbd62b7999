/* far_ofi.c -- the client's end of a connection by libfabric: one endpoint, one completion queue, the copy of the ring.
 *
 * The provider makes progress only inside calls on the link (manual progress), and everything but the copy is made anew for each
 * connection: what the last target knew, its keys among it, opens nothing any more.
 *
 * How a persist is flushed:
 *   OFI_COMMIT    each write asks for FI_COMMIT_COMPLETE; all completions are waited for.
 *   OFI_DELIVERY  as that, with FI_DELIVERY_COMPLETE: the bytes are in the target's memory as its processor sees it.
 *   TARGET_CPU    writes, and a request behind them on the same endpoint (FI_ORDER_SAW); the answer is a word in the copy. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "atomics.h"
#include "clock.h"
#include "err.h"
#include "far.h"
#include "lib_ofi.h"

#define POST_COUNT_MAX 32u     /* what the provider has no room for yet; two spans, a request and the few words of the header */
#define ENTRY_COUNT 8u         /* completions read at a time */
#define EVENT_EVERY 64u        /* idle polls between two looks for a connection that ended */
#define WAIT_SPIN_NS 50000u    /* an answer is expected sooner than a sleeper would wake up */
#define NAP_FIRST_NS 20000u    /* while connecting */
#define NAP_LAST_NS 1000000u
#define TRY_COUNT 5u           /* connections until no answer counts as none */
#define HEADER_REGION_LEN LAYOUT_DATA_OFF
#define CM_DATA_LEN_MAX 256u

enum post_kind { POST_WRITE, POST_WORD, POST_READ, POST_REQUEST };

struct post {
	enum post_kind kind;
	uint64_t flags;
	struct region_span span;
	struct far_request request;
};

struct ofi_link {
	struct far_link link;
	const struct lib_ofi *lib;
	struct uri uri;
	char text[URI_PATH_LEN_MAX];
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_mr *copy_mr; /* only where the provider wants local memory registered */
	struct fid_mr *header_mr;
	void *copy_desc;
	struct far_done asked;
	unsigned persist_left; /* completions that the persist under way still needs */
	uint32_t flush_tag;    /* of the last request to flush */
	bool is_flushing;      /* its answer is waited for */
	bool is_read_left;
	uint64_t dialled[16]; /* the address; a struct sockaddr of whatever family */
	size_t dialled_len;
	const char *answer; /* that came instead of a target's in the last attempt; NULL: it was a target's, or there was none */
	unsigned idle_polls;
	unsigned post_first;
	unsigned post_count;
	struct post posts[POST_COUNT_MAX];
};

static struct ofi_link *ofi_of(struct far_link *link)
{
	return (struct ofi_link *)link;
}

/* breaks -- the first cause stays. */
static int breaks(struct ofi_link *ofi, const char *what, int failure)
{
	if (ofi->link.broken[0] == '\0')
		snprintf(ofi->link.broken, sizeof(ofi->link.broken), "%s%s%s", what, failure != 0 ? ": " : "",
			failure != 0 ? ofi->lib->strerror(failure) : "");
	return FARLOG_IO;
}

/* ---------------------------------------------------------------- posting */

static ssize_t post_rma(struct ofi_link *ofi, const struct post *post, void *context)
{
	struct iovec local = {far_place(&ofi->link, post->span.off), post->span.len};
	struct fi_rma_iov remote = {ofi->link.welcome.data_addr + post->span.off, post->span.len, ofi->link.welcome.data_key};
	struct fi_msg_rma msg = {.msg_iov = &local, .desc = &ofi->copy_desc, .iov_count = 1, .rma_iov = &remote, .rma_iov_count = 1,
		.context = context};

	return post->kind == POST_READ ? fi_readmsg(ofi->ep, &msg, post->flags) : fi_writemsg(ofi->ep, &msg, post->flags);
}

static ssize_t post_one(struct ofi_link *ofi, const struct post *post)
{
	switch (post->kind) {
	case POST_WORD:
		return fi_inject_write(ofi->ep, ofi->link.copy + post->span.off, post->span.len, 0,
			ofi->link.welcome.data_addr + post->span.off, ofi->link.welcome.data_key);
	case POST_REQUEST: return fi_inject(ofi->ep, &post->request, sizeof(post->request), 0);
	case POST_READ: return post_rma(ofi, post, &ofi->link.done.read_tag);
	default: return post_rma(ofi, post, &ofi->link.done.persist_tag);
	}
}

/* post_left -- what had to wait, in its order. OK or IO. */
static int post_left(struct ofi_link *ofi)
{
	while (ofi->post_count > 0) {
		ssize_t sent = post_one(ofi, &ofi->posts[ofi->post_first]);

		if (sent == -FI_EAGAIN)
			return FARLOG_OK;
		if (sent != 0)
			return breaks(ofi, "post", (int)-sent);
		ofi->post_first = (ofi->post_first + 1) % POST_COUNT_MAX;
		ofi->post_count--;
	}
	return FARLOG_OK;
}

/* is_waiting -- a word is taken from the copy when it is sent: one that waits is sent with its last value, and need not wait twice. */
static bool is_waiting(const struct ofi_link *ofi, const struct post *post)
{
	for (unsigned i = 0; i < ofi->post_count; i++) {
		const struct post *other = &ofi->posts[(ofi->post_first + i) % POST_COUNT_MAX];

		if (other->kind == POST_WORD && post->kind == POST_WORD && other->span.off == post->span.off && other->span.len == post->span.len)
			return true;
	}
	return false;
}

static int post(struct ofi_link *ofi, const struct post *post)
{
	ssize_t sent = ofi->post_count == 0 ? post_one(ofi, post) : -FI_EAGAIN;

	if (__builtin_expect(sent == 0, 1))
		return FARLOG_OK;
	if (sent != -FI_EAGAIN)
		return breaks(ofi, "post", (int)-sent);
	if (is_waiting(ofi, post))
		return FARLOG_OK;
	if (ofi->post_count == POST_COUNT_MAX)
		return breaks(ofi, "the target takes nothing any more: the send queue stays full", 0);
	ofi->posts[(ofi->post_first + ofi->post_count) % POST_COUNT_MAX] = *post;
	ofi->post_count++;
	return FARLOG_OK;
}

static int persist_by_target(struct ofi_link *ofi, const struct region_span *spans, unsigned span_count)
{
	struct post flush = {.kind = POST_REQUEST, .request = {.operation = FAR_FLUSH, .span_count = span_count}};
	int result = FARLOG_OK;

	for (unsigned i = 0; i < span_count && result == FARLOG_OK; i++) {
		flush.request.spans[i].off = spans[i].off;
		flush.request.spans[i].len = spans[i].len;
		result = post(ofi, &(struct post){.kind = POST_WRITE, .flags = FI_MORE, .span = spans[i]});
	}
	if (result != FARLOG_OK)
		return result;
	ofi->flush_tag = (ofi->flush_tag + 1) | FAR_LINK_TAG;
	ofi->is_flushing = true;
	flush.request.tag = ofi->flush_tag;
	return post(ofi, &flush);
}

static int ofi_persist(struct far_link *link, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	struct ofi_link *ofi = ofi_of(link);
	uint64_t flush = link->method == FARLOG_FLUSH_OFI_COMMIT ? FI_COMMIT_COMPLETE : FI_DELIVERY_COMPLETE;
	int result = FARLOG_OK;

	ofi->asked.persist_tag = tag;
	if (link->method == FARLOG_FLUSH_TARGET_CPU)
		return persist_by_target(ofi, spans, span_count);
	ofi->persist_left = span_count;
	for (unsigned i = 0; i < span_count && result == FARLOG_OK; i++)
		result = post(ofi, &(struct post){.kind = POST_WRITE, .span = spans[i],
			.flags = flush | FI_COMPLETION | (i + 1 < span_count ? FI_MORE : 0)});
	return result;
}

static int ofi_read(struct far_link *link, struct region_span span, uint64_t tag)
{
	struct ofi_link *ofi = ofi_of(link);

	ofi->asked.read_tag = tag;
	ofi->is_read_left = true;
	return post(ofi, &(struct post){.kind = POST_READ, .flags = FI_COMPLETION, .span = span});
}

static int ofi_write(struct far_link *link, uint64_t off, uint32_t len)
{
	return post(ofi_of(link), &(struct post){.kind = POST_WORD, .span = {off, len}});
}

static int ofi_send(struct far_link *link, const struct far_request *request)
{
	return post(ofi_of(link), &(struct post){.kind = POST_REQUEST, .request = *request});
}

/* ---------------------------------------------------------------- progress */

static void take_completion(struct ofi_link *ofi, const void *context)
{
	if (context == &ofi->link.done.read_tag && ofi->is_read_left) {
		ofi->is_read_left = false;
		ofi->link.done.read_tag = ofi->asked.read_tag;
	} else if (context == &ofi->link.done.persist_tag && ofi->persist_left > 0 && --ofi->persist_left == 0) {
		atomic_store_relaxed(&ofi->link.done.persist_tag, ofi->asked.persist_tag);
	}
}

static int take_failure(struct ofi_link *ofi)
{
	struct fi_cq_err_entry entry = {0};
	ssize_t count = fi_cq_readerr(ofi->cq, &entry, 0);

	if (count == -FI_EAGAIN)
		return FARLOG_OK;
	/* What was under way when a connection ends is cancelled: that is what follows, not the cause. */
	if (count > 0 && entry.err == FI_ECANCELED)
		return breaks(ofi, "the target closed the connection", 0);
	return breaks(ofi, "completion", count > 0 ? entry.err : (int)-count);
}

/* take_events -- on a connection that is up there is only one: its end. */
static int take_events(struct ofi_link *ofi)
{
	struct fi_eq_cm_entry entry;
	struct fi_eq_err_entry failure = {0};
	uint32_t event;
	ssize_t len = fi_eq_read(ofi->eq, &event, &entry, sizeof(entry), 0);

	if (len == -FI_EAGAIN)
		return FARLOG_OK;
	if (len == -FI_EAVAIL && fi_eq_readerr(ofi->eq, &failure, 0) > 0)
		return breaks(ofi, "connection", failure.err);
	return len < 0 ? breaks(ofi, "connection", (int)-len)
				   : event == FI_SHUTDOWN ? breaks(ofi, "the target closed the connection", 0) : FARLOG_OK;
}

static int take_answer(struct ofi_link *ofi)
{
	uint64_t word = atomic_load_acquire((const uint64_t *)(ofi->link.copy + FAR_FLUSHED_OFF));
	char text[64];

	if (word >> 32 != ofi->flush_tag)
		return FARLOG_OK;
	ofi->is_flushing = false;
	if ((uint32_t)word != 0) {
		snprintf(text, sizeof(text), "the target's flush failed: %s", farlog_result_text(-(int)(uint32_t)word));
		return breaks(ofi, text, 0);
	}
	atomic_store_relaxed(&ofi->link.done.persist_tag, ofi->asked.persist_tag);
	return FARLOG_OK;
}

/* turn -- progress: OK or IO. */
static int turn(struct ofi_link *ofi)
{
	struct fi_cq_entry entries[ENTRY_COUNT];
	ssize_t count;
	int result = FARLOG_OK;

	if (ofi->ep == NULL || ofi->link.broken[0] != '\0')
		return FARLOG_IO;
	if (__builtin_expect(ofi->post_count > 0, 0) && post_left(ofi) != FARLOG_OK)
		return FARLOG_IO;
	count = fi_cq_read(ofi->cq, entries, ENTRY_COUNT);
	for (ssize_t i = 0; i < count; i++)
		take_completion(ofi, entries[i].op_context);
	if (__builtin_expect(count < 0 && count != -FI_EAGAIN, 0))
		result = count == -FI_EAVAIL ? take_failure(ofi) : breaks(ofi, "completion queue", (int)-count);
	if (ofi->is_flushing && result == FARLOG_OK)
		result = take_answer(ofi);
	if (count <= 0 && result == FARLOG_OK && ++ofi->idle_polls % EVENT_EVERY == 0)
		result = take_events(ofi);
	return result;
}

static int ofi_poll(struct far_link *link)
{
	return turn(ofi_of(link));
}

/* What a poll would find changed: completions, and the words that the target writes. */
struct glance {
	struct far_done done;
	uint64_t words[4];
};

static struct glance look(const struct ofi_link *ofi)
{
	static const uint32_t offs[4] = {LAYOUT_CREDIT_OFF, LAYOUT_FENCE_OFF, FAR_ANSWER_OFF, FAR_FLUSHED_OFF};
	struct glance glance = {.done = ofi->link.done};

	for (unsigned i = 0; i < 4; i++)
		glance.words[i] = atomic_load_relaxed((const uint64_t *)(ofi->link.copy + offs[i]));
	return glance;
}

static void sleep_for_events(struct ofi_link *ofi, uint64_t timeout_ns)
{
	struct fid *fids[2] = {&ofi->cq->fid, &ofi->eq->fid};
	struct pollfd fds[2] = {{.fd = -1, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
	struct timespec timeout = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};

	for (unsigned i = 0; i < 2; i++)
		if (fi_control(fids[i], FI_GETWAIT, &fds[i].fd) != 0)
			return;
	if (ofi->post_count > 0 && timeout_ns > NAP_LAST_NS)
		timeout = (struct timespec){0, NAP_LAST_NS}; /* that there is room again wakes nobody */
	if (fi_trywait(ofi->fabric, fids, 2) == 0)
		(void)ppoll(fds, 2, &timeout, NULL);
}

static void ofi_wait(struct far_link *link, uint64_t timeout_ns)
{
	struct ofi_link *ofi = ofi_of(link);
	uint64_t until_ns = clock_after_ns(timeout_ns);
	uint64_t spin_until_ns = clock_after_ns(timeout_ns < WAIT_SPIN_NS ? timeout_ns : WAIT_SPIN_NS);
	struct glance before;
	uint64_t now_ns;

	if (ofi->ep == NULL)
		return;
	before = look(ofi);
	do {
		struct glance after;

		if (turn(ofi) != FARLOG_OK)
			return;
		after = look(ofi);
		if (memcmp(&before, &after, sizeof(before)) != 0)
			return;
		now_ns = clock_monotonic_ns();
	} while (now_ns < spin_until_ns);
	if (now_ns < until_ns)
		sleep_for_events(ofi, until_ns - now_ns);
}

/* ---------------------------------------------------------------- connecting */

static void ofi_disconnect(struct far_link *link)
{
	struct ofi_link *ofi = ofi_of(link);

	OFI_CLOSE(ofi->ep); /* first: from here on nothing of this connection reaches the copy */
	OFI_CLOSE(ofi->header_mr);
	OFI_CLOSE(ofi->copy_mr);
	OFI_CLOSE(ofi->cq);
	OFI_CLOSE(ofi->domain);
	OFI_CLOSE(ofi->eq);
	OFI_CLOSE(ofi->fabric);
	if (ofi->info != NULL)
		ofi->lib->freeinfo(ofi->info);
	ofi->info = NULL;
	ofi->copy_desc = NULL;
	ofi->persist_left = 0;
	ofi->is_flushing = ofi->is_read_left = false;
	ofi->post_first = ofi->post_count = 0;
}

/* open_endpoint -- 0 or -FI_E..., and *what says at what. */
static int open_endpoint(struct ofi_link *ofi, const char **what)
{
	enum fi_wait_obj wait_obj = ofi->link.ops->wait != NULL ? FI_WAIT_FD : FI_WAIT_NONE;
	struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_FD};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = wait_obj};
	int failure;

	*what = "fabric";
	failure = ofi->lib->fabric(ofi->info->fabric_attr, &ofi->fabric, NULL);
	if (failure == 0)
		failure = fi_eq_open(ofi->fabric, &eq_attr, &ofi->eq, NULL);
	*what = failure == 0 ? "domain" : *what;
	if (failure == 0)
		failure = fi_domain(ofi->fabric, ofi->info, &ofi->domain, NULL);
	if (failure == 0)
		failure = fi_cq_open(ofi->domain, &cq_attr, &ofi->cq, NULL);
	*what = failure == 0 ? "endpoint" : *what;
	if (failure == 0)
		failure = fi_endpoint(ofi->domain, ofi->info, &ofi->ep, NULL);
	if (failure == 0)
		failure = fi_ep_bind(ofi->ep, &ofi->eq->fid, 0);
	if (failure == 0)
		failure = fi_ep_bind(ofi->ep, &ofi->cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION);
	if (failure == 0)
		failure = fi_enable(ofi->ep);
	return failure;
}

static bool is_unreachable(int failure)
{
	return failure == FI_ECONNREFUSED || failure == FI_ETIMEDOUT || failure == FI_EHOSTUNREACH || failure == FI_ENETUNREACH;
}

/* take_refusal -- the connection was not made: by our target, or by whoever else is there. */
static int take_refusal(struct ofi_link *ofi, struct far_refusal *refusal, struct farlog_error *error)
{
	struct far_refusal said = {0};
	struct fi_eq_err_entry failure = {.err_data = &said, .err_data_size = sizeof(said)};

	if (fi_eq_readerr(ofi->eq, &failure, 0) < 0)
		return error_set(error, FARLOG_IO, 0, "connect to \"%s\": the event queue failed", ofi->text);
	if (failure.err_data_size == sizeof(said) && failure.err_data != &said && failure.err_data != NULL)
		memcpy(&said, failure.err_data, sizeof(said));
	if (failure.err_data_size >= sizeof(said) && said.magic == FAR_REFUSAL_MAGIC && said.result < 0) {
		said.text[sizeof(said.text) - 1] = '\0';
		*refusal = said;
		return error_set(error, said.result, 0, "target of \"%s\" refused: %s", ofi->text, said.text);
	}
	ofi->answer = "ended it"; /* the error's own text may be of the attempt: "Operation now in progress" */
	return error_set(error, is_unreachable(failure.err) ? FARLOG_NOT_FOUND : FARLOG_IO, 0,
		"connect to \"%s\": no farlog target answers at host %s, port %s: %s", ofi->text, ofi->uri.host, ofi->uri.port,
		ofi->lib->strerror(failure.err));
}

static int take_welcome(struct ofi_link *ofi, const uint8_t *data, size_t len, struct farlog_error *error)
{
	struct far_welcome *welcome = &ofi->link.welcome;

	if (len < sizeof(*welcome))
		return error_set(error, FARLOG_IO, 0, "connect to \"%s\": what answers is no farlog target: %zu bytes of welcome; expected %zu", ofi->text,
			len, sizeof(*welcome));
	memcpy(welcome, data, sizeof(*welcome));
	if (welcome->magic != FAR_WELCOME_MAGIC)
		return error_set(error, FARLOG_IO, 0, "connect to \"%s\": what answers is no farlog target: magic %08x", ofi->text, welcome->magic);
	if (welcome->version != FAR_VERSION)
		return error_set(error, FARLOG_UNSUPPORTED, 0, "connect to \"%s\": the target speaks version %u; expected %u", ofi->text,
			welcome->version, FAR_VERSION);
	if (welcome->size_bytes <= LAYOUT_DATA_OFF || welcome->size_bytes % LAYOUT_BLOCK_LEN != 0)
		return error_set(error, FARLOG_CORRUPT, 0, "connect to \"%s\": the target names a region of %lu bytes", ofi->text, welcome->size_bytes);
	return FARLOG_OK;
}

static int await_welcome(struct ofi_link *ofi, struct far_refusal *refusal, uint64_t until_ns, struct farlog_error *error)
{
	union {
		struct fi_eq_cm_entry entry;
		uint8_t room[sizeof(struct fi_eq_cm_entry) + CM_DATA_LEN_MAX];
	} answer;
	long nap_ns = NAP_FIRST_NS;

	for (;;) {
		uint32_t event = 0;
		ssize_t len = fi_eq_read(ofi->eq, &event, &answer, sizeof(answer), 0);

		if (len == -FI_EAVAIL)
			return take_refusal(ofi, refusal, error);
		if (len >= (ssize_t)sizeof(answer.entry) && event == FI_CONNECTED)
			return take_welcome(ofi, answer.room + sizeof(answer.entry), (size_t)len - sizeof(answer.entry), error);
		if (len != -FI_EAGAIN || clock_monotonic_ns() >= until_ns || atomic_load_acquire(&ofi->link.is_given_up)) {
			ofi->answer = len == -FI_EAGAIN ? "said nothing" : "said something else";
			return error_set(error, len == -FI_EAGAIN ? FARLOG_NOT_FOUND : FARLOG_IO, 0,
				"connect to \"%s\": no farlog target answers at host %s, port %s in time", ofi->text, ofi->uri.host, ofi->uri.port);
		}
		nanosleep(&(struct timespec){0, nap_ns}, NULL);
		nap_ns = nap_ns * 2 < (long)NAP_LAST_NS ? nap_ns * 2 : (long)NAP_LAST_NS;
	}
}

/* show_copy -- register it, and tell the target where its header lies. */
static int show_copy(struct ofi_link *ofi, struct farlog_error *error)
{
	struct far_link *link = &ofi->link;
	struct far_request header = {.operation = FAR_HEADER, .tag = FAR_LINK_TAG, .span_count = 1};
	int result = far_copy(link, link->welcome.size_bytes);
	int failure = 0;

	if (result != FARLOG_OK)
		return error_set(error, result, 0, "connect to \"%s\": a copy of %lu bytes: %s", ofi->text, link->welcome.size_bytes,
			farlog_result_text(result));
	if (ofi->info->domain_attr->mr_mode & FI_MR_LOCAL) {
		failure = ofi_register(ofi->domain, ofi->info, link->copy, link->copy_len, FI_READ | FI_WRITE, &ofi->copy_mr);
		if (failure == 0)
			ofi->copy_desc = fi_mr_desc(ofi->copy_mr);
	}
	if (failure == 0)
		failure = ofi_register(ofi->domain, ofi->info, link->copy, HEADER_REGION_LEN, FI_REMOTE_WRITE, &ofi->header_mr);
	if (failure != 0)
		return error_set(error, FARLOG_IO, 0, "connect to \"%s\": register the copy's %lu bytes (memory that may be locked: ulimit -l): %s",
			ofi->text, link->copy_len, ofi->lib->strerror(-failure));
	header.spans[0].off = ofi_address(ofi->info, link->copy);
	header.spans[0].len = fi_mr_key(ofi->header_mr);
	/* What an earlier connection was answered is not an answer to this one's. */
	atomic_store_relaxed((uint64_t *)(link->copy + FAR_FLUSHED_OFF), 0);
	return ofi_send(link, &header) == FARLOG_OK ? FARLOG_OK : error_set(error, FARLOG_IO, 0, "connect to \"%s\": %s", ofi->text, link->broken);
}

static int connect_once(struct far_link *link, const struct far_hello *hello, struct far_refusal *refusal, uint64_t until_ns,
	struct farlog_error *error)
{
	struct ofi_link *ofi = ofi_of(link);
	size_t room = 0;
	size_t room_len = sizeof(room);
	const char *what = "";
	char nobody[400];
	int failure;
	int result;

	ofi_disconnect(link);
	link->broken[0] = '\0';
	*refusal = (struct far_refusal){0};
	ofi->answer = NULL;
	result = ofi_info(ofi->lib, ofi->text, &ofi->uri, 0, &ofi->info, error);
	if (result != FARLOG_OK)
		return result;
	failure = open_endpoint(ofi, &what);
	if (failure == 0 && fi_getopt(&ofi->ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &room, &room_len) == 0 &&
		room < sizeof(struct far_welcome))
		result = error_set(error, FARLOG_UNSUPPORTED, 0, "connect to \"%s\": provider \"%s\" carries %zu bytes with a connection; expected %zu",
			ofi->text, ofi->uri.provider, room, sizeof(struct far_welcome));
	if (failure == 0 && result == FARLOG_OK) {
		snprintf(nobody, sizeof(nobody), "no farlog target answers at host %s, port %s", ofi->uri.host, ofi->uri.port);
		what = nobody;
		if (ofi->info->dest_addr != NULL && ofi->info->dest_addrlen <= sizeof(ofi->dialled))
			memcpy(ofi->dialled, ofi->info->dest_addr, ofi->dialled_len = ofi->info->dest_addrlen);
		failure = fi_connect(ofi->ep, ofi->info->dest_addr, hello, sizeof(*hello));
	}
	if (failure != 0)
		result = error_set(error, is_unreachable(-failure) ? FARLOG_NOT_FOUND : FARLOG_IO, 0, "connect to \"%s\": %s: %s", ofi->text, what,
			ofi->lib->strerror(-failure));
	if (result == FARLOG_OK)
		result = await_welcome(ofi, refusal, until_ns, error);
	if (result == FARLOG_OK)
		result = show_copy(ofi, error);
	if (result != FARLOG_OK)
		ofi_disconnect(link);
	return result;
}

/* libfabric 1.17's tcp provider sends the head of an answer and what belongs to it by two calls, and reads them by two that do not wait: what comes
 * late is lost, and with it why we were refused, or that we were not. So no answer is taken for one only when it is none several times. */
static int ofi_connect(struct far_link *link, const struct far_hello *hello, struct far_refusal *refusal, uint64_t timeout_ns,
	struct farlog_error *error)
{
	struct ofi_link *ofi = ofi_of(link);
	uint64_t until_ns = clock_after_ns(timeout_ns);
	long nap_ns = NAP_LAST_NS;

	for (unsigned i = 1;; i++) {
		int result = connect_once(link, hello, refusal, until_ns, error);

		if (result == FARLOG_OK || refusal->magic == FAR_REFUSAL_MAGIC)
			return result;
		if ((result != FARLOG_IO && result != FARLOG_NOT_FOUND) || i == TRY_COUNT || clock_monotonic_ns() >= until_ns ||
			atomic_load_acquire(&link->is_given_up)) {
			if (ofi->answer != NULL)
				far_knock(ofi->text, &ofi->uri, (const struct sockaddr *)ofi->dialled, ofi->dialled_len, ofi->answer, error);
			return result;
		}
		nanosleep(&(struct timespec){0, nap_ns}, NULL);
		nap_ns *= 2;
	}
}

static void ofi_close(struct far_link *link)
{
	ofi_disconnect(link);
	free(link);
}

#define OFI_OPS(wait_op)                                                                              \
	{                                                                                                 \
		.connect = ofi_connect, .persist = ofi_persist, .read = ofi_read, .write = ofi_write, .send = ofi_send, .poll = ofi_poll,     \
		.wait = wait_op, .disconnect = ofi_disconnect, .close = ofi_close                                                             \
	}

static const struct far_link_ops spinning_ops = OFI_OPS(NULL);
static const struct far_link_ops waiting_ops = OFI_OPS(ofi_wait);

static int ofi_open(const char *text, const struct uri *uri, struct far_link **link, struct farlog_error *error)
{
	const struct lib_ofi *lib;
	struct ofi_link *ofi;
	int result = lib_ofi_load(&lib, error);

	if (result != FARLOG_OK)
		return result;
	ofi = calloc(1, sizeof(*ofi));
	if (ofi == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "open region \"%s\": out of memory", text);
	ofi->lib = lib;
	ofi->uri = *uri;
	snprintf(ofi->text, sizeof(ofi->text), "%s", text);
	ofi->link.ops = strcmp(uri->wait, "spin") == 0 ? &spinning_ops : &waiting_ops;
	*link = &ofi->link;
	return FARLOG_OK;
}

const struct far_transport far_ofi = {
	.scheme = "ofi",
	.methods = {FARLOG_FLUSH_OFI_COMMIT, FARLOG_FLUSH_TARGET_CPU, FARLOG_FLUSH_OFI_DELIVERY, FARLOG_FLUSH_NONE},
	.open = ofi_open,
};
