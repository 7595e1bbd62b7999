/* far/ofi.c -- the client's end of a connection by libfabric: one endpoint, one completion queue, the copy of the ring.
 * This is the data path; connecting is in far/ofi_connect.c.
 *
 * The provider makes progress only inside calls on the link (manual progress), and everything but the copy is created
 * again * for each connection: what the last target knew, its keys among it, opens nothing any more.
 *
 * How a persist is flushed:
 *   OFI_COMMIT    each write asks for FI_COMMIT_COMPLETE; all completions are waited for.
 *   OFI_DELIVERY  as that, with FI_DELIVERY_COMPLETE: the bytes are in the target's memory as its processor sees it.
 *   TARGET_CPU    the answer to a request is a word in the copy. A few records go with the request, in one message: two
 *                 would cost two system calls at each end, and the target's processor is at work in any case. More goes
 *                 by writes before it on the same endpoint (FI_ORDER_SAW). */
#include "far/ofi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "base/err.h"

#define ENTRY_COUNT 8u      /* completions read at a time */
#define EVENT_EVERY 64u     /* idle polls between two looks for a connection that ended */
#define WAIT_SPIN_NS 50000u /* an answer is expected sooner than a sleeper would wake up */

/* mark_broken -- the first cause stays. */
static int mark_broken(struct ofi_link *ofi, const char *what, int failure)
{
	if (ofi->link.broken[0] == '\0')
		snprintf(ofi->link.broken, sizeof(ofi->link.broken), "%s%s%s", what, failure != 0 ? ": " : "",
			failure != 0 ? ofi->lib->strerror(failure) : "");
	return FARLOG_IO;
}

/* ---------------------------------------------------------------- posting */

/* target_of -- where the target has the span, and the key to it. */
static struct fi_rma_iov target_of(const struct ofi_link *ofi, const struct ofi_post *post)
{
	const struct far_welcome *welcome = &ofi->link.welcome;
	enum far_piece piece = post->kind == OFI_POST_READ ? far_piece_to_read(post->span.off, post->span.len) :
														 far_piece_to_write(post->span.off);
	uint64_t start = welcome->data_addr != 0 ? 0 : far_piece_span(piece, welcome->size_bytes).off;

	return (struct fi_rma_iov){welcome->data_addr + post->span.off - start, post->span.len, welcome->keys[piece]};
}

static ssize_t post_rma(struct ofi_link *ofi, const struct ofi_post *post, void *context)
{
	struct iovec local = {far_place(&ofi->link, post->span.off), post->span.len};
	struct fi_rma_iov remote = target_of(ofi, post);
	struct fi_msg_rma msg = {.msg_iov = &local,
		.desc = &ofi->copy_desc,
		.iov_count = 1,
		.rma_iov = &remote,
		.rma_iov_count = 1,
		.context = context};

	return post->kind == OFI_POST_READ ? fi_readmsg(ofi->ep, &msg, post->flags) :
										 fi_writemsg(ofi->ep, &msg, post->flags);
}

/* post_carrying -- a request, and behind it the bytes of its spans. The provider may look at them after this call: they
 * lie in the copy, and so does the request, whose place the next one takes when this one has been answered. */
static ssize_t post_carrying(struct ofi_link *ofi, const struct far_request *request)
{
	void *descs[3] = {ofi->copy_desc, ofi->copy_desc, ofi->copy_desc};
	struct iovec parts[3] = {{ofi->link.copy + FAR_REQUEST_OFF, sizeof(*request)}};
	struct fi_msg msg = {.msg_iov = parts, .desc = descs, .iov_count = 1 + request->span_count};

	memcpy(ofi->link.copy + FAR_REQUEST_OFF, request, sizeof(*request));
	for (unsigned i = 0; i < request->span_count; i++)
		parts[i + 1] = (struct iovec){far_place(&ofi->link, request->spans[i].off), request->spans[i].len};
	return fi_sendmsg(ofi->ep, &msg, 0);
}

static ssize_t post_one(struct ofi_link *ofi, const struct ofi_post *post)
{
	struct fi_rma_iov remote;

	switch (post->kind) {
	case OFI_POST_WORD:
		remote = target_of(ofi, post);
		return fi_inject_write(ofi->ep, ofi->link.copy + post->span.off, post->span.len, 0, remote.addr, remote.key);
	case OFI_POST_REQUEST:
		return fi_inject(ofi->ep, &post->request, sizeof(post->request), 0);
	case OFI_POST_PERSIST:
		return post_carrying(ofi, &post->request);
	case OFI_POST_READ:
		return post_rma(ofi, post, &ofi->link.done.read_tag);
	default:
		return post_rma(ofi, post, &ofi->link.done.persist_tag);
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
			return mark_broken(ofi, "post", (int)-sent);
		ofi->post_first = (ofi->post_first + 1) % OFI_POST_COUNT_MAX;
		ofi->post_count--;
	}
	return FARLOG_OK;
}

