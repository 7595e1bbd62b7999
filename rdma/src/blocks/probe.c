/* blocks/probe.c -- what the kernel says of a block device, and what that gives. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/err.h"
#include "blocks/uring.h"

#define DEADLINE_NS 1000000000u /* a cache's flush takes milliseconds, and so may a device under load */
#define SECTOR_LEN 512u         /* of sysfs, whatever the device has */

/* load_attribute -- one line of sysfs; false: not there, or with a failure that is kept for the end of the probe: it
 * cannot be read. */
static bool load_attribute(const char *directory, const char *name, char *value, size_t size, int *failure)
{
	char path[PATH_MAX + 64];
	FILE *file;
	bool is_there;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "re");
	if (file == NULL && errno != ENOENT)
		*failure = errno;
	is_there = file != NULL && fgets(value, (int)size, file) != NULL;
	if (file != NULL)
		fclose(file);
	if (is_there)
		value[strcspn(value, "\n")] = '\0';
	return is_there;
}

static uint64_t load_number(const char *directory, const char *name, int *failure)
{
	char value[32];

	return load_attribute(directory, name, value, sizeof(value), failure) ? strtoull(value, NULL, 10) : 0;
}

/* is_in_memory -- with a failure it is not known. */
static bool is_in_memory(const char *path, int *failure)
{
	struct statfs fs;

	if (statfs(path, &fs) != 0) {
		*failure = errno;
		return true;
	}
	return fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
}

/* find_behind -- a loop device is what its file is. One whose file is not to be seen from here is taken for what memory
 * gives. */
static void find_behind(const char *disk, struct block_facts *facts, int *failure)
{
	char file[PATH_MAX];
	int unseen;

	if (!load_attribute(disk, "loop/backing_file", file, sizeof(file), failure))
		return;
	facts->is_volatile = is_in_memory(file, &unseen);
	snprintf(facts->behind, sizeof(facts->behind), "%.40s", basename(file));
}

/* command_len_max -- what the device takes at once, of pages that do not lie behind one another. */
static uint32_t command_len_max(const char *disk, int *failure)
{
	uint64_t len = load_number(disk, "queue/max_hw_sectors_kb", failure) * 1024;
	uint64_t page_count = load_number(disk, "queue/max_segments", failure);

	if (page_count > 1 && (page_count - 1) * 4096 < len)
		len = (page_count - 1) * 4096;
	return len > UINT32_MAX ? UINT32_MAX : (uint32_t)len;
}

static int probe_device(
	const char *text, const struct stat *info, struct block_facts *facts, struct farlog_error *error)
{
	static const char *const volatiles[] = {"ram", "zram", "nullb"};
	char link[64];
	char own[PATH_MAX];
	char disk[PATH_MAX];
	char value[32];
	int failure = 0;

	snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", major(info->st_rdev), minor(info->st_rdev));
	if (realpath(link, own) == NULL)
		return error_set(
			error, FARLOG_NOT_FOUND, errno, "region \"%s\": the kernel has no such device any more: %s", text, link);
	strcpy(disk, own);
	facts->is_partition = load_attribute(own, "partition", value, sizeof(value), &failure);
	if (facts->is_partition)
		*strrchr(disk, '/') = '\0';
	facts->is_device = true;
	snprintf(facts->name, sizeof(facts->name), "%.63s", strrchr(own, '/') + 1);
	facts->size_bytes = load_number(own, "size", &failure) * SECTOR_LEN;
	facts->is_read_only = load_number(own, "ro", &failure) != 0;
	facts->lba_len = (uint32_t)load_number(disk, "queue/logical_block_size", &failure);
	facts->has_fua = load_number(disk, "queue/fua", &failure) != 0;
	facts->has_poll = load_number(disk, "queue/io_poll", &failure) != 0;
	facts->command_len_max = command_len_max(disk, &failure);
	/* What cannot be read is taken for a cache. */
	facts->has_cache = !load_attribute(disk, "queue/write_cache", value, sizeof(value), &failure) ||
		strcmp(value, "write through") != 0;
	for (size_t i = 0; i < sizeof(volatiles) / sizeof(volatiles[0]); i++)
		facts->is_volatile |= strncmp(facts->name, volatiles[i], strlen(volatiles[i])) == 0;
	find_behind(disk, facts, &failure);
	if (failure != 0)
		return error_set(
			error, FARLOG_IO, failure, "region \"%s\": read what the kernel says of %s", text, facts->name);
	if (facts->size_bytes == 0)
		return error_set(
			error, FARLOG_NOT_FOUND, 0, "region \"%s\": %s has no bytes: nothing is behind it", text, facts->name);
	return FARLOG_OK;
}

static int probe_file(
	const char *text, const char *path, const struct stat *info, struct block_facts *facts, struct farlog_error *error)
{
	struct statx more;
	int failure = 0;

	facts->size_bytes = (uint64_t)info->st_size;
	facts->lba_len = 4096;
	facts->has_cache = true;
	facts->is_volatile = is_in_memory(path, &failure);
	strcpy(facts->name, "file");
#ifdef STATX_DIOALIGN
	if (statx(AT_FDCWD, path, 0, STATX_DIOALIGN, &more) != 0)
		failure = errno;
	else if ((more.stx_mask & STATX_DIOALIGN) && more.stx_dio_offset_align >= 512)
		facts->lba_len = more.stx_dio_offset_align;
#else
	(void)more;
#endif
	return failure == 0 ? FARLOG_OK : error_set(error, FARLOG_IO, failure, "region \"%s\": %s", text, path);
}

