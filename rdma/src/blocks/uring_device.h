/* blocks/uring_device.h -- a device driven by io_uring, as its two files share it: blocks/uring.c, what it does while
 * it is open, and blocks/uring_open.c. */
#ifndef FARLOG_BLOCK_URING_DEVICE_H
#define FARLOG_BLOCK_URING_DEVICE_H

#include "blocks/lib_uring.h"
#include "blocks/passthrough.h"
#include "blocks/uring.h"

struct block_uring {
	struct block_device device;
	const struct lib_uring *lib;
	struct io_uring rings[BLOCK_QUEUE_COUNT];
	unsigned ring_count;
	uint64_t flying_counts[BLOCK_QUEUE_COUNT]; /* put, and not yet taken back */
	int fd;
	bool is_device;
	bool is_plain;     /* a plain write is durable when it comes back, or is not asked to be */
	bool is_io_polled; /* of the commits: answers come when they are asked for */
	bool is_sq_polled; /* of the commits: a thread of the kernel takes what is put, and brings the answers */
	struct passthrough passthrough;
	uint8_t *buffer; /* registered with the commits' ring, NULL = nothing is */
	uint64_t buffer_len;
	uint8_t *others;
	uint64_t others_len;
	unsigned others_index;
	char path[URI_PATH_LEN_MAX];
};

extern const struct block_ops uring_ops;

#endif