/* is_waiting -- a word is taken from the copy when it is sent: one that waits is sent with its last value, and need not
 * wait twice. */
static bool is_waiting(const struct ofi_link *ofi, const struct ofi_post *post)
{
	for (unsigned i = 0; i < ofi->post_count; i++) {
		const struct ofi_post *other = &ofi->posts[(ofi->post_first + i) % OFI_POST_COUNT_MAX];

		if (other->kind == OFI_POST_WORD && post->kind == OFI_POST_WORD && other->span.off == post->span.off &&
			other->span.len == post->span.len)
			return true;
	}
	return false;
}

static int post(struct ofi_link *ofi, const struct ofi_post *post)
{
	ssize_t sent = ofi->post_count == 0 ? post_one(ofi, post) : -FI_EAGAIN;

	if (__builtin_expect(sent == 0, 1))
		return FARLOG_OK;
	if (sent != -FI_EAGAIN)
		return mark_broken(ofi, "post", (int)-sent);
	if (is_waiting(ofi, post))
		return FARLOG_OK;
	if (ofi->post_count == OFI_POST_COUNT_MAX)
		return mark_broken(ofi, "the send queue stays full: the target completes nothing", 0);
	ofi->posts[(ofi->post_first + ofi->post_count) % OFI_POST_COUNT_MAX] = *post;
	ofi->post_count++;
	return FARLOG_OK;
}

/* is_carried -- by the request itself: records only. What else a ring has is stored by who holds a key to it, and the
 * key is what keeps it apart. */
static bool is_carried(const struct ofi_link *ofi, const struct region_span *spans, unsigned span_count)
{
	uint64_t len = 0;

	for (unsigned i = 0; i < span_count; i++) {
		if (spans[i].off < LAYOUT_DATA_OFF)
			return false;
		len += spans[i].len;
	}
	return len <= FAR_CARRIED_LEN_MAX && ofi->link.welcome.flush_methods & FAR_CARRIES &&
		ofi->info->tx_attr->iov_limit > span_count && ofi->info->ep_attr->max_msg_size >= sizeof(struct far_message);
}

