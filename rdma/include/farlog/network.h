/* network.h -- libfarlog: grants that are good only for clients at certain addresses. For the daemon that has a target;
 * on top of farlog.h. */
#ifndef FARLOG_NETWORK_H
#define FARLOG_NETWORK_H

#include "farlog.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FARLOG_NETWORKS_MAX 256

/* Addresses that begin with the same bits. */
struct farlog_network {
	uint8_t address[16]; /* of IPv6, as it is written on the wire; one of IPv4 is ::ffff:a.b.c.d */
	uint32_t bit_count;  /* of its first bits, that an address has to have: 128 for this one alone */
	uint32_t reserved;   /* 0 */
};

/* farlog_target_grant_from -- as farlog_target_grant, but only a client whose connection comes from one of these
 * addresses is admitted; any other one gets INVALID, however good its token is. The address is that of the
 * connection's other end, as the kernel (verbs: the connection manager) knows it. count 0: from anywhere. Of a grant
 * that the ring has already, by token, role and epoch, the addresses and the time limit are taken, for who comes from
 * then on. What is pointed to is copied. Errors: those of farlog_target_grant; INVALID also for more than
 * FARLOG_NETWORKS_MAX, or for a bit_count above 128. */
FARLOG_API int farlog_target_grant_from(farlog_target *target, const char *name, const struct farlog_grant *grant,
	const struct farlog_network *networks, size_t count, struct farlog_error *error) FARLOG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
