/* region/directory.c -- loading, checking and storing the directory of a region with many rings. See
 * region/directory.h. */
#include "region/directory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "region/superblock.h"

#define HEADER_CRC_LEN offsetof(struct directory_header, crc32c)

static const uint64_t copy_offs[2] = {DIRECTORY_A_OFF, DIRECTORY_B_OFF};

static size_t stored_len(const struct directory *directory)
{
	return sizeof(directory->header) + directory->header.entry_count * sizeof(directory->entries[0]);
}

static uint32_t compute_checksum(const struct directory *directory)
{
	uint32_t crc = crc32c_update(0, &directory->header, HEADER_CRC_LEN);

	return crc32c_update(crc, directory->entries, directory->header.entry_count * sizeof(directory->entries[0]));
}

static bool load_copy(const uint8_t *base, unsigned copy, struct directory *directory)
{
	struct directory_header *header = &directory->header;

	memcpy(header, base + copy_offs[copy], sizeof(*header));
	if (header->magic != DIRECTORY_MAGIC || header->version != DIRECTORY_VERSION ||
		header->entry_count > DIRECTORY_RING_COUNT_MAX)
		return false;
	memcpy(directory->entries, base + copy_offs[copy] + sizeof(*header),
		header->entry_count * sizeof(directory->entries[0]));
	directory->copy = copy;
	return compute_checksum(directory) == header->crc32c;
}

/* load_newest -- a copy's generation counts only if the whole copy is valid. */
static bool load_newest(const uint8_t *base, struct directory *directory)
{
	uint64_t generations[2];
	unsigned first;

	for (unsigned i = 0; i < 2; i++)
		memcpy(&generations[i], base + copy_offs[i] + offsetof(struct directory_header, generation), 8);
	first = generations[1] > generations[0];
	return load_copy(base, first, directory) || load_copy(base, !first, directory);
}

/* load_stable_copy -- while another process may be changing the directory. It completes the first copy before it begins
 * the second, so both look broken only to a reader that met the change between the two: read again. OK; NOT_FOUND:
 * neither is whole; NO_MEMORY, IO. */
static int load_stable_copy(struct region *region, struct directory *directory)
{
	for (unsigned i = 0; i < 3; i++) {
		int result = region->ops->block.fetch_directory(region);

		if (result != FARLOG_OK)
			return result;
		if (load_newest(region->directory_copy, directory))
			return FARLOG_OK;
	}
	return FARLOG_NOT_FOUND;
}

static bool is_zero(const struct region *region)
{
	const uint8_t *bytes = region->directory_copy;

	for (uint64_t off = 0; off < LAYOUT_DATA_OFF; off++)
		if (bytes[off] != 0)
			return false;
	return true;
}

static int set_load_error(const struct region *region, const char *uri, struct farlog_error *error)
{
	bool has_magic = false;

	for (unsigned i = 0; i < 2; i++) {
		struct directory_header header;

		memcpy(&header, region->directory_copy + copy_offs[i], sizeof(header));
		if (header.magic != DIRECTORY_MAGIC)
			continue;
		has_magic = true;
		if (header.version != DIRECTORY_VERSION)
			return error_set(error, FARLOG_UNSUPPORTED, 0,
				"region \"%s\": directory format version %u; this build reads version %u", uri, header.version,
				DIRECTORY_VERSION);
	}
	if (has_magic)
		return error_set(error, FARLOG_CORRUPT, 0, "region \"%s\": both copies of its directory fail their check", uri);
	if (is_zero(region))
		return error_set(error, FARLOG_NOT_FOUND, 0,
			"region \"%s\" is all zeros: it has no directory of rings; expected one. Add a ring: farlog ring format",
			uri);
	return error_set(error, FARLOG_NOT_A_RING, 0,
		"region \"%s\" holds foreign data and no directory of rings; a directory is made only where the first %u bytes "
		"are zero",
		uri, LAYOUT_DATA_OFF);
}

static int set_entry_error(
	const char *uri, const struct directory_entry *entry, const char *what, struct farlog_error *error)
{
	return error_set(error, FARLOG_CORRUPT, 0,
		"region \"%s\": its directory is damaged: ring \"%.*s\" (offset %lu, %lu bytes) %s", uri,
		FARLOG_STREAM_NAME_LEN - 1, entry->name, entry->off, entry->len, what);
}

/* check_entries -- a valid checksum does not prove that the entries fit this region. */
static int check_entries(
	const struct region *region, const char *uri, const struct directory *directory, struct farlog_error *error)
{
	uint64_t region_len = directory_region_len(region);
	uint8_t is_slot_taken[DIRECTORY_RING_COUNT_MAX] = {0};
	uint64_t end = DIRECTORY_LEN;

	for (uint32_t i = 0; i < directory->header.entry_count; i++) {
		const struct directory_entry *entry = &directory->entries[i];

		if (entry->name[0] == '\0' || memchr(entry->name, '\0', sizeof(entry->name)) == NULL)
			return set_entry_error(uri, entry, "has no name", error);
		if (entry->off % LAYOUT_BLOCK_LEN != 0 || entry->len % LAYOUT_BLOCK_LEN != 0 ||
			entry->len < LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN + region->caps.extra_len)
			return set_entry_error(uri, entry, "does not lie on blocks of 4096 bytes", error);
		if (entry->off < end)
			return set_entry_error(uri, entry, "overlaps what lies before it", error);
		if (entry->len > region_len || entry->off > region_len - entry->len)
			return set_entry_error(uri, entry, "reaches beyond the region's end", error);
		if (entry->slot >= DIRECTORY_RING_COUNT_MAX || is_slot_taken[entry->slot]++)
			return set_entry_error(uri, entry, "shares its line of the tails", error);
		if (directory_find(directory, entry->name) != (int)i)
			return set_entry_error(uri, entry, "has the name of another", error);
		end = entry->off + entry->len;
	}
	return FARLOG_OK;
}

