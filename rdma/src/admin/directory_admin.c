/* admin/directory_admin.c -- making, removing and listing rings of a region that holds many: cold calls. See
 * region/directory.h.
 *
 * A new ring is finished before its entry is written: whatever a crash leaves, an entry never shows the bytes of an
 * older ring. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "admin/ring_admin.h"
#include "base/err.h"
#include "region/directory.h"
#include "region/superblock.h"
#include "scan/recover.h"

/* What is free, and where a new ring goes: into the first gap that is large enough. */
struct gap {
	uint64_t free_bytes;
	uint64_t largest_bytes;
	uint64_t off;   /* UINT64_MAX = there is none */
	uint32_t index; /* its place among the entries */
};

/* A region that is going to be changed. */
struct change {
	const char *uri;
	struct region *region;
	struct directory *directory;
	uint64_t region_len;
};

static uint64_t utc_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct gap find_gap(const struct directory *directory, uint64_t region_len, uint64_t len)
{
	struct gap gap = {.off = UINT64_MAX};
	uint64_t end = DIRECTORY_LEN;

	for (uint32_t i = 0; i <= directory->header.entry_count; i++) {
		bool is_last = i == directory->header.entry_count;
		uint64_t len_free = (is_last ? region_len : directory->entries[i].off) - end;

		gap.free_bytes += len_free;
		if (len_free > gap.largest_bytes)
			gap.largest_bytes = len_free;
		if (gap.off == UINT64_MAX && len_free >= len) {
			gap.off = end;
			gap.index = i;
		}
		if (!is_last)
			end = directory->entries[i].off + directory->entries[i].len;
	}
	return gap;
}

static uint32_t free_slot(const struct directory *directory)
{
	bool is_taken[DIRECTORY_RING_COUNT_MAX] = {false};
	uint32_t slot = 0;

	for (uint32_t i = 0; i < directory->header.entry_count; i++)
		is_taken[directory->entries[i].slot] = true;
	while (is_taken[slot])
		slot++;
	return slot;
}

static void end_change(struct change *change)
{
	if (change->region != NULL)
		change->region->ops->close(change->region);
	free(change->directory);
}

/* begin_change -- open and lock the region, and make durable what a dead process may have left of its directory in a
 * cache. */
static int begin_change(struct change *change, const struct region_options *options, struct farlog_error *error)
{
	int result = region_open(change->uri, options, &change->region, error);
	uint64_t len;

	if (result != FARLOG_OK) {
		change->region = NULL;
		return result;
	}
	change->region_len = directory_region_len(change->region);
	len = change->region_len < DIRECTORY_TAILS_OFF ? change->region_len : DIRECTORY_TAILS_OFF;
	change->directory = calloc(1, sizeof(*change->directory));
	if (change->directory == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "change directory of region \"%s\": out of memory", change->uri);
	result = region_lock(change->region, REGION_ROLE_FORMAT);
	if (result != FARLOG_OK && result != FARLOG_HELD)
		return region_set_lock_error(change->region, result, change->uri, error);
	if (result == FARLOG_HELD)
		return error_set(error, result, 0,
			"region \"%s\": another process is changing its directory or formatting it; try again", change->uri);
	if (change->region->ops->data.flush(change->region, 0, len) != FARLOG_OK)
		return region_set_error(change->region, FARLOG_IO, "flush directory of region", change->uri, error);
	return FARLOG_OK;
}

static int set_full_error(
	const struct change *change, const char *name, uint64_t len, const struct gap *gap, struct farlog_error *error)
{
	return error_set(error, FARLOG_FULL, 0,
		"region \"%s\": no free space for ring \"%s\" of %lu bytes: %lu are free, at most %lu in one piece, and %u of "
		"%u "
		"entries are taken",
		change->uri, name, len, gap->free_bytes, gap->largest_bytes, change->directory->header.entry_count,
		DIRECTORY_RING_COUNT_MAX);
}

/* make_ring -- in free space, for an entry that is still to come. */
static int make_ring(struct change *change, const struct directory_entry *entry,
	const struct farlog_ring_config *config, struct farlog_error *error)
{
	struct region *region = change->region;
	int result = region->ops->block.narrow(region, entry->off, entry->len);

	if (result != FARLOG_OK)
		return region_set_error(region, result, "make ring", change->uri, error);
	result = ring_check_blocks(region, change->uri, config, error);
	if (result == FARLOG_OK)
		result = ring_write_new(region, change->uri, config, error);
	if (result == FARLOG_OK && region->ops->block.narrow(region, 0, change->region_len) != FARLOG_OK)
		result = region_set_error(change->region, FARLOG_IO, "read region", change->uri, error);
	return result;
}

