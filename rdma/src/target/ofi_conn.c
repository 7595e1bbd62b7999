/* target/ofi_conn.c -- connections by libfabric at the target: admission, requests, words for the client, and the end.
 *
 * The end of a connection, whoever brings it about: ofi_conn_end, then ofi_conn_leave, when all completions that name
 * it have been taken. A revocation that comes after that returns at once: target_leave waits for it, and the thread
 * waits there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/atomics.h"
#include "base/err.h"
#include "target/ofi.h"

/* ---------------------------------------------------------------- how they end */

/* close_keys -- 0, or -FI_E...: then one may still open the ring. */
static int close_keys(struct ofi_conn *conn)
{
	int first = 0;

	for (unsigned piece = 0; piece < FAR_PIECE_COUNT; piece++) {
		struct fid_mr **key = &conn->keys[piece];
		int failure = *key == NULL ? 0 : fi_close(&(*key)->fid);

		if (failure == 0)
			*key = NULL;
		else if (first == 0)
			first = failure;
	}
	return first;
}

static int close_endpoint(struct ofi_conn *conn)
{
	int failure = conn->ep == NULL ? 0 : fi_close(&conn->ep->fid);

	if (failure == 0 && conn->ep != NULL)
		conn_limiter_remove(&conn->listener->acceptor.limiter, (const struct sockaddr *)&conn->conn.peer);
	if (failure == 0)
		conn->ep = NULL;
	return failure;
}

/* close_conn -- the keys first: what is still in the endpoint is rejected. */
static int close_conn(struct ofi_conn *conn, struct farlog_error *error)
{
	int key = close_keys(conn);
	int endpoint = close_endpoint(conn);

	conn->word_count = 0;
	conn->is_closed = true;
	conn->is_dead = key == 0 && endpoint == 0;
	if (!conn->is_dead)
		return error_set(error, FARLOG_IO, 0, "libfabric did not close the %s: %s",
			key != 0 ? "memory region" : "endpoint", conn->listener->lib->strerror(key != 0 ? -key : -endpoint));
	OFI_CLOSE(conn->slot_mr);
	return FARLOG_OK;
}

int ofi_conn_end(struct ofi_conn *conn, bool is_broken, struct farlog_error *error)
{
	if (conn->is_dead)
		return FARLOG_OK;
	if (!conn->is_closed)
		conn->conn.is_broken = is_broken;
	return close_conn(conn, error);
}

static int ofi_revoke(struct target_conn *base, struct farlog_error *error)
{
	struct ofi_conn *conn = (struct ofi_conn *)base;
	struct ofi_listener *listener = conn->listener;
	struct order order = {.conn = conn, .error = error};

	if (pthread_equal(pthread_self(), listener->thread))
		return ofi_conn_end(conn, false, error);
	pthread_mutex_lock(&listener->lock);
	order.is_done = conn->is_write_fenced;
	if (!order.is_done) {
		order.next = listener->orders;
		listener->orders = &order;
		atomic_store_release(&listener->order_count, listener->order_count + 1);
		(void)eventfd_write(listener->wakeup_fd, 1);
	}
	while (!order.is_done)
		pthread_cond_wait(&listener->done, &listener->lock);
	pthread_mutex_unlock(&listener->lock);
	return order.result;
}

/* run_orders -- with the lock held. */
static void run_orders(struct ofi_listener *listener)
{
	for (struct order *order = listener->orders; order != NULL; order = order->next) {
		order->result = ofi_conn_end(order->conn, false, order->error);
		order->is_done = true;
	}
	listener->orders = NULL;
	atomic_store_release(&listener->order_count, 0);
	pthread_cond_broadcast(&listener->done);
}

bool ofi_run_orders(struct ofi_listener *listener)
{
	if (atomic_load_acquire(&listener->order_count) == 0)
		return false;
	pthread_mutex_lock(&listener->lock);
	run_orders(listener);
	pthread_mutex_unlock(&listener->lock);
	return true;
}

/* leave -- from here on a revocation of this connection finds it done; one that came before is obeyed. */
void ofi_conn_leave(struct ofi_conn *conn)
{
	struct ofi_listener *listener = conn->listener;

	pthread_mutex_lock(&listener->lock);
	conn->is_write_fenced = true;
	run_orders(listener);
	pthread_mutex_unlock(&listener->lock);
	conn->is_left = true;
	target_leave(listener->target, &conn->conn);
}

