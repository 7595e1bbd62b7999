/* blocks/health.c -- the health page of an NVMe device, by the kernel's call for commands of administration. */
#include "farlog/health.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nvme_ioctl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/err.h"

#define ADMIN_GET_LOG_PAGE 0x02
#define PAGE_HEALTH 0x02u
#define ALL_NAMESPACES 0xFFFFFFFFu /* the page is the controller's */
#define TIMEOUT_MS 5000u

int farlog_device_health(const char *path, uint8_t *page, struct farlog_error *error)
{
	struct nvme_admin_cmd command = {
		.opcode = ADMIN_GET_LOG_PAGE,
		.nsid = ALL_NAMESPACES,
		.addr = (uint64_t)(uintptr_t)page,
		.data_len = FARLOG_HEALTH_LEN,
		.cdw10 = PAGE_HEALTH | (FARLOG_HEALTH_LEN / 4 - 1) << 16,
		.timeout_ms = TIMEOUT_MS,
	};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int failure, status;

	memset(page, 0, FARLOG_HEALTH_LEN);
	if (fd < 0)
		return error_set(error, errno == ENOENT ? FARLOG_NOT_FOUND : FARLOG_IO, errno,
			"device \"%s\": open it to ask for its health", path);
	status = ioctl(fd, NVME_IOCTL_ADMIN_CMD, &command);
	failure = errno;
	close(fd);
	if (status == 0)
		return FARLOG_OK;
	if (status > 0)
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"device \"%s\": it refuses its health page (02h) with NVMe status 0x%x", path, (unsigned)status);
	if (failure == ENOTTY || failure == EINVAL)
		return error_set(error, FARLOG_UNSUPPORTED, failure, "device \"%s\" is no NVMe device", path);
	return error_set(error, FARLOG_IO, failure, "device \"%s\": ask for its health", path);
}
