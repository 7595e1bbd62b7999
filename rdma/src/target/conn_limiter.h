/* target/conn_limiter.h -- limits of unauthenticated connections: those that have come to a TCP port of this target and
 * have not brought a complete connection request, and so no token, yet.
 *
 * The provider accepts them itself and has no limit. So the limiter looks at this process's own sockets: a connection
 * to the port whose peer it was not told of is unauthenticated. What exceeds a limit is shut down, the oldest first,
 * and the provider then closes it. A client of ours sends its request at once: it is the newest, and goes on.
 *
 * Only the thread that polls the provider for connection requests accepts and closes unauthenticated connections, and
 * it is the thread that enforces: a descriptor that it shuts down cannot have become another file's meanwhile. */
#ifndef FARLOG_TARGET_CONN_LIMITER_H
#define FARLOG_TARGET_CONN_LIMITER_H

#include <dirent.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "farlog/refusals.h"

/* Unauthenticated connections at most. A client's is one for as long as its request takes to arrive. */
#define CONN_OF_ADDRESS_MAX 64u
#define CONN_IN_ALL_MAX 256u
#define CONN_MIN 8u /* that may be there however few descriptors are left: a client with a grant comes by one, too */
#define CONN_HANDSHAKE_NS 5000000000u
/* Of all descriptors that this process may have, this part is kept free of unauthenticated connections. */
#define CONN_RESERVE_PART 4u
#define CONN_POLLS_MAX 32u /* each accepts one connection at most: so many come unseen between two enforcements */

#define CONN_BUCKETS 256u

struct conn_address {
	uint8_t ip[16]; /* as IPv6 has it */
	uint16_t port;
};

struct conn_peer;
struct conn_socket;

struct conn_limiter {
	struct farlog_target *target;
	struct conn_address listening; /* all zero: at every address */
	/* kept open: when descriptors have run out it could not be opened */
	DIR *fds;
	struct conn_socket *sockets; /* by descriptor */
	size_t socket_count;
	uint64_t enforced_at_ns;
	uint64_t took_ns;  /* the last enforcement */
	unsigned polls;    /* since then */
	size_t kept_count; /* unauthenticated connections, then */
	pthread_mutex_t lock;
	struct conn_peer *peers[CONN_BUCKETS]; /* under the lock: those that brought a request, and are not closed */
};

/* conn_limiter_open -- of the port at which the target listens. 0 or errno. _close is harmless where it is not open. */
int conn_limiter_open(
	struct conn_limiter *limiter, struct farlog_target *target, const struct sockaddr *listening) FARLOG_MUST_CHECK;
void conn_limiter_close(struct conn_limiter *limiter);

/* conn_limiter_add -- this peer has brought a complete request: from here on it is not the limiter's. False: out of
 * memory. By the thread that enforces. conn_limiter_remove -- its socket has been closed; not before that. By any
 * thread. */
bool conn_limiter_add(struct conn_limiter *limiter, const struct sockaddr *peer);
void conn_limiter_remove(struct conn_limiter *limiter, const struct sockaddr *peer);

/* conn_limiter_enforce -- after a poll of the provider; is_woken: which may have accepted a connection. It looks at the
 * sockets after CONN_POLLS_MAX of those, or when some time has passed. True: connections were shut down, which the next
 * poll finds. */
bool conn_limiter_enforce(struct conn_limiter *limiter, uint64_t now_ns, bool is_woken);

#endif
