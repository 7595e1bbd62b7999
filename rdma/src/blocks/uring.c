/* blocks/uring.c -- blocks by io_uring: registered file, registered buffers, O_DIRECT. See blocks/block.h.
 *
 * Each queue is an io_uring of its own, so that a call of one thread never waits behind another's commit. The role
 * locks lie on the descriptor that the commands use: the kernel holds it until the last of them has come back, and so
 * nobody else becomes writer before. */
#include "blocks/uring_device.h"

#include <errno.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "blocks/reserve.h"
#include "region/role_lock.h"
#include "ring/layout.h"

#define BUFFER_COUNT_MAX 64u
#define ZERO_LEN (1u << 20)
#define ZERO_STEP_LEN (1u << 30) /* of one call to the kernel: it can be killed between two */
#define WATCH_NS 100000000u      /* who watches for an answer does not burn a core for a device that gives none */
#define WATCH_COUNT 64u

static struct block_uring *uring_of(struct block_device *device)
{
	return (struct block_uring *)device;
}

/* index_of -- of the registered buffer that holds these bytes; -1 = none. */
static int index_of(const struct block_uring *uring, const struct block_command *command)
{
	if (uring->buffer == NULL || command->bytes == NULL)
		return -1;
	if (command->bytes >= uring->buffer && command->bytes < uring->buffer + uring->buffer_len)
		return (int)((uint64_t)(command->bytes - uring->buffer) / BLOCK_BUFFER_LEN);
	if (command->bytes >= uring->others && command->bytes < uring->others + uring->others_len)
		return (int)uring->others_index;
	return -1;
}

static void prepare(struct io_uring_sqe *sqe, const struct block_command *command, int index)
{
	switch (command->verb) {
	case BLOCK_FLUSH:
		io_uring_prep_fsync(sqe, 0, IORING_FSYNC_DATASYNC);
		break;
	case BLOCK_READ:
		if (index >= 0)
			io_uring_prep_read_fixed(sqe, 0, command->bytes, command->len, command->off, index);
		else
			io_uring_prep_read(sqe, 0, command->bytes, command->len, command->off);
		break;
	default:
		if (index >= 0)
			io_uring_prep_write_fixed(sqe, 0, command->bytes, command->len, command->off, index);
		else
			io_uring_prep_write(sqe, 0, command->bytes, command->len, command->off);
		break;
	}
}

static void uring_put(struct block_device *device, enum block_queue queue, const struct block_command *command)
{
	struct block_uring *uring = uring_of(device);
	/* there is one: the queue is as deep as its users go */
	struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->rings[queue]);
	uint64_t len = command->len;

	int index = queue == BLOCK_COMMITS ? index_of(uring, command) : -1;
	bool is_durable = command->verb == BLOCK_WRITE_DURABLE && !uring->is_plain;

	if (uring->passthrough.fd >= 0) {
		passthrough_prepare(sqe, &uring->passthrough, command, index, is_durable);
	} else {
		prepare(sqe, command, index);
		if (is_durable)
			sqe->rw_flags = RWF_DSYNC;
	}
	/* analyzer: there is a free one, see above */
	sqe->flags |= IOSQE_FIXED_FILE;
	sqe->user_data = command->id << 32 | len;
	uring->flying_counts[queue]++;
}

/* result_of_count -- what a call of the library gave. OK, also where it may be made again, or IO, with errno.
 * is_taking: answers are taken before that. */
static int result_of_count(int count, bool is_taking)
{
	if (count >= 0 || count == -EINTR || count == -EAGAIN || (is_taking && (count == -ETIME || count == -EBUSY)))
		return FARLOG_OK;
	errno = -count;
	return FARLOG_IO;
}

/* wake_kernel_thread -- the thread that takes what was put, when it has gone to sleep. */
static int wake_kernel_thread(struct block_uring *uring)
{
	struct io_uring *ring = &uring->rings[BLOCK_COMMITS];
	bool is_asleep;
	int count = uring->lib->submit(ring);

	is_asleep =
		io_uring_sq_ready(ring) > 0 && (__atomic_load_n(ring->sq.kflags, __ATOMIC_RELAXED) & IORING_SQ_NEED_WAKEUP);
	uring->device.enter_count += is_asleep; /* a hint: the library looks for itself */
	return result_of_count(count, false);
}

/* spin_for_answer -- until an answer is there, the time is over, or it takes long. False: it does, and who waits may
 * sleep. */
static bool spin_for_answer(struct io_uring *ring, uint64_t timeout_ns)
{
	uint64_t persist_timeout_ns = timeout_ns < WATCH_NS ? timeout_ns : WATCH_NS;
	uint64_t start_ns = clock_monotonic_ns();

	do {
		for (unsigned i = 0; i < WATCH_COUNT; i++) {
			if (io_uring_cq_ready(ring) > 0)
				return true;
			cpu_relax();
		}
	} while (clock_monotonic_ns() - start_ns < persist_timeout_ns);
	return timeout_ns <= WATCH_NS;
}

