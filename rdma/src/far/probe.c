/* far/probe.c -- of an address where no farlog target answered: does anything else? */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "far/far.h"

#define PROBE_MS 500

/* is_open -- a TCP connection is taken there. It says nothing and is closed again. */
static bool is_open(const struct sockaddr *address, size_t address_len)
{
	struct pollfd probe = {
		.fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), .events = POLLOUT};
	socklen_t len = sizeof(int);
	int failure = EINPROGRESS;

	if (probe.fd < 0)
		return false;
	if (connect(probe.fd, address, (socklen_t)address_len) == 0)
		failure = 0;
	else if (errno == EINPROGRESS && poll(&probe, 1, PROBE_MS) == 1)
		(void)getsockopt(probe.fd, SOL_SOCKET, SO_ERROR, &failure, &len);
	close(probe.fd);
	return failure == 0;
}

void far_probe_listener(const char *text, const struct uri *uri, const struct sockaddr *address, size_t address_len,
	const char *answer, struct farlog_error *error)
{
	if (error == NULL || address_len == 0 || (address->sa_family != AF_INET && address->sa_family != AF_INET6) ||
		!is_open(address, address_len))
		return;
	error_set(error, error->result, 0,
		"connect to \"%s\": %s:%s accepted the connection but is not a farlog target (it %s), or the target is "
		"stopped; "
		"check host and port",
		text, uri->host, uri->port, answer);
}
