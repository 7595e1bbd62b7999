/* blocks/uring_open.c -- opening a device, or for tests a plain file, whose blocks io_uring is going to carry. See
 * blocks/uring_device.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "blocks/reserve.h"
#include "blocks/uring_device.h"
#include "region/disk_space.h"
#include "region/kinds.h"

#define COMMAND_LEN_MAX (1u << 30)
#define SQ_IDLE_MS 2000u
/* twice the time after which a target that is asked for nothing else, 5 s, notices that a host is gone */
#define REST_NS 10000000000u

/* make_file -- for tests: all its blocks written, so that no append allocates one. */
static int make_file(const char *text, const char *path, uint64_t size_bytes, struct farlog_error *error)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0640);
	int result;

	if (fd < 0)
		return error_set(error, FARLOG_IO, errno, "make region \"%s\"", text);
	result = disk_allocate(text, path, fd, size_bytes, error);
	if (result == FARLOG_OK && fsync(fd) != 0)
		result = error_set(error, FARLOG_IO, errno, "make %lu bytes of region \"%s\" durable", size_bytes, text);
	close(fd);
	if (result != FARLOG_OK)
		unlink(path);
	return result;
}

/* is_in_use -- by a mount, or by a device made of it. Asked by a descriptor of its own: who has one for itself alone
 * shuts out the next. */
static bool is_in_use(const char *path)
{
	int fd = open(path, O_RDONLY | O_EXCL | O_CLOEXEC);
	bool is_busy = fd < 0 && errno == EBUSY;

	if (fd >= 0)
		close(fd);
	return is_busy;
}

static int open_blocks(const char *text, struct block_uring *uring, const struct block_facts *facts,
	const struct region_options *options, struct farlog_error *error)
{
	int flags = (options->access == REGION_READ ? O_RDONLY : O_RDWR) | O_DIRECT | O_CLOEXEC;

	if (options->access != REGION_READ && facts->is_read_only)
		return error_set(error, FARLOG_IO, 0, "region \"%s\": %s is read-only", text, facts->name);
	if (facts->is_device && options->access == REGION_CREATE && is_in_use(uring->path))
		return error_set(error, FARLOG_HELD, 0,
			"region \"%s\": %s is in use: mounted, or part of another device; free it first", text, uring->path);
	uring->fd = open(uring->path, flags);
	if (uring->fd >= 0)
		return FARLOG_OK;
	if ((errno == EACCES || errno == EPERM) && facts->is_device && options->access != REGION_CREATE)
		return region_open_device(uring->path, options->access != REGION_READ, &uring->fd, error);
	if (errno == EINVAL)
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"region \"%s\": no direct I/O (O_DIRECT) here; expected a block device", text);
	return error_set(error, errno == ENOENT ? FARLOG_NOT_FOUND : FARLOG_IO, errno, "open region \"%s\"", text);
}

/* start_ring -- its first file is where commands go. With passthrough the second one has the role locks: the kernel
 * keeps both until the last command is back. */
static int start_ring(struct block_uring *uring, enum block_queue queue)
{
	bool is_raw = uring->passthrough.fd >= 0;
	int files[2] = {is_raw ? uring->passthrough.fd : uring->fd, uring->fd};
	struct io_uring_params params = {.flags = is_raw ? IORING_SETUP_SQE128 | IORING_SETUP_CQE32 : 0};
	int failure;

	if (queue == BLOCK_COMMITS && uring->is_io_polled)
		params.flags |= IORING_SETUP_IOPOLL;
	if (queue == BLOCK_COMMITS && uring->is_sq_polled) {
		params.flags |= IORING_SETUP_SQPOLL;
		params.sq_thread_idle = SQ_IDLE_MS;
	}
	failure = uring->lib->queue_init_params(BLOCK_DEPTH, &uring->rings[queue], &params);
	if (failure != 0)
		return failure;
	uring->ring_count++;
	return uring->lib->register_files(&uring->rings[queue], files, is_raw ? 2 : 1);
}

static int start_rings(
	const char *text, struct block_uring *uring, const struct region_options *options, struct farlog_error *error)
{
	int failure = start_ring(uring, BLOCK_COMMITS);

	if (failure == 0)
		failure = start_ring(uring, BLOCK_CALLS);
	if (failure == 0 && options->role == REGION_ROLE_DRAIN)
		failure = start_ring(uring, BLOCK_AHEAD);
	if (failure == 0)
		return FARLOG_OK;
	return error_set(error,
		failure == -EPERM || failure == -ENOSYS || failure == -EINVAL ? FARLOG_UNSUPPORTED : FARLOG_IO, -failure,
		"region \"%s\": set up io_uring (%s)", text,
		failure == -ENOMEM     ? "this process may lock too little memory: raise ulimit -l" :
			failure == -EINVAL ? "this kernel is too old for what the URI asks for" :
								 "see /proc/sys/kernel/io_uring_disabled");
}