static int add_entry(
	struct change *change, const struct directory_entry *entry, uint32_t index, struct farlog_error *error)
{
	struct directory *directory = change->directory;

	memmove(&directory->entries[index + 1], &directory->entries[index],
		(directory->header.entry_count - index) * sizeof(directory->entries[0]));
	directory->entries[index] = *entry;
	directory->header.entry_count++;
	if (directory_store(change->region, directory) != FARLOG_OK)
		return region_set_error(change->region, FARLOG_IO, "write directory of region", change->uri, error);
	return FARLOG_OK;
}

static int carve(
	struct change *change, const char *name, const struct farlog_ring_config *config, struct farlog_error *error)
{
	struct directory *directory = change->directory;
	struct directory_entry entry = {.len = config->size_bytes + change->region->caps.extra_len,
		.generation = directory->header.generation + 1,
		.created_ns = utc_now_ns()};
	struct gap gap = find_gap(directory, change->region_len, entry.len);
	int result;

	if (directory->header.entry_count == DIRECTORY_RING_COUNT_MAX || gap.off == UINT64_MAX)
		return set_full_error(change, name, entry.len, &gap, error);
	entry.off = gap.off;
	entry.slot = free_slot(directory);
	strcpy(entry.name, name);
	result = make_ring(change, &entry, config, error);
	if (result != FARLOG_OK)
		return result;
	return add_entry(change, &entry, gap.index, error);
}

/* check_foreign -- a device that begins with zeros may belong to somebody all the same. */
static int check_foreign(const struct change *change, struct farlog_error *error)
{
	char foreign[200] = "";

	if (change->region->ops->block.name_foreign(change->region, foreign, sizeof(foreign)) == FARLOG_IO)
		return error_set(error, FARLOG_IO, errno, "read what region \"%s\" holds", change->uri);
	if (foreign[0] == '\0')
		return FARLOG_OK;
	return error_set(error, FARLOG_EXISTS, 0,
		"region \"%s\" holds %s; a directory is made only on an empty device: wipefs -a, or blkdiscard -z, "
		"destroys what it holds",
		change->uri, foreign);
}

static int begin_directory(struct change *change, struct farlog_error *error)
{
	struct directory *directory = change->directory;
	int result = check_foreign(change, error);

	if (result != FARLOG_OK)
		return result;
	memset(directory, 0, sizeof(*directory));
	directory->header.magic = DIRECTORY_MAGIC;
	directory->header.version = DIRECTORY_VERSION;
	if (getrandom(directory->header.region_uuid, sizeof(directory->header.region_uuid), 0) !=
		sizeof(directory->header.region_uuid))
		return error_set(error, FARLOG_IO, errno, "region \"%s\": no random number for its identity", change->uri);
	return FARLOG_OK;
}

static int format_named(
	struct change *change, const char *name, const struct farlog_ring_config *config, struct farlog_error *error)
{
	int result = directory_load(change->region, change->uri, change->directory, error);
	int found;

	if (result == FARLOG_NOT_FOUND)
		result = begin_directory(change, error);
	if (result != FARLOG_OK)
		return result;
	found = directory_find(change->directory, name);
	if (found >= 0) {
		if (directory_select(change->region, &change->directory->entries[found]) != FARLOG_OK)
			return region_set_error(change->region, FARLOG_IO, "read ring", change->uri, error);
		return ring_format_region(change->region, change->uri, config, error);
	}
	if (config->size_bytes == 0)
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": ring \"%s\" is new; expected a size to make it with",
			change->uri, name);
	return carve(change, name, config, error);
}

/* check_region_size -- before a file is made. */
static int check_region_size(
	const char *text, const struct uri *uri, const struct farlog_ring_config *config, struct farlog_error *error)
{
	struct farlog_contract contract;
	int result = strcmp(uri->scheme, "mem") == 0 ? farlog_region_probe(text, &contract, error) : FARLOG_OK;

	if (strcmp(uri->scheme, "mem") != 0 || result != FARLOG_OK || contract.size_bytes != 0)
		return result;
	if (config->size_bytes == 0 || uri->size_bytes % LAYOUT_BLOCK_LEN != 0 ||
		uri->size_bytes < DIRECTORY_LEN + config->size_bytes)
		return error_set(error, FARLOG_INVALID, 0,
			"region \"%s\" does not exist yet; expected size= with a multiple of %u bytes of at least %lu to make it "
			"with",
			text, LAYOUT_BLOCK_LEN, DIRECTORY_LEN + config->size_bytes);
	return FARLOG_OK;
}

