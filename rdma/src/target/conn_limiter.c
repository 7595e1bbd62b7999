/* target/conn_limiter.c -- see target/conn_limiter.h. */
#include "target/conn_limiter.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "target/target.h"

#define INTERVAL_NS 20000000u
#define IDLE_INTERVAL_NS 1000000000u
#define COST_PART 16u /* at most this part of the thread's time goes into enforcing, unless connections come */

/* A socket of this process, by its descriptor and inode: a descriptor is another socket's soon. */
struct conn_socket {
	uint64_t inode; /* 0: none */
	uint64_t since_ns;
	uint64_t seen_ns; /* by the last look at all, or it is gone */
	struct conn_address peer;
	bool is_connection; /* to the port */
	bool is_shut_down;
};

struct conn_peer {
	struct conn_peer *next;
	struct conn_address address;
};

/* ---------------------------------------------------------------- peers that brought a request */

static bool read_address(const struct sockaddr *from, struct conn_address *address)
{
	memset(address, 0, sizeof(*address));
	if (!target_read_ip(from, address->ip))
		return false;
	address->port = ntohs(((const struct sockaddr_in *)(const void *)from)->sin_port); /* both families: same place */
	return true;
}

static void write_address(const struct conn_address *address, struct sockaddr_storage *to)
{
	struct sockaddr_in6 *in6 = (void *)to;
	struct sockaddr_in *in = (void *)to;

	if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)address->ip)) {
		in->sin_family = AF_INET;
		in->sin_port = htons(address->port);
		memcpy(&in->sin_addr, address->ip + 12, sizeof(in->sin_addr));
		return;
	}
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(address->port);
	memcpy(&in6->sin6_addr, address->ip, sizeof(in6->sin6_addr));
}

static bool is_same(const struct conn_address *a, const struct conn_address *b)
{
	return a->port == b->port && memcmp(a->ip, b->ip, sizeof(a->ip)) == 0;
}

static struct conn_peer **bucket_of(struct conn_limiter *limiter, const struct conn_address *address)
{
	return &limiter->peers[(address->port ^ address->ip[15]) % CONN_BUCKETS];
}

bool conn_limiter_add(struct conn_limiter *limiter, const struct sockaddr *peer)
{
	struct conn_address address;
	struct conn_peer *added;

	if (limiter->fds == NULL || !read_address(peer, &address))
		return true; /* a provider that does not use sockets */
	added = calloc(1, sizeof(*added));
	if (added == NULL)
		return false;
	added->address = address;
	pthread_mutex_lock(&limiter->lock);
	added->next = *bucket_of(limiter, &address);
	*bucket_of(limiter, &address) = added;
	pthread_mutex_unlock(&limiter->lock);
	return true;
}

void conn_limiter_remove(struct conn_limiter *limiter, const struct sockaddr *peer)
{
	struct conn_address address;
	struct conn_peer **link;
	struct conn_peer *found;

	if (limiter->fds == NULL || !read_address(peer, &address))
		return;
	pthread_mutex_lock(&limiter->lock);
	link = bucket_of(limiter, &address);
	while (*link != NULL && !is_same(&(*link)->address, &address))
		link = &(*link)->next;
	found = *link;
	if (found != NULL)
		*link = found->next;
	pthread_mutex_unlock(&limiter->lock);
	free(found);
}

/* has_request -- under the lock. */
static bool has_request(struct conn_limiter *limiter, const struct conn_address *address)
{
	const struct conn_peer *peer = *bucket_of(limiter, address);

	while (peer != NULL && !is_same(&peer->address, address))
		peer = peer->next;
	return peer != NULL;
}

/* ---------------------------------------------------------------- the sockets of this process */

/* is_to_port -- a connection to the port at which the target listens; then *peer is who made it. */
static bool is_to_port(const struct conn_limiter *limiter, int fd, struct conn_address *peer)
{
	static const uint8_t any[16];
	struct sockaddr_storage name = {0};
	socklen_t len = sizeof(name);
	struct conn_address address;

	if (getsockname(fd, (struct sockaddr *)&name, &len) != 0 || !read_address((struct sockaddr *)&name, &address))
		return false;
	if (address.port != limiter->listening.port ||
		(memcmp(limiter->listening.ip, any, sizeof(any)) != 0 && !is_same(&address, &limiter->listening)))
		return false;
	len = sizeof(name);
	/* the listening socket has no peer, nor has a connection whose peer has reset it */
	return getpeername(fd, (struct sockaddr *)&name, &len) == 0 && read_address((struct sockaddr *)&name, peer);
}

/* make_place -- False: out of memory. */
static bool make_place(struct conn_limiter *limiter, size_t fd)
{
	size_t count = fd < 2 * limiter->socket_count ? 2 * limiter->socket_count : fd + 64;
	struct conn_socket *sockets;

	if (fd < limiter->socket_count)
		return true;
	sockets = realloc(limiter->sockets, count * sizeof(*sockets));
	if (sockets == NULL)
		return false;
	memset(sockets + limiter->socket_count, 0, (count - limiter->socket_count) * sizeof(*sockets));
	limiter->sockets = sockets;
	limiter->socket_count = count;
	return true;
}