/* choose_queue_mode -- polled queues are used where there are any, a thread of the kernel and bare commands where they
 * are asked for. Where a write is more than one command to the device, because that has a cache and no FUA, there is no
 * polling for it. */
static int choose_queue_mode(const char *text, struct block_uring *uring, const struct uri *uri,
	const struct block_facts *facts, struct farlog_contract *contract, struct farlog_error *error)
{
	bool can_poll = facts->has_poll && contract->flush_method != FARLOG_FLUSH_DSYNC;
	bool is_raw = strcmp(uri->commands, "nvme") == 0;
	size_t used = strlen(contract->probe);
	int result;

	if (strcmp(uri->poll, "io") == 0 && !can_poll)
		return error_set(error, FARLOG_UNSUPPORTED, 0, "uri \"%s\": poll=io: %s %s", text, facts->name,
			facts->has_poll ? "has a cache and no FUA" :
							  "has no poll queues; connect it with --nr-poll-queues, or set nvme.poll_queues");
	uring->is_sq_polled = strcmp(uri->poll, "sq") == 0;
	uring->is_io_polled = can_poll && strcmp(uri->poll, "none") != 0;
	snprintf(contract->probe + used, sizeof(contract->probe) - used, "%s%s%s", uring->is_io_polled ? "; polled" : "",
		uring->is_sq_polled ? "; by a thread of the kernel" : "", is_raw ? "; bare NVMe commands" : "");
	if (!is_raw)
		return FARLOG_OK;
	result = passthrough_open(text, facts, &uring->passthrough, error);
	uring->device.command_len_max = uring->passthrough.command_len_max;
	uring->device.read_len_max = uring->passthrough.command_len_max;
	return result;
}

int block_uring_probe(
	const char *text, const struct uri *uri, struct farlog_contract *contract, struct farlog_error *error)
{
	struct block_facts facts;
	int result = block_probe(text, uri->path, &facts, error);

	return result == FARLOG_OK ? block_contract(text, uri, &facts, contract, error) : result;
}

static int find_facts(const char *text, const struct uri *uri, const struct region_options *options,
	struct block_facts *facts, struct farlog_error *error)
{
	int result = block_probe(text, uri->path, facts, error);

	if (result != FARLOG_OK || facts->size_bytes != 0 || facts->is_device)
		return result;
	if (options->access != REGION_CREATE || options->size_bytes == 0)
		return error_set(error, FARLOG_NOT_FOUND, ENOENT, "open region \"%s\"", text);
	result = make_file(text, uri->path, options->size_bytes, error);
	return result == FARLOG_OK ? block_probe(text, uri->path, facts, error) : result;
}

int block_uring_open(const char *text, const struct uri *uri, const struct region_options *options,
	struct farlog_contract *contract, struct block_device **device, struct farlog_error *error)
{
	struct block_uring *uring;
	struct block_facts facts;
	const struct lib_uring *lib;
	int result = lib_uring_load(&lib, error);

	if (result == FARLOG_OK)
		result = find_facts(text, uri, options, &facts, error);
	if (result == FARLOG_OK)
		result = block_contract(text, uri, &facts, contract, error);
	if (result != FARLOG_OK)
		return result;
	uring = calloc(1, sizeof(*uring));
	if (uring == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "open region \"%s\": out of memory", text);
	*uring = (struct block_uring){.lib = lib,
		.fd = -1,
		.is_device = facts.is_device,
		.is_plain = contract->flush_method == FARLOG_FLUSH_WRITE,
		.passthrough = {.fd = -1},
		.device = {.ops = &uring_ops,
			.size_bytes = facts.size_bytes,
			.lba_len = facts.lba_len,
			.command_len_max = COMMAND_LEN_MAX,
			/* also of one that is made of others, whose names it does not have */
			.reopen_delay_ns = facts.is_device ? REST_NS : 0,
			.is_former_gone = uri->former[0] != '\0'}};
	strcpy(uring->path, uri->path);
	result = open_blocks(text, uring, &facts, options, error);
	if (result == FARLOG_OK)
		result = choose_queue_mode(text, uring, uri, &facts, contract, error);
	if (result == FARLOG_OK)
		result = start_rings(text, uring, options, error);
	if (result != FARLOG_OK) {
		uring_ops.close(&uring->device);
		return result;
	}
	reserve_describe(&uring->device, options->has_directory, contract);
	*device = &uring->device;
	return FARLOG_OK;
}
