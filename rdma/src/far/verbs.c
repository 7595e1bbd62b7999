/* far/verbs.c -- a client's link over verbs: the data path. Opening is in far/verbs_open.c, connecting in
 * far/verbs_connect.c.
 *
 * A persist is its WRITEs and a flush under one doorbell; only the flush is signalled. What does not fit into the send
 * queue is posted by poll, when slots have come back. */
#include "far/verbs.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define FLUSH_LEN_MAX (1u << 30) /* the length of a FLUSH is 32 bits on the wire */
#define READ_BACK_LEN 8u         /* a READ of nothing would not touch the memory */
/* polls without an answer before events are looked at: a system call, off the usual path */
#define IDLE_COUNT_CHECK 4096u
/* of a target whose device cannot announce an answer that it writes into memory, or has not yet */
#define ANSWER_NAP_NS 50000u
#define NAP_NS 1000000u

int verbs_link_fail(struct verbs_link *link, const char *format, ...)
{
	va_list args;

	if (!link->is_broken) {
		va_start(args, format);
		vsnprintf(link->link.broken, sizeof(link->link.broken), format, args);
		va_end(args);
	}
	link->is_broken = true;
	return FARLOG_IO;
}

/* ---------------------------------------------------------------- posting */

/* write_key -- there is one piece that a role writes. */
static uint32_t write_key(const struct verbs_link *link)
{
	return (uint32_t)link->link.welcome.keys[link->written];
}

static uint64_t target_address(const struct verbs_link *link, uint64_t off)
{
	return link->link.welcome.data_addr + off;
}

/* next_piece -- the next piece of a job's span, and step past it. */
static struct region_span next_piece(struct verbs_job *job, uint64_t len_max)
{
	struct region_span span = job->spans[job->span];
	struct region_span next = {span.off + job->at, span.len - job->at < len_max ? span.len - job->at : len_max};

	job->at += next.len;
	if (job->at == span.len) {
		job->span++;
		job->at = 0;
	}
	return next;
}

static bool is_last(const struct verbs_job *job)
{
	return job->span == job->span_count;
}

static void rewind_job(struct verbs_job *job)
{
	job->span = 0;
	job->at = 0;
}

static void post_write(struct verbs_link *link, struct region_span span)
{
	verbs_post_write(&link->queue, 0, link->link.copy + span.off, link->copy_mr->lkey, (uint32_t)span.len,
		write_key(link), target_address(link, span.off));
}

/* post_answered -- the request to the target's processor. The answer ends the persist, not this completion. */
static void post_answered(struct verbs_link *link)
{
	struct verbs_job *job = &link->persist;
	struct far_request *request = (struct far_request *)verbs_slot(&link->queue);

	link->answer_tag = FAR_LINK_TAG | (uint32_t)job->tag;
	link->left |= VERBS_LEFT_ANSWER;
	*request = (struct far_request){.operation = FAR_FLUSH, .tag = link->answer_tag, .span_count = job->span_count};
	for (unsigned i = 0; i < job->span_count; i++) {
		request->spans[i].off = job->spans[i].off;
		request->spans[i].len = job->spans[i].len;
	}
	verbs_post_send(&link->queue, VERBS_SIGNALLED, request, sizeof(*request));
	job->span = job->span_count;
}

/* read_back -- behind the WRITEs on the same queue pair: what the contract names, which is the credit as well, or else
 * the span's last bytes. */
static inline void read_back(struct verbs_link *link, unsigned marks, const struct region_span *span)
{
	uint64_t named = link->link.welcome.flush_addr;

	if (named != 0)
		verbs_post_read(
			&link->queue, marks, link->read_back_to, link->copy_mr->lkey, READ_BACK_LEN, link->read_back_key, named);
	else
		verbs_post_read(&link->queue, marks, verbs_slot(&link->queue), link->queue.scratch_mr->lkey, READ_BACK_LEN,
			write_key(link), target_address(link, span->off + span->len - READ_BACK_LEN));
}

static void post_read_back(struct verbs_link *link)
{
	struct verbs_job *job = &link->persist;
	struct region_span span = job->spans[job->span++];

	if (link->link.welcome.flush_addr != 0)
		job->span = job->span_count; /* once is enough */
	read_back(link, is_last(job) ? VERBS_SIGNALLED | VERBS_PERSIST_ENDS : 0, &span);
}

static void post_flush(struct verbs_link *link)
{
	bool is_persistent = link->link.welcome.level >= FARLOG_LEVEL_PERSISTENT;
	struct region_span span = next_piece(&link->persist, FLUSH_LEN_MAX);

	verbs_post_flush(&link->queue, is_last(&link->persist) ? VERBS_SIGNALLED | VERBS_PERSIST_ENDS : 0,
		is_persistent ? VERBS_FLUSH_PERSISTENT : VERBS_FLUSH_GLOBAL, span.len, write_key(link),
		target_address(link, span.off));
}

