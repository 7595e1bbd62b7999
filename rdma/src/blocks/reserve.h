/* blocks/reserve.h -- who may write to a namespace that several hosts reach: persistent reservations of type Write
 * Exclusive, Registrants Only.
 *
 * The device knows hosts, not processes: a host has one registration in a namespace. A writer registers its host by a
 * key of its own and holds the reservation; a takeover registers its host, preempts the former writer's key
 * and has the device end that writer's commands. From then on the device refuses its writes. Who only moves a head
 * or raises a fence registers, and leaves the reservation alone. Readers need nothing.
 *
 * A fenced host lets nobody register it again while a writer lives there that may be the one that was fenced
 * out: the ring's locks tell. So one writer is fenced from another on the same host by the locks, and from those on
 * other hosts by the device. Nobody gives a registration or the reservation back: they are what keeps a writer out that
 * sleeps. */
#ifndef FARLOG_BLOCK_RESERVE_H
#define FARLOG_BLOCK_RESERVE_H

#include "blocks/block.h"

/* A key is the tag, 16 bits, before 48 bits of FNV-1a, 64 bits folded by its upper 16, over uuid of the ring, epoch (0:
 * no writer's) and host. */
enum reserve_tag {
	RESERVE_TAG_WRITER = 0xFA10,
	RESERVE_TAG_OTHER = 0xFA11,   /* drain, fence */
	RESERVE_TAG_FORMAT = 0xFA12,  /* the reservation was taken away to format */
	RESERVE_TAG_OPENING = 0xFA13, /* of a ring in a directory: a writer is being opened. No reservation goes with it */
};

#define RESERVE_TYPE 3u /* NVM Express: Write Exclusive, Registrants Only */

#define RESERVE_RING_SHIFT 32u /* of an opening key: above are its tag and 16 bits of the ring, below 32 of the host */

/* reserve_opening_key, reserve_host -- of a ring and a host; of a host, not 0. */
uint64_t reserve_opening_key(const uint8_t ring_uuid[16], const char *host);
uint64_t reserve_host(const char *host);

uint64_t reserve_key(enum reserve_tag tag, const uint8_t ring_uuid[16], uint32_t epoch, const char *host);

/* reserve_acquire -- from now on this host holds the reservation by `claim`, and the host that had it writes no more.
 * OK; HELD: it is not farlog's to take, or others take it at the same time; IO. Where the device has no reservations
 * (view->is_here): OK. */
int reserve_acquire(struct block_device *device, const struct region_claim *claim, struct reserve_view *view,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* reserve_join -- from now on this host is registered. HELD: a writer lives here that may have been fenced. */
int reserve_join(struct block_device *device, const struct region_claim *claim, struct reserve_view *view,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* reserve_if_free -- as reserve_join, and HELD where another host holds the reservation. */
int reserve_if_free(struct block_device *device, const struct region_claim *claim, struct reserve_view *view,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* reserve_check_free -- of a ring in a directory, whose neighbours are other writers': nothing is reserved. OK, with
 * view->host "" where only this host has the device; HELD: somebody has reserved the namespace, and this host may not
 * write; IO. */
int reserve_check_free(struct block_device *device, const struct region_claim *claim, struct reserve_view *view,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* reserve_describe -- add to a contract what fences writers of other hosts. */
void reserve_describe(struct block_device *device, bool has_directory, struct farlog_contract *contract);

/* reserve_by_ioctl -- what block_ops.reserve is for an open device. */
int reserve_by_ioctl(
	int fd, enum reserve_verb verb, uint64_t key, uint64_t other, struct reserve_view *view) FARLOG_MUST_CHECK;

/* reserve_read_result -- what the kernel's answer to an NVM Express command that reads means: 0, above 0 the device's
 * status, -1 with errno. OK; UNSUPPORTED: the device does not have the command; IO, with errno: whatever else, also
 * that this process has no right to it. */
int reserve_read_result(int status) FARLOG_MUST_CHECK;

#endif
