/* target/verbs_conn.c -- a connection at its target: the keys that it gets, the requests that it brings, its end.
 *
 * A client's keys are those of memory windows, bound to this ring and to this queue pair for this connection. Its end,
 * whoever brings it about: the windows are invalidated by requests on our own queue pair, whose completions say that no
 * write by those keys begins any more; then the queue pair goes to the error state and is destroyed, so that nothing is
 * left that could be answered. Where the device does neither, the connection stays, with its role, and is ended again
 * by whoever asks next: a fence is confirmed only by what the device did. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "base/err.h"
#include "target/verbs.h"

#define SEND_LEN 64u
#define ALIVE_NS 1000000000u

static int fill_refusal(struct far_refusal *refusal, int result, const char *text)
{
	*refusal = (struct far_refusal){
		.magic = FAR_REFUSAL_MAGIC, .version = FAR_VERSION, .result = result, .tail_lsn = UINT64_MAX};
	snprintf(refusal->text, sizeof(refusal->text), "%.*s", (int)sizeof(refusal->text) - 1, text);
	return result;
}

/* ---------------------------------------------------------------- the end */

/* free_all -- what of it can be freed. OK: nothing comes in by its keys any more, because their windows are invalid, or
 * because there are none and its queue pair takes nothing. */
static int free_all(struct verbs_conn *conn, struct farlog_error *error)
{
	int stopping = verbs_queue_stop(&conn->queue);
	const char *what = NULL;
	int keys = verbs_keys_free(conn, &what); /* first: a window that is still bound holds the queue pair */
	int closing = verbs_queue_close(&conn->queue);
	const char *name = conn->host != NULL ? conn->host->device.name : "";

	if (keys != 0)
		return error_set(error, FARLOG_IO, keys, "RDMA device %s %s", name, what);
	if (stopping != 0 && conn->queue.qp != NULL && !verbs_keys_are_invalid(conn))
		return error_set(error, FARLOG_IO, closing,
			"RDMA device %s neither stopped the queue pair (modify_qp: %s) nor destroyed it (destroy_qp)", name,
			strerror(stopping));
	return FARLOG_OK;
}

/* count_denied -- a receive that has come back although nobody stopped the queue pair yet: the device did, because of
 * what the peer sent. It is looked for before we stop it ourselves, and so a writer is counted whose key has just ended
 * under it. */
static void count_denied(struct verbs_conn *conn)
{
	struct ibv_wc wc;

	while (conn->queue.cq != NULL && ibv_poll_cq(conn->queue.cq, 1, &wc) == 1)
		if (wc.status != IBV_WC_SUCCESS && (wc.wr_id & VERBS_KIND_MASK) == VERBS_RECV)
			verbs_conn_deny(conn);
}

void verbs_conn_end(struct verbs_conn *conn, bool is_broken)
{
	struct verbs_listener *listener = conn->listener;
	struct farlog_error error = {0};
	bool is_dead;

	if (conn->is_dead)
		return;
	if (!conn->is_down) {
		conn->conn.is_broken = is_broken;
		verbs_keys_invalidate(conn);
		if (!is_broken) /* else the cause is known */
			count_denied(conn);
		may_fail(verbs_queue_stop(&conn->queue)); /* free_all stops it again, and judges */
		if (conn->is_admitted && !conn->is_goodbye)
			listener->lib->disconnect(conn->id); /* the peer is told now, not by its retries */
	}
	conn->is_down = true;
	is_dead = free_all(conn, &error) == FARLOG_OK;
	pthread_mutex_lock(&listener->lock);
	conn->is_dead = is_dead;
	conn->end_error = error;
	pthread_cond_broadcast(&listener->moved);
	pthread_mutex_unlock(&listener->lock);
}

void verbs_conn_run_order(struct verbs_conn *conn)
{
	struct verbs_listener *listener = conn->listener;

	verbs_conn_end(conn, false);
	pthread_mutex_lock(&listener->lock);
	conn->is_ordered = false;
	pthread_cond_broadcast(&listener->moved);
	pthread_mutex_unlock(&listener->lock);
}

bool verbs_conn_release(struct verbs_conn *conn)
{
	struct verbs_listener *listener = conn->listener;

	if (!conn->is_down)
		return false;
	if (!conn->is_admitted)
		return true;
	if (!conn->is_dead && !atomic_load_acquire(&listener->target->is_closing))
		return false;
	pthread_mutex_lock(&listener->lock); /* target_leave waits for those who revoke it: they wait no longer */
	conn->is_dead = true;
	pthread_cond_broadcast(&listener->moved);
	pthread_mutex_unlock(&listener->lock);
	target_leave(listener->target, &conn->conn);
	return true;
}

