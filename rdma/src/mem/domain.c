/* mem/domain.c -- what the kernel says of the power-fail domain of memory: the attribute persistence_domain of the
 * nvdimm region that a device belongs to (drivers/nvdimm/region_devs.c of Linux). The attribute is not there
 * where the firmware says nothing. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "mem/mem.h"

static const char *const names[] = {[FARLOG_DOMAIN_UNKNOWN] = "",
	[FARLOG_DOMAIN_MEMORY_CONTROLLER] = "memory_controller",
	[FARLOG_DOMAIN_CPU_CACHE] = "cpu_cache"};

const char *region_domain_name(enum farlog_persistence_domain domain)
{
	return names[domain];
}

static enum farlog_persistence_domain read_domain(FILE *file)
{
	char word[32] = "";

	if (fscanf(file, "%31s", word) != 1)
		return FARLOG_DOMAIN_UNKNOWN;
	if (strcmp(word, names[FARLOG_DOMAIN_CPU_CACHE]) == 0)
		return FARLOG_DOMAIN_CPU_CACHE;
	return strcmp(word, names[FARLOG_DOMAIN_MEMORY_CONTROLLER]) == 0 ? FARLOG_DOMAIN_MEMORY_CONTROLLER :
																	   FARLOG_DOMAIN_UNKNOWN;
}

enum farlog_persistence_domain region_find_domain(const char *directory)
{
	char path[PATH_MAX + sizeof("/persistence_domain")];
	char real[PATH_MAX];
	char *slash;

	if (realpath(directory, real) == NULL)
		return FARLOG_DOMAIN_UNKNOWN;
	while ((slash = strrchr(real, '/')) != NULL && slash != real) {
		FILE *file;

		snprintf(path, sizeof(path), "%s/persistence_domain", real);
		file = fopen(path, "re");
		if (file != NULL) {
			enum farlog_persistence_domain domain = read_domain(file);

			fclose(file);
			return domain;
		}
		*slash = '\0';
	}
	return FARLOG_DOMAIN_UNKNOWN;
}

bool region_is_nvdimm(const char *directory)
{
	char real[PATH_MAX];

	return realpath(directory, real) != NULL && strstr(real, "/ndbus") != NULL;
}

enum farlog_persistence_domain region_mem_find_domain(const char *path)
{
	char directory[64];
	struct stat info;
	bool is_device;
	dev_t device;

	if (stat(path, &info) != 0)
		return FARLOG_DOMAIN_UNKNOWN;
	is_device = S_ISCHR(info.st_mode);
	device = is_device ? info.st_rdev : info.st_dev;
	snprintf(
		directory, sizeof(directory), "/sys/dev/%s/%u:%u", is_device ? "char" : "block", major(device), minor(device));
	return region_find_domain(directory);
}
