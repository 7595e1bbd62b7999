/* replace.h -- libfarlog: replacing one of a stream's rings for good under its running writer. On top
 * of member.h.
 *
 * A writer, or a route's leg, that was opened by "farlog://NAME" asks the host agent by itself, and needs none of this.
 * It is for programs that open "members:..." by a grant of their own, and learn of a replacement from the control plane
 * (ExtendWriter). */
#ifndef FARLOG_REPLACE_H
#define FARLOG_REPLACE_H

#include "member.h"
#include "route.h"

#ifdef __cplusplus
extern "C" {
#endif

struct farlog_member_ring {
	const char *uri;            /* of that one ring */
	const uint8_t *ring_uuid;   /* 16 bytes, not all zero */
	const uint8_t *grant_token; /* FARLOG_TOKEN_LEN bytes, of the writer's own epoch; NULL = none is needed */
};

/* farlog_writer_replace_member -- from now on the member (0 is the first of the URI) is this ring. The one before is
 * given up for good: it counts for nothing any more, and its connection is torn down. The new ring must be empty. It
 * counts when it has, durably, all that is not stored, and enough of the others know this writer's epoch; until then,
 * and when it cannot be reached, the stream goes on with the others. Saying the same again is nothing new, but for
 * another URI or token of a ring that has not been reached.
 *
 * Only who knows that no epoch after this writer's was granted while the member was another ring may say so: the
 * control plane, which answers ExtendWriter with it. Any thread, not while the writer is being closed; copies what it
 * is given; does not wait for the network, nor longer than for one turn of an append. Durable is nothing of it: the
 * next opening has it from its grant. OK: it is noted. INVALID: there is no such member, or the uri or uuid is
 * missing or too long. UNSUPPORTED: the writer has one ring. */
FARLOG_API int farlog_writer_replace_member(farlog_writer *writer, unsigned member,
	const struct farlog_member_ring *ring, struct farlog_error *error) FARLOG_MUST_CHECK;
FARLOG_API int farlog_shared_replace_member(farlog_shared *shared, unsigned member,
	const struct farlog_member_ring *ring, struct farlog_error *error) FARLOG_MUST_CHECK;

/* A member as a writer has it now. */
struct farlog_writer_member {
	/* that it expects; all zero = none, or a new one whose token seems to be of no use any more: ask for
	 * another */
	uint8_t ring_uuid[16];
	uint32_t state; /* enum farlog_member_state */
	uint32_t reserved;
};

/* farlog_writer_members -- in the order of the URI, at most `count_max`; the result is how many there are, 0 of a
 * writer of one ring. Any thread, not while the writer is being closed. No input or output, blocks for nobody but
 * others who ask. */
FARLOG_API unsigned farlog_writer_members(
	farlog_writer *writer, struct farlog_writer_member *members, unsigned count_max);
FARLOG_API unsigned farlog_shared_members(
	farlog_shared *shared, struct farlog_writer_member *members, unsigned count_max);

/* farlog_route_replace_member, farlog_route_members -- the same of a route's leg, whose ring is open just now: 0
 * members, and UNSUPPORTED, when it is not, or is one ring; INVALID: no such leg. The leg's next opening is by its uri
 * again. Any thread, not while the route is being closed. */
FARLOG_API int farlog_route_replace_member(farlog_route *route, uint32_t leg, unsigned member,
	const struct farlog_member_ring *ring, struct farlog_error *error) FARLOG_MUST_CHECK;
FARLOG_API unsigned farlog_route_members(
	farlog_route *route, uint32_t leg, struct farlog_writer_member *members, unsigned count_max);

#ifdef __cplusplus
}
#endif
#endif