static int revoke(struct target_conn *base, struct farlog_error *error)
{
	struct verbs_conn *conn = (struct verbs_conn *)base;
	struct verbs_listener *listener = conn->listener;
	int result = FARLOG_OK;

	if (pthread_equal(pthread_self(), listener->thread))
		verbs_conn_end(conn, false);
	pthread_mutex_lock(&listener->lock);
	if (!conn->is_dead && !pthread_equal(pthread_self(), listener->thread)) {
		conn->is_ordered = true;
		atomic_store_release(&listener->has_orders, 1);
		(void)eventfd_write(listener->wakeup_fd, 1);
	}
	while (!conn->is_dead && conn->is_ordered)
		pthread_cond_wait(&listener->moved, &listener->lock);
	if (!conn->is_dead)
		result = error_set(error, FARLOG_IO, 0, "%s", conn->end_error.text);
	pthread_mutex_unlock(&listener->lock);
	return result;
}

void verbs_conn_deny(struct verbs_conn *conn)
{
	if (!conn->is_denied && conn->is_admitted)
		(void)atomic_add(&conn->conn.ring->counters.denied_count, 1);
	conn->is_denied = true;
}

/* ---------------------------------------------------------------- words and requests */

static bool send_word(struct verbs_conn *conn, uint64_t off, uint64_t value)
{
	struct verbs_queue *queue = &conn->queue;
	uint8_t *slot = verbs_slot(queue);

	if (verbs_room(queue) == 0)
		return false;
	memcpy(slot, &value, sizeof(value));
	verbs_begin(queue);
	if (conn->wants_events && queue->has_immediate && (off == FAR_FLUSHED_OFF || off == FAR_ANSWER_OFF))
		verbs_post_announced(queue, slot, conn->header_key, conn->header_addr + off);
	else
		verbs_post_write(
			queue, 0, slot, queue->scratch_mr->lkey, sizeof(value), conn->header_key, conn->header_addr + off);
	return verbs_ring(queue) == 0;
}

/* A client that takes nothing gets the last value of each word when it does again. */
static void write_word(struct target_conn *base, uint64_t off, uint64_t value)
{
	struct verbs_conn *conn = (struct verbs_conn *)base;
	unsigned i = 0;

	if (conn->is_down || !conn->has_header || (conn->word_count == 0 && send_word(conn, off, value)))
		return;
	while (i < conn->word_count && conn->words[i].off != off)
		i++;
	if (i == VERBS_WORDS_MAX)
		return; /* there are not so many different words */
	conn->words[i].off = off;
	conn->words[i].value = value;
	conn->word_count += i == conn->word_count;
}

static void send_words(struct verbs_conn *conn)
{
	while (conn->word_count > 0 && send_word(conn, conn->words[0].off, conn->words[0].value))
		memmove(&conn->words[0], &conn->words[1], --conn->word_count * sizeof(conn->words[0]));
}

void verbs_conn_ask_alive(struct verbs_conn *conn, uint64_t now_ns)
{
	if (conn->queue.posted != conn->posted_seen) {
		conn->posted_seen = conn->queue.posted;
		conn->asked_at_ns = now_ns;
	} else if (now_ns - conn->asked_at_ns >= ALIVE_NS) {
		write_word(&conn->conn, FAR_ALIVE_OFF, now_ns);
	}
}

static void wake(struct target_conn *base)
{
	struct verbs_listener *listener = ((struct verbs_conn *)base)->listener;

	atomic_store_release(&listener->has_answers, 1); /* first: a thread that does not sleep looks at this alone */
	(void)eventfd_write(listener->wakeup_fd, 1);
}

static const struct target_conn_ops conn_ops = {.revoke = revoke, .write_word = write_word, .wake = wake};

static void read_request(struct verbs_conn *conn, uint32_t index, uint32_t len)
{
	struct far_request request;

	memcpy(&request, verbs_receive_slot(&conn->queue, index), sizeof(request));
	if (len != sizeof(request) || verbs_queue_receive(&conn->queue, index) != 0 ||
		!target_check_request(conn->listener->target, &conn->conn, &request, conn->looks)) {
		verbs_conn_end(conn, true);
	} else if (request.operation == FAR_HEADER) {
		conn->header_addr = request.spans[0].off;
		conn->header_key = (uint32_t)request.spans[0].len;
		conn->has_header = true;
		conn->wants_events = request.flags & FAR_WANTS_EVENTS;
	} else if (request.operation == FAR_LEAVE) {
		conn->is_goodbye = true;
		verbs_conn_end(conn, false);
	} else if (!target_serve(conn->listener->target, &conn->conn, &request)) {
		verbs_conn_end(conn, true);
	}
}

