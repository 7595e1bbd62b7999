/* target/ofi.c -- the target's end of connections by libfabric: one thread that makes progress, lets in and revokes;
 * who comes is heard by another (target/ofi_acceptor.c).
 *
 * The provider makes progress only inside this thread's calls (manual progress): bytes of a client land in a ring only
 * while it is at work here. A revocation therefore is an order to this thread: it closes the memory region, so that the
 * key opens nothing, and the endpoint, so that nothing arrives, and only then is the order done. Each tenant has a
 * domain: a key of one opens nothing of another's. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"
#include "target/ofi.h"

#define ENTRY_COUNT 16u /* completions read at a time */
#define TICK_NS 200000u
#define SPIN_FIRST_NS 50000u /* after something happened: the next append is near */
#define SPIN_LAST_NS 1000000u
#define DOZE_NS 1000000u
#define LAST_POLLS 3u    /* without an event, before the listener is closed */
#define LAST_COUNT 1000u /* whoever comes */
#define EVENT_EVERY 64u  /* turns between two looks for connections that come and go, while there is no sleep between */

/* ---------------------------------------------------------------- the thread */

static bool read_failure(struct ofi_domain *domain)
{
	struct fi_cq_err_entry entry = {0};

	if (fi_cq_readerr(domain->cq, &entry, 0) <= 0)
		return false;
	/* Only receives have a context; a write of a word that failed shows as the end of its connection. */
	if (entry.op_context != NULL && !((struct ofi_slot *)entry.op_context)->owner->is_closed)
		/* cancelled: by the end of the connection */
		may_fail(ofi_conn_end(((struct ofi_slot *)entry.op_context)->owner, entry.err != FI_ECANCELED, NULL));
	return true;
}

static bool read_completions(struct ofi_listener *listener, struct ofi_domain *domain)
{
	struct fi_cq_msg_entry entries[ENTRY_COUNT];
	ssize_t count = fi_cq_read(domain->cq, entries, ENTRY_COUNT);

	listener->looks++;
	for (ssize_t i = 0; i < count; i++)
		if (entries[i].flags & FI_RECV && entries[i].op_context != NULL)
			ofi_conn_read_request(entries[i].op_context, entries[i].len);
	return count > 0 || (count == -FI_EAVAIL && read_failure(domain));
}

/* release_ended -- let go of connections that ended; the queues have just been seen empty. One may have ended since,
 * here or by an event, and its receives come back as cancelled: it goes the next time. */
static void release_ended(struct ofi_listener *listener)
{
	struct ofi_conn **link = &listener->conns;

	while (*link != NULL) {
		struct ofi_conn *conn = *link;

		ofi_conn_send_words(conn);
		if (conn->is_closed && !conn->is_left && (conn->is_dead || atomic_load_acquire(&listener->target->is_closing)))
			ofi_conn_leave(conn);
		if (conn->is_settled) {
			*link = conn->next;
			free(conn);
			continue;
		}
		conn->is_settled = conn->is_left;
		link = &conn->next;
	}
}

/* sleep_until_event -- true: bytes have come, or wakeup_fd was signalled. */
static bool sleep_until_event(struct ofi_listener *listener)
{
	uint64_t domain_count = atomic_load_acquire(&listener->domain_count);
	struct pollfd fds[DOMAIN_COUNT_MAX + 2] = {
		{.fd = listener->wakeup_fd, .events = POLLIN}, {.fd = listener->eq_fd, .events = POLLIN}};
	struct fid *fids[DOMAIN_COUNT_MAX + 1] = {&listener->eq->fid};
	eventfd_t rings;

	for (uint64_t i = 0; i < domain_count; i++) {
		fds[i + 2] = (struct pollfd){.fd = listener->domains[i].fd, .events = POLLIN};
		fids[i + 1] = &listener->domains[i].cq->fid;
	}
	if (fi_trywait(listener->fabric, fids, (int)domain_count + 1) != 0)
		return true;
	if (clock_poll(fds, (unsigned)domain_count + 2, atomic_load_relaxed(&listener->doze_ns)))
		return false;
	if (fds[0].revents & POLLIN)
		(void)eventfd_read(listener->wakeup_fd, &rings);
	return true;
}

/* make_progress -- true: something happened. */
static bool make_progress(struct ofi_listener *listener, bool is_event_due)
{
	uint64_t domain_count = atomic_load_acquire(&listener->domain_count);
	bool is_busy = ofi_run_orders(listener) | ofi_accept_request(listener);
	bool is_drained = true;

	for (uint64_t i = 0; i < domain_count; i++)
		is_drained &= !read_completions(listener, &listener->domains[i]);
	if (is_event_due || ++listener->turns % EVENT_EVERY == 0)
		is_busy |= ofi_read_events(listener);
	if (is_drained && listener->conns != NULL)
		release_ended(listener);
	return is_busy || !is_drained;
}

