/* target/target.c -- what a target does for its connections while they last: it sends what is due, and disconnects. See
 * target/target.h.
 *
 * One lock guards rings, grants and connections. It is never held while a connection is revoked or a region is flushed:
 * a transport's thread may be waiting for it in target_leave, and media are slow. */
#include "target/target.h"

#include "base/clock.h"

/* a credit is sent again that often: a client that fetched its header may have lost a newer word */
#define CREDIT_REPEAT_NS 100000000u

int target_disconnect(struct farlog_target *target, struct target_conn *conn, struct farlog_error *error)
{
	int result;

	if (conn->is_gone)
		return FARLOG_OK;
	conn->is_revoked = true;
	conn->pin_count++;
	pthread_mutex_unlock(&target->mutex);
	result = conn->ops->revoke(conn, error);
	if (atomic_load_acquire(&target->is_closing))
		result = FARLOG_OK; /* the transport lets go of it, and of the device */
	pthread_mutex_lock(&target->mutex);
	conn->is_gone |= result == FARLOG_OK;
	conn->pin_count--;
	pthread_cond_broadcast(&target->moved);
	return result;
}

/* relay_credit -- the drain's credit, wherever it drains from. */
static void relay_credit(struct target_conn *conn, uint64_t now_ns)
{
	uint64_t credit_lsn = region_load_word(conn->ring->region, LAYOUT_CREDIT_OFF);

	if (conn->role != REGION_ROLE_WRITER || conn->is_revoked || region_has_lost_page(conn->ring->region))
		return;
	if (credit_lsn == conn->relayed_credit && now_ns - conn->relayed_at_ns < CREDIT_REPEAT_NS)
		return;
	conn->relayed_credit = credit_lsn;
	conn->relayed_at_ns = now_ns;
	conn->ops->write_word(conn, LAYOUT_CREDIT_OFF, credit_lsn);
}

void target_tick(struct farlog_target *target, uint64_t *has_answers)
{
	uint64_t now_ns = clock_monotonic_ns();

	if (pthread_mutex_trylock(&target->mutex) != 0) {
		atomic_store_relaxed(has_answers, 1);
		return;
	}
	for (struct target_ring *ring = target->rings; ring != NULL; ring = ring->next) {
		target_worker_send_answers(ring);
		for (struct target_conn *conn = ring->conns; conn != NULL; conn = conn->next)
			relay_credit(conn, now_ns);
	}
	target_tails_tick(target, now_ns);
	pthread_mutex_unlock(&target->mutex);
}