/* note_failure -- the first tells the cause. Receives that come back although nobody stopped the queue pair mean that
 * the device did, because of what the peer sent. */
static void note_failure(struct verbs_conn *conn, const struct ibv_wc *wc)
{
	if ((wc->wr_id & VERBS_KIND_MASK) == VERBS_RECV)
		verbs_conn_deny(conn);
	verbs_conn_end(conn, true);
}

bool verbs_conn_progress(struct verbs_conn *conn)
{
	struct ibv_wc wc[8];
	int count = conn->is_down ? 0 : ibv_poll_cq(conn->queue.cq, 8, wc);

	conn->looks++;
	for (int i = 0; i < count && !conn->is_down; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			note_failure(conn, &wc[i]);
		else if ((wc[i].wr_id & VERBS_KIND_MASK) == VERBS_RECV)
			read_request(conn, (uint32_t)(wc[i].wr_id >> 8), wc[i].byte_len);
		else
			verbs_retire(&conn->queue, &wc[i]);
	}
	if (!conn->is_down)
		send_words(conn);
	return count > 0;
}

void verbs_conn_arm(struct verbs_conn *conn)
{
	if (conn->is_down || conn->is_armed)
		return;
	conn->is_armed = ibv_req_notify_cq(conn->queue.cq, 0) == 0;
}

/* ---------------------------------------------------------------- who comes */

static struct verbs_host *host_of(struct verbs_listener *listener, const struct rdma_cm_id *id)
{
	for (unsigned i = 0; i < listener->host_count; i++)
		if (verbs_device_is(&listener->hosts[i].device, id->verbs->device))
			return &listener->hosts[i];
	return NULL;
}

static const struct verbs_on_device *exposure_of(const struct verbs_conn *conn)
{
	const struct verbs_exposure *exposure = conn->conn.ring->key;

	return &exposure->on[conn->host - conn->listener->hosts];
}

/* make_queue -- in the ring's domain, with receives posted, ready. 0 or errno. */
static int make_queue(struct verbs_conn *conn, bool is_window_wanted, struct farlog_error *error)
{
	struct verbs_queue_ask ask = {.send_len = SEND_LEN,
		.recv_len = VERBS_RECV_COUNT,
		.is_window_wanted = is_window_wanted,
		.is_immediate_wanted = true,
		.tos = conn->listener->tos,
		.channel = conn->host->completions,
		.context = conn};
	int failure;

	if (verbs_queue_open(&conn->host->device, exposure_of(conn)->domain->pd, &ask, &conn->queue, error) != FARLOG_OK)
		return error->os_errno != 0 ? error->os_errno : EIO;
	failure = verbs_queue_init(
		&conn->queue, conn->id, verbs_keys_access(conn, FAR_PIECE_WRITER) | verbs_keys_access(conn, FAR_PIECE_DRAIN));
	for (uint32_t i = 0; i < VERBS_RECV_COUNT && failure == 0; i++)
		failure = verbs_queue_receive(&conn->queue, i);
	return failure == 0 ? verbs_queue_ready(&conn->queue, conn->id) : failure;
}

/* make_keys -- by windows; where the device has none, or does not bind them in time, by registrations for this
 * connection alone. Whoever has the key of a registration may use it from any queue pair of the tenant: it is counted,
 * and the next connection tries windows again. 0 or errno. */
static int make_keys(struct verbs_conn *conn, struct farlog_error *error)
{
	bool is_window_wanted =
		conn->host->device.has_window && (exposure_of(conn)->pieces[FAR_PIECE_WRITER].access & IBV_ACCESS_MW_BIND);
	int failure = make_queue(conn, is_window_wanted, error);

	if (failure == 0 && conn->queue.has_window) {
		if (verbs_keys_make(conn) == 0)
			return 0;
		if (free_all(conn, error) != FARLOG_OK) /* a bind that failed has taken the queue pair with it */
			return EIO;
		failure = make_queue(conn, false, error);
	}
	if (failure == 0)
		failure = verbs_keys_make(conn);
	if (failure == 0)
		(void)atomic_add(&conn->conn.ring->counters.registration_count, 1);
	return failure;
}

