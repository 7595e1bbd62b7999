/* target/network.c -- from where a grant's client may come. A token is a secret that crosses the network in the clear;
 * the address that it is brought from is what a target can know of the host behind a connection, since whoever has
 * another one gets no answer to a handshake that he begins from it. */
#include <arpa/inet.h>
#include <string.h>

#include "target/target.h"

bool target_read_ip(const struct sockaddr *peer, uint8_t *address)
{
	static const uint8_t mapped[12] = {[10] = 0xFF, [11] = 0xFF};

	if (peer != NULL && peer->sa_family == AF_INET) {
		memcpy(address, mapped, sizeof(mapped));
		memcpy(address + sizeof(mapped), &((const struct sockaddr_in *)(const void *)peer)->sin_addr, 4);
		return true;
	}
	if (peer != NULL && peer->sa_family == AF_INET6) {
		memcpy(address, &((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr, 16);
		return true;
	}
	return false;
}

static bool is_in(const struct farlog_network *network, const uint8_t *address)
{
	uint32_t whole = network->bit_count / 8;
	uint32_t rest = network->bit_count % 8;
	uint8_t mask = (uint8_t)(0xFFu << (8 - rest));

	return memcmp(network->address, address, whole) == 0 &&
		(rest == 0 || ((network->address[whole] ^ address[whole]) & mask) == 0);
}

bool target_may_come_from(const struct target_grant *grant, const struct sockaddr *peer)
{
	uint8_t address[16];

	if (grant->network_count == 0)
		return true;
	if (!target_read_ip(peer, address))
		return false;
	for (size_t i = 0; i < grant->network_count; i++)
		if (is_in(&grant->networks[i], address))
			return true;
	return false;
}

void target_copy_peer(const struct sockaddr *peer, struct sockaddr_storage *copy)
{
	memset(copy, 0, sizeof(*copy));
	if (peer != NULL && peer->sa_family == AF_INET)
		memcpy(copy, peer, sizeof(struct sockaddr_in));
	else if (peer != NULL && peer->sa_family == AF_INET6)
		memcpy(copy, peer, sizeof(struct sockaddr_in6));
}
