/* agent/agent.c -- see agent/agent.h. */
#include "agent/agent.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/stream_uri.h"

#define NS_PER_MS 1000000u
#define OK_LINE "ok\n"
#define RETRY_FIRST_NS 10000000u /* before the second attempt; doubled for each further one */
#define RETRY_LAST_NS 400000000u

const char *agent_socket(const char *given)
{
	const char *variable = secure_getenv(AGENT_SOCKET_VARIABLE);

	if (given != NULL && given[0] != '\0')
		return given;
	return variable != NULL && variable[0] != '\0' ? variable : AGENT_SOCKET_DEFAULT;
}

/* is_agent_absent -- by the errno: no agent listens, or its queue of connections is full. */
static bool is_agent_absent(int os_errno)
{
	return os_errno == ENOENT || os_errno == ECONNREFUSED || os_errno == ECONNRESET || os_errno == EPIPE ||
		os_errno == EAGAIN;
}

static int describe_connect_error(const char *path, const char *what, int os_errno, struct farlog_error *error)
{
	if (os_errno == ENOENT || os_errno == ECONNREFUSED)
		return error_set(error, FARLOG_NOT_FOUND, os_errno,
			"%s: no host agent at \"%s\": start farlogd host, or say where it is by ?agent=PATH "
			"or " AGENT_SOCKET_VARIABLE,
			what, path);
	return error_set(error, FARLOG_IO, os_errno, "%s: connect to the host agent at \"%s\"", what, path);
}

