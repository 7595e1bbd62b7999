/* blocks/name.c -- see blocks/name.h. */
#include "blocks/name.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define NQN_LEN_MAX 223u /* NVM Express Base Specification, "NVMe Qualified Names" */
#define NQN_ROOM (NQN_LEN_MAX + 1)

struct namespace
{
	char nqn[NQN_ROOM];
	unsigned long nsid; /* 0 = not given */
	char found[64];
	char second[64]; /* another one that fits */
};

bool block_is_nqn(const char *name)
{
	return strncmp(name, "nqn.", 4) == 0;
}

/* is_well_formed -- nqn.YYYY-MM.DOMAIN, and what the domain's owner wants behind a colon. */
static bool is_well_formed(const char *nqn)
{
	static const char pattern[] = "nqn.dddd-dd.";

	for (size_t i = 0; pattern[i] != '\0'; i++)
		if (pattern[i] == 'd' ? nqn[i] < '0' || nqn[i] > '9' : nqn[i] != pattern[i])
			return false;
	for (const char *at = nqn; *at != '\0'; at++)
		if (*at <= ' ' || *at == 0x7F)
			return false;
	return nqn[sizeof(pattern) - 1] != '\0' && nqn[sizeof(pattern) - 1] != ':';
}

/* split_name -- "NQN" or "NQN/NAMESPACE". */
static int split_name(const char *text, const char *name, struct namespace *wanted, struct farlog_error *error)
{
	const char *slash = strrchr(name, '/');
	size_t nqn_len = slash != NULL ? (size_t)(slash - name) : strlen(name);
	char *end = NULL;

	memset(wanted, 0, sizeof(*wanted));
	if (nqn_len > NQN_LEN_MAX)
		return error_set(error, FARLOG_INVALID, 0, "uri \"%s\": an NQN of %zu bytes; expected at most %u", text,
			nqn_len, NQN_LEN_MAX);
	memcpy(wanted->nqn, name, nqn_len);
	if (!is_well_formed(wanted->nqn))
		return error_set(error, FARLOG_INVALID, 0,
			"uri \"%s\": \"%s\" is no NQN; expected for example nqn.2014-08.com.example:storage1.desk7/1", text,
			wanted->nqn);
	if (slash == NULL)
		return FARLOG_OK;
	wanted->nsid = strtoul(slash + 1, &end, 10);
	if (slash[1] < '1' || slash[1] > '9' || *end != '\0' || wanted->nsid > UINT32_MAX - 1)
		return error_set(
			error, FARLOG_INVALID, 0, "uri \"%s\": namespace \"%s\"; expected a number from 1", text, slash + 1);
	return FARLOG_OK;
}

static bool load_line(const char *sysfs, const char *device, const char *attribute, char *line, size_t size)
{
	char path[PATH_MAX];
	FILE *file;
	bool is_there;

	snprintf(path, sizeof(path), "%.512s/block/%.64s/%.64s", sysfs, device, attribute);
	file = fopen(path, "re");
	is_there = file != NULL && fgets(line, (int)size, file) != NULL;
	if (file != NULL)
		fclose(file);
	if (is_there)
		line[strcspn(line, "\n")] = '\0';
	return is_there;
}

/* fits -- with native multipathing the device is the subsystem's, else a controller's; either shows its NQN. */
static bool fits(const char *sysfs, const char *device, const struct namespace *wanted)
{
	char nqn[NQN_ROOM + 1];
	char nsid[32];

	/* What the subsystem's device stands on has names as well, nvme0c0n1, and no place in /dev. */
	if (load_line(sysfs, device, "hidden", nsid, sizeof(nsid)) && strcmp(nsid, "1") == 0)
		return false;
	return strncmp(device, "nvme", 4) == 0 && load_line(sysfs, device, "device/subsysnqn", nqn, sizeof(nqn)) &&
		strcmp(nqn, wanted->nqn) == 0 && load_line(sysfs, device, "nsid", nsid, sizeof(nsid)) &&
		(wanted->nsid == 0 || strtoul(nsid, NULL, 10) == wanted->nsid);
}

static void scan_namespaces(const char *sysfs, struct namespace *wanted)
{
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *directory;

	snprintf(path, sizeof(path), "%.512s/block", sysfs);
	directory = opendir(path);
	while (directory != NULL && (entry = readdir(directory)) != NULL)
		if (fits(sysfs, entry->d_name, wanted))
			snprintf(wanted->found[0] == '\0' ? wanted->found : wanted->second, sizeof(wanted->found), "%.63s",
				entry->d_name);
	if (directory != NULL)
		closedir(directory);
}

int block_find_namespace(
	const char *text, const char *name, const char *sysfs, char *path, size_t size, struct farlog_error *error)
{
	struct namespace wanted;
	int result = split_name(text, name, &wanted, error);

	if (result != FARLOG_OK)
		return result;
	scan_namespaces(sysfs, &wanted);
	if (wanted.found[0] == '\0')
		return error_set(error, FARLOG_NOT_FOUND, 0,
			"uri \"%s\": no %snamespace of that subsystem is connected here; connect it: nvme connect -t tcp -a "
			"ADDRESS -s 4420 -n %s",
			text, wanted.nsid != 0 ? "such " : "", wanted.nqn);
	/* Two devices of one namespace have locks of their own each: nobody would see the other. */
	if (wanted.second[0] != '\0')
		return error_set(error, FARLOG_NOT_FOUND, 0, "uri \"%s\": %s and %s fit; %s", text, wanted.found, wanted.second,
			wanted.nsid != 0 ? "the subsystem is connected twice without native multipathing: disconnect one" :
							   "name the namespace: NQN/NUMBER");
	snprintf(path, size, "/dev/%s", wanted.found);
	return FARLOG_OK;
}
