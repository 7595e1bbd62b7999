/* target/request.c -- what a client asks of its target, and the answer: flushes, epochs, who holds a role. */
#include <string.h>
#include <time.h>

#include "base/atomics.h"
#include "base/err.h"
#include "target/target.h"
#include "wire/piece.h"

#define FLUSH_LEN_SHORT (1u << 20) /* a tenth of a millisecond of clwb; a commit is never that long */

static bool is_inside(const struct target_ring *ring, const struct far_request *request)
{
	uint64_t size = ring->region->contract.size_bytes;

	if (request->span_count < 1 || request->span_count > 2)
		return false;
	for (unsigned i = 0; i < request->span_count; i++)
		if (request->spans[i].len > size || request->spans[i].off > size - request->spans[i].len)
			return false;
	return true;
}

/* may_put -- what the key of a writer's connection would let in, of the ring's data. */
static bool may_put(const struct target_conn *conn, const struct far_request *request, size_t carried_len)
{
	uint64_t len = 0;

	if (!(far_piece_rights(FAR_PIECE_WRITER, conn->role) & FAR_MAY_WRITE) || !is_inside(conn->ring, request))
		return false;
	for (unsigned i = 0; i < request->span_count; i++) {
		if (request->spans[i].off < LAYOUT_DATA_OFF || request->spans[i].off % sizeof(uint64_t) != 0 ||
			request->spans[i].len % sizeof(uint64_t) != 0)
			return false;
		len += request->spans[i].len;
	}
	return len > 0 && len == carried_len;
}

/* Word by word, as a drain on this host may be reading what lies there: it finds the words of one record or of the
 * other, and its checksum tells. */
bool target_store_carried(const struct target_conn *conn, const struct far_message *message, size_t carried_len)
{
	const uint64_t *from = (const uint64_t *)message->carried;

	if (!may_put(conn, &message->request, carried_len))
		return false;
	for (unsigned i = 0; i < message->request.span_count; i++) {
		uint64_t *to = (uint64_t *)(conn->ring->bytes + message->request.spans[i].off);

		for (uint64_t word = 0; word < message->request.spans[i].len / sizeof(*to); word++)
			atomic_store_relaxed(&to[word], *from++);
	}
	return true;
}

static uint32_t locked_roles(struct target_ring *ring)
{
	uint32_t bits = 0;

	for (int role = REGION_ROLE_WRITER; role <= REGION_ROLE_DRAIN; role++)
		/* what cannot be said is held */
		if (ring->is_locked[role] || ring->region->ops->fence.is_locked(ring->region, (enum region_role)role) != 0)
			bits |= 1u << role;
	return bits;
}

/* may_flush -- whoever writes something here has made durable what he builds upon: a drain also the records, before it
 * gives away that members of a stream have them. Nothing is changed by it. */
static bool may_flush(const struct target_conn *conn, const struct far_request *request)
{
	return conn->role != REGION_ROLE_READER && is_inside(conn->ring, request);
}

/* flush -- by the ring's worker what takes long, for all connections wait for this thread. A worker of memory is
 * started by the first such request. True: it answers later. */
static bool flush(struct target_conn *conn, const struct far_request *request, uint32_t *answer)
{
	struct target_ring *ring = conn->ring;
	uint64_t len = request->spans[0].len + (request->span_count == 2 ? request->spans[1].len : 0);
	bool is_long = target_is_disk(ring) || len > FLUSH_LEN_SHORT || ring->test_delay_ns > 0;

	if (is_long && ring->worker == NULL)
		may_fail(target_worker_start(ring, NULL)); /* without one this thread flushes */
	if (is_long && ring->worker != NULL && target_worker_add(conn, request)) {
		conn->requests.deferred_count++;
		return true;
	}
	*answer = is_long && ring->worker != NULL ? (uint32_t)-FARLOG_FULL : target_flush_spans(ring, request);
	return false;
}

bool target_serve(struct farlog_target *target, struct target_conn *conn, const struct far_request *request)
{
	struct target_ring *ring = conn->ring;
	struct far_request flushed = *request;
	int taken = FARLOG_INVALID;
	uint32_t answer;

	atomic_bump(&ring->counters.request_count, 1);
	if (request->operation == FAR_EPOCH)
		taken = target_store_epoch(target, conn, request, &flushed);
	else if (request->operation == FAR_FLUSH && may_flush(conn, request))
		taken = FARLOG_OK;
	if (taken == FARLOG_OK && flush(conn, &flushed, &answer))
		return true;
	if (taken == FARLOG_OK)
		; /* flush has the answer */
	else if (request->operation == FAR_LOCKED)
		answer = locked_roles(ring);
	else
		answer = (uint32_t)-taken;
	conn->ops->write_word(conn, far_answer_off(request->tag), far_answer(request->tag, answer));
	if (taken == FARLOG_INVALID && request->operation != FAR_LOCKED)
		return target_note_bad_request(target, conn);
	return true;
}
