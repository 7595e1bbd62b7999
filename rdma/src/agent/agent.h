/* agent/agent.h -- requests to the host agent (farlogd host) over its Unix socket. docs/reference/host-agent.md has the
 * protocol: one packet is the request, one the reply, each of lines "field value". All calls: any thread. */
#ifndef FARLOG_AGENT_H
#define FARLOG_AGENT_H

#include "farlog/farlog.h"

#define AGENT_SOCKET_DEFAULT "/run/farlog/host.sock"
#define AGENT_SOCKET_VARIABLE "FARLOG_AGENT"
#define AGENT_PACKET_LEN_MAX 4096
#define AGENT_VALUE_LEN_MAX 1024

struct agent_reply {
	char text[AGENT_PACKET_LEN_MAX + 1];
	int fd; /* a descriptor that came with the reply, the caller's to close; -1 = none */
};

/* agent_socket -- the agent's path: `given`, or the environment's, or the default. Valid until the environment
 * changes. */
const char *agent_socket(const char *given);

/* agent_call -- one request, and wait for the reply until the monotonic time until_ns. NOT_FOUND: no agent listens; IO:
 * it did not reply in time, or not by the protocol; another result is the agent's. The error names the socket and
 * `what`. */
int agent_call(const char *socket_path, const char *what, const char *request, uint64_t until_ns,
	struct agent_reply *reply, struct farlog_error *error) FARLOG_MUST_CHECK;

/* agent_call_until -- as agent_call, and give up (IO) as soon as `stop_fd` can be read; -1 = none. An agent that does
 * not listen, as while it restarts, is tried again until until_ns, at most for AGENT_ABSENT_TIMEOUT_NS, after pauses
 * that differ from process to process. So the request has to be idempotent. Where the socket's directory is missing, no
 * agent is waited for. */
#define AGENT_ABSENT_TIMEOUT_NS 10000000000u
int agent_call_until(const char *socket_path, const char *what, const char *request, uint64_t until_ns, int stop_fd,
	struct agent_reply *reply, struct farlog_error *error) FARLOG_MUST_CHECK;

/* agent_value -- the value of a line, copied; false: the field is missing, or its value is not shorter than `size`. */
bool agent_value(const struct agent_reply *reply, const char *field, char *value, size_t size);

/* agent_number -- a line's value as a number. False: the field is missing, or not a number. */
bool agent_number(const struct agent_reply *reply, const char *field, uint64_t *number);

/* agent_send_note -- a packet without a reply. It is lost when no agent listens or its queue is full. Does not
 * block. */
void agent_send_note(const char *socket_path, const char *note);

/* agent_writer_open -- farlog_writer_open by the stream's name: asks the agent for a grant and opens the ring that it
 * names, again with another grant for AGENT_RETRY_TIMEOUT_NS when the ring did not accept the first one. */
struct writer_watch;
int agent_writer_open(const char *uri, const struct farlog_writer_config *config, const struct writer_watch *watch,
	farlog_writer **writer, struct farlog_error *error) FARLOG_MUST_CHECK;

/* agent_reader_open -- farlog_reader_open by the stream's name, with a reader's grant; INVALID for a drain. */
int agent_reader_open(const char *uri, const struct farlog_reader_config *config, farlog_reader **reader,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* agent_device_open -- have the agent, which checks who asks, open a block device with O_DIRECT that the kernel does
 * not let this process open. The caller closes *fd; no other process has it. */
int agent_device_open(const char *path, bool is_writing, int *fd, struct farlog_error *error) FARLOG_MUST_CHECK;

#endif
