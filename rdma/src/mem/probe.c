/* mem/probe.c -- what kind of memory lies behind a path, and what its flush gives. */
#include "mem/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/err.h"
#include "mem/attest.h"
#include "mem/persist.h"

#define DEADLINE_MEMORY_NS 1000000u   /* 1 ms: design section 4 */
#define DEADLINE_MSYNC_NS 1000000000u /* a disk's flush takes milliseconds; 1 ms would make most outcomes unknown */
#define SMB_MAGIC 0x517B
#define CIFS_MAGIC 0xFF534D42

struct kind_facts {
	enum farlog_region_kind kind;
	enum farlog_level level;
	uint32_t granularity;
	uint64_t deadline_ns;
};

static const struct kind_facts kinds[] = {
	{FARLOG_REGION_FILE, FARLOG_LEVEL_PERSISTENT, 4096, DEADLINE_MSYNC_NS},
	{FARLOG_REGION_TMPFS, FARLOG_LEVEL_VISIBLE, 64, DEADLINE_MEMORY_NS},
	{FARLOG_REGION_FSDAX, FARLOG_LEVEL_PERSISTENT, 64, DEADLINE_MEMORY_NS},
	{FARLOG_REGION_DEVDAX, FARLOG_LEVEL_PERSISTENT, 64, DEADLINE_MEMORY_NS},
	{FARLOG_REGION_BAR, FARLOG_LEVEL_PERSISTENT, 64, DEADLINE_MEMORY_NS},
};

static enum farlog_flush_method default_flush(enum farlog_region_kind kind)
{
	switch (kind) {
	case FARLOG_REGION_FILE:
		return FARLOG_FLUSH_MSYNC;
	case FARLOG_REGION_TMPFS:
		return FARLOG_FLUSH_NONE;
	case FARLOG_REGION_BAR: /* bursts over the bus; clwb does nothing to uncached memory */
		return persist_is_supported(FARLOG_FLUSH_NT_STORE) ? FARLOG_FLUSH_NT_STORE : FARLOG_FLUSH_CVAP;
	default:
		return persist_find_fastest();
	}
}

static void set_kind(struct farlog_contract *contract, enum farlog_region_kind kind)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (kinds[i].kind != kind)
			continue;
		contract->kind = kind;
		contract->level = kinds[i].level;
		contract->granularity = kinds[i].granularity;
		contract->deadline_default_ns = kinds[i].deadline_ns;
		snprintf(contract->kind_name, sizeof(contract->kind_name), "%s", region_kind_name(kind));
	}
	contract->atomic_unit = 8;
	contract->is_read_back = kind == FARLOG_REGION_BAR;
	contract->flush_method = default_flush(kind);
}

/* set_flush -- honour ?flush=. A method that does not reach the media lowers the level, openly: msync is the only one
 * that reaches the disk behind a page cache, and the only one that means nothing elsewhere. */
static int set_flush(
	const char *text, const struct uri *uri, struct farlog_contract *contract, struct farlog_error *error)
{
	enum farlog_flush_method method;
	bool is_file = contract->kind == FARLOG_REGION_FILE;

	if (uri->flush[0] != '\0') {
		if (!persist_find_method(uri->flush, &method) || method == FARLOG_FLUSH_FAULT)
			return error_set(error, FARLOG_INVALID, 0,
				"uri \"%s\": unknown flush method \"%s\"; expected auto, clwb, clflushopt, nt, cvap, msync or none",
				text, uri->flush);
		if (!persist_is_supported(method))
			return error_set(error, FARLOG_UNSUPPORTED, 0, "uri \"%s\": this processor has no %s", text, uri->flush);
		if (is_file && strcmp(uri->flush, "auto") == 0)
			method = FARLOG_FLUSH_MSYNC;
		contract->flush_method = method;
		/* A weaker flush than the memory needs lowers the level, openly. */
		if (is_file ? method != FARLOG_FLUSH_MSYNC : method == FARLOG_FLUSH_NONE || method == FARLOG_FLUSH_MSYNC)
			contract->level = FARLOG_LEVEL_VISIBLE;
	}
	snprintf(contract->flush_name, sizeof(contract->flush_name), "%s",
		persist_method_name((enum farlog_flush_method)contract->flush_method));
	return FARLOG_OK;
}