/* poll_device -- one with polled queues, until it has an answer or the time is over. One call sends, and asks for the
 * first time. */
static int poll_device(struct block_uring *uring, uint64_t timeout_ns)
{
	struct io_uring *ring = &uring->rings[BLOCK_COMMITS];
	uint64_t start_ns = clock_monotonic_ns();
	int count = uring->lib->submit_and_get_events(ring);

	uring->device.enter_count++;
	while (count >= 0 && io_uring_cq_ready(ring) == 0 && clock_monotonic_ns() - start_ns < timeout_ns) {
		count = uring->lib->get_events(ring);
		uring->device.enter_count++;
	}
	return result_of_count(count, true);
}

static int uring_send(struct block_device *device, enum block_queue queue)
{
	struct block_uring *uring = uring_of(device);

	if (queue == BLOCK_COMMITS && uring->is_sq_polled)
		return wake_kernel_thread(uring);
	while (io_uring_sq_ready(&uring->rings[queue]) > 0) {
		int count = uring->lib->submit(&uring->rings[queue]);

		device->enter_count += queue == BLOCK_COMMITS;
		if (result_of_count(count, false) != FARLOG_OK)
			return FARLOG_IO;
	}
	return FARLOG_OK;
}

static int uring_wait(struct block_device *device, enum block_queue queue, uint64_t timeout_ns)
{
	struct block_uring *uring = uring_of(device);
	struct __kernel_timespec timeout = {(int64_t)(timeout_ns / 1000000000u), (long long)(timeout_ns % 1000000000u)};
	struct io_uring_cqe *answer;
	int count;

	if (queue == BLOCK_COMMITS && uring->is_sq_polled) {
		if (wake_kernel_thread(uring) != FARLOG_OK)
			return FARLOG_IO;
		if (spin_for_answer(&uring->rings[queue], timeout_ns))
			return FARLOG_OK;
	} else if (queue == BLOCK_COMMITS && uring->is_io_polled) {
		return poll_device(uring, timeout_ns);
	}
	count = uring->lib->submit_and_wait_timeout(&uring->rings[queue], &answer, 1, &timeout, NULL);
	device->enter_count += queue == BLOCK_COMMITS;
	return result_of_count(count, true);
}

/* is_removed -- the kernel has removed the device: it has no bytes then, and whatever comes back under its name is
 * another one. */
static bool is_removed(const struct block_uring *uring)
{
	uint64_t size_bytes = 0;

	return uring->is_device && (ioctl(uring->fd, BLKGETSIZE64, &size_bytes) != 0 || size_bytes == 0);
}

/* failure_of -- errno, 0 = done; ENODEV: no command to this device succeeds any more. A reservation conflict stays what
 * it is. */
static int failure_of(struct block_uring *uring, const struct io_uring_cqe *cqe)
{
	int failure = cqe->res < 0 ? -cqe->res : 0;
	uint16_t status;

	if (uring->passthrough.fd >= 0) {
		failure = passthrough_failure(cqe->res, &status);
		if (failure != 0)
			uring->device.status = status;
	} else if (failure == 0 && (uint32_t)cqe->res != (uint32_t)cqe->user_data) {
		failure = EIO; /* cut short: the device ends, or one of its LBAs failed */
	}
	return failure != 0 && failure != EBADE && is_removed(uring) ? ENODEV : failure;
}

static unsigned uring_take(
	struct block_device *device, enum block_queue queue, struct block_answer *answers, unsigned count_max)
{
	struct block_uring *uring = uring_of(device);
	struct io_uring *ring = &uring->rings[queue];
	struct io_uring_cqe *cqe;
	unsigned count = 0;
	unsigned head;

	if (queue == BLOCK_COMMITS && uring->is_io_polled && !uring->is_sq_polled && uring->flying_counts[queue] > 0 &&
		io_uring_cq_ready(ring) == 0) {
		(void)uring->lib->get_events(ring); /* nothing else brings them */
		device->enter_count++;
	}
	io_uring_for_each_cqe(ring, head, cqe)
	{
		if (count == count_max)
			break;
		answers[count].id = cqe->user_data >> 32;
		answers[count].failure = failure_of(uring, cqe);
		count++;
	}
	io_uring_cq_advance(ring, count);
	uring->flying_counts[queue] -= count;
	return count;
}

static bool uring_use_buffer(
	struct block_device *device, uint8_t *bytes, uint64_t len, uint8_t *others, uint64_t others_len)
{
	struct block_uring *uring = uring_of(device);
	struct iovec buffers[BUFFER_COUNT_MAX + 1];
	unsigned count = 0;

