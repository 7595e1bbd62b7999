/* blocks/foreign.c -- whose are the bytes of a device that is about to be formatted? libblkid knows what mount and
 * fdisk know; it is loaded when it is needed. */
#include <blkid/blkid.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "blocks/nvme.h"
#include "blocks/uring.h"
#include "farlog/health.h"

#define SONAME "libblkid.so.1"

/* name, type of what it returns, parameters */
#define BLKID_TABLE(X) \
	X(new_probe, blkid_probe, (void)) \
	X(free_probe, void, (blkid_probe probe)) \
	X(probe_set_device, int, (blkid_probe probe, int fd, blkid_loff_t off, blkid_loff_t len)) \
	X(probe_enable_superblocks, int, (blkid_probe probe, int enable)) \
	X(probe_set_superblocks_flags, int, (blkid_probe probe, int flags)) \
	X(probe_enable_partitions, int, (blkid_probe probe, int enable)) \
	X(do_safeprobe, int, (blkid_probe probe)) \
	X(probe_lookup_value, int, (blkid_probe probe, const char *name, const char **value, size_t *len))

struct lib_blkid {
#define BLKID_FIELD(name, type, parameters) type(*name) parameters;
	BLKID_TABLE(BLKID_FIELD)
#undef BLKID_FIELD
};

static bool load_blkid(void **handle, struct lib_blkid *lib)
{
	bool is_whole;

	*handle = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
	is_whole = *handle != NULL;
#define BLKID_LOAD(name, type, parameters) \
	if (is_whole) { \
		*(void **)&lib->name = dlsym(*handle, "blkid_" #name); \
		is_whole = lib->name != NULL; \
	}
	BLKID_TABLE(BLKID_LOAD)
#undef BLKID_LOAD
	return is_whole;
}

static const char *lookup_value(const struct lib_blkid *lib, blkid_probe probe, const char *name)
{
	const char *value;

	return lib->probe_lookup_value(probe, name, &value, NULL) == 0 ? value : NULL;
}

/* describe_signature -- "ext4 file system (label data, uuid ...)". */
static void describe_signature(const struct lib_blkid *lib, blkid_probe probe, char *text, size_t size)
{
	const char *type = lookup_value(lib, probe, "TYPE");
	const char *table = lookup_value(lib, probe, "PTTYPE");
	const char *usage = lookup_value(lib, probe, "USAGE");
	const char *label = lookup_value(lib, probe, "LABEL");
	const char *uuid = lookup_value(lib, probe, "UUID");

	if (type == NULL && table != NULL)
		snprintf(text, size, "a partition table (%s)", table);
	else
		snprintf(text, size, "%s%s%s%s%s%s%s", type != NULL ? type : "something that was recognized",
			usage != NULL && strcmp(usage, "filesystem") == 0 ? ", a file system" : "", label != NULL ? ", label " : "",
			label != NULL ? label : "", uuid != NULL ? ", uuid " : "", uuid != NULL ? uuid : "",
			table != NULL ? ", and a partition table" : "");
}

static int ask_blkid(const struct lib_blkid *lib, int fd, char *text, size_t size)
{
	blkid_probe probe = lib->new_probe();
	int found = -1;

	if (probe != NULL && lib->probe_set_device(probe, fd, 0, 0) == 0) {
		lib->probe_enable_superblocks(probe, 1);
		lib->probe_set_superblocks_flags(
			probe, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_LABEL | BLKID_SUBLKS_UUID | BLKID_SUBLKS_USAGE);
		lib->probe_enable_partitions(probe, 1);
		found = lib->do_safeprobe(probe);
	}
	if (found == 0)
		describe_signature(lib, probe, text, size);
	else if (found == -2)
		snprintf(text, size, "signatures of several file systems or partition tables");
	if (probe != NULL)
		lib->free_probe(probe);
	return found == -1 ? FARLOG_IO : FARLOG_OK;
}

/* find_nonzero_bytes -- where the header goes: what nobody knows is still somebody's. */
static int find_nonzero_bytes(int fd, char *text, size_t size)
{
	static const uint8_t zeros[LAYOUT_BLOCK_LEN];
	uint8_t block[LAYOUT_BLOCK_LEN];

	for (uint64_t off = 0; off < NVME_CONTROL_LEN; off += sizeof(block)) {
		ssize_t len = pread(fd, block, sizeof(block), (off_t)off);

		if (len < 0)
			return FARLOG_IO;
		if (memcmp(block, zeros, (size_t)len) == 0)
			continue;
		snprintf(text, size, "bytes that are not zero (first at block %lu), of no kind that is known here",
			off / LAYOUT_BLOCK_LEN);
		break;
	}
	return FARLOG_OK;
}

int block_name_foreign(const char *path, char *text, size_t size)
{
	struct lib_blkid lib;
	void *handle;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int result = fd >= 0 ? FARLOG_OK : FARLOG_IO;

	text[0] = '\0';
	if (result == FARLOG_OK) {
		result = load_blkid(&handle, &lib) ? ask_blkid(&lib, fd, text, size) : FARLOG_UNSUPPORTED;
		if (handle != NULL)
			dlclose(handle);
	}
	if (result == FARLOG_OK && text[0] == '\0')
		result = find_nonzero_bytes(fd, text, size);
	if (result == FARLOG_UNSUPPORTED)
		snprintf(text, size,
			"data that cannot be identified: the library " SONAME
			" (Debian package libblkid1), which knows file systems, is missing");
	if (fd >= 0)
		close(fd);
	return result;
}

int farlog_device_contents(const char *path, char *text, size_t size, struct farlog_error *error)
{
	int result = block_name_foreign(path, text, size);

	if (result == FARLOG_IO)
		return error_set(error, FARLOG_IO, errno, "device \"%s\": read what is on it", path);
	return FARLOG_OK;
}
