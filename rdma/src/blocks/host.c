/* blocks/host.c -- see blocks/host.h. Only what the kernel does not have (ENOENT) is absent; what cannot be read is an
 * error. */
#include "blocks/host.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "farlog/farlog.h"

#define LAYER_COUNT_MAX 8u /* device mapper on RAID on partitions; the kernel has no more */

/* load_line -- OK; NOT_FOUND: there is no such attribute; IO, with errno. */
static int load_line(const char *directory, const char *name, char *line, size_t size)
{
	char path[PATH_MAX + 64];
	FILE *file;
	int failure = 0;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "re");
	if (file == NULL)
		return errno == ENOENT || errno == ENOTDIR ? FARLOG_NOT_FOUND : FARLOG_IO;
	errno = 0;
	if (fgets(line, (int)size, file) == NULL)
		failure = errno != 0 ? errno : ENODATA;
	fclose(file); /* it was only read */
	line[failure == 0 ? strcspn(line, "\n") : 0] = '\0';
	errno = failure;
	return failure == 0 ? FARLOG_OK : FARLOG_IO;
}

/* next_entry -- of a directory of sysfs. NULL: the end, or an error, which errno then is. */
static const char *next_entry(DIR *directory)
{
	const struct dirent *entry;

	do {
		errno = 0;
		entry = readdir(directory);
	} while (entry != NULL && entry->d_name[0] == '.');
	return entry != NULL ? entry->d_name : NULL;
}

/* find_controller -- the device is a controller's; or with native multipathing the subsystem's, which has its
 * controllers below it. OK, IO. */
static int find_controller(const char *disk, char controller[PATH_MAX])
{
	char line[64];
	char path[PATH_MAX];
	const char *name;
	DIR *directory;
	int result;

	snprintf(controller, PATH_MAX, "%.2000s/device", disk);
	result = load_line(controller, "transport", line, sizeof(line));
	if (result != FARLOG_NOT_FOUND)
		return result;
	strcpy(path, controller);
	directory = opendir(path);
	if (directory == NULL)
		return FARLOG_IO;
	while (result == FARLOG_NOT_FOUND && (name = next_entry(directory)) != NULL) {
		snprintf(controller, PATH_MAX, "%.2010s/%s", path, name);
		if (strncmp(name, "nvme", 4) == 0)
			result = load_line(controller, "transport", line, sizeof(line));
	}
	if (result == FARLOG_NOT_FOUND && errno == 0)
		errno = ENODEV; /* a subsystem whose last controller is gone */
	if (result == FARLOG_NOT_FOUND)
		result = FARLOG_IO;
	closedir(directory); /* keeps errno: it was only read */
	return result;
}

static int load_host(const char *disk, struct block_host *host)
{
	char controller[PATH_MAX];
	char line[64] = "";
	int result = find_controller(disk, controller);

	if (result == FARLOG_OK)
		result = load_line(controller, "hostid", host->id, sizeof(host->id));
	if (result == FARLOG_NOT_FOUND) {
		/* Only controllers of fabrics have the attribute. That this is none has to be said as well. */
		result = load_line(controller, "transport", line, sizeof(line));
		if (result == FARLOG_OK && (strcmp(line, "pcie") == 0 || strncmp(line, "apple", 5) == 0))
			return FARLOG_OK;
		errno = result == FARLOG_IO ? errno : ENODATA;
		return FARLOG_IO;
	}
	if (result == FARLOG_OK)
		result = load_line(controller, "hostnqn", host->name, sizeof(host->name));
	if (result == FARLOG_OK || result == FARLOG_NOT_FOUND)
		result = load_line(controller, "ctrl_loss_tmo", line, sizeof(line));
	host->is_gone_when_lost = result == FARLOG_OK && strcmp(line, "0") == 0;
	return result == FARLOG_IO ? FARLOG_IO : FARLOG_OK;
}

static int find_at(const char *path, unsigned layer, struct block_host *host);

/* find_below -- of a device that is made of others: of whichever has a host's id. */
static int find_below(const char *disk, unsigned layer, struct block_host *host)
{
	char path[PATH_MAX];
	const char *name;
	DIR *directory;
	int result = FARLOG_OK;

	snprintf(path, sizeof(path), "%.2000s/slaves", disk);
	directory = opendir(path);
	if (directory == NULL)
		return errno == ENOENT ? FARLOG_OK : FARLOG_IO;
	while (result == FARLOG_OK && host->id[0] == '\0' && (name = next_entry(directory)) != NULL) {
		char below[PATH_MAX];

		snprintf(below, sizeof(below), "%.2010s/%s", path, name);
		host->is_part = true;
		result = find_at(below, layer + 1, host);
		errno = result == FARLOG_OK ? 0 : errno;
	}
	if (result == FARLOG_OK && errno != 0)
		result = FARLOG_IO;
	closedir(directory);
	return result;
}

static int find_at(const char *path, unsigned layer, struct block_host *host)
{
	char disk[PATH_MAX];
	char line[256];
	int result;

	if (layer == LAYER_COUNT_MAX) {
		errno = ELOOP;
		return FARLOG_IO;
	}
	if (realpath(path, disk) == NULL)
		return FARLOG_IO;
	result = load_line(disk, "partition", line, sizeof(line));
	if (result == FARLOG_OK) {
		host->is_part = true;
		*strrchr(disk, '/') = '\0';
	} else if (result == FARLOG_IO) {
		return FARLOG_IO;
	}
	result = load_line(disk, "device/subsysnqn", line, sizeof(line));
	if (result == FARLOG_IO)
		return FARLOG_IO;
	return result == FARLOG_OK ? load_host(disk, host) : find_below(disk, layer, host);
}

int block_host_find(const char *sysfs, unsigned device_major, unsigned device_minor, struct block_host *host)
{
	char path[PATH_MAX];

	memset(host, 0, sizeof(*host));
	snprintf(path, sizeof(path), "%.2000s/dev/block/%u:%u", sysfs, device_major, device_minor);
	return find_at(path, 0, host);
}