	for (uint64_t done = 0; done < len && count < BUFFER_COUNT_MAX; done += BLOCK_BUFFER_LEN)
		buffers[count++] = (struct iovec){bytes + done, len - done < BLOCK_BUFFER_LEN ? len - done : BLOCK_BUFFER_LEN};
	buffers[count] = (struct iovec){others, others_len};
	if ((uint64_t)count * BLOCK_BUFFER_LEN < len ||
		uring->lib->register_buffers(&uring->rings[BLOCK_COMMITS], buffers, count + 1) != 0)
		return false;
	uring->buffer = bytes;
	uring->buffer_len = len;
	uring->others = others;
	uring->others_len = others_len;
	uring->others_index = count;
	return true;
}

/* write_zeros -- plainly, into a file. */
static int write_zeros(struct block_uring *uring, uint64_t off, uint64_t len)
{
	uint8_t *zeros = aligned_alloc(LAYOUT_BLOCK_LEN, ZERO_LEN);
	int result = zeros != NULL ? FARLOG_OK : FARLOG_NO_MEMORY;

	if (zeros != NULL)
		memset(zeros, 0, ZERO_LEN);
	for (uint64_t done = 0; done < len && result == FARLOG_OK; done += ZERO_LEN) {
		size_t piece_len = len - done < ZERO_LEN ? len - done : ZERO_LEN;

		errno = EIO; /* of a piece that is cut short */
		if (pwrite(uring->fd, zeros, piece_len, (off_t)(off + done)) != (ssize_t)piece_len)
			result = FARLOG_IO;
	}
	free(zeros);
	return result;
}

static int uring_zero(struct block_device *device, uint64_t off, uint64_t len)
{
	struct block_uring *uring = uring_of(device);
	int result = FARLOG_OK;

	if (!uring->is_device)
		result = write_zeros(uring, off, len);
	for (uint64_t done = 0; uring->is_device && done < len && result == FARLOG_OK; done += ZERO_STEP_LEN) {
		uint64_t range[2] = {off + done, len - done < ZERO_STEP_LEN ? len - done : ZERO_STEP_LEN};

		if (ioctl(uring->fd, BLKZEROOUT, range) != 0)
			result = FARLOG_IO;
	}
	return result == FARLOG_OK && fdatasync(uring->fd) != 0 ? FARLOG_IO : result;
}

static int uring_name_foreign(struct block_device *device, char *text, size_t size)
{
	return block_name_foreign(uring_of(device)->path, text, size);
}

static int uring_reserve(
	struct block_device *device, enum reserve_verb verb, uint64_t key, uint64_t other, struct reserve_view *view)
{
	return reserve_by_ioctl(uring_of(device)->fd, verb, key, other, view);
}

static int uring_lock(struct block_device *device, enum region_role role)
{
	return role_lock_acquire(uring_of(device)->fd, device->ring_off / LAYOUT_BLOCK_LEN, role);
}

static void uring_unlock(struct block_device *device, enum region_role role)
{
	role_lock_release(uring_of(device)->fd, device->ring_off / LAYOUT_BLOCK_LEN, role);
}

static int uring_is_locked(struct block_device *device, enum region_role role)
{
	return role_lock_is_held(uring_of(device)->fd, device->ring_off / LAYOUT_BLOCK_LEN, role);
}

static int uring_has_parts(struct block_device *device)
{
	return role_lock_has_ring_locks(uring_of(device)->fd, device->size_bytes);
}

static void uring_close(struct block_device *device)
{
	struct block_uring *uring = uring_of(device);

	/* The kernel lets go of a queue's file a while after the queue's end. */
	if (uring->fd >= 0 &&
		uring->flying_counts[BLOCK_COMMITS] + uring->flying_counts[BLOCK_CALLS] + uring->flying_counts[BLOCK_AHEAD] ==
			0)
		role_lock_release_all(uring->fd);
	while (uring->ring_count > 0)
		uring->lib->queue_exit(&uring->rings[--uring->ring_count]);
	if (uring->passthrough.fd >= 0)
		close(uring->passthrough.fd);
	if (uring->fd >= 0)
		close(uring->fd);
	free(uring);
}

const struct block_ops uring_ops = {
	.put = uring_put,
	.send = uring_send,
	.wait = uring_wait,
	.take = uring_take,
	.use_buffer = uring_use_buffer,
	.zero = uring_zero,
	.name_foreign = uring_name_foreign,
	.lock = uring_lock,
	.unlock = uring_unlock,
	.is_locked = uring_is_locked,
	.has_parts = uring_has_parts,
	.reserve = uring_reserve,
	.close = uring_close,
};
