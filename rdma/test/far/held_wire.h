/* held_wire.h -- a wire to a target: what a client sends by it comes there, unless the wire is held. What it holds then
 * is on its way, as with a target that stands or a switch that keeps it, and comes when it is let go, whatever has
 * become of the client's end meanwhile. */
#ifndef FARLOG_TEST_HELD_WIRE_H
#define FARLOG_TEST_HELD_WIRE_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define WIRE_PAIR_COUNT 64u
#define WIRE_ROOM (4u << 20) /* what one connection can have on its way */

/* A connection: the client's end and the target's. All of it is the wire's thread's, but is_held. */
struct wire_pair {
	int client;
	int target;
	uint8_t *bytes;
	size_t len;
	bool is_client_gone;
	uint64_t is_target_gone; /* the target has closed it. Stored with release */
	uint64_t is_held;
};

struct wire {
	int listener;
	uint16_t port;
	uint16_t to_port;
	pthread_t thread;
	bool is_running;
	uint64_t is_stopping;
	uint64_t pair_count; /* stored with release, behind the pair */
	struct wire_pair pairs[WIRE_PAIR_COUNT];
};

/* wire_open -- to a port of this host. False: no socket. wire_close -- safe on one that was not opened. */
bool wire_open(struct wire *wire, uint16_t to_port);
void wire_close(struct wire *wire);

/* wire_hold -- all connections that there are now; later ones are as ever. wire_let_go -- all. */
void wire_hold(struct wire *wire);
void wire_let_go(struct wire *wire);

/* wire_is_shut -- has the target closed its end of the first connection? */
bool wire_is_shut(const struct wire *wire);

#endif
