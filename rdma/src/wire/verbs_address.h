/* wire/verbs_address.h -- by which address a host is reached over RDMA, and what the GID is that the connection manager
 * took for it.
 *
 * librdmacm chooses device, port and GID by the address that is dialled. With RoCE a port has two GIDs for each
 * address, of versions 1 and 2; which one is taken is a setting of the host. Version 1 is Ethernet alone: no router
 * takes it on, and no switch marks it when it is full. */
#ifndef FARLOG_VERBS_ADDRESS_H
#define FARLOG_VERBS_ADDRESS_H

#include <netdb.h>
#include <stdbool.h>

#include "farlog/farlog.h"

#define VERBS_ADDRESS_ROOT "/sys/class/infiniband"

enum verbs_gid_kind {
	VERBS_GID_UNKNOWN = 0,
	VERBS_GID_NOT_ROCE = 1, /* InfiniBand, iWARP */
	VERBS_GID_ROCE_V1 = 2,
	VERBS_GID_ROCE_V2 = 3,
};

/* Which of a device's GIDs. */
struct verbs_gid {
	const char *root; /* VERBS_ADDRESS_ROOT, or a test's */
	const char *device;
	unsigned port;
	unsigned index;
};

/* verbs_address_pick -- the first that is IPv4, whose GID is IPv4-mapped, or else the first: of a name that has
 * both. */
const struct addrinfo *verbs_address_pick(const struct addrinfo *found);

/* verbs_gid_kind -- UNKNOWN where the kernel does not say. */
enum verbs_gid_kind verbs_gid_kind(const struct verbs_gid *gid);

/* verbs_gid_other -- the same address by RoCE v2: another GID's index, or -1. */
int verbs_gid_other(const struct verbs_gid *gid) FARLOG_MUST_CHECK;

/* verbs_gid_check -- OK, and *caveat is NULL or what its user is to know; UNSUPPORTED: version 1 was taken where
 * version 2 is there, with a text that says what to set. */
int verbs_gid_check(
	const struct verbs_gid *gid, const char *uri, const char **caveat, struct farlog_error *error) FARLOG_MUST_CHECK;

/* verbs_gid_has_carrier -- has the network interface of this GID a link? True where nobody says. */
bool verbs_gid_has_carrier(const struct verbs_gid *gid);

#endif
