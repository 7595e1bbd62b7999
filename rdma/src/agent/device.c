/* agent/device.c -- see agent_device_open. */
#include "agent/agent.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"

#define ASK_NS 5000000000u

int agent_device_open(const char *path, bool is_writing, int *fd, struct farlog_error *error)
{
	char what[AGENT_VALUE_LEN_MAX];
	char request[AGENT_VALUE_LEN_MAX];
	struct agent_reply reply;
	struct stat found, wanted;
	int result;

	*fd = -1;
	snprintf(what, sizeof(what), "device \"%s\", which this user may not open", path);
	if (snprintf(request, sizeof(request), "farlog-agent 1 device\npath %s\naccess %s\n", path,
			is_writing ? "write" : "read") >= (int)sizeof(request))
		return error_set(error, FARLOG_INVALID, 0, "%s: the path is too long to ask the host agent", what);
	result = agent_call(agent_socket(NULL), what, request, clock_after_ns(ASK_NS), &reply, error);
	if (result != FARLOG_OK)
		return result;
	if (reply.fd < 0 || fstat(reply.fd, &found) != 0 || stat(path, &wanted) != 0 || !S_ISBLK(found.st_mode) ||
		found.st_rdev != wanted.st_rdev) {
		if (reply.fd >= 0)
			close(reply.fd);
		return error_set(error, FARLOG_IO, 0, "%s: the host agent at \"%s\" sent no descriptor of that device", what,
			agent_socket(NULL));
	}
	*fd = reply.fd;
	return FARLOG_OK;
}