int directory_format(
	const char *text, const struct uri *uri, const struct farlog_ring_config *config, struct farlog_error *error)
{
	struct region_options options = {
		.access = REGION_CREATE, .role = REGION_ROLE_FORMAT, .size_bytes = uri->size_bytes, .is_whole = true};
	struct change change = {.uri = text};
	int result = config->size_bytes != 0 ? ring_check_config(text, config, config->size_bytes, error) : FARLOG_OK;

	if (result == FARLOG_OK)
		result = check_region_size(text, uri, config, error);
	if (result == FARLOG_OK)
		result = begin_change(&change, &options, error);
	if (result == FARLOG_OK)
		result = format_named(&change, uri->ring, config, error);
	end_change(&change);
	return result;
}

/* check_drained -- nothing is lost with the ring. */
static int check_drained(struct region *region, const char *uri, struct farlog_error *error)
{
	struct superblock superblock;
	struct head_slot head;
	struct recover_scan scan;

	if (superblock_is_zero(region))
		return FARLOG_OK;
	if (superblock_load(region, uri, &superblock, NULL) != FARLOG_OK || !head_load(region, &superblock, &head))
		return error_set(error, FARLOG_CORRUPT, 0,
			"ring \"%s\" is damaged; to remove it with whatever it holds, set is_forced", uri);
	if (recover_scan(region, &superblock, &head, &scan) != FARLOG_OK)
		return region_set_error(region, FARLOG_IO,
			"not removed (is_forced removes it with whatever it holds): read undrained records of ring", uri, error);
	if (scan.tail.lsn < recover_acknowledged_lsn(region, &superblock, &head))
		return error_set(error, FARLOG_CORRUPT, 0,
			"ring \"%s\": the record at lsn %lu is unreadable although everything below lsn %lu was acknowledged; to "
			"remove it with whatever it holds, set "
			"is_forced",
			uri, scan.tail.lsn, recover_acknowledged_lsn(region, &superblock, &head));
	if (scan.tail.lsn != head.head_lsn)
		return error_set(error, FARLOG_EXISTS, 0,
			"ring \"%s\" holds %lu records that are not drained; to remove it with them, set is_forced", uri,
			scan.record_count);
	return FARLOG_OK;
}

/* lock_roles -- of a ring that is going to be removed: nobody has it open, and nobody will. */
static int lock_roles(struct region *region, const char *uri, struct farlog_error *error)
{
	int result = FARLOG_OK;

	for (int role = REGION_ROLE_WRITER; result == FARLOG_OK && role <= REGION_ROLE_FORMAT; role++)
		result = region_lock(region, (enum region_role)role);
	if (result == FARLOG_HELD)
		return error_set(error, result, 0, "ring \"%s\" is in use by a writer, a drain or a fence; stop it first", uri);
	return result == FARLOG_OK ? result : region_set_lock_error(region, result, uri, error);
}

static int remove_named(struct change *change, const char *name, bool is_forced, struct farlog_error *error)
{
	struct directory *directory = change->directory;
	int result = directory_load(change->region, change->uri, directory, error);
	int found = result == FARLOG_OK ? directory_find(directory, name) : -1;

	if (result != FARLOG_OK)
		return result;
	if (found < 0)
		return error_set(error, FARLOG_NOT_FOUND, 0,
			"region \"%s\": none of the %u rings in its directory has the name \"%s\"", change->uri,
			directory->header.entry_count, name);
	if (directory_select(change->region, &directory->entries[found]) != FARLOG_OK)
		return region_set_error(change->region, FARLOG_IO, "read ring", change->uri, error);
	result = lock_roles(change->region, change->uri, error);
	if (result != FARLOG_OK)
		return result;
	if (!is_forced)
		result = region_claim(
			change->region, &(struct region_claim){.kind = REGION_CLAIM_CHECK_FORMER, .uri = change->uri}, error);
	if (!is_forced && result == FARLOG_OK)
		result = check_drained(change->region, change->uri, error);
	if (result == FARLOG_OK && change->region->ops->block.narrow(change->region, 0, change->region_len) != FARLOG_OK)
		result = region_set_error(change->region, FARLOG_IO, "read region", change->uri, error);
	if (result != FARLOG_OK)
		return result;
	directory->header.entry_count--;
	memmove(&directory->entries[found], &directory->entries[found + 1],
		(directory->header.entry_count - (uint32_t)found) * sizeof(directory->entries[0]));
	if (directory_store(change->region, directory) != FARLOG_OK)
		return region_set_error(change->region, FARLOG_IO, "write directory of region", change->uri, error);
	return FARLOG_OK;
}

/* remove_file -- a ring that has a file of its own: the file goes. Who has opened it and takes a lock of it later is
 * refused because the ring is gone. */
