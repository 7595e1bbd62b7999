/* blocks/reserve_ioctl.c -- reservations of a namespace by the kernel's calls: linux/pr.h to change them, and NVM
 * Express's own report to read them, which shows what the kernel's (since 7.0) does not: whose key is whose, and
 * whether they outlive a power loss.
 *
 * Only of fabrics. There the kernel says by which id the target knows this host. None of it asks for rights beyond
 * those to the device. */
#include <errno.h>
#include <linux/nvme_ioctl.h>
#include <linux/pr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "blocks/host.h"
#include "blocks/reserve.h"

#define ADMIN_IDENTIFY 0x06
#define IO_RESERVATION_REPORT 0x0E
#define IDENTIFY_LEN 4096u
#define IDENTIFY_RESCAP 31u /* of a namespace: what reservations it has */
#define RESCAP_KEPT 0x01u
#define RESCAP_WRITE_EXCLUSIVE_REGISTRANTS 0x08u
#define REPORT_LEN 16384u
#define REPORT_EXTENDED 1u /* hosts by 128 bits */
#define REPORT_HEADER_LEN 64u
#define REGISTRANT_LEN 64u
#define HOST_LEN 16u
#define STATUS_MASK 0x7FF /* type and code, without the bits that say whether and where to try again */
#define STATUS_INVALID_OPCODE 0x001

/* parse_host -- a UUID as text, into the bytes that go over the wire. */
static bool parse_host(const char *text, uint8_t host[HOST_LEN])
{
	unsigned digits = 0;

	memset(host, 0, HOST_LEN);
	for (; *text != '\0' && digits < 2 * HOST_LEN; text++) {
		const char *hex = "0123456789abcdef";
		const char *at = strchr(hex, *text | 0x20);

		if (*text == '-')
			continue;
		if (at == NULL)
			return false;
		host[digits / 2] |= (uint8_t)((at - hex) << (digits % 2 == 0 ? 4 : 0));
		digits++;
	}
	return digits == 2 * HOST_LEN && *text == '\0';
}

static uint64_t load_u64(const uint8_t *bytes)
{
	uint64_t value;

	memcpy(&value, bytes, sizeof(value));
	return value;
}

int reserve_read_result(int status)
{
	if (status == 0)
		return FARLOG_OK;
	if (status > 0)
		errno = EIO;
	return status > 0 && (status & STATUS_MASK) == STATUS_INVALID_OPCODE ? FARLOG_UNSUPPORTED : FARLOG_IO;
}

/* find_host -- OK; UNSUPPORTED: only this host has the device; IO. */
static int find_host(
	const struct stat *info, struct block_host *found, uint8_t host[HOST_LEN], struct reserve_view *view)
{
	int result = block_host_find("/sys", major(info->st_rdev), minor(info->st_rdev), found);

	if (result != FARLOG_OK)
		return result;
	if (found->id[0] == '\0')
		return FARLOG_UNSUPPORTED;
	strcpy(view->host, found->id);
	strcpy(view->name, found->name);
	view->is_gone_when_lost = found->is_gone_when_lost;
	if (parse_host(view->host, host))
		return FARLOG_OK;
	errno = EPROTO;
	return FARLOG_IO;
}

/* parse_report -- who holds it, and which of the registered hosts is this one. */
static void parse_report(const uint8_t *report, const uint8_t host[HOST_LEN], struct reserve_view *view)
{
	unsigned count = report[5] | (unsigned)report[6] << 8;

	view->type = report[4];
	for (unsigned i = 0; i < count && REPORT_HEADER_LEN + (i + 1) * REGISTRANT_LEN <= REPORT_LEN; i++) {
		const uint8_t *registrant = report + REPORT_HEADER_LEN + i * REGISTRANT_LEN;
		bool is_us = memcmp(registrant + 16, host, HOST_LEN) == 0;

		view->is_registered |= is_us;
		if (!is_us && view->other_count < sizeof(view->other_keys) / sizeof(view->other_keys[0]))
			view->other_keys[view->other_count++] = load_u64(registrant + 8);
		if ((registrant[2] & 1) == 0)
			continue;
		view->holder_key = load_u64(registrant + 8);
		view->is_holder_us = is_us;
	}
}

