/* verbs_faults.c -- see verbs_faults.h. */
#include "far/verbs_faults.h"

#include <errno.h>
#include <stdlib.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "verbs_pair.h"

int __real_verbs_queue_stop(struct verbs_queue *queue) FARLOG_MUST_CHECK;
int __wrap_verbs_queue_stop(struct verbs_queue *queue) FARLOG_MUST_CHECK;
int __real_verbs_queue_close(struct verbs_queue *queue) FARLOG_MUST_CHECK;
int __wrap_verbs_queue_close(struct verbs_queue *queue) FARLOG_MUST_CHECK;
int __real_verbs_queue_await(struct verbs_queue *queue, uint64_t number, uint64_t until_ns,
	void (*received)(void *context, uint32_t index, uint32_t len), void *context) FARLOG_MUST_CHECK;
int __wrap_verbs_queue_await(struct verbs_queue *queue, uint64_t number, uint64_t until_ns,
	void (*received)(void *context, uint32_t index, uint32_t len), void *context) FARLOG_MUST_CHECK;
int __real_target_admit(struct farlog_target *target, const struct far_hello *hello, const struct sockaddr *peer,
	struct target_conn *conn, struct far_welcome *welcome, struct far_refusal *refusal) FARLOG_MUST_CHECK;
int __wrap_target_admit(struct farlog_target *target, const struct far_hello *hello, const struct sockaddr *peer,
	struct target_conn *conn, struct far_welcome *welcome, struct far_refusal *refusal) FARLOG_MUST_CHECK;

static uint64_t refused_steps;
uint64_t verbs_await_ns;
uint64_t verbs_binds_late;
uint64_t verbs_credits_held;

void verbs_faults_set(unsigned steps)
{
	farlog_fault_keep_keys(steps & 1u << VERBS_END_INVALIDATE);
	atomic_store_relaxed(&refused_steps, steps);
}

static const struct verbs_listener *listener(void)
{
	return pair_target->listener;
}

static bool is_of_target(void)
{
	return pair_target != NULL && pthread_equal(pthread_self(), listener()->thread);
}

static bool is_refused(enum verbs_end_step step)
{
	return is_of_target() && atomic_load_relaxed(&refused_steps) & 1u << step;
}

/* ---------------------------------------------------------------- the end of a connection */

int __wrap_verbs_queue_stop(struct verbs_queue *queue)
{
	return is_refused(VERBS_END_STOP) ? EIO : __real_verbs_queue_stop(queue);
}

int __wrap_verbs_queue_close(struct verbs_queue *queue)
{
	return is_refused(VERBS_END_QUEUE) ? EIO : __real_verbs_queue_close(queue);
}

static int (*real_dealloc_mw)(struct ibv_mw *window); /* all devices are of one provider */

static int dealloc_mw(struct ibv_mw *window)
{
	return is_refused(VERBS_END_WINDOW) ? EIO : real_dealloc_mw(window);
}

static struct lib_verbs lib; /* the target's, with a function of ours */
static const struct lib_verbs *real_lib;

/* is_key -- the registration is a connection's key. */
static bool is_key(const struct ibv_mr *mr)
{
	for (const struct verbs_conn *conn = listener()->conns; conn != NULL; conn = conn->next)
		for (unsigned piece = 0; piece < FAR_PIECE_COUNT; piece++)
			if (conn->keys[piece].own_mr == mr)
				return true;
	return false;
}

static int dereg_mr(struct ibv_mr *mr)
{
	return is_refused(VERBS_END_REGISTRATION) && is_key(mr) ? EIO : real_lib->dereg_mr(mr);
}

void verbs_faults_install(void)
{
	struct verbs_listener *target = pair_target->listener;

	real_lib = target->lib;
	lib = *real_lib;
	lib.dereg_mr = dereg_mr;
	target->lib = &lib;
	real_dealloc_mw = target->hosts[0].device.context->ops.dealloc_mw;
	for (unsigned i = 0; i < target->host_count; i++) {
		struct ibv_context_ops *ops = &target->hosts[i].device.context->ops;

		if (ops->dealloc_mw != real_dealloc_mw)
			abort();
		ops->dealloc_mw = dealloc_mw;
	}
}

/* ---------------------------------------------------------------- requests and words of the target's */

static bool is_bind_late(const struct verbs_queue *queue)
{
	uint64_t left = atomic_load_relaxed(&verbs_binds_late);

	if (left == 0 || (queue->qpx->wr_id & VERBS_KIND_MASK) != VERBS_BIND)
		return false;
	atomic_store_relaxed(&verbs_binds_late, left - 1);
	return true;
}

int __wrap_verbs_queue_await(struct verbs_queue *queue, uint64_t number, uint64_t until_ns,
	void (*received)(void *context, uint32_t index, uint32_t len), void *context)
{
	uint64_t least_ns = is_of_target() ? atomic_load_relaxed(&verbs_await_ns) : 0;

	if (is_of_target() && is_bind_late(queue))
		return -1;
	if (least_ns != 0)
		until_ns = clock_after_ns(least_ns);
	return __real_verbs_queue_await(queue, number, until_ns, received, context);
}

static const struct target_conn_ops *real_ops;

static void write_no_credit(struct target_conn *conn, uint64_t off, uint64_t value)
{
	if (off != LAYOUT_CREDIT_OFF || !atomic_load_relaxed(&verbs_credits_held))
		real_ops->write_word(conn, off, value);
}

int __wrap_target_admit(struct farlog_target *target, const struct far_hello *hello, const struct sockaddr *peer,
	struct target_conn *conn, struct far_welcome *welcome, struct far_refusal *refusal)
{
	static struct target_conn_ops ops;

	if (is_of_target() && real_ops == NULL) {
		real_ops = conn->ops;
		ops = *real_ops;
		ops.write_word = write_no_credit;
	}
	if (is_of_target())
		conn->ops = &ops; /* nobody else knows the connection yet */
	return __real_target_admit(target, hello, peer, conn, welcome, refusal);
}