static int persist_by_target(struct ofi_link *ofi, const struct region_span *spans, unsigned span_count)
{
	bool is_one = is_carried(ofi, spans, span_count);
	struct ofi_post flush = {.kind = is_one ? OFI_POST_PERSIST : OFI_POST_REQUEST,
		.request = {.operation = is_one ? FAR_PERSIST : FAR_FLUSH, .span_count = span_count}};
	int result = FARLOG_OK;

	for (unsigned i = 0; i < span_count && result == FARLOG_OK; i++) {
		flush.request.spans[i].off = spans[i].off;
		flush.request.spans[i].len = spans[i].len;
		if (!is_one)
			result = post(ofi, &(struct ofi_post){.kind = OFI_POST_WRITE, .flags = FI_MORE, .span = spans[i]});
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
		result = post(ofi,
			&(struct ofi_post){.kind = OFI_POST_WRITE,
				.span = spans[i],
				.flags = flush | FI_COMPLETION | (i + 1 < span_count ? FI_MORE : 0)});
	return result;
}

static int ofi_read(struct far_link *link, struct region_span span, uint64_t tag)
{
	struct ofi_link *ofi = ofi_of(link);

	ofi->asked.read_tag = tag;
	ofi->is_read_left = true;
	return post(ofi, &(struct ofi_post){.kind = OFI_POST_READ, .flags = FI_COMPLETION, .span = span});
}

static int ofi_write(struct far_link *link, uint64_t off, uint32_t len)
{
	return post(ofi_of(link), &(struct ofi_post){.kind = OFI_POST_WORD, .span = {off, len}});
}

static int ofi_send(struct far_link *link, const struct far_request *request)
{
	return post(ofi_of(link), &(struct ofi_post){.kind = OFI_POST_REQUEST, .request = *request});
}

/* ---------------------------------------------------------------- progress */

static void handle_completion(struct ofi_link *ofi, const void *context)
{
	if (context == &ofi->link.done.read_tag && ofi->is_read_left) {
		ofi->is_read_left = false;
		ofi->link.done.read_tag = ofi->asked.read_tag;
	} else if (context == &ofi->link.done.persist_tag && ofi->persist_left > 0 && --ofi->persist_left == 0) {
		atomic_store_relaxed(&ofi->link.done.persist_tag, ofi->asked.persist_tag);
	}
}

static int handle_failure(struct ofi_link *ofi)
{
	struct fi_cq_err_entry entry = {0};
	ssize_t count = fi_cq_readerr(ofi->cq, &entry, 0);

	if (count == -FI_EAGAIN)
		return FARLOG_OK;
	/* What was under way when a connection ends is cancelled: that is what follows, not the cause. */
	if (count > 0 && entry.err == FI_ECANCELED)
		return mark_broken(ofi, "the target closed the connection", 0);
	return mark_broken(ofi, "completion", count > 0 ? entry.err : (int)-count);
}

/* handle_events -- on a connection that is up there is only one: its end. */
static int handle_events(struct ofi_link *ofi)
{
	struct fi_eq_cm_entry entry;
	struct fi_eq_err_entry failure = {0};
	uint32_t event;
	ssize_t len = fi_eq_read(ofi->eq, &event, &entry, sizeof(entry), 0);

	if (len == -FI_EAGAIN)
		return FARLOG_OK;
	if (len == -FI_EAVAIL && fi_eq_readerr(ofi->eq, &failure, 0) > 0)
		return mark_broken(ofi, "connection", failure.err);
	return len < 0           ? mark_broken(ofi, "connection", (int)-len) :
		event == FI_SHUTDOWN ? mark_broken(ofi, "the target closed the connection", 0) :
							   FARLOG_OK;
}

static int handle_answer(struct ofi_link *ofi)
{
	uint64_t word = atomic_load_acquire((const uint64_t *)(ofi->link.copy + FAR_FLUSHED_OFF));
	char text[64];

	if (word >> 32 != ofi->flush_tag)
		return FARLOG_OK;
	ofi->is_flushing = false;
	if ((uint32_t)word != 0) {
		snprintf(text, sizeof(text), "the target's flush failed: %s", farlog_result_text(-(int)(uint32_t)word));
		return mark_broken(ofi, text, 0);
	}
	atomic_store_relaxed(&ofi->link.done.persist_tag, ofi->asked.persist_tag);
	return FARLOG_OK;
}

/* advance -- progress: OK or IO. */
static int advance(struct ofi_link *ofi)
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
		handle_completion(ofi, entries[i].op_context);
	if (__builtin_expect(count < 0 && count != -FI_EAGAIN, 0))
		result = count == -FI_EAVAIL ? handle_failure(ofi) : mark_broken(ofi, "completion queue", (int)-count);
	if (ofi->is_flushing && result == FARLOG_OK)
		result = handle_answer(ofi);
	if (count <= 0 && result == FARLOG_OK && ++ofi->idle_polls % EVENT_EVERY == 0)
		result = handle_events(ofi);
	return result;
}

static int ofi_poll(struct far_link *link)
{
	return advance(ofi_of(link));
}

/* arm_events -- the descriptors to poll for. False: do not sleep; something has come since `before`, or the provider
 * asks for another read. fi_trywait itself makes progress: a word that the target has written arrives in it without a
 * completion, and its bytes are then gone from the socket. So the words are compared once more behind it. */
static bool arm_events(struct ofi_link *ofi, const struct far_snapshot *before, int fds[2])
{
	struct fid *fids[2] = {&ofi->cq->fid, &ofi->eq->fid};
	struct far_snapshot after;

	for (unsigned i = 0; i < 2; i++)
		if (fi_control(fids[i], FI_GETWAIT, &fds[i]) != 0)
			return false;
	if (fi_trywait(ofi->fabric, fids, 2) != 0)
		return false;
	after = far_snapshot(&ofi->link);
	return far_snapshot_is_same(before, &after);
}

static unsigned ofi_sleepers(struct far_link *link, int *fds, unsigned count_max, uint64_t *nap_ns)
{
	struct ofi_link *ofi = ofi_of(link);
	struct far_snapshot before;

	if (ofi->ep == NULL || count_max < 2)
		return 0;
	if (ofi->post_count > 0 && *nap_ns > OFI_NAP_LAST_NS)
		*nap_ns = OFI_NAP_LAST_NS; /* free space in the queue wakes nobody */
	before = far_snapshot(link);
	return arm_events(ofi, &before, fds) ? 2 : 0;
}

static void ofi_close(struct far_link *link)
{
	ofi_link_disconnect(link);
	free(link);
}

#define OFI_OPS(wait_fds_op) \
	{.connect = ofi_link_connect, \
		.persist = ofi_persist, \
		.read = ofi_read, \
		.write = ofi_write, \
		.send = ofi_send, \
		.poll = ofi_poll, \
		.sleepers = wait_fds_op, \
		.spin_ns = WAIT_SPIN_NS, \
		.disconnect = ofi_link_disconnect, \
		.close = ofi_close}

static const struct far_link_ops spinning_ops = OFI_OPS(NULL); /* its queues have nothing to sleep on */
static const struct far_link_ops waiting_ops = OFI_OPS(ofi_sleepers);

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
