/* far/knock.c -- of an address where no farlog target answered: does anything else? */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "far/far.h"

#define KNOCK_MS 500

/* is_open -- a TCP connection is taken there. It says nothing and is closed again. */
static bool is_open(const struct sockaddr *address, size_t address_len)
{
	struct pollfd knock = {.fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), .events = POLLOUT};
	socklen_t len = sizeof(int);
	int failure = EINPROGRESS;

	if (knock.fd < 0)
		return false;
	if (connect(knock.fd, address, (socklen_t)address_len) == 0)
		failure = 0;
	else if (errno == EINPROGRESS && poll(&knock, 1, KNOCK_MS) == 1)
		(void)getsockopt(knock.fd, SOL_SOCKET, SO_ERROR, &failure, &len);
	close(knock.fd);
	return failure == 0;
}

void far_knock(const char *text, const struct uri *uri, const struct sockaddr *address, size_t address_len, const char *answer,
	struct farlog_error *error)
{
	if (error == NULL || address_len == 0 || (address->sa_family != AF_INET && address->sa_family != AF_INET6) || !is_open(address, address_len))
		return;
	error_set(error, error->result, 0,
		"connect to \"%s\": something listens at host %s, port %s that does not speak farlog: it took the connection and %s; expected the port of a "
		"farlog target (one that is stopped is as silent)", text, uri->host, uri->port, answer);
}
