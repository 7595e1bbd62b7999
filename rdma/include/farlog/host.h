/* host.h -- libfarlog on a trading host: streams by their names, and what a writer was given. On top of farlog.h.
 *
 * A URI "farlog://desk7/orders" names a stream, and leaves it to the host agent, farlogd host, where its ring is.
 * farlog_writer_open and farlog_shared_open take it: the agent gets a grant from the control plane in the name of its
 * host, and the ring is opened with the epoch, the token and, where the configuration leaves them at 0, with level,
 * policy and deadline of the stream. A grant that came too late is asked for again, for 10 s. Options: ?agent=PATH, the
 * agent's socket (default: the environment's FARLOG_AGENT, then /run/farlog/host.sock); &transport=mem|verbs|ofi.
 * farlog_reader_open takes it as well, for a reader and not for a drain, also of a stream with several members: the
 * grant is a reader's (role replay). When a ring on another host does not take the grant any more (ten minutes after
 * it, once its target was started again), a thread of the library's asks the agent for another one; until then the ring
 * is away (IO), as any other that does not answer. Who may: the agent looks at the user of the calling process
 * (docs/reference/host-agent.md). Errors beside those of the opening: NOT_FOUND (no agent, no such stream), INVALID
 * (this user may not; an epoch or token was given), IO (agent or control plane does not answer). Blocks up to 15 s for
 * the control plane, and for the opening. Appends ask nobody: agent and control plane may be gone. */
#ifndef FARLOG_HOST_H
#define FARLOG_HOST_H

#include "farlog.h"

#ifdef __cplusplus
extern "C" {
#endif

/* farlog_writer_ring -- identity and sizes of the ring that a writer has, and its cursors as they were when it opened;
 * also of a ring on another host, which farlog_ring_inspect cannot look at. Looks at nothing, never fails. */
FARLOG_API void farlog_writer_ring(const farlog_writer *writer, struct farlog_ring_status *status);
FARLOG_API void farlog_shared_ring(const farlog_shared *shared, struct farlog_ring_status *status);

/* farlog_writer_policy -- what it does while its ring is full, enum farlog_policy: the stream's where the configuration
 * left that open. Any thread; never fails. */
FARLOG_API uint32_t farlog_writer_policy(const farlog_writer *writer);

/* farlog_writer_trouble -- what the device or the link of its ring answered last when a command failed, in words, with
 * the status that an NVMe device gave: why an append ended with FENCED or UNKNOWN, or the writer failed. "" = nothing
 * failed, or a ring in this host's memory. Good until the writer's next call; the writer's thread; never fails. */
FARLOG_API const char *farlog_writer_trouble(const farlog_writer *writer);

#ifdef __cplusplus
}
#endif
#endif