static int read_device_report(int fd, const struct stat *info, uint8_t *buffer, struct reserve_view *view)
{
	uint8_t host[HOST_LEN];
	struct block_host found;
	struct nvme_passthru_cmd identify = {.opcode = ADMIN_IDENTIFY, .addr = (uintptr_t)buffer, .data_len = IDENTIFY_LEN};
	struct nvme_passthru_cmd report = {.opcode = IO_RESERVATION_REPORT,
		.addr = (uintptr_t)buffer,
		.data_len = REPORT_LEN,
		.cdw10 = REPORT_LEN / 4 - 1,
		.cdw11 = REPORT_EXTENDED};
	int result = find_host(info, &found, host, view);
	int nsid;

	if (result != FARLOG_OK || found.is_part)
		return result; /* the reservation is the whole namespace's: it would fence the neighbours, too */
	nsid = ioctl(fd, NVME_IOCTL_ID);
	if (nsid <= 0)
		return FARLOG_IO;
	identify.nsid = report.nsid = (uint32_t)nsid;
	/* Every controller answers that: no status of it means that there are no reservations. */
	if (reserve_read_result(ioctl(fd, NVME_IOCTL_ADMIN_CMD, &identify)) != FARLOG_OK)
		return FARLOG_IO;
	if ((buffer[IDENTIFY_RESCAP] & RESCAP_WRITE_EXCLUSIVE_REGISTRANTS) == 0)
		return FARLOG_OK;
	view->is_kept = buffer[IDENTIFY_RESCAP] & RESCAP_KEPT;
	result = reserve_read_result(ioctl(fd, NVME_IOCTL_IO_CMD, &report));
	if (result != FARLOG_OK)
		return result == FARLOG_UNSUPPORTED ? FARLOG_OK : result;
	parse_report(buffer, host, view);
	view->is_here = true;
	return FARLOG_OK;
}

static int read_report(int fd, struct reserve_view *view)
{
	struct stat info;
	uint8_t *buffer;
	int result;

	if (fstat(fd, &info) != 0)
		return FARLOG_IO;
	if (!S_ISBLK(info.st_mode))
		return FARLOG_UNSUPPORTED;
	buffer = aligned_alloc(4096, REPORT_LEN);
	if (buffer == NULL)
		return FARLOG_NO_MEMORY;
	memset(buffer, 0, REPORT_LEN);
	result = read_device_report(fd, &info, buffer, view);
	free(buffer);
	return result;
}

/* result_of_status -- of a call of linux/pr.h: above 0 the device's word. Older kernels look at
 * fewer bits of the status, so that a conflict appears as a failure there: the caller reads the report again. */
static int result_of_status(int status)
{
	if (status == 0)
		return FARLOG_OK;
	return status > 0 ? FARLOG_HELD : errno == EOPNOTSUPP ? FARLOG_UNSUPPORTED : FARLOG_IO;
}

int reserve_by_ioctl(int fd, enum reserve_verb verb, uint64_t key, uint64_t other, struct reserve_view *view)
{
	struct pr_registration registration = {
		.old_key = verb == RESERVE_REPLACE, .new_key = key, .flags = verb == RESERVE_REPLACE ? PR_FL_IGNORE_KEY : 0};
	struct pr_reservation reservation = {.key = key, .type = PR_WRITE_EXCLUSIVE_REG_ONLY};
	/* As the kernel's drivers take it: the old one is the caller's, the new one that which goes. */
	struct pr_preempt preempt = {.old_key = key, .new_key = other, .type = PR_WRITE_EXCLUSIVE_REG_ONLY};

	switch (verb) {
	case RESERVE_REPORT:
		return read_report(fd, view);
	case RESERVE_REGISTER:
	case RESERVE_REPLACE:
		return result_of_status(ioctl(fd, IOC_PR_REGISTER, &registration));
	case RESERVE_ACQUIRE:
		return result_of_status(ioctl(fd, IOC_PR_RESERVE, &reservation));
	default:
		return result_of_status(ioctl(fd, IOC_PR_PREEMPT_ABORT, &preempt));
	}
}