static void post_one_flush(struct verbs_link *link)
{
	switch (link->link.method) {
	case FARLOG_FLUSH_RDMA_FLUSH:
		post_flush(link);
		break;
	case FARLOG_FLUSH_RDMA_READ:
		post_read_back(link);
		break;
	default:
		post_answered(link);
		break;
	}
}

/* continue_persist -- post what fits into the send queue. */
static void continue_persist(struct verbs_link *link)
{
	struct verbs_job *job = &link->persist;

	for (; !job->is_flushing && verbs_room(&link->queue) > 0; job->is_flushing = is_last(job))
		post_write(link, next_piece(job, link->device.message_len_max));
	if (!job->is_flushing)
		return;
	if (is_last(job))
		rewind_job(job);
	while (verbs_room(&link->queue) > 0 && verbs_has_read_room(&link->queue)) {
		post_one_flush(link);
		if (is_last(job)) {
			link->left &= ~(unsigned)VERBS_LEFT_PERSIST;
			return;
		}
	}
}

static void continue_read(struct verbs_link *link)
{
	struct verbs_job *job = &link->read;

	while (!is_last(job) && verbs_room(&link->queue) > 0 && verbs_has_read_room(&link->queue)) {
		struct region_span span = next_piece(job, link->device.message_len_max);

		verbs_post_read(&link->queue, is_last(job) ? VERBS_SIGNALLED | VERBS_READ_ENDS : 0,
			far_place(&link->link, span.off), link->copy_mr->lkey, (uint32_t)span.len,
			(uint32_t)far_read_key(&link->link, span), target_address(link, span.off));
	}
	if (is_last(job))
		link->left &= ~(unsigned)VERBS_LEFT_READ;
}

static void continue_words(struct verbs_link *link)
{
	while (link->word_count > 0 && verbs_room(&link->queue) > 0)
		post_write(link, link->words[--link->word_count]);
	if (link->word_count == 0)
		link->left &= ~(unsigned)VERBS_LEFT_WORDS;
}

/* post_left -- post all that is wanted and fits, under one doorbell. */
static int post_left(struct verbs_link *link)
{
	uint64_t posted = link->queue.posted;
	int failure;

	if (verbs_room(&link->queue) == 0)
		return FARLOG_OK;
	verbs_begin(&link->queue);
	if (link->left & VERBS_LEFT_PERSIST)
		continue_persist(link);
	if (link->left & VERBS_LEFT_READ)
		continue_read(link);
	if (link->left & VERBS_LEFT_WORDS)
		continue_words(link);
	if (posted == link->queue.posted) {
		ibv_wr_abort(link->queue.qpx);
		return FARLOG_OK;
	}
	failure = verbs_ring(&link->queue);
	if (failure != 0)
		return verbs_link_fail(link, "posting work requests: %s", strerror(failure));
	return FARLOG_OK;
}

static int start_job(struct verbs_link *link, struct verbs_job *job, enum verbs_left left,
	const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	if (link->is_broken)
		return FARLOG_IO;
	link->left |= left;
	*job = (struct verbs_job){.span_count = span_count, .tag = tag};
	for (unsigned i = 0; i < span_count; i++)
		job->spans[i] = spans[i];
	return post_left(link);
}

/* is_plain -- may this persist be a pair: one WRITE and one FLUSH or READ behind it, with space for both, and nothing
 * that waits? */
static bool is_plain(const struct verbs_link *link, const struct region_span *span, unsigned span_count)
{
	return span_count == 1 && !link->is_broken && link->left == 0 && link->link.method != FARLOG_FLUSH_TARGET_CPU &&
		span->len <= link->device.message_len_max && span->len <= FLUSH_LEN_MAX && verbs_room(&link->queue) >= 2 &&
		verbs_has_read_room(&link->queue);
}

/* persist_pair -- what nearly every append is; the way by jobs takes more instructions. */
static int persist_pair(struct verbs_link *link, const struct region_span *span, uint64_t tag)
{
	const struct far_welcome *welcome = &link->link.welcome;
	uint64_t address = target_address(link, span->off);
	uint32_t key = write_key(link);
	int failure;

	link->persist.tag = tag;
	verbs_begin(&link->queue);
	verbs_post_write(&link->queue, VERBS_FOLLOWED, link->link.copy + span->off, link->copy_mr->lkey,
		(uint32_t)span->len, key, address);
	if (link->link.method == FARLOG_FLUSH_RDMA_FLUSH)
		verbs_post_flush(&link->queue, VERBS_SIGNALLED | VERBS_PERSIST_ENDS,
			welcome->level >= FARLOG_LEVEL_PERSISTENT ? VERBS_FLUSH_PERSISTENT : VERBS_FLUSH_GLOBAL, span->len, key,
			address);
	else
		read_back(link, VERBS_SIGNALLED | VERBS_PERSIST_ENDS, span);
	failure = verbs_ring(&link->queue);
	return failure == 0 ? FARLOG_OK : verbs_link_fail(link, "posting work requests: %s", strerror(failure));
}

