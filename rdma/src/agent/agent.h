/* agent/agent.h -- asking the host agent (farlogd host) over its Unix socket. The protocol is that of
 * docs/reference/host-agent.md: one packet to ask, one to answer, each of lines "word value". */
#ifndef FARLOG_AGENT_H
#define FARLOG_AGENT_H

#include "farlog/farlog.h"

#define AGENT_SOCKET_DEFAULT "/run/farlog/host.sock"
#define AGENT_SOCKET_VARIABLE "FARLOG_AGENT"
#define AGENT_PACKET_LEN_MAX 4096
#define AGENT_VALUE_LEN_MAX 1024

struct agent_reply {
	char text[AGENT_PACKET_LEN_MAX + 1];
	int fd; /* that came with it; -1 = none. The caller's to close */
};

/* agent_socket -- where the agent is: `given`, or what the environment says, or the default. Good until the environment
 * changes. */
const char *agent_socket(const char *given);

/* agent_call -- ask once, and wait for the answer until the monotonic time until_ns. OK: reply has it. NOT_FOUND: there
 * is no agent; IO: it did not answer in time or not in these words; anything else is what it said. The error names the
 * socket and `what`. */
int agent_call(const char *socket_path, const char *what, const char *request, uint64_t until_ns,
	struct agent_reply *reply, struct farlog_error *error) FARLOG_MUST_CHECK;

/* agent_call_until -- the same, and give up (IO) as soon as `stop_fd` can be read; -1 = none. An agent that is away, as
 * while it is started anew, is asked again until until_ns, at most for AGENT_AWAY_NS, after pauses that differ from
 * process to process: so it is only for what may be asked twice. Where not even the socket's directory is there, no
 * agent is waited for. */
#define AGENT_AWAY_NS 10000000000u
int agent_call_until(const char *socket_path, const char *what, const char *request, uint64_t until_ns, int stop_fd,
	struct agent_reply *reply, struct farlog_error *error) FARLOG_MUST_CHECK;

/* agent_take_number -- a line's value that is a number. False: there is none, or it is no number. */
bool agent_take_number(const struct agent_reply *reply, const char *word, uint64_t *number);

/* agent_tell -- say something that nobody waits for: an agent that is not there, or has no room, does not hear it. */
void agent_tell(const char *socket_path, const char *note);

/* agent_value -- the value of a line; false: there is none, or it is longer than the room. */
bool agent_value(const struct agent_reply *reply, const char *word, char *value, size_t room);

/* agent_writer_open -- farlog_writer_open for such a URI: gets a grant from the control plane by way of the agent, and
 * opens what was granted. A grant that came too late is asked for anew. */
struct writer_watch;
int agent_writer_open(const char *uri, const struct farlog_writer_config *config, const struct writer_watch *watch,
	farlog_writer **writer, struct farlog_error *error) FARLOG_MUST_CHECK;

/* agent_reader_open -- farlog_reader_open for such a URI, by a reader's grant; not as a drain. */
int agent_reader_open(const char *uri, const struct farlog_reader_config *config, farlog_reader **reader,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* agent_device_open -- a block device that the kernel does not let this process open, opened with O_DIRECT for writing
 * or reading by the agent, which looks who asks. *fd is the caller's; nobody else has it. */
int agent_device_open(const char *path, bool is_writing, int *fd, struct farlog_error *error) FARLOG_MUST_CHECK;

#endif
