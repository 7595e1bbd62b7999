/* target/verbs_key.c -- the keys of a connection: what they open, and their end.
 *
 * A client has a key to each piece of the ring that its role may reach (wire/piece.h): that of a memory window, bound
 * to this queue pair for this connection. The pieces are registered one by one, because a device may look whether what
 * comes by a window lies in the registration behind it, and not whether it lies in the window: SoftRoCE does (Linux
 * 6.12). */
#include <errno.h>

#include "base/clock.h"
#include "target/verbs.h"

#define BIND_NS 500000000u /* our own device has no peer to wait for, but all clients wait for this thread */
/* but behind words to a client that is gone it does: then destroying the queue pair does it alone */
#define INVALIDATE_NS 5000000u

static unsigned device_of(const struct verbs_conn *conn)
{
	return (unsigned)(conn->host - conn->listener->hosts);
}

static const struct verbs_registration *registration_of(const struct verbs_conn *conn, enum far_piece piece)
{
	const struct verbs_exposure *exposure = conn->conn.ring->key;

	return &exposure->on[device_of(conn)].pieces[piece];
}

unsigned verbs_keys_access(const struct verbs_conn *conn, enum far_piece piece)
{
	unsigned rights = far_piece_rights(piece, conn->conn.role);
	unsigned flushes = rights & FAR_MAY_WRITE ? VERBS_ACCESS_FLUSH_GLOBAL | VERBS_ACCESS_FLUSH_PERSISTENT : 0;
	unsigned wanted = (rights & FAR_MAY_READ ? IBV_ACCESS_REMOTE_READ : 0) |
		(rights & FAR_MAY_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0) | flushes;

	return wanted & registration_of(conn, piece)->access;
}

/* bind_window -- 0, or what is wrong: then the queue pair is useless, and a bind that is only late may still come on
 * it. */
static int bind_window(struct verbs_conn *conn, enum far_piece piece)
{
	struct verbs_queue *queue = &conn->queue;
	struct verbs_key *own = &conn->keys[piece];
	struct region_span span = far_piece_span(piece, conn->conn.ring->region->contract.size_bytes);
	struct ibv_mw_bind_info info = {.mr = registration_of(conn, piece)->mr,
		.addr = (uint64_t)(uintptr_t)conn->conn.ring->served_bytes + span.off,
		.length = span.len,
		.mw_access_flags = verbs_keys_access(conn, piece)};
	uint32_t key;
	int failure;

	own->window = ibv_alloc_mw(info.mr->pd, IBV_MW_TYPE_2);
	if (own->window == NULL)
		return errno;
	key = ibv_inc_rkey(own->window->rkey);
	verbs_begin(queue);
	verbs_next(queue, VERBS_BIND | VERBS_SIGNALLED);
	ibv_wr_bind_mw(queue->qpx, own->window, key, &info);
	failure = verbs_ring(queue);
	if (failure != 0)
		return failure;
	if (verbs_queue_await(queue, queue->posted, clock_after_ns(BIND_NS), NULL, NULL) != IBV_WC_SUCCESS)
		return EIO;
	own->window->rkey = key;
	own->is_bound = true;
	return 0;
}

static int register_own(struct verbs_conn *conn, enum far_piece piece)
{
	unsigned access = verbs_keys_access(conn, piece);

	if (access & IBV_ACCESS_REMOTE_WRITE)
		access |= IBV_ACCESS_LOCAL_WRITE;
	conn->keys[piece].own_mr = verbs_expose_mr(conn->listener, conn->conn.ring, device_of(conn), piece, access);
	return conn->keys[piece].own_mr != NULL ? 0 : errno;
}

int verbs_keys_make(struct verbs_conn *conn)
{
	int failure = 0;

	for (unsigned piece = 0; piece < FAR_PIECE_COUNT && failure == 0; piece++) {
		if (verbs_keys_access(conn, (enum far_piece)piece) == 0)
			continue;
		failure = conn->queue.has_window ? bind_window(conn, (enum far_piece)piece) :
										   register_own(conn, (enum far_piece)piece);
	}
	return failure;
}

uint32_t verbs_keys_get(const struct verbs_conn *conn, enum far_piece piece)
{
	const struct verbs_key *own = &conn->keys[piece];

	if (own->is_bound)
		return own->window->rkey;
	return own->own_mr != NULL ? own->own_mr->rkey : 0;
}

void verbs_keys_invalidate(struct verbs_conn *conn)
{
	struct verbs_queue *queue = &conn->queue;
	uint64_t until_ns = clock_after_ns(INVALIDATE_NS);

	/* The last first: by it records are written. */
	for (int piece = FAR_PIECE_COUNT - 1; piece >= 0; piece--) {
		struct verbs_key *own = &conn->keys[piece];

		if (!own->is_bound || verbs_room(queue) == 0)
			continue;
		own->is_bound = false;
		verbs_begin(queue);
		verbs_next(queue, VERBS_INVALIDATE | VERBS_SIGNALLED);
		ibv_wr_local_inv(queue->qpx, own->window->rkey);
		own->is_invalidated =
			verbs_ring(queue) == 0 && verbs_queue_await(queue, queue->posted, until_ns, NULL, NULL) == IBV_WC_SUCCESS;
	}
}

bool verbs_keys_are_invalid(const struct verbs_conn *conn)
{
	for (unsigned piece = 0; piece < FAR_PIECE_COUNT; piece++)
		if (far_piece_rights((enum far_piece)piece, conn->conn.role) != 0 && !conn->keys[piece].is_invalidated)
			return false;
	return true;
}

static int free_window(struct verbs_key *own)
{
	int failure = ibv_dealloc_mw(own->window);

	if (failure == 0)
		own->window = NULL;
	return failure;
}

static int free_registration(const struct verbs_conn *conn, struct verbs_key *own)
{
	int failure = conn->listener->lib->dereg_mr(own->own_mr);

	if (failure == 0)
		own->own_mr = NULL;
	return failure;
}

int verbs_keys_free(struct verbs_conn *conn, const char **what)
{
	int first = 0;

	for (unsigned piece = 0; piece < FAR_PIECE_COUNT; piece++) {
		struct verbs_key *own = &conn->keys[piece];
		int window = own->window != NULL ? free_window(own) : 0;
		int registration = own->own_mr != NULL ? free_registration(conn, own) : 0;

		own->is_bound = false;
		if (registration != 0) {
			*what = "did not deregister the memory (dereg_mr)";
			first = registration;
		} else if (window != 0 && !own->is_invalidated && first == 0) {
			*what = "neither invalidated the memory window (LOCAL_INV) nor freed it (dealloc_mw)";
			first = window;
		}
	}
	return first;
}
