/* blocks/uring.h -- a block device, or for tests a plain file, driven by io_uring with O_DIRECT. */
#ifndef FARLOG_BLOCK_URING_H
#define FARLOG_BLOCK_URING_H

#include "base/uri.h"
#include "blocks/block.h"

/* What the kernel says of what lies behind a path. */
struct block_facts {
	uint64_t size_bytes;
	uint32_t lba_len;
	bool is_device; /* false: a plain file */
	bool is_read_only;
	bool has_cache; /* a volatile write cache, switched on */
	bool has_fua;
	bool is_volatile; /* all of it is gone at a power cut */
	bool is_partition;
	bool has_poll;            /* queues whose completions are asked for, without interrupts */
	uint32_t command_len_max; /* of one NVMe command, 0 = not reported */
	char name[64];            /* of the device */
	char behind[64];          /* a loop device's file, "" = none */
};

/* block_probe -- NOT_FOUND (size 0 in the facts: a file that could be made), INVALID: nothing that has blocks; IO. */
int block_probe(
	const char *text, const char *path, struct block_facts *facts, struct farlog_error *error) FARLOG_MUST_CHECK;

/* block_contract -- what that gives, with the flush that the URI asks for. size_bytes is the device's. */
int block_contract(const char *text, const struct uri *uri, const struct block_facts *facts,
	struct farlog_contract *contract, struct farlog_error *error) FARLOG_MUST_CHECK;

/* block_name_foreign -- what a file system, partition table or other owner of this path would lose; "" = nothing is
 * there. OK, UNSUPPORTED: the library that knows is not here; IO. */
int block_name_foreign(const char *path, char *text, size_t size) FARLOG_MUST_CHECK;

int block_uring_probe(const char *text, const struct uri *uri, struct farlog_contract *contract,
	struct farlog_error *error) FARLOG_MUST_CHECK;
int block_uring_open(const char *text, const struct uri *uri, const struct region_options *options,
	struct farlog_contract *contract, struct block_device **device, struct farlog_error *error) FARLOG_MUST_CHECK;

#endif