/* domain_text -- the source of the persistence domain. */
static const char *domain_text(const struct uri *uri)
{
	enum farlog_persistence_domain domain = region_mem_find_domain(uri->path);

	if (domain != FARLOG_DOMAIN_UNKNOWN)
		return region_domain_name(domain);
	if (uri->attest[0] != '\0')
		return strcmp(uri->attest, "cpu_cache") == 0 ? "cpu_cache, attested" : "memory_controller, attested";
	return "neither reported by the kernel nor attested by its operator (?attest=memory_controller or cpu_cache)";
}

/* set_level -- no more than visible of memory of which nobody knows that it outlives the power: see attest_level. The
 * operator's word counts only where what was found does not deny it. */
static int set_level(
	const char *text, const struct uri *uri, struct farlog_contract *contract, struct farlog_error *error)
{
	struct attest_found found = {
		.kind = contract->kind, .kind_name = contract->kind_name, .domain = region_mem_find_domain(uri->path)};
	struct farlog_attestation said;
	bool is_attested = uri->attest[0] != '\0';
	int result = FARLOG_OK;

	if (contract->kind == FARLOG_REGION_FILE && contract->size_bytes == 0)
		return FARLOG_OK; /* not there yet: MAP_SYNC can only be tried on an existing file */
	if (is_attested && contract->kind == FARLOG_REGION_DEVDAX && contract->level < FARLOG_LEVEL_PERSISTENT)
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": attest=\"%s\": %s; expected no such option", text,
			uri->attest, contract->probe);
	if (is_attested)
		result = attest_from_uri(text, uri->attest, &found, &said, error);
	if (result == FARLOG_OK)
		contract->level = attest_level(&found, is_attested ? &said : NULL, (uint8_t)contract->level);
	return result;
}

static int probe_device(const char *text, const struct uri *uri, const struct stat *info,
	struct farlog_contract *contract, struct farlog_error *error)
{
	char link[PATH_MAX];
	char subsystem[PATH_MAX];
	ssize_t len;
	bool is_read;
	FILE *file;

	snprintf(link, sizeof(link), "/sys/dev/char/%u:%u/subsystem", major(info->st_rdev), minor(info->st_rdev));
	len = readlink(link, subsystem, sizeof(subsystem) - 1);
	if (len < 0 && errno != ENOENT)
		return error_set(error, FARLOG_IO, errno, "region \"%s\": %s", text, link);
	if (len < 0)
		len = 0;
	subsystem[len] = '\0';
	if (strcmp(basename(subsystem), "dax") != 0)
		return error_set(error, FARLOG_INVALID, 0,
			"region \"%s\": %s is a character device but not a DAX device; expected /dev/daxX.Y", text, uri->path);
	set_kind(contract, FARLOG_REGION_DEVDAX);
	snprintf(link, sizeof(link), "/sys/dev/char/%u:%u/size", major(info->st_rdev), minor(info->st_rdev));
	file = fopen(link, "re");
	if (file == NULL)
		return error_set(error, FARLOG_IO, errno, "region \"%s\": %s", text, link);
	is_read = fscanf(file, "%lu", &contract->size_bytes) == 1;
	fclose(file);
	if (!is_read)
		return error_set(error, FARLOG_IO, 0, "region \"%s\": %s holds no number", text, link);
	snprintf(link, sizeof(link), "/sys/dev/char/%u:%u", major(info->st_rdev), minor(info->st_rdev));
	if (region_is_nvdimm(link)) {
		snprintf(contract->probe, sizeof(contract->probe), "DAX device, %lu bytes; persistence domain: %s",
			contract->size_bytes, domain_text(uri));
	} else {
		contract->level = FARLOG_LEVEL_VISIBLE;
		snprintf(contract->probe, sizeof(contract->probe),
			"DAX device, %lu bytes, of no NVDIMM: gone at a power cut, whatever is flushed", contract->size_bytes);
	}
	return FARLOG_OK;
}

/* is_map_sync -- also no when it cannot be tried: what is taken for a file in the page cache is flushed by msync, which
 * reaches the media here, too. */
static bool is_map_sync(const char *path, uint64_t size_bytes)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *map;

	if (fd < 0 || size_bytes < 4096) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return false;
	munmap(map, 4096);
	return true;
}

