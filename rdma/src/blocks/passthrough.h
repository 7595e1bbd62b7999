/* blocks/passthrough.h -- NVMe commands as the device takes them, past the kernel's block layer (io_uring_cmd on
 * /dev/ngXnY): each brings its raw status back.
 *
 * The kernel neither splits, nor repeats, nor takes another path. A submission takes 128 bytes, a completion 32. */
#ifndef FARLOG_BLOCK_PASSTHROUGH_H
#define FARLOG_BLOCK_PASSTHROUGH_H

#include "blocks/lib_uring.h"
#include "blocks/uring.h"

/* Where its commands go. */
struct passthrough {
	int fd; /* of /dev/ngXnY; -1 = the block layer is used */
	uint32_t nsid;
	uint32_t lba_len;
	uint32_t command_len_max;
};

/* passthrough_open -- of the namespace that the facts tell of. NOT_FOUND, UNSUPPORTED: a partition, or no NVMe; IO. The
 * descriptor is the caller's, also then. */
int passthrough_open(const char *text, const struct block_facts *facts, struct passthrough *passthrough,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* passthrough_prepare -- index: of the registered buffer, -1 = none. is_durable: with FUA. */
void passthrough_prepare(struct io_uring_sqe *sqe, const struct passthrough *passthrough,
	const struct block_command *command, int index, bool is_durable);

/* passthrough_failure -- errno of what came back: 0 = done; *status is what the device said, 0 = nothing. */
int passthrough_failure(int32_t result, uint16_t *status) FARLOG_MUST_CHECK;

/* passthrough_status_name -- as the specification calls it, or "". */
const char *passthrough_status_name(uint16_t status);

#endif