int verbs_link_persist(struct far_link *far, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	struct verbs_link *link = verbs_link_of(far);

	if (__builtin_expect(is_plain(link, spans, span_count), 1))
		return persist_pair(link, spans, tag);
	return start_job(link, &link->persist, VERBS_LEFT_PERSIST, spans, span_count, tag);
}

int verbs_link_read(struct far_link *far, struct region_span span, uint64_t tag)
{
	return start_job(verbs_link_of(far), &verbs_link_of(far)->read, VERBS_LEFT_READ, &span, 1, tag);
}

static int advance_link(struct verbs_link *link);

int verbs_link_write(struct far_link *far, uint64_t off, uint32_t len)
{
	struct verbs_link *link = verbs_link_of(far);

	if (link->is_broken)
		return FARLOG_IO;
	/* A word that waits already is sent with what it is then. */
	for (unsigned i = 0; i < link->word_count; i++)
		if (link->words[i].off == off && link->words[i].len == len)
			return FARLOG_OK;
	if (verbs_room(&link->queue) == 0 && advance_link(link) != FARLOG_OK)
		return FARLOG_IO;
	if (link->word_count == VERBS_WORD_COUNT_MAX)
		return verbs_link_fail(link, "the target completes nothing: %u words wait to be posted", link->word_count);
	link->words[link->word_count++] = (struct region_span){off, len};
	link->left |= VERBS_LEFT_WORDS;
	return post_left(link);
}

int verbs_link_send(struct far_link *far, const struct far_request *request)
{
	struct verbs_link *link = verbs_link_of(far);
	uint8_t *slot = verbs_slot(&link->queue);
	int failure;

	if (link->is_broken)
		return FARLOG_IO;
	if (verbs_room(&link->queue) == 0)
		return verbs_link_fail(link, "the send queue is full: the target completes nothing");
	memcpy(slot, request, sizeof(*request));
	verbs_begin(&link->queue);
	verbs_post_send(&link->queue, VERBS_SIGNALLED, slot, sizeof(*request));
	failure = verbs_ring(&link->queue);
	return failure == 0 ? FARLOG_OK : verbs_link_fail(link, "posting a request: %s", strerror(failure));
}

/* ---------------------------------------------------------------- what comes back */

__attribute__((noinline, cold)) static int fail_by_completion(struct verbs_link *link, const struct ibv_wc *wc)
{
	return verbs_link_fail(link, "%s failed: %s (status %d, vendor %#x)", verbs_kind_name((unsigned)wc->wr_id),
		link->lib->wc_status_str(wc->status), (int)wc->status, wc->vendor_err);
}

static int check_events(struct verbs_link *link);

/* handle_receive -- the target has written an answer, which lies where answers do. */
__attribute__((noinline)) static int handle_receive(struct verbs_link *link, const struct ibv_wc *wc)
{
	int failure = verbs_queue_receive(&link->queue, (uint32_t)(wc->wr_id >> 8));

	link->is_announced = true;
	return failure == 0 ? FARLOG_OK : verbs_link_fail(link, "posting a receive: %s", strerror(failure));
}

/* handle_completions -- up to the one that ends a persist, which nearly always is the first and the last: others wait
 * for the next look. */
static int handle_completions(struct verbs_link *link)
{
	struct ibv_wc wc;
	int count;

	while ((count = ibv_poll_cq(link->queue.cq, 1, &wc)) == 1) {
		link->idle_count = 0;
		if (__builtin_expect(wc.status != IBV_WC_SUCCESS, 0))
			return fail_by_completion(link, &wc);
		if (wc.wr_id & VERBS_PERSIST_ENDS) {
			verbs_retire(&link->queue, &wc);
			atomic_store_relaxed(&link->link.done.persist_tag, link->persist.tag);
			return FARLOG_OK;
		}
		if ((wc.wr_id & VERBS_KIND_MASK) != VERBS_RECV)
			verbs_retire(&link->queue, &wc);
		else if (handle_receive(link, &wc) != FARLOG_OK)
			return FARLOG_IO;
		if (wc.wr_id & VERBS_READ_ENDS)
			link->link.done.read_tag = link->read.tag;
	}
	if (__builtin_expect(count < 0, 0))
		return verbs_link_fail(link, "polling the completion queue: %d", count);
	return __builtin_expect(++link->idle_count >= IDLE_COUNT_CHECK, 0) ? check_events(link) : FARLOG_OK;
}