static void fill_welcome(struct verbs_conn *conn, struct far_welcome *welcome)
{
	unsigned registered = exposure_of(conn)->pieces[FAR_PIECE_WRITER].access;
	unsigned needed =
		welcome->level >= FARLOG_LEVEL_PERSISTENT ? VERBS_ACCESS_FLUSH_PERSISTENT : VERBS_ACCESS_FLUSH_GLOBAL;
	size_t used = strlen(welcome->probe);

	welcome->data_addr = (uint64_t)(uintptr_t)conn->conn.ring->served_bytes;
	for (unsigned piece = 0; piece < FAR_PIECE_COUNT; piece++)
		welcome->keys[piece] = verbs_keys_get(conn, (enum far_piece)piece);
	/* A drain stores the credit itself: a READ into its copy of that word would put an older one there. */
	if (conn->conn.ring->is_any_read_flush && conn->conn.role == REGION_ROLE_WRITER)
		welcome->flush_addr = welcome->data_addr + LAYOUT_CREDIT_OFF;
	welcome->flush_methods &=
		1u << FARLOG_FLUSH_RDMA_FLUSH | 1u << FARLOG_FLUSH_RDMA_READ | 1u << FARLOG_FLUSH_TARGET_CPU;
	if (!(registered & needed))
		welcome->flush_methods &= ~(1u << FARLOG_FLUSH_RDMA_FLUSH);
	snprintf(welcome->probe + used, sizeof(welcome->probe) - used, "; key: %s",
		conn->queue.has_window ? "memory window" : "registration");
}

/* accept_conn -- OK: accepted. */
static int accept_conn(struct verbs_conn *conn, const struct rdma_conn_param *asked, struct far_welcome *welcome,
	struct far_refusal *refusal)
{
	const struct verbs_device *device = &conn->host->device;
	struct rdma_conn_param param = {
		.private_data = welcome, .private_data_len = sizeof(*welcome), .rnr_retry_count = VERBS_RNR_RETRY_COUNT};
	struct farlog_error error = {0};
	char text[sizeof(refusal->text)];
	int failure = make_keys(conn, &error);

	if (failure == 0) {
		fill_welcome(conn, welcome);
		param.responder_resources =
			asked->responder_resources < device->read_depth_in ? asked->responder_resources : device->read_depth_in;
		param.initiator_depth =
			asked->initiator_depth < device->read_depth_out ? asked->initiator_depth : device->read_depth_out;
		param.qp_num = conn->queue.qp->qp_num;
		failure = conn->listener->lib->accept(conn->id, &param) == 0 ? 0 : errno;
	}
	if (failure == 0)
		return FARLOG_OK;
	snprintf(text, sizeof(text), "no queue pair for ring \"%.30s\": %.60s", conn->conn.ring->name,
		error.text[0] != '\0' ? error.text : strerror(failure));
	return fill_refusal(refusal, FARLOG_IO, text);
}

static int admit(
	struct verbs_conn *conn, const struct rdma_conn_param *asked, struct far_hello *hello, struct far_refusal *refusal)
{
	struct far_welcome welcome = {0};
	int result;

	if (asked->private_data_len < sizeof(*hello))
		return fill_refusal(refusal, FARLOG_INVALID, "the connection request is not farlog's");
	memcpy(hello, asked->private_data, sizeof(*hello));
	conn->host = host_of(conn->listener, conn->id);
	if (conn->host == NULL)
		return fill_refusal(
			refusal, FARLOG_IO, "the connection came by an RDMA device that was added after the target was started");
	result =
		target_admit(conn->listener->target, hello, &conn->id->route.addr.dst_addr, &conn->conn, &welcome, refusal);
	if (result != FARLOG_OK)
		return result;
	conn->is_admitted = true;
	return accept_conn(conn, asked, &welcome, refusal);
}

void verbs_conn_admit(struct verbs_listener *listener, struct rdma_cm_event *event)
{
	struct verbs_conn *conn = calloc(1, sizeof(*conn));
	struct far_refusal refusal = {0};
	struct far_hello hello = {0};

	if (conn == NULL) {
		struct rdma_cm_id *id = event->id;

		may_fail(fill_refusal(&refusal, FARLOG_NO_MEMORY, "the target is out of memory")); /* it only words why */
		listener->lib->reject(id, &refusal, sizeof(refusal));
		listener->lib->ack_cm_event(event);
		listener->lib->destroy_id(id);
		return;
	}
	conn->conn.ops = &conn_ops;
	conn->listener = listener;
	conn->id = event->id;
	conn->id->context = conn;
	/* In the list first: once it is admitted, other threads may order its end. */
	conn->next = listener->conns;
	listener->conns = conn;
	if (admit(conn, &event->param.conn, &hello, &refusal) != FARLOG_OK) {
		target_write_refusal(listener->target, &conn->id->route.addr.dst_addr, &hello, &refusal);
		listener->lib->reject(conn->id, &refusal, sizeof(refusal));
		verbs_conn_end(conn, true);
	}
	listener->lib->ack_cm_event(event);
}
