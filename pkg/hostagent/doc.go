// Package hostagent is what runs once on a trading host beside its writers: it gets grants from the control plane for
// programs that know only their streams' names, and says of each program by its user whether it may. It is asked over a
// Unix socket, a packet to ask and a packet to answer (docs/reference/host-agent.md); the C library asks it for URIs
// such as farlog://desk7/orders. Appends do not pass through it: what has been opened goes on without it.
package hostagent
