/* blocks/passthrough.c -- see blocks/passthrough.h. Opcodes and status codes: NVM Express Base Specification 2.0, NVM
 * Command Set Specification 1.0. */
#include "blocks/passthrough.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nvme_ioctl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/err.h"
#include "ring/layout.h"

#define OPCODE_FLUSH 0x00u
#define OPCODE_WRITE 0x01u
#define OPCODE_READ 0x02u
#define FUA_BIT 30u
#define STATUS_MASK 0x7FFu /* of what comes back: type and code, without "do not retry" and "more" */
#define COMMAND_LEN_MAX (1u << 20)
#define COMMAND_LEN_LEAST (64u << 10) /* the header is read at once */

static const struct {
	uint16_t status;
	int failure;
	const char *name;
} statuses[] = {
	{0x006, EIO, "Internal Error"},
	{0x00B, ENXIO, "Invalid Namespace or Format"},
	{0x020, EROFS, "Namespace is Write Protected"},
	{0x080, ENOSPC, "LBA Out of Range"},
	{0x081, ENOSPC, "Capacity Exceeded"},
	{0x082, EIO, "Namespace Not Ready"},
	{0x083, EBADE, "Reservation Conflict"},
	{0x280, EIO, "Write Fault"},
	{0x281, EIO, "Unrecovered Read Error"},
	{0x286, EACCES, "Access Denied"},
	{0x370, EIO, "Internal Path Error"},
	{0x371, EIO, "Host Pathing Error"},
	{0x372, EIO, "Command Aborted By Host"},
};

int passthrough_open(
	const char *text, const struct block_facts *facts, struct passthrough *passthrough, struct farlog_error *error)
{
	char path[80];
	int nsid;

	*passthrough = (struct passthrough){.fd = -1, .lba_len = facts->lba_len};
	if (strncmp(facts->name, "nvme", 4) != 0 || facts->is_partition)
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"uri \"%s\": commands=nvme is for a whole NVMe namespace; %s is %s", text, facts->name,
			facts->is_partition ? "a partition" : "none");
	snprintf(path, sizeof(path), "/dev/ng%.60s", facts->name + 4);
	passthrough->fd = open(path, O_RDWR | O_CLOEXEC);
	if (passthrough->fd < 0)
		return error_set(error, errno == ENOENT ? FARLOG_NOT_FOUND : FARLOG_IO, errno,
			"uri \"%s\": commands=nvme needs %s", text, path);
	if (facts->command_len_max != 0 && facts->command_len_max < COMMAND_LEN_LEAST)
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"uri \"%s\": commands=nvme: %s takes %u bytes at once; expected at least %u", text, facts->name,
			facts->command_len_max, COMMAND_LEN_LEAST);
	nsid = ioctl(passthrough->fd, NVME_IOCTL_ID);
	if (nsid <= 0)
		return error_set(error, FARLOG_UNSUPPORTED, errno, "uri \"%s\": %s has no namespace", text, path);

	passthrough->nsid = (uint32_t)nsid;
	passthrough->command_len_max = facts->command_len_max != 0 && facts->command_len_max < COMMAND_LEN_MAX ?
		facts->command_len_max :
		COMMAND_LEN_MAX;
	passthrough->command_len_max &= ~(LAYOUT_BLOCK_LEN - 1);
	return FARLOG_OK;
}

void passthrough_prepare(struct io_uring_sqe *sqe, const struct passthrough *passthrough,
	const struct block_command *command, int index, bool is_durable)
{
	struct nvme_uring_cmd *nvme = (struct nvme_uring_cmd *)sqe->cmd;
	uint64_t lba = command->off / passthrough->lba_len;

	memset(sqe, 0, 2 * sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->cmd_op = NVME_URING_CMD_IO;
	nvme->nsid = passthrough->nsid;
	nvme->opcode = command->verb == BLOCK_FLUSH ? OPCODE_FLUSH :
		command->verb == BLOCK_READ             ? OPCODE_READ :
												  OPCODE_WRITE;
	if (command->verb == BLOCK_FLUSH)
		return;
	nvme->addr = (uint64_t)(uintptr_t)command->bytes;
	nvme->data_len = command->len;
	nvme->cdw10 = (uint32_t)lba;
	nvme->cdw11 = (uint32_t)(lba >> 32);
	nvme->cdw12 = (command->len / passthrough->lba_len - 1) | (uint32_t)is_durable << FUA_BIT;
	if (index >= 0) {
		sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
		sqe->buf_index = (uint16_t)index;
	}
}

int passthrough_failure(int32_t result, uint16_t *status)
{
	*status = result > 0 ? (uint16_t)result : 0;
	if (result <= 0)
		return -result;
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].status == (*status & STATUS_MASK))
			return statuses[i].failure;
	return EIO;
}

const char *passthrough_status_name(uint16_t status)
{
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].status == (status & STATUS_MASK))
			return statuses[i].name;
	return "";
}