/* look_at -- this descriptor. NULL: no connection to the port. */
static struct conn_socket *look_at(struct conn_limiter *limiter, int fd, uint64_t now_ns)
{
	struct conn_socket *found;
	struct stat status;

	if (fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode) || !make_place(limiter, (size_t)fd))
		return NULL;
	found = &limiter->sockets[fd];
	if (found->inode != status.st_ino) {
		*found = (struct conn_socket){.inode = status.st_ino, .since_ns = now_ns};
		found->is_connection = is_to_port(limiter, fd, &found->peer);
	}
	found->seen_ns = now_ns;
	return found->is_connection ? found : NULL;
}

struct silent {
	struct conn_socket *socket;
	int fd;
};

/* The unauthenticated connections, the newest first, and how many descriptors are open. */
struct survey {
	struct silent *silent;
	size_t silent_count;
	size_t room;
	size_t open_count;
};

static bool survey_add(struct survey *survey, struct silent one)
{
	if (survey->silent_count == survey->room) {
		size_t room = survey->room * 2 + 64;
		struct silent *silent = realloc(survey->silent, room * sizeof(*silent));

		if (silent == NULL)
			return false;
		survey->silent = silent;
		survey->room = room;
	}
	survey->silent[survey->silent_count++] = one;
	return true;
}

static int compare_ages(const void *a, const void *b)
{
	const struct silent *one = a;
	const struct silent *other = b;

	if (one->socket->since_ns != other->socket->since_ns)
		return one->socket->since_ns > other->socket->since_ns ? -1 : 1;
	return one->socket->inode > other->socket->inode ? -1 : 1;
}

static void look_at_all(struct conn_limiter *limiter, uint64_t now_ns, struct survey *survey)
{
	const struct dirent *entry;
	int fds_max = 0;

	rewinddir(limiter->fds);
	while ((entry = readdir(limiter->fds)) != NULL) {
		int fd = atoi(entry->d_name);

		survey->open_count++;
		if (entry->d_name[0] != '.' && look_at(limiter, fd, now_ns) != NULL && fd >= fds_max)
			fds_max = fd + 1;
	}
	/* only now: the places have moved while they became more */
	pthread_mutex_lock(&limiter->lock);
	for (int fd = 0; fd < fds_max; fd++) {
		struct conn_socket *found = &limiter->sockets[fd];

		if (found->seen_ns == now_ns && found->is_connection && !found->is_shut_down &&
			!has_request(limiter, &found->peer) && !survey_add(survey, (struct silent){found, fd}))
			break;
	}
	pthread_mutex_unlock(&limiter->lock);
	if (survey->silent_count > 1)
		qsort(survey->silent, survey->silent_count, sizeof(*survey->silent), compare_ages);
}

/* ---------------------------------------------------------------- limits */

static const char *const reasons[FARLOG_UNAUTHENTICATED_REASON_COUNT] = {
	[FARLOG_UNAUTHENTICATED_ADDRESS] =
		"no connection request yet, and newer connections from this address: expected at most 64 of an address",
	[FARLOG_UNAUTHENTICATED_ALL] = "no connection request yet, and newer connections: expected at most 256 in all",
	[FARLOG_UNAUTHENTICATED_DESCRIPTORS] =
		"no connection request yet, and few file descriptors are left: they are kept for clients with a grant",
	[FARLOG_UNAUTHENTICATED_LATE] = "no connection request for 5 s after the connection was made",
};
_Static_assert(CONN_OF_ADDRESS_MAX == 64 && CONN_IN_ALL_MAX == 256 && CONN_HANDSHAKE_NS == 5000000000u,
	"the texts above have the numbers");

/* is_still_open -- its descriptor may be another file's by now. */
static bool is_still_open(const struct silent *one)
{
	struct stat status;

	return fstat(one->fd, &status) == 0 && status.st_ino == one->socket->inode;
}

static void close_silent(
	struct conn_limiter *limiter, const struct silent *one, enum farlog_unauthenticated_reason reason)
{
	struct far_refusal refusal = {.result = FARLOG_FULL};
	struct sockaddr_storage peer = {0};

	if (!is_still_open(one))
		return;
	write_address(&one->socket->peer, &peer);
	snprintf(refusal.text, sizeof(refusal.text), "%s", reasons[reason]);
	one->socket->is_shut_down = true;
	target_write_refusal(limiter->target, (const struct sockaddr *)&peer, NULL, &refusal);
	(void)atomic_add(&limiter->target->unauthenticated.closed_count[reason], 1);
	(void)shutdown(one->fd, SHUT_RDWR); /* it fails where the peer has gone, and then it is closed as well */
}

