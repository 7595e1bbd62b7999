/* blocks/host.h -- by which id the target behind a block device knows this host, as the kernel says it in sysfs: other
 * hosts may reach the device, too. */
#ifndef FARLOG_BLOCK_HOST_H
#define FARLOG_BLOCK_HOST_H

#include <stdbool.h>

#include "farlog/farlog.h"

struct block_host {
	char id[40];            /* a UUID; "" = no namespace of NVMe over fabrics is behind it: only this host has it */
	char name[224];         /* NQN; "" = this kernel does not say it */
	bool is_gone_when_lost; /* ctrl_loss_tmo is 0 */
	bool is_part;           /* a partition, or made of other devices: a reservation would concern the neighbours, too */
};

/* block_host_find -- of the device with these numbers. OK; IO, with errno: it cannot be said, and nobody may take the
 * device for one of this host alone. */
int block_host_find(
	const char *sysfs, unsigned device_major, unsigned device_minor, struct block_host *host) FARLOG_MUST_CHECK;

#endif