/* send_word -- true: it is on its way, or never will be. */
static bool send_word(struct ofi_conn *conn, uint64_t off, uint64_t value)
{
	return fi_inject_write(conn->ep, &value, sizeof(value), 0, conn->header_addr + off, conn->header_key) != -FI_EAGAIN;
}

/* A client that takes nothing gets the last value of each word when it does again. */
static void ofi_write_word(struct target_conn *base, uint64_t off, uint64_t value)
{
	struct ofi_conn *conn = (struct ofi_conn *)base;
	unsigned i = 0;

	if (conn->is_closed || !conn->has_header || (conn->word_count == 0 && send_word(conn, off, value)))
		return;
	while (i < conn->word_count && conn->words[i].off != off)
		i++;
	if (i == WORD_COUNT)
		return; /* there are not so many different words */
	conn->words[i].off = off;
	conn->words[i].value = value;
	conn->word_count += i == conn->word_count;
}

void ofi_conn_send_words(struct ofi_conn *conn)
{
	while (conn->word_count > 0 && send_word(conn, conn->words[0].off, conn->words[0].value))
		memmove(&conn->words[0], &conn->words[1], --conn->word_count * sizeof(conn->words[0]));
}

static void ofi_wake(struct target_conn *base)
{
	struct ofi_listener *listener = ((struct ofi_conn *)base)->listener;

	atomic_store_release(&listener->has_answers, 1); /* first: a thread that does not sleep looks at this alone */
	(void)eventfd_write(listener->wakeup_fd, 1);
}

static const struct target_conn_ops conn_ops = {.revoke = ofi_revoke, .write_word = ofi_write_word, .wake = ofi_wake};

static int post_slot(struct ofi_slot *slot)
{
	struct ofi_conn *conn = slot->owner;
	void *desc = conn->slot_mr != NULL ? fi_mr_desc(conn->slot_mr) : NULL;

	return (int)fi_recv(conn->ep, &slot->message, sizeof(slot->message), desc, 0, slot);
}

/* answer_leave -- the endpoint's end is the client's answer, so the role is free before it. Nothing lands between the
 * two, not even the rest of a write that has begun: bytes come in only while this thread makes progress, which it does
 * not here, and requests that have come already are looked at by it, later. */
static void answer_leave(struct ofi_conn *conn)
{
	if (close_keys(conn) == 0)
		ofi_conn_leave(conn);
	may_fail(ofi_conn_end(conn, false, NULL));
}

void ofi_conn_read_request(struct ofi_slot *slot, size_t len)
{
	struct ofi_conn *conn = slot->owner;
	struct far_request request = slot->message.request;

	if (conn->is_closed)
		return;
	if (len >= sizeof(request) &&
		!target_check_request(conn->listener->target, &conn->conn, &request, conn->listener->looks)) {
		may_fail(ofi_conn_end(conn, true, NULL));
		return;
	}
	/* What is refused keeps its operation, which target_serve does not know. */
	if (len >= sizeof(request) && request.operation == FAR_PERSIST &&
		target_store_carried(&conn->conn, &slot->message, len - sizeof(request)))
		request.operation = FAR_FLUSH;
	else if (len > sizeof(request) && request.operation != FAR_PERSIST)
		len = 0;
	if (len < sizeof(request) || post_slot(slot) != 0) {
		may_fail(ofi_conn_end(conn, true, NULL));
	} else if (request.operation == FAR_HEADER) {
		conn->header_addr = request.spans[0].off;
		conn->header_key = request.spans[0].len;
		conn->has_header = true;
	} else if (request.operation == FAR_LEAVE) {
		answer_leave(conn);
	} else if (!target_serve(conn->listener->target, &conn->conn, &request)) {
		may_fail(ofi_conn_end(conn, true, NULL));
	}
}

/* ---------------------------------------------------------------- who comes */

static int fill_refusal(struct far_refusal *refusal, int result, const char *text)
{
	*refusal = (struct far_refusal){
		.magic = FAR_REFUSAL_MAGIC, .version = FAR_VERSION, .result = result, .tail_lsn = UINT64_MAX};
	snprintf(refusal->text, sizeof(refusal->text), "%s", text);
	return result;
}