static int connect_agent(const char *path, const char *what, int *fd, struct farlog_error *error)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int failure;
	int result;

	if (strlen(path) > AGENT_SOCKET_LEN_MAX)
		return error_set(error, FARLOG_INVALID, 0, "%s: host agent at \"%s\": expected a path of at most %u bytes",
			what, path, AGENT_SOCKET_LEN_MAX);
	strcpy(address.sun_path, path);
	*fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (*fd < 0)
		return error_set(error, FARLOG_IO, errno, "%s: make a socket for the host agent", what);
	if (connect(*fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return FARLOG_OK;
	failure = errno;
	close(*fd);
	result = describe_connect_error(path, what, failure, error);
	errno = failure; /* ask_once reads it */
	return result;
}

/* wait_readable -- false: until_ns has passed, or stop_fd can be read. */
static bool wait_readable(int fd, int stop_fd, uint64_t until_ns)
{
	for (;;) {
		uint64_t now_ns = clock_monotonic_ns();
		struct pollfd wanted[2] = {{.fd = fd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
		int count;

		if (now_ns >= until_ns)
			return false;
		count = poll(wanted, 2, (int)((until_ns - now_ns) / NS_PER_MS + 1));
		if (count > 0)
			return wanted[1].revents == 0;
		if (count < 0 && errno != EINTR)
			return true; /* recvmsg reports the error */
	}
}

/* receive_reply -- with the descriptor that may come with it; the kernel closes further ones, for which there is no
 * room. The number of bytes, or -1. */
static ssize_t receive_reply(int fd, struct agent_reply *reply)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr header;
	} control;
	struct iovec buffer = {.iov_base = reply->text, .iov_len = AGENT_PACKET_LEN_MAX};
	struct msghdr message = {
		.msg_iov = &buffer, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_LEN(sizeof(int))};
	ssize_t len = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	struct cmsghdr *first = len > 0 ? CMSG_FIRSTHDR(&message) : NULL;

	if (first != NULL && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SCM_RIGHTS &&
		first->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&reply->fd, CMSG_DATA(first), sizeof(reply->fd));
	if (len > 0 && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
		len = -1;
	return len;
}

static int result_named(const char *name)
{
#define RESULT_IS(result_name, value, text) \
	if (strcmp(name, #result_name) == 0) \
		return value;
	FARLOG_RESULT_TABLE(RESULT_IS)
#undef RESULT_IS
	return FARLOG_IO;
}

/* check_reply -- OK, or the result and the text of an error reply. */
static int check_reply(const char *path, const char *what, const struct agent_reply *reply, struct farlog_error *error)
{
	char name[32];
	char text[AGENT_VALUE_LEN_MAX];

	if (strncmp(reply->text, OK_LINE, strlen(OK_LINE)) == 0)
		return FARLOG_OK;
	if (!agent_value(reply, "error", name, sizeof(name)) || !agent_value(reply, "text", text, sizeof(text)) ||
		result_named(name) == FARLOG_OK)
		return error_set(error, FARLOG_IO, 0,
			"%s: the reply from \"%s\" is not by the protocol of the host agent; check that farlogd host listens there",
			what, path);
	return error_set(error, result_named(name), 0, "%s: %s", what, text);
}

/* ask_once -- *is_absent: no agent listens, or it closed the connection without a reply. */
static int ask_once(const char *socket_path, const char *what, const char *request, uint64_t until_ns, int stop_fd,
	struct agent_reply *reply, bool *is_absent, struct farlog_error *error)
{
	size_t len = strlen(request);
	ssize_t got = -1;
	int result;
	int fd = -1;

	memset(reply, 0, sizeof(*reply));
	reply->fd = -1;
	result = connect_agent(socket_path, what, &fd, error);
	*is_absent = result != FARLOG_OK && result != FARLOG_INVALID && is_agent_absent(errno);
	if (result != FARLOG_OK)
		return result;
	errno = EINPROGRESS; /* reported when the wait ends without a reply */
	if (send(fd, request, len, MSG_NOSIGNAL) == (ssize_t)len && wait_readable(fd, stop_fd, until_ns))
		got = receive_reply(fd, reply);
	*is_absent = got == 0 || (got < 0 && is_agent_absent(errno));
	if (got <= 0)
		result = error_set(error, FARLOG_IO, errno, "%s: no reply from the host agent at \"%s\"", what, socket_path);
	close(fd);
	if (result == FARLOG_OK)
		result = check_reply(socket_path, what, reply, error);
	if (result != FARLOG_OK && reply->fd >= 0) {
		close(reply->fd);
		reply->fd = -1;
	}
	return result;
}

int agent_call(const char *socket_path, const char *what, const char *request, uint64_t until_ns,
	struct agent_reply *reply, struct farlog_error *error)
{
	bool is_absent;

	return ask_once(socket_path, what, request, until_ns, -1, reply, &is_absent, error);
}

/* has_directory -- is there a directory in which an agent can make its socket? */
static bool has_directory(const char *socket_path)
{
	char directory[AGENT_SOCKET_LEN_MAX + 1];
	const char *slash = strrchr(socket_path, '/');

	if (slash == NULL || slash == socket_path)
		return true;
	memcpy(directory, socket_path, (size_t)(slash - socket_path));
	directory[slash - socket_path] = '\0';
	return access(directory, F_OK) == 0;
}

/* sleep_jittered -- for 0.5 to 1.5 times pause_ns. False: stop_fd can be read. */
static bool sleep_jittered(uint64_t pause_ns, int stop_fd)
{
	uint64_t random = (clock_monotonic_ns() ^ (uint64_t)getpid() << 20) * 0x9E3779B97F4A7C15ull >> 32;
	struct pollfd wanted = {.fd = stop_fd, .events = POLLIN};

	pause_ns = pause_ns / 2 + random % pause_ns;
	return poll(&wanted, 1, (int)(pause_ns / NS_PER_MS)) <= 0;
}

int agent_call_until(const char *socket_path, const char *what, const char *request, uint64_t until_ns, int stop_fd,
	struct agent_reply *reply, struct farlog_error *error)
{
	uint64_t absent_until_ns = clock_after_ns(AGENT_ABSENT_TIMEOUT_NS);
	uint64_t pause_ns = RETRY_FIRST_NS;

	for (;;) {
		bool is_absent;
		int result = ask_once(socket_path, what, request, until_ns, stop_fd, reply, &is_absent, error);
		uint64_t now_ns = clock_monotonic_ns();

		if (!is_absent || now_ns + pause_ns >= until_ns || now_ns + pause_ns >= absent_until_ns ||
			!has_directory(socket_path) || !sleep_jittered(pause_ns, stop_fd))
			return result;
		pause_ns = 2 * pause_ns < RETRY_LAST_NS ? 2 * pause_ns : RETRY_LAST_NS;
	}
}

void agent_send_note(const char *socket_path, const char *note)
{
	int fd = -1;

	if (connect_agent(socket_path, "note", &fd, NULL) != FARLOG_OK)
		return;
	(void)!send(fd, note, strlen(note), MSG_NOSIGNAL);
	close(fd);
}

bool agent_number(const struct agent_reply *reply, const char *field, uint64_t *number)
{
	char text[24];
	char *end;

	if (!agent_value(reply, field, text, sizeof(text)) || strspn(text, "0123456789") != strlen(text))
		return false;
	errno = 0;
	*number = strtoull(text, &end, 10);
	return errno == 0 && *end == '\0';
}

bool agent_value(const struct agent_reply *reply, const char *field, char *value, size_t size)
{
	size_t field_len = strlen(field);
	const char *line = reply->text;

	while (*line != '\0') {
		size_t len = strcspn(line, "\n");

		if (len > field_len && memcmp(line, field, field_len) == 0 && line[field_len] == ' ') {
			size_t value_len = len - field_len - 1;

			if (value_len >= size)
				return false;
			memcpy(value, line + field_len + 1, value_len);
			value[value_len] = '\0';
			return true;
		}
		line += len + (line[len] == '\n');
	}
	return false;
}