int directory_load(struct region *region, const char *uri, struct directory *directory, struct farlog_error *error)
{
	uint64_t len_min = DIRECTORY_LEN + LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN + region->caps.extra_len;
	struct superblock superblock;
	int result;

	if (superblock_load(region, uri, &superblock, NULL) == FARLOG_OK)
		return error_set(error, FARLOG_EXISTS, 0,
			"region \"%s\" holds one ring (stream \"%.*s\"), which takes all of it, and no directory; open it without "
			"ring=",
			uri, FARLOG_STREAM_NAME_LEN, superblock.stream_name);
	if (directory_region_len(region) < len_min)
		return error_set(error, FARLOG_INVALID, 0,
			"region \"%s\": %lu bytes are too few for a directory and a ring; expected at len_min %lu", uri,
			directory_region_len(region), len_min);
	result = load_stable_copy(region, directory);
	if (result == FARLOG_NOT_FOUND)
		return set_load_error(region, uri, error);
	if (result != FARLOG_OK)
		return region_set_error(region, result, "read directory of region", uri, error);
	return check_entries(region, uri, directory, error);
}

int directory_find(const struct directory *directory, const char *name)
{
	for (uint32_t i = 0; i < directory->header.entry_count; i++)
		if (strncmp(directory->entries[i].name, name, FARLOG_STREAM_NAME_LEN) == 0)
			return (int)i;
	return -1;
}

/* store_copy -- the magic is stored last, after a flush, in a line (of blocks an LBA) that is never torn. So a copy
 * with a magic was whole once: if its checksum fails, it is damaged, not half written. */
static int store_copy(struct region *region, unsigned copy, struct directory *directory)
{
	size_t line_len = region->caps.commit_len != 0 ? region->caps.commit_len : LAYOUT_LINE_LEN;
	size_t len = (stored_len(directory) + line_len - 1) / line_len * line_len;
	int result;

	directory->header.magic = 0;
	result = region->ops->block.store_directory(region, copy_offs[copy], directory, len);
	directory->header.magic = DIRECTORY_MAGIC;
	return result == FARLOG_OK ? region->ops->block.store_directory(region, copy_offs[copy], directory, line_len) :
								 result;
}

int directory_store(struct region *region, struct directory *directory)
{
	unsigned other = !directory->copy;
	int result;

	directory->header.generation++;
	directory->header.crc32c = compute_checksum(directory);
	result = store_copy(region, other, directory);
	return result == FARLOG_OK ? store_copy(region, !other, directory) : result;
}

int directory_select(struct region *region, const struct directory_entry *entry)
{
	int result = region->ops->block.narrow(region, entry->off, entry->len);

	region->directory = region->directory_copy;
	region->directory_off = entry->off;
	region->directory_generation = entry->generation;
	return result;
}

int directory_open(
	struct region *region, const char *uri, const char *name, bool is_writable, struct farlog_error *error)
{
	struct directory *directory = malloc(sizeof(*directory));
	int result;
	int found;

	if (directory == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "open region \"%s\": out of memory", uri);
	result = directory_load(region, uri, directory, error);
	found = result == FARLOG_OK ? directory_find(directory, name) : -1;
	if (result == FARLOG_EXISTS || result == FARLOG_INVALID)
		result = FARLOG_NOT_A_RING; /* but a region of zeros stays NOT_FOUND: any ring can be made in it */
	else if (result == FARLOG_OK && found < 0)
		result = error_set(error, FARLOG_NOT_FOUND, 0,
			"region \"%s\": none of the %u rings in its directory has the name \"%s\"", uri,
			directory->header.entry_count, name);
	else if (result == FARLOG_OK && is_writable && region->ops->data.flush(region, 0, DIRECTORY_TAILS_OFF) != FARLOG_OK)
		result = region_set_error(region, FARLOG_IO, "flush directory of region", uri, error);
	else if (result == FARLOG_OK && (result = directory_select(region, &directory->entries[found])) != FARLOG_OK)
		result = error_set(error, result, 0, "ring \"%s\": %s", uri,
			result == FARLOG_NO_MEMORY ? "a writer keeps a copy of all of it, and there is no memory for one" :
										 region->last_error);
	if (error != NULL && result != FARLOG_OK)
		error->result = result;
	free(directory);
	return result;
}

int directory_contains_ring(struct region *region)
{
	struct directory *directory = malloc(sizeof(*directory));
	int result;

	if (directory == NULL)
		return FARLOG_NO_MEMORY;
	result = load_stable_copy(region, directory);
	if (result == FARLOG_NOT_FOUND)
		result = 0;
	else
		for (uint32_t i = 0; result == FARLOG_OK && i < directory->header.entry_count; i++)
			if (directory->entries[i].off == region->directory_off &&
				directory->entries[i].generation == region->directory_generation)
				result = 1;
	free(directory);
	return result;
}