int block_probe(const char *text, const char *path, struct block_facts *facts, struct farlog_error *error)
{
	char directory[URI_PATH_LEN_MAX];
	struct stat info;

	memset(facts, 0, sizeof(*facts));
	if (stat(path, &info) != 0) {
		int failure = errno;

		snprintf(directory, sizeof(directory), "%s", path);
		/* A file can be made, but not a device. */
		if (failure == ENOENT && strncmp(path, "/dev/", 5) != 0 && access(dirname(directory), W_OK) == 0) {
			failure = 0;
			facts->is_volatile = is_in_memory(directory, &failure);
			facts->lba_len = 4096;
			facts->has_cache = true;
			strcpy(facts->name, "file");
			return failure == 0 ? FARLOG_OK :
								  error_set(error, FARLOG_IO, failure, "region \"%s\": %s", text, directory);
		}
		return error_set(error, failure == ENOENT || failure == ENOTDIR ? FARLOG_NOT_FOUND : FARLOG_IO, failure,
			"region \"%s\": %s", text, path);
	}
	if (S_ISBLK(info.st_mode))
		return probe_device(text, &info, facts, error);
	if (S_ISREG(info.st_mode))
		return probe_file(text, path, &info, facts, error);
	return error_set(error, FARLOG_INVALID, 0, "region \"%s\": %s is %s; expected a block device such as /dev/nvme2n1",
		text, path,
		S_ISDIR(info.st_mode)     ? "a directory" :
			S_ISCHR(info.st_mode) ? "a character device" :
									"no block device");
}

/* describe_facts -- what was looked at. */
static void describe_facts(const struct block_facts *facts, struct farlog_contract *contract)
{
	const char *cache = !facts->has_cache ? "no write cache" :
		facts->has_fua                    ? "write cache, FUA" :
											"write cache, no FUA: the kernel flushes";

	if (!facts->is_device)
		cache = "plain file, for tests: synced by its file system";
	snprintf(contract->probe, sizeof(contract->probe), "%.31s%s%.40s, LBA %u: %s%s", facts->name,
		facts->behind[0] != '\0' ? " over " : "", facts->behind, facts->lba_len, cache,
		facts->is_volatile ? "; gone at a power cut" : "");
}

/* choose_flush -- a plain write where nothing forgets, FUA where something does. What is weaker than the device needs
 * lowers the level, openly. */
static int choose_flush(const char *text, const struct uri *uri, const struct block_facts *facts,
	struct farlog_contract *contract, struct farlog_error *error)
{
	enum farlog_flush_method needed = !facts->is_device || (facts->has_cache && !facts->has_fua) ? FARLOG_FLUSH_DSYNC :
		facts->has_cache                                                                         ? FARLOG_FLUSH_FUA :
																								   FARLOG_FLUSH_WRITE;
	bool is_auto = uri->flush[0] == '\0' || strcmp(uri->flush, "auto") == 0;

	contract->flush_method = needed;
	contract->level = facts->is_volatile ? FARLOG_LEVEL_VISIBLE : FARLOG_LEVEL_PERSISTENT;
	if (!is_auto && strcmp(uri->flush, "write") == 0) {
		contract->flush_method = FARLOG_FLUSH_WRITE;
		if (needed != FARLOG_FLUSH_WRITE)
			contract->level = FARLOG_LEVEL_VISIBLE;
	} else if (!is_auto && strcmp(uri->flush, "dsync") == 0) {
		contract->flush_method = FARLOG_FLUSH_DSYNC;
	} else if (!is_auto && (strcmp(uri->flush, "fua") != 0 || needed != FARLOG_FLUSH_FUA)) {
		return error_set(error, strcmp(uri->flush, "fua") == 0 ? FARLOG_UNSUPPORTED : FARLOG_INVALID, 0,
			"uri \"%s\": flush method \"%s\"; %s has auto, write, dsync%s", text, uri->flush, facts->name,
			needed == FARLOG_FLUSH_FUA ? ", fua" : "");
	}
	snprintf(contract->flush_name, sizeof(contract->flush_name), "%s",
		contract->flush_method == FARLOG_FLUSH_FUA       ? "fua" :
			contract->flush_method == FARLOG_FLUSH_DSYNC ? "dsync" :
														   "write");
	return FARLOG_OK;
}

int block_contract(const char *text, const struct uri *uri, const struct block_facts *facts,
	struct farlog_contract *contract, struct farlog_error *error)
{
	memset(contract, 0, sizeof(*contract));
	contract->kind = facts->is_device ? FARLOG_REGION_BLOCK : FARLOG_REGION_FILE;
	strcpy(contract->kind_name, facts->is_device ? "block" : "file");
	contract->granularity = facts->lba_len;
	contract->atomic_unit = facts->lba_len;
	contract->size_bytes = facts->size_bytes;
	contract->deadline_default_ns = DEADLINE_NS;
	describe_facts(facts, contract);
	return choose_flush(text, uri, facts, contract, error);
}