/* next_spin_ns -- writes leave no completion here: only how a doze ends tells whether they come. Where one is ended
 * soon, appends are dense, and the thread spins for longer before the next. */
static uint64_t next_spin_ns(uint64_t spin_ns, bool is_woken, uint64_t dozed_ns)
{
	if (!is_woken)
		return SPIN_FIRST_NS;
	if (dozed_ns > SPIN_FIRST_NS)
		return spin_ns;
	return spin_ns * 2 < SPIN_LAST_NS ? spin_ns * 2 : SPIN_LAST_NS;
}

static void *serve_loop(void *context)
{
	struct ofi_listener *listener = context;
	uint64_t busy_at_ns = 0;
	uint64_t tick_at_ns = 0;
	uint64_t spin_ns = SPIN_FIRST_NS;
	bool is_event_due = true;

	while (!atomic_load_acquire(&listener->is_stopping)) {
		bool is_busy = make_progress(listener, is_event_due);
		uint64_t now_ns = clock_monotonic_ns();

		if (is_busy)
			busy_at_ns = now_ns;
		if (target_has_answers(&listener->has_answers) ||
			now_ns - tick_at_ns >= atomic_load_relaxed(&listener->tick_ns)) {
			tick_at_ns = now_ns;
			target_tick(listener->target, &listener->has_answers);
		}
		is_event_due =
			!listener->is_spinning && now_ns - busy_at_ns >= spin_ns && !atomic_load_relaxed(&listener->has_answers);
		if (is_event_due) {
			bool is_woken = sleep_until_event(listener);
			uint64_t awake_ns = clock_monotonic_ns();

			spin_ns = next_spin_ns(spin_ns, is_woken, awake_ns - now_ns);
			busy_at_ns = is_woken ? awake_ns : busy_at_ns;
		}
	}
	return NULL;
}

/* ---------------------------------------------------------------- the listener */

/* reject_pending -- connection requests left as the listener closes. A request belongs to whoever reads it, and the
 * provider frees none that nobody has. It takes a turn to accept a socket and another to read what it asks for. */
static void reject_pending(struct ofi_listener *listener)
{
	for (unsigned count = 0, fruitless = 0; count < LAST_COUNT && fruitless < LAST_POLLS; count++)
		fruitless = ofi_acceptor_poll(&listener->acceptor) | ofi_accept_request(listener) ? 0 : fruitless + 1;
}

static void ofi_close(void *context)
{
	struct ofi_listener *listener = context;

	if (listener->is_running) {
		atomic_store_release(&listener->is_stopping, 1);
		(void)eventfd_write(listener->wakeup_fd, 1);
		pthread_join(listener->thread, NULL);
		listener->thread = pthread_self(); /* what is left to do is done here */
	}
	ofi_acceptor_stop(&listener->acceptor);
	if (listener->is_running)
		reject_pending(listener);
	for (struct ofi_conn *conn = listener->conns; conn != NULL; conn = conn->next)
		may_fail(ofi_conn_end(conn, false, NULL));
	OFI_CLOSE(listener->acceptor.pep);
	for (uint64_t i = 0; i < listener->domain_count; i++)
		while (read_completions(listener, &listener->domains[i]))
			;
	while (listener->conns != NULL) {
		struct ofi_conn *conn = listener->conns;

		listener->conns = conn->next;
		if (!conn->is_left)
			ofi_conn_leave(conn);
		free(conn);
	}
	for (uint64_t i = 0; i < listener->domain_count; i++) {
		OFI_CLOSE(listener->domains[i].cq);
		OFI_CLOSE(listener->domains[i].domain);
	}
	OFI_CLOSE(listener->acceptor.eq);
	OFI_CLOSE(listener->eq);
	OFI_CLOSE(listener->fabric);
	if (listener->info != NULL)
		listener->lib->freeinfo(listener->info);
	if (listener->wakeup_fd >= 0)
		close(listener->wakeup_fd);
	if (listener->acceptor.wakeup_fd >= 0)
		close(listener->acceptor.wakeup_fd);
	conn_limiter_close(&listener->acceptor.limiter);
	pthread_cond_destroy(&listener->done);
	pthread_mutex_destroy(&listener->lock);
	free(listener);
}

static int start_listening(struct ofi_listener *listener, const struct uri *uri)
{
	struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_FD};
	uint16_t port = 0;
	int failure = listener->lib->fabric(listener->info->fabric_attr, &listener->fabric, NULL);

	if (failure == 0)
		failure = fi_eq_open(listener->fabric, &eq_attr, &listener->eq, NULL);
	if (failure == 0)
		failure = fi_control(&listener->eq->fid, FI_GETWAIT, &listener->eq_fd);
	if (failure == 0)
		failure = ofi_acceptor_open(&listener->acceptor, &port);
	if (failure != 0)
		return failure;
	snprintf(listener->target->uri, sizeof(listener->target->uri),
		strchr(uri->host, ':') != NULL ? "ofi:%s://[%s]:%u" : "ofi:%s://%s:%u", uri->provider, uri->host, port);
	return 0;
}