static int check_hello(const void *data, size_t len, struct far_hello *hello, struct far_refusal *refusal)
{
	char text[sizeof(refusal->text)];

	memset(hello, 0, sizeof(*hello));
	memcpy(hello, data, len < sizeof(*hello) ? len : sizeof(*hello));
	if (len < 6 || hello->magic != FAR_HELLO_MAGIC)
		return fill_refusal(refusal, FARLOG_INVALID, "the connection request is not farlog's");
	if (hello->version != FAR_VERSION) {
		snprintf(text, sizeof(text), "client speaks version %u; expected %u", hello->version, FAR_VERSION);
		return fill_refusal(refusal, FARLOG_UNSUPPORTED, text);
	}
	if (len != sizeof(*hello)) {
		snprintf(text, sizeof(text), "connection request of %zu bytes; expected %zu", len, sizeof(*hello));
		return fill_refusal(refusal, FARLOG_INVALID, text);
	}
	return FARLOG_OK;
}

/* make_keys -- one to each piece of the ring that the role may reach. 0 or -FI_E... */
static int make_keys(struct ofi_conn *conn, struct fi_info *info)
{
	const struct target_ring *ring = conn->conn.ring;
	int failure = 0;

	for (unsigned piece = 0; piece < FAR_PIECE_COUNT && failure == 0; piece++) {
		struct region_span span = far_piece_span((enum far_piece)piece, ring->region->contract.size_bytes);
		unsigned rights = far_piece_rights((enum far_piece)piece, conn->conn.role);
		uint64_t access = (rights & FAR_MAY_READ ? FI_REMOTE_READ : 0) | (rights & FAR_MAY_WRITE ? FI_REMOTE_WRITE : 0);

		if (rights != 0)
			failure = ofi_register(
				conn->domain->domain, info, ring->served_bytes + span.off, span.len, access, &conn->keys[piece]);
	}
	return failure;
}

/* make_endpoint -- in the ring's domain, with keys of its own. 0 or -FI_E... */
static int make_endpoint(struct ofi_conn *conn, struct fi_info *info)
{
	struct ofi_listener *listener = conn->listener;
	int failure = make_keys(conn, info);

	if (failure == 0 && info->domain_attr->mr_mode & FI_MR_LOCAL)
		failure = ofi_register(conn->domain->domain, info, conn->slots, sizeof(conn->slots), FI_RECV, &conn->slot_mr);
	if (failure == 0)
		failure = fi_endpoint(conn->domain->domain, info, &conn->ep, conn);
	if (failure == 0)
		failure = fi_ep_bind(conn->ep, &listener->eq->fid, 0);
	if (failure == 0)
		failure = fi_ep_bind(conn->ep, &conn->domain->cq->fid, FI_TRANSMIT | FI_RECV);
	if (failure == 0)
		failure = fi_enable(conn->ep);
	for (unsigned i = 0; i < SLOT_COUNT && failure == 0; i++) {
		conn->slots[i].owner = conn;
		failure = post_slot(&conn->slots[i]);
	}
	return failure;
}

/* What makes bytes visible to this processor is enough where the ring gives no more. For the power-safe levels
 * FI_COMMIT_COMPLETE is offered by attestation alone: whether a provider's commit reaches the memory is not a thing
 * that it tells. */
static uint32_t methods_of(
	const struct ofi_listener *listener, const struct target_ring *ring, const struct far_welcome *welcome)
{
	uint32_t methods = 1u << FARLOG_FLUSH_TARGET_CPU;

	if (welcome->level <= FARLOG_LEVEL_VISIBLE)
		methods |= 1u << FARLOG_FLUSH_OFI_DELIVERY;
	if ((welcome->level <= FARLOG_LEVEL_VISIBLE || ring->is_commit_flush) && listener->info->caps & FI_RMA_PMEM)
		methods |= 1u << FARLOG_FLUSH_OFI_COMMIT;
	return (welcome->flush_methods & methods) | FAR_CARRIES;
}

/* admit -- OK: the connection belongs to its ring, and *welcome is complete. */
static int admit(struct ofi_conn *conn, struct fi_info *info, const struct far_hello *hello,
	struct far_welcome *welcome, struct far_refusal *refusal)
{
	struct ofi_listener *listener = conn->listener;
	char text[sizeof(refusal->text)];
	int result;
	int failure;