/* newer_count -- connections from the same address that are newer than this one, up to the limit. */
static unsigned newer_count(const struct survey *survey, size_t index)
{
	unsigned count = 0;

	for (size_t i = 0; i < index && count < CONN_OF_ADDRESS_MAX; i++)
		count += !survey->silent[i].socket->is_shut_down &&
			memcmp(survey->silent[i].socket->peer.ip, survey->silent[index].socket->peer.ip, 16) == 0;
	return count;
}

/* allowed_count -- in all; *reason: why no more. */
static size_t allowed_count(const struct survey *survey, enum farlog_unauthenticated_reason *reason)
{
	struct rlimit limit = {0};
	size_t known;
	size_t free_count;

	*reason = FARLOG_UNAUTHENTICATED_DESCRIPTORS;
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return CONN_MIN;
	known = survey->open_count - survey->silent_count + limit.rlim_cur / CONN_RESERVE_PART;
	free_count = limit.rlim_cur > known ? limit.rlim_cur - known : 0;
	if (free_count >= CONN_IN_ALL_MAX) {
		*reason = FARLOG_UNAUTHENTICATED_ALL;
		return CONN_IN_ALL_MAX;
	}
	return free_count < CONN_MIN ? CONN_MIN : free_count;
}

/* enforce -- how many were shut down. */
static size_t enforce(struct conn_limiter *limiter, const struct survey *survey, uint64_t now_ns)
{
	enum farlog_unauthenticated_reason reason;
	size_t allowed = allowed_count(survey, &reason);
	size_t kept = 0;

	for (size_t i = 0; i < survey->silent_count; i++) {
		const struct silent *one = &survey->silent[i];

		if (now_ns - one->socket->since_ns >= CONN_HANDSHAKE_NS)
			close_silent(limiter, one, FARLOG_UNAUTHENTICATED_LATE);
		else if (newer_count(survey, i) >= CONN_OF_ADDRESS_MAX)
			close_silent(limiter, one, FARLOG_UNAUTHENTICATED_ADDRESS);
		else if (kept >= allowed)
			close_silent(limiter, one, reason);
		else
			kept++;
	}
	limiter->kept_count = kept;
	atomic_store_relaxed(&limiter->target->unauthenticated.open_count, kept);
	return survey->silent_count - kept;
}

static bool is_due(const struct conn_limiter *limiter, uint64_t now_ns)
{
	uint64_t interval_ns =
		limiter->took_ns * COST_PART > INTERVAL_NS ? limiter->took_ns * COST_PART : (uint64_t)INTERVAL_NS;

	/* no wakeup announces one that came between the last wakeup and the poll behind it */
	if (limiter->polls == 0 && limiter->kept_count == 0)
		interval_ns = IDLE_INTERVAL_NS;
	return limiter->polls >= CONN_POLLS_MAX || now_ns - limiter->enforced_at_ns >= interval_ns;
}

bool conn_limiter_enforce(struct conn_limiter *limiter, uint64_t now_ns, bool is_woken)
{
	struct survey survey = {0};
	size_t closed_count;

	limiter->polls += is_woken;
	if (limiter->fds == NULL || !is_due(limiter, now_ns))
		return false;
	look_at_all(limiter, now_ns, &survey);
	closed_count = enforce(limiter, &survey, now_ns);
	free(survey.silent);
	limiter->polls = 0;
	limiter->enforced_at_ns = clock_monotonic_ns();
	limiter->took_ns = limiter->enforced_at_ns - now_ns;
	return closed_count > 0;
}

/* ---------------------------------------------------------------- its life */

int conn_limiter_open(struct conn_limiter *limiter, struct farlog_target *target, const struct sockaddr *listening)
{
	limiter->target = target;
	if (!read_address(listening, &limiter->listening))
		return 0; /* a provider that has no sockets for connections */
	if (((const struct sockaddr_in *)(const void *)listening)->sin_family == AF_INET &&
		((const struct sockaddr_in *)(const void *)listening)->sin_addr.s_addr == INADDR_ANY)
		memset(limiter->listening.ip, 0, sizeof(limiter->listening.ip));
	limiter->fds = opendir("/proc/self/fd");
	if (limiter->fds == NULL)
		return errno;
	pthread_mutex_init(&limiter->lock, NULL);
	return 0;
}

void conn_limiter_close(struct conn_limiter *limiter)
{
	if (limiter->fds == NULL)
		return;
	closedir(limiter->fds);
	limiter->fds = NULL;
	for (unsigned i = 0; i < CONN_BUCKETS; i++)
		while (limiter->peers[i] != NULL) {
			struct conn_peer *next = limiter->peers[i]->next;

			free(limiter->peers[i]);
			limiter->peers[i] = next;
		}
	pthread_mutex_destroy(&limiter->lock);
	free(limiter->sockets);
}