static int ofi_open(
	struct farlog_target *target, const char *text, const struct uri *uri, void **context, struct farlog_error *error)
{
	struct ofi_listener *listener = calloc(1, sizeof(*listener));
	int result;
	int failure;

	if (listener == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "listen at \"%s\": out of memory", text);
	listener->target = target;
	memcpy(listener->provider, uri->provider, sizeof(listener->provider));
	listener->doze_ns = DOZE_NS;
	listener->tick_ns = TICK_NS;
	listener->is_spinning = strcmp(uri->wait, "spin") == 0;
	pthread_mutex_init(&listener->lock, NULL);
	pthread_cond_init(&listener->done, NULL);
	listener->wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	listener->acceptor.listener = listener;
	listener->acceptor.wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	result = listener->wakeup_fd < 0 || listener->acceptor.wakeup_fd < 0 ?
		error_set(error, FARLOG_IO, errno, "listen at \"%s\": eventfd", text) :
		lib_ofi_load(&listener->lib, error);
	if (result == FARLOG_OK)
		result = ofi_info(listener->lib, text, uri, FI_SOURCE, &listener->info, error);
	if (result == FARLOG_OK) {
		failure = start_listening(listener, uri);
		if (failure != 0)
			result = error_set(error, FARLOG_IO, 0, "listen at \"%s\": %s", text, listener->lib->strerror(-failure));
	}
	if (result == FARLOG_OK) {
		failure = thread_start(&listener->thread, serve_loop, listener);
		listener->is_running = failure == 0;
		failure = failure == 0 ? ofi_acceptor_start(&listener->acceptor) : failure;
		if (failure != 0)
			result = error_set(error, FARLOG_IO, failure, "start the thread that listens at \"%s\"", text);
	}
	if (result == FARLOG_OK)
		*context = listener;
	else
		ofi_close(listener);
	return result;
}

static int open_domain(struct ofi_listener *listener, struct ofi_domain *domain)
{
	struct fi_cq_attr cq_attr = {.size = 4096, .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD};
	int failure = fi_domain(listener->fabric, listener->info, &domain->domain, NULL);

	if (failure == 0)
		failure = fi_cq_open(domain->domain, &cq_attr, &domain->cq, NULL);
	if (failure == 0)
		failure = fi_control(&domain->cq->fid, FI_GETWAIT, &domain->fd);
	if (failure != 0) {
		OFI_CLOSE(domain->cq);
		OFI_CLOSE(domain->domain);
	}
	return failure;
}

static int ofi_expose(void *context, struct target_ring *ring, void **key, struct farlog_error *error)
{
	struct ofi_listener *listener = context;
	struct ofi_domain *domain;
	uint64_t i = 0;
	int failure = 0;

	pthread_mutex_lock(&listener->lock);
	while (i < listener->domain_count && strcmp(listener->domains[i].tenant, ring->tenant) != 0)
		i++;
	domain = &listener->domains[i < DOMAIN_COUNT_MAX ? i : 0];
	if (i == DOMAIN_COUNT_MAX) {
		failure = -FI_ENOSPC;
	} else if (i == listener->domain_count) {
		memcpy(domain->tenant, ring->tenant, sizeof(domain->tenant));
		failure = open_domain(listener, domain);
		if (failure == 0)
			atomic_store_release(&listener->domain_count, i + 1);
	}
	pthread_mutex_unlock(&listener->lock);
	if (failure != 0)
		return error_set(error, FARLOG_IO, 0,
			"serve ring \"%s\": a protection domain for tenant \"%s\" (at most %u tenants): %s", ring->name,
			ring->tenant, DOMAIN_COUNT_MAX, listener->lib->strerror(-failure));
	*key = domain;
	return FARLOG_OK;
}

static void ofi_withdraw(void *context, struct target_ring *ring, void *key)
{
	(void)context; /* each connection has a memory region of its own, and the domain is the tenant's */
	(void)ring;
	(void)key;
}

static const char *ofi_provider(const void *context, bool *is_committing)
{
	const struct ofi_listener *listener = context;

	*is_committing = listener->info->caps & FI_RMA_PMEM;
	return listener->provider;
}

const struct target_transport target_ofi = {
	.scheme = "ofi",
	.open = ofi_open,
	.expose = ofi_expose,
	.withdraw = ofi_withdraw,
	.provider = ofi_provider,
	.close = ofi_close,
};
