/* block_reserve_ioctl.c -- reservations of a namespace by the kernel's calls: linux/pr.h to change them, and NVM Express's own report to look at
 * them, which tells what the kernel's (since 7.0) does not: whose key is whose, and whether they outlive a power loss.
 *
 * Only of fabrics. There the kernel says by which id the target knows this host. None of it asks for rights beyond those to the device. */
#include <errno.h>
#include <glob.h>
#include <linux/nvme_ioctl.h>
#include <linux/pr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "block_reserve.h"

#define ADMIN_IDENTIFY 0x06
#define IO_RESERVATION_REPORT 0x0E
#define IDENTIFY_LEN 4096u
#define IDENTIFY_RESCAP 31u       /* of a namespace: what reservations it has */
#define RESCAP_KEPT 0x01u
#define RESCAP_WRITE_EXCLUSIVE_REGISTRANTS 0x08u
#define REPORT_LEN 16384u
#define REPORT_EXTENDED 1u        /* hosts by 128 bits */
#define REPORT_HEADER_LEN 64u
#define REGISTRANT_LEN 64u
#define HOST_LEN 16u

/* load_line -- of the device's controller in sysfs. With native multipathing the device is the subsystem's, which has its controllers below it. */
static bool load_line(const struct stat *info, const char *attribute, char *line, size_t room)
{
	static const char *const patterns[] = {"/sys/dev/block/%u:%u/device/%s", "/sys/dev/block/%u:%u/device/nvme*/%s"};
	bool is_there = false;

	for (size_t i = 0; i < 2 && !is_there; i++) {
		char pattern[96];
		glob_t found;
		FILE *file = NULL;

		snprintf(pattern, sizeof(pattern), patterns[i], major(info->st_rdev), minor(info->st_rdev), attribute);
		if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0)
			file = fopen(found.gl_pathv[0], "re");
		is_there = file != NULL && fgets(line, (int)room, file) != NULL;
		if (file != NULL)
			fclose(file);
		globfree(&found);
	}
	if (is_there)
		line[strcspn(line, "\n")] = '\0';
	return is_there;
}

/* load_host -- the id by which the target knows this host, and what the kernel does with a device whose connection breaks. */
static bool load_host(const struct stat *info, struct reserve_view *view)
{
	char seconds[24];

	view->is_gone_when_lost = load_line(info, "ctrl_loss_tmo", seconds, sizeof(seconds)) && strcmp(seconds, "0") == 0;
	(void)load_line(info, "hostnqn", view->name, sizeof(view->name));
	return load_line(info, "hostid", view->host, sizeof(view->host));
}

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

static bool is_partition(const struct stat *info)
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/partition", major(info->st_rdev), minor(info->st_rdev));
	return access(path, F_OK) == 0;
}

/* run -- an NVM Express command that reads. OK, UNSUPPORTED (the device does not know it), IO. */
static int run(int fd, unsigned long request, struct nvme_passthru_cmd *command)
{
	int status = ioctl(fd, request, command);

	if (status == 0)
		return FARLOG_OK;
	if (status > 0)
		errno = EIO;
	return status > 0 || errno == EACCES || errno == ENOTTY || errno == EINVAL ? FARLOG_UNSUPPORTED : FARLOG_IO;
}

/* take_report -- who holds it, and which of the registered hosts is this one. */
static void take_report(const uint8_t *report, const uint8_t host[HOST_LEN], struct reserve_view *view)
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

static int look_at(int fd, const struct stat *info, uint8_t *buffer, struct reserve_view *view)
{
	uint8_t host[HOST_LEN];
	int nsid = ioctl(fd, NVME_IOCTL_ID);
	struct nvme_passthru_cmd identify = {
		.opcode = ADMIN_IDENTIFY, .nsid = (uint32_t)nsid, .addr = (uintptr_t)buffer, .data_len = IDENTIFY_LEN};
	struct nvme_passthru_cmd report = {.opcode = IO_RESERVATION_REPORT, .nsid = (uint32_t)nsid, .addr = (uintptr_t)buffer, .data_len = REPORT_LEN,
		.cdw10 = REPORT_LEN / 4 - 1, .cdw11 = REPORT_EXTENDED};
	int result;

	if (nsid <= 0 || !load_host(info, view) || !parse_host(view->host, host))
		return FARLOG_UNSUPPORTED; /* no namespace, or none of fabrics */
	if (is_partition(info))
		return FARLOG_OK; /* the reservation is the whole namespace's: it would fence the neighbours, too */
	result = run(fd, NVME_IOCTL_ADMIN_CMD, &identify);
	if (result == FARLOG_UNSUPPORTED || (result == FARLOG_OK && (buffer[IDENTIFY_RESCAP] & RESCAP_WRITE_EXCLUSIVE_REGISTRANTS) == 0))
		return FARLOG_OK;
	view->is_kept = buffer[IDENTIFY_RESCAP] & RESCAP_KEPT;
	if (result == FARLOG_OK)
		result = run(fd, NVME_IOCTL_IO_CMD, &report);
	if (result != FARLOG_OK)
		return result == FARLOG_UNSUPPORTED ? FARLOG_OK : result;
	take_report(buffer, host, view);
	view->is_here = true;
	return FARLOG_OK;
}

static int look(int fd, struct reserve_view *view)
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
	result = look_at(fd, &info, buffer, view);
	free(buffer);
	return result;
}

/* judge -- of a call of linux/pr.h: above 0 the device's word. That a status has more bits than older kernels look for makes a conflict look like a
 * failure there: whoever asked looks again. */
static int judge(int status)
{
	if (status == 0)
		return FARLOG_OK;
	return status > 0 ? FARLOG_HELD : errno == EOPNOTSUPP ? FARLOG_UNSUPPORTED : FARLOG_IO;
}

int reserve_by_ioctl(int fd, enum reserve_verb verb, uint64_t key, uint64_t other, struct reserve_view *view)
{
	struct pr_registration registration = {.old_key = verb == RESERVE_REPLACE, .new_key = key, .flags = verb == RESERVE_REPLACE ? PR_FL_IGNORE_KEY : 0};
	struct pr_reservation reservation = {.key = key, .type = PR_WRITE_EXCLUSIVE_REG_ONLY};
	/* As the kernel's drivers take it: the old one is the caller's, the new one that which goes. */
	struct pr_preempt preempt = {.old_key = key, .new_key = other, .type = PR_WRITE_EXCLUSIVE_REG_ONLY};

	switch (verb) {
	case RESERVE_LOOK: return look(fd, view);
	case RESERVE_REGISTER:
	case RESERVE_REPLACE: return judge(ioctl(fd, IOC_PR_REGISTER, &registration));
	case RESERVE_ACQUIRE: return judge(ioctl(fd, IOC_PR_RESERVE, &reservation));
	default: return judge(ioctl(fd, IOC_PR_PREEMPT_ABORT, &preempt));
	}
}