static bool is_bar(const char *path, const struct statfs *fs)
{
	const char *slash = strrchr(path, '/');

	return fs->f_type == SYSFS_MAGIC && slash != NULL && strncmp(slash + 1, "resource", 8) == 0;
}

static int probe_file(const char *text, const struct uri *uri, const struct statfs *fs,
	struct farlog_contract *contract, struct farlog_error *error)
{
	switch ((unsigned long)fs->f_type) {
	case TMPFS_MAGIC:
	case RAMFS_MAGIC:
		set_kind(contract, FARLOG_REGION_TMPFS);
		snprintf(contract->probe, sizeof(contract->probe), "file on tmpfs: gone at a power cut, whatever is flushed");
		return FARLOG_OK;
	case NFS_SUPER_MAGIC:
	case SMB_MAGIC:
	case CIFS_MAGIC:
	case SMB2_SUPER_MAGIC:
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"region \"%s\": %s is on a network file system, whose mappings are not coherent; expected a local path",
			text, uri->path);
	default:
		break;
	}
	if (is_bar(uri->path, fs)) {
		set_kind(contract, FARLOG_REGION_BAR);
		snprintf(contract->probe, sizeof(contract->probe),
			"PCI resource file; that its device keeps its memory at a power cut %s",
			uri->attest[0] != '\0' ? "is attested" : "nobody says (its operator may: ?attest=bar)");
	} else if (is_map_sync(uri->path, contract->size_bytes)) {
		set_kind(contract, FARLOG_REGION_FSDAX);
		snprintf(contract->probe, sizeof(contract->probe),
			"file on a DAX file system (MAP_SYNC); persistence domain: %s", domain_text(uri));
	} else {
		set_kind(contract, FARLOG_REGION_FILE);
		snprintf(contract->probe, sizeof(contract->probe),
			"file in the page cache (type 0x%lx): msync writes it back and flushes the disk",
			(unsigned long)fs->f_type);
	}
	return FARLOG_OK;
}

/* finish_probe -- fill in the rest when the kind is known. */
static int finish_probe(
	const char *text, const struct uri *uri, struct farlog_contract *contract, struct farlog_error *error)
{
	int result = set_level(text, uri, contract, error);

	return result == FARLOG_OK ? set_flush(text, uri, contract, error) : result;
}

int region_mem_probe(
	const char *text, const struct uri *uri, struct farlog_contract *contract, struct farlog_error *error)
{
	char directory[URI_PATH_LEN_MAX];
	const char *asked = uri->path;
	struct stat info;
	struct statfs fs;
	int failure;
	int result;

	memset(contract, 0, sizeof(*contract));
	if (stat(uri->path, &info) == 0) {
		if (S_ISCHR(info.st_mode)) {
			result = probe_device(text, uri, &info, contract, error);
			return result != FARLOG_OK ? result : finish_probe(text, uri, contract, error);
		}
		if (!S_ISREG(info.st_mode))
			return error_set(error, FARLOG_INVALID, 0,
				"region \"%s\": %s is %s; expected a file, a DAX device or a PCI resource file", text, uri->path,
				S_ISDIR(info.st_mode)     ? "a directory" :
					S_ISBLK(info.st_mode) ? "a block device" :
											"no memory");
		contract->size_bytes = (uint64_t)info.st_size;
	} else if (errno == ENOENT || errno == ENOTDIR) {
		strcpy(directory, uri->path);
		asked = dirname(directory);
	} else {
		return error_set(error, FARLOG_IO, errno, "region \"%s\": %s", text, uri->path); /* it may be there */
	}
	failure = statfs(asked, &fs) != 0 ? errno : 0;
	if (failure == ENOENT)
		return error_set(error, FARLOG_NOT_FOUND, 0,
			"region \"%s\": there is no directory %s; to make it and a ring there: mkdir -p '%s' && farlog ring format "
			"'%s' "
			"--size 64MiB",
			text, asked, asked, text);
	if (failure != 0)
		return error_set(
			error, failure == ENOTDIR ? FARLOG_NOT_FOUND : FARLOG_IO, failure, "region \"%s\": %s", text, asked);
	result = probe_file(text, uri, &fs, contract, error);
	return result != FARLOG_OK ? result : finish_probe(text, uri, contract, error);
}