static int remove_file(const char *text, const struct uri *uri, bool is_forced, struct farlog_error *error)
{
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_FORMAT};
	struct superblock superblock;
	struct region *region;
	int result;

	if (strcmp(uri->scheme, "mem") != 0)
		return error_set(error, FARLOG_INVALID, 0,
			"uri \"%s\" is neither a ring in a directory nor a file; expected mem:/path, mem:/path?ring=NAME or "
			"nvme:/dev/...?ring=NAME",
			text);
	result = region_open(text, &options, &region, error);
	if (result != FARLOG_OK)
		return result;
	result = superblock_load(region, text, &superblock, error); /* of a directory, too, this says that it is no ring */
	if (result == FARLOG_OK)
		result = lock_roles(region, text, error);
	if (result == FARLOG_OK && !is_forced)
		result = check_drained(region, text, error);
	if (result == FARLOG_OK) {
		result = region->ops->block.unlink(region, uri->path);
		if (result == FARLOG_INVALID)
			error_set(error, result, 0,
				"ring \"%s\" has all of a device; expected one in a directory or a file: format it instead", text);
		if (result == FARLOG_IO)
			error_set(error, result, errno, "remove ring \"%s\"", text);
	}
	region->ops->close(region);
	return result;
}

int farlog_ring_remove(const char *text, int is_forced, struct farlog_error *error)
{
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_FORMAT, .is_whole = true};
	struct change change = {.uri = text};
	struct uri uri;
	int result = uri_parse(text, &uri, error);

	if (result == FARLOG_OK && (uri.ring[0] == '\0' || uri_is_remote(&uri)))
		return remove_file(text, &uri, is_forced != 0, error);
	if (result == FARLOG_OK)
		result = begin_change(&change, &options, error);
	if (result == FARLOG_OK)
		result = remove_named(&change, uri.ring, is_forced != 0, error);
	end_change(&change);
	return result;
}

/* ---------------------------------------------------------------- listing */

static uint32_t state_of(const struct region *region)
{
	struct superblock superblock;
	struct head_slot head;

	if (superblock_is_zero(region))
		return FARLOG_RING_UNFORMATTED;
	return superblock_load(region, "", &superblock, NULL) == FARLOG_OK && head_load(region, &superblock, &head) ?
		FARLOG_RING_READY :
		FARLOG_RING_DAMAGED;
}

static int list_rings(struct region *region, const struct directory *directory, struct farlog_region_status *status,
	struct farlog_region_ring *rings, uint32_t count_max)
{
	uint64_t region_len = directory_region_len(region);
	struct gap gaps = find_gap(directory, region_len, UINT64_MAX);

	*status = (struct farlog_region_status){.generation = directory->header.generation,
		.size_bytes = region_len,
		.free_bytes = gaps.free_bytes,
		.largest_free_bytes =
			gaps.largest_bytes > region->caps.extra_len ? gaps.largest_bytes - region->caps.extra_len : 0,
		.ring_count = directory->header.entry_count,
		.ring_count_max = DIRECTORY_RING_COUNT_MAX};
	memcpy(status->region_uuid, directory->header.region_uuid, sizeof(status->region_uuid));
	for (uint32_t i = 0; i < directory->header.entry_count && i < count_max; i++) {
		const struct directory_entry *entry = &directory->entries[i];

		rings[i] = (struct farlog_region_ring){.offset_bytes = entry->off,
			.size_bytes = entry->len - region->caps.extra_len,
			.generation = entry->generation,
			.created_ns = entry->created_ns};
		memcpy(rings[i].name, entry->name, sizeof(rings[i].name));
		if (directory_select(region, entry) != FARLOG_OK)
			return FARLOG_IO;
		rings[i].state = state_of(region);
	}
	return FARLOG_OK;
}

int farlog_region_list(const char *uri, struct farlog_region_status *status, struct farlog_region_ring *rings,
	uint32_t count_max, struct farlog_error *error)
{
	struct region_options options = {.access = REGION_READ, .role = REGION_ROLE_READER, .is_whole = true};
	struct directory *directory = malloc(sizeof(*directory));
	struct region *region = NULL;
	int result = FARLOG_OK;

	memset(status, 0, sizeof(*status));
	if (directory == NULL)
		result = error_set(error, FARLOG_NO_MEMORY, 0, "list region \"%s\": out of memory", uri);
	if (result == FARLOG_OK)
		result = region_open(uri, &options, &region, error);
	if (result == FARLOG_OK && region->caps.is_remote)
		result = error_set(error, FARLOG_UNSUPPORTED, 0, "region \"%s\" is on another host; list it there", uri);
	if (result == FARLOG_OK) {
		result = directory_load(region, uri, directory, error);
		if (result == FARLOG_OK && list_rings(region, directory, status, rings, count_max) != FARLOG_OK)
			result = region_set_error(region, FARLOG_IO, "list region", uri, error);
	}
	if (region != NULL)
		region->ops->close(region);
	free(directory);
	return result;
}