static int handle_answer(struct verbs_link *link)
{
	uint64_t answer = atomic_load_acquire((const uint64_t *)(link->link.copy + FAR_FLUSHED_OFF));

	if (answer >> 32 != link->answer_tag)
		return FARLOG_OK;
	link->left &= ~(unsigned)VERBS_LEFT_ANSWER;
	if ((uint32_t)answer != 0)
		return verbs_link_fail(link, "the target's flush failed: %s", farlog_result_name(-(int)(uint32_t)answer));
	atomic_store_relaxed(&link->link.done.persist_tag, link->persist.tag);
	return FARLOG_OK;
}

/* fail_by_disconnect -- what made the target end the connection may have come as a completion after the last look at
 * them, and says more. */
static int fail_by_disconnect(struct verbs_link *link)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(link->queue.cq, 1, &wc) == 1)
		if (wc.status != IBV_WC_SUCCESS)
			return fail_by_completion(link, &wc);
	return verbs_link_fail(link, "the target closed the connection");
}

static int check_connection(struct verbs_link *link)
{
	struct rdma_cm_event *event;
	int result = FARLOG_OK;

	while (result == FARLOG_OK && link->lib->get_cm_event(link->channel, &event) == 0) {
		enum rdma_cm_event_type type = event->event;

		link->lib->ack_cm_event(event);
		if (type == RDMA_CM_EVENT_DISCONNECTED)
			result = fail_by_disconnect(link);
		else if (type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
			link->device.is_dead = true;
			result = verbs_link_fail(link, "RDMA device %s was removed", link->device.name);
		}
	}
	return result;
}

/* check_events -- of the device and the connection, which make no completion. */
__attribute__((noinline, cold)) static int check_events(struct verbs_link *link)
{
	struct verbs_device_event event;

	link->idle_count = 0;
	while (verbs_device_event(&link->device, &event))
		if (verbs_is_fatal(event.type) &&
			verbs_is_of(&event, link->queue.qp->qp_num, link->queue.cq, link->queue.port_num))
			return verbs_link_fail(
				link, "RDMA device %s: %s", link->device.name, link->lib->event_type_str(event.type));
	return check_connection(link);
}

/* continue_left -- with what is left. */
__attribute__((noinline)) static int continue_left(struct verbs_link *link)
{
	int result = link->left & VERBS_LEFT_ANSWER ? handle_answer(link) : FARLOG_OK;

	return result == FARLOG_OK && (link->left & VERBS_LEFT_POSTS) ? post_left(link) : result;
}

__attribute__((noinline)) static int advance_link(struct verbs_link *link)
{
	int result = link->is_broken ? FARLOG_IO : handle_completions(link);

	if (result == FARLOG_OK && __builtin_expect(link->left != 0, 0))
		result = continue_left(link);
	return result;
}

int verbs_link_poll(struct far_link *far)
{
	return advance_link(verbs_link_of(far));
}

/* ---------------------------------------------------------------- waiting */

static void ack_completion_events(struct verbs_link *link)
{
	struct ibv_cq *cq;
	void *context;

	while (link->lib->get_cq_event(link->completions, &cq, &context) == 0)
		link->lib->ack_cq_events(cq, 1);
}

unsigned verbs_link_wait_fds(struct far_link *far, int *fds, unsigned count_max, uint64_t *nap_ns)
{
	struct verbs_link *link = verbs_link_of(far);
	uint64_t nap_max_ns = link->left & VERBS_LEFT_ANSWER && !link->is_announced ? ANSWER_NAP_NS : NAP_NS;
	struct far_snapshot before;
	struct far_snapshot after;

	if (link->is_broken || link->completions == NULL || count_max < 3)
		return 0;
	before = far_snapshot(far);
	/* Ask for an event first, then look: what came before the asking makes none. An answer that is a word is among what
	 * is looked at: the look takes its announcement from the queue. */
	ack_completion_events(link);
	ibv_req_notify_cq(link->queue.cq, 0);
	if (advance_link(link) != FARLOG_OK || check_events(link) != FARLOG_OK)
		return 0; /* the next poll says so */
	after = far_snapshot(far);
	if (!far_snapshot_is_same(&before, &after))
		return 0;
	if (*nap_ns > nap_max_ns)
		*nap_ns = nap_max_ns;
	fds[0] = link->completions->fd;
	fds[1] = link->channel->fd;
	fds[2] = link->device.context->async_fd;
	return 3;
}
