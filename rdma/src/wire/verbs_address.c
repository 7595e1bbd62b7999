/* wire/verbs_address.c -- see wire/verbs_address.h. The kernel tells of GIDs in sysfs, where every version of the
 * libraries finds them. */
#include "wire/verbs_address.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"

#define INDEX_COUNT_MAX 1024 /* more than any port has */
#define LINE_LEN 64

const struct addrinfo *verbs_address_pick(const struct addrinfo *found)
{
	for (const struct addrinfo *one = found; one != NULL; one = one->ai_next)
		if (one->ai_family == AF_INET)
			return one;
	return found;
}

/* read_line -- False: the file is not there, or empty, as that of a GID that is not set. */
static bool read_line(const char *path, char line[LINE_LEN])
{
	FILE *file = fopen(path, "re");
	bool is_read;

	if (file == NULL)
		return false;
	is_read = fgets(line, LINE_LEN, file) != NULL;
	fclose(file);
	if (is_read)
		line[strcspn(line, "\n")] = '\0';
	return is_read && line[0] != '\0';
}

/* read_of_port -- a file of the port, or of one of its GIDs. */
static bool read_of_port(const struct verbs_gid *gid, const char *name, unsigned index, char line[LINE_LEN])
{
	char path[512];

	snprintf(path, sizeof(path), "%.200s/%.64s/ports/%u/%.100s", gid->root, gid->device, gid->port, name);
	if (index != UINT32_MAX)
		snprintf(path + strlen(path), sizeof(path) - strlen(path), "/%u", index);
	return read_line(path, line);
}

enum verbs_gid_kind verbs_gid_kind(const struct verbs_gid *gid)
{
	char line[LINE_LEN];

	/* Of InfiniBand the kernel calls the type "IB/RoCE v1", too. */
	if (!read_of_port(gid, "link_layer", UINT32_MAX, line))
		return VERBS_GID_UNKNOWN;
	if (strcmp(line, "Ethernet") != 0)
		return VERBS_GID_NOT_ROCE;
	if (!read_of_port(gid, "gid_attrs/types", gid->index, line))
		return VERBS_GID_UNKNOWN;
	return strcmp(line, "RoCE v2") == 0 ? VERBS_GID_ROCE_V2 :
		strcmp(line, "IB/RoCE v1") == 0 ? VERBS_GID_ROCE_V1 :
										  VERBS_GID_UNKNOWN;
}

int verbs_gid_other(const struct verbs_gid *gid)
{
	struct verbs_gid other = *gid;
	char wanted[LINE_LEN];
	char line[LINE_LEN];

	if (!read_of_port(gid, "gids", gid->index, wanted))
		return -1;
	for (other.index = 0; other.index < INDEX_COUNT_MAX && read_of_port(&other, "gids", other.index, line);
		other.index++)
		if (strcmp(line, wanted) == 0 && verbs_gid_kind(&other) == VERBS_GID_ROCE_V2)
			return (int)other.index;
	return -1;
}

int verbs_gid_check(const struct verbs_gid *gid, const char *uri, const char **caveat, struct farlog_error *error)
{
	int other;

	*caveat = NULL;
	if (verbs_gid_kind(gid) != VERBS_GID_ROCE_V1)
		return FARLOG_OK;
	*caveat = "RoCE v1";
	other = verbs_gid_other(gid);
	if (other < 0)
		return FARLOG_OK;
	return error_set(error, FARLOG_UNSUPPORTED, 0,
		"uri \"%.100s\": port %u of RDMA device %s takes GID %u, RoCE v1, and has GID %d, RoCE v2, for the same "
		"address; expected \"RoCE v2\" in "
		"/sys/kernel/config/rdma_cm/%s/ports/%u/default_roce_mode",
		uri, gid->port, gid->device, gid->index, other, gid->device, gid->port);
}

bool verbs_gid_has_carrier(const struct verbs_gid *gid)
{
	char path[512];
	char name[LINE_LEN];
	char line[LINE_LEN];

	if (!read_of_port(gid, "gid_attrs/ndevs", gid->index, name))
		return true;
	snprintf(path, sizeof(path), "%.200s/../net/%s/carrier", gid->root, name);
	return !read_line(path, line) || strcmp(line, "0") != 0;
}