	result = target_admit(listener->target, hello, info->dest_addr, &conn->conn, welcome, refusal);
	if (result != FARLOG_OK)
		return result;
	conn->is_closed = conn->is_dead = conn->is_left = false;
	conn->domain = conn->conn.ring->key;
	failure = make_endpoint(conn, info);
	if (failure != 0) {
		may_fail(close_conn(conn, NULL)); /* what is not closed stays listed until the listener ends */
		snprintf(text, sizeof(text), "no endpoint for ring \"%.40s\": %s", conn->conn.ring->name,
			listener->lib->strerror(-failure));
		return fill_refusal(refusal, FARLOG_IO, text);
	}
	welcome->data_addr = ofi_address(info, conn->conn.ring->served_bytes);
	for (unsigned piece = 0; piece < FAR_PIECE_COUNT; piece++)
		welcome->keys[piece] = conn->keys[piece] != NULL ? fi_mr_key(conn->keys[piece]) : 0;
	welcome->flush_methods = methods_of(listener, conn->conn.ring, welcome);
	return FARLOG_OK;
}

static void answer_request(struct ofi_listener *listener, struct fi_info *info, const uint8_t *data, size_t len)
{
	struct far_welcome welcome = {0};
	struct far_refusal refusal = {0};
	struct ofi_conn *conn = NULL;
	struct far_hello hello = {0};
	bool has_endpoint;
	int result;

	if (atomic_load_acquire(&listener->is_stopping)) {
		result = fill_refusal(&refusal, FARLOG_IO, "the target is closing");
	} else if ((conn = calloc(1, sizeof(*conn))) == NULL) {
		result = fill_refusal(&refusal, FARLOG_NO_MEMORY, "the target is out of memory");
	} else {
		conn->conn.ops = &conn_ops;
		conn->listener = listener;
		conn->is_closed = conn->is_dead = conn->is_left = true; /* until it is let in */
		result = check_hello(data, len, &hello, &refusal);
	}
	if (result == FARLOG_OK)
		result = admit(conn, info, &hello, &welcome, &refusal);
	if (conn != NULL) {
		conn->next = listener->conns;
		listener->conns = conn;
	}
	has_endpoint = conn != NULL && conn->ep != NULL;
	if (result != FARLOG_OK)
		target_write_refusal(listener->target, info->dest_addr, &hello, &refusal);
	if (result != FARLOG_OK && !has_endpoint) {
		ofi_acceptor_reject(&listener->acceptor, info, &refusal, sizeof(refusal));
		return;
	}
	if (has_endpoint && fi_accept(conn->ep, &welcome, sizeof(welcome)) != 0)
		may_fail(close_conn(conn, NULL)); /* what is not closed stays listed until the listener ends */
	listener->lib->freeinfo(info);
}

bool ofi_accept_request(struct ofi_listener *listener)
{
	struct ofi_conn_request *request = ofi_acceptor_pop_request(&listener->acceptor);

	if (request == NULL)
		return false;
	answer_request(listener, request->info, request->data, request->len);
	free(request);
	return true;
}

static struct ofi_conn *conn_of(struct ofi_listener *listener, const struct fid *fid)
{
	for (struct ofi_conn *conn = listener->conns; conn != NULL; conn = conn->next)
		if (conn->ep != NULL && &conn->ep->fid == fid)
			return conn;
	return NULL;
}

/* take_events -- true: something happened. */
bool ofi_read_events(struct ofi_listener *listener)
{
	union {
		struct fi_eq_cm_entry entry;
		uint8_t room[sizeof(struct fi_eq_cm_entry) + CM_DATA_LEN_MAX];
	} event;
	struct fi_eq_err_entry failure = {0};
	struct ofi_conn *conn;
	uint32_t kind = 0;
	ssize_t len = fi_eq_read(listener->eq, &kind, &event, sizeof(event), 0);

	if (len == -FI_EAVAIL && fi_eq_readerr(listener->eq, &failure, 0) > 0) {
		event.entry.fid = failure.fid;
		kind = FI_SHUTDOWN; /* a connection that failed is one that ends */
	} else if (len < (ssize_t)sizeof(event.entry)) {
		return false;
	}
	conn = kind == FI_SHUTDOWN ? conn_of(listener, event.entry.fid) : NULL;
	if (conn != NULL)
		may_fail(ofi_conn_end(conn, len < 0, NULL));
	return true;
}
