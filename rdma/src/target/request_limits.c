/* target/request_limits.c -- what a client that was let in may ask of its target, and how fast.
 *
 * All rings of a target share one thread, so that a client which sends without end takes its time from the others. The
 * limits are what the protocol needs, and not how fast a machine is: a client waits for answers, and makes no request
 * that is malformed. Flushes are not limited by rate: each waits for the one before. */
#include "base/atomics.h"
#include "base/clock.h"
#include "target/target.h"

#define BAD_MAX 64u /* of a connection: a client of ours sends none; a proposal for an epoch may come too late */
/* Requests other than flushes: a client asks two for a look at a ring, and a few when it opens. */
#define CONTROL_RATE 20000u
#define CONTROL_BURST_NS 1000000000u
#define BAR_FIRST_NS 1000000000u
#define BAR_DOUBLINGS_MAX 6u

static const char too_many[] = "disconnected: more than 4 requests before their answers; a client of farlog waits";
static const char too_bad[] = "disconnected: more than 64 requests that make no sense";
static const char too_fast[] = "disconnected: more than 20000 requests a second that are no flushes";
_Static_assert(FAR_UNANSWERED_MAX == 4 && BAD_MAX == 64 && CONTROL_RATE == 20000, "the texts above have the numbers");

/* end_client -- its grant is barred for a while, longer each time: else it would be back at once. */
static bool end_client(struct farlog_target *target, struct target_conn *conn, const char *reason)
{
	struct target_grant *grant = conn->grant;
	struct target_ring *ring = NULL;

	pthread_mutex_lock(&target->mutex);
	grant->barred_until_ns = clock_after_ns((uint64_t)BAR_FIRST_NS << grant->barred_count);
	grant->barred_count += grant->barred_count < BAR_DOUBLINGS_MAX;
	grant->barred_reason = reason;
	if (target_find_grant(target, grant->grant.token, &ring) != NULL)
		ring->counters.disconnected_count++;
	target_write_disconnected(target, conn, ring != NULL ? ring->name : "", FARLOG_IO, reason);
	pthread_mutex_unlock(&target->mutex);
	return false;
}

/* is_within_rate -- of requests other than flushes. */
static bool is_within_rate(struct target_requests *requests, uint64_t now_ns)
{
	uint64_t due_ns = requests->control_due_ns > now_ns ? requests->control_due_ns : now_ns;

	requests->control_due_ns = due_ns + 1000000000u / CONTROL_RATE;
	return requests->control_due_ns - now_ns <= CONTROL_BURST_NS;
}

/* What the thread finds in one look was sent before it answered any of that. */
bool target_check_request(
	struct farlog_target *target, struct target_conn *conn, const struct far_request *request, uint64_t look)
{
	struct target_requests *requests = &conn->requests;

	if (requests->look != look) {
		requests->look = look;
		requests->look_count = requests->deferred_count;
	}
	if (++requests->look_count > FAR_UNANSWERED_MAX)
		return end_client(target, conn, too_many);
	if (request->operation != FAR_FLUSH && request->operation != FAR_PERSIST &&
		!is_within_rate(requests, clock_monotonic_ns()))
		return end_client(target, conn, too_fast);
	return true;
}

bool target_note_bad_request(struct farlog_target *target, struct target_conn *conn)
{
	atomic_bump(&conn->ring->counters.bad_request_count, 1);
	return ++conn->requests.bad_count <= BAD_MAX || end_client(target, conn, too_bad);
}

uint64_t target_barred_ns(const struct target_grant *grant)
{
	uint64_t now_ns = clock_monotonic_ns();

	return grant->barred_until_ns > now_ns ? grant->barred_until_ns - now_ns : 0;
}
