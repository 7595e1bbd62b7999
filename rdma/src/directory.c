/* directory.c -- loading, checking and storing the directory of a region with many rings. See directory.h. */
#include "directory.h"

#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "err.h"
#include "superblock.h"

#define HEADER_CRC_LEN offsetof(struct directory_header, crc32c)

static const uint64_t copy_offs[2] = {DIRECTORY_A_OFF, DIRECTORY_B_OFF};

static size_t stored_len(const struct directory *directory)
{
	return sizeof(directory->header) + directory->header.entry_count * sizeof(directory->entries[0]);
}

static uint32_t checksum(const struct directory *directory)
{
	uint32_t crc = crc32c_update(0, &directory->header, HEADER_CRC_LEN);

	return crc32c_update(crc, directory->entries, directory->header.entry_count * sizeof(directory->entries[0]));
}

static bool load_copy(const uint8_t *base, unsigned copy, struct directory *directory)
{
	struct directory_header *header = &directory->header;

	memcpy(header, base + copy_offs[copy], sizeof(*header));
	if (header->magic != DIRECTORY_MAGIC || header->version != DIRECTORY_VERSION || header->entry_count > DIRECTORY_RING_COUNT_MAX)
		return false;
	memcpy(directory->entries, base + copy_offs[copy] + sizeof(*header), header->entry_count * sizeof(directory->entries[0]));
	directory->copy = copy;
	return checksum(directory) == header->crc32c;
}

/* load_newest -- what a copy says of its generation is believed only when all of it is whole. */
static bool load_newest(const uint8_t *base, struct directory *directory)
{
	uint64_t generations[2];
	unsigned first;

	for (unsigned i = 0; i < 2; i++)
		memcpy(&generations[i], base + copy_offs[i] + offsetof(struct directory_header, generation), 8);
	first = generations[1] > generations[0];
	return load_copy(base, first, directory) || load_copy(base, !first, directory);
}

/* load_beside -- beside one who is changing it. The copies are written one after the other and the first is whole before the second is begun,
 * so that both are found broken only when the step from one to the other came between. */
static bool load_beside(const uint8_t *base, struct directory *directory)
{
	for (unsigned i = 0; i < 3; i++)
		if (load_newest(base, directory))
			return true;
	return false;
}

static int refuse(const struct region *region, const char *uri, struct farlog_error *error)
{
	bool has_magic = false;

	for (unsigned i = 0; i < 2; i++) {
		struct directory_header header;

		memcpy(&header, region->base + copy_offs[i], sizeof(header));
		if (header.magic != DIRECTORY_MAGIC)
			continue;
		has_magic = true;
		if (header.version != DIRECTORY_VERSION)
			return error_set(error, FARLOG_UNSUPPORTED, 0, "region \"%s\": directory format version %u; this build reads version %u", uri,
				header.version, DIRECTORY_VERSION);
	}
	if (has_magic)
		return error_set(error, FARLOG_CORRUPT, 0, "region \"%s\": both copies of its directory fail their check", uri);
	if (superblock_is_blank(region))
		return error_set(error, FARLOG_NOT_FOUND, 0, "region \"%s\" is blank: it has no directory of rings", uri);
	return error_set(error, FARLOG_NOT_A_RING, 0,
		"region \"%s\" is not blank and has no directory of rings; a directory is made only where the first %u bytes are zero", uri,
		LAYOUT_DATA_OFF);
}

static int damaged(const char *uri, const struct directory_entry *entry, const char *what, struct farlog_error *error)
{
	return error_set(error, FARLOG_CORRUPT, 0, "region \"%s\": its directory is damaged: ring \"%.*s\" (offset %lu, %lu bytes) %s", uri,
		FARLOG_STREAM_NAME_LEN - 1, entry->name, entry->off, entry->len, what);
}

/* check_entries -- a sound checksum says who wrote them, not that they fit this region. */
static int check_entries(const struct region *region, const char *uri, const struct directory *directory, struct farlog_error *error)
{
	uint8_t is_slot_taken[DIRECTORY_RING_COUNT_MAX] = {0};
	uint64_t end = DIRECTORY_LEN;

	for (uint32_t i = 0; i < directory->header.entry_count; i++) {
		const struct directory_entry *entry = &directory->entries[i];

		if (entry->name[0] == '\0' || memchr(entry->name, '\0', sizeof(entry->name)) == NULL)
			return damaged(uri, entry, "has no name", error);
		if (entry->off % LAYOUT_BLOCK_LEN != 0 || entry->len % LAYOUT_BLOCK_LEN != 0 || entry->len < LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN)
			return damaged(uri, entry, "does not lie on blocks of 4096 bytes", error);
		if (entry->off < end)
			return damaged(uri, entry, "overlaps what lies before it", error);
		if (entry->len > region->contract.size_bytes || entry->off > region->contract.size_bytes - entry->len)
			return damaged(uri, entry, "reaches beyond the region's end", error);
		if (entry->slot >= DIRECTORY_RING_COUNT_MAX || is_slot_taken[entry->slot]++)
			return damaged(uri, entry, "shares its line of the tails", error);
		if (directory_find(directory, entry->name) != (int)i)
			return damaged(uri, entry, "has the name of another", error);
		end = entry->off + entry->len;
	}
	return FARLOG_OK;
}

int directory_load(const struct region *region, const char *uri, struct directory *directory, struct farlog_error *error)
{
	uint64_t least = DIRECTORY_LEN + LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN;
	struct superblock superblock;

	if (superblock_load(region, uri, &superblock, NULL) == FARLOG_OK)
		return error_set(error, FARLOG_EXISTS, 0,
			"region \"%s\" holds one ring (stream \"%.*s\"), which takes all of it, and no directory; open it without ring=", uri,
			FARLOG_STREAM_NAME_LEN, superblock.stream_name);
	if (region->contract.size_bytes < least)
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\": %lu bytes are too few for a directory and a ring; expected at least %lu", uri,
			region->contract.size_bytes, least);
	if (!load_beside(region->base, directory))
		return refuse(region, uri, error);
	return check_entries(region, uri, directory, error);
}

int directory_find(const struct directory *directory, const char *name)
{
	for (uint32_t i = 0; i < directory->header.entry_count; i++)
		if (strncmp(directory->entries[i].name, name, FARLOG_STREAM_NAME_LEN) == 0)
			return (int)i;
	return -1;
}

/* store_copy -- its magic goes last, behind a flush: a copy with a magic has been whole, and one that is not is damage and no broken beginning. */
static int store_copy(struct region *region, unsigned copy, const struct directory *directory)
{
	struct directory_header header __attribute__((aligned(LAYOUT_LINE_LEN))) = directory->header;
	struct region_span span = {copy_offs[copy], stored_len(directory)};
	struct region_span line = {copy_offs[copy], LAYOUT_LINE_LEN};
	int result;

	header.magic = 0;
	region->ops->write(region, span.off, &header, sizeof(header));
	if (span.len > sizeof(header))
		region->ops->write(region, span.off + sizeof(header), directory->entries, span.len - sizeof(header));
	result = region_persist_wait(region, &span, 1);
	if (result != FARLOG_OK)
		return result;
	header.magic = DIRECTORY_MAGIC;
	region->ops->write(region, line.off, &header, line.len);
	return region_persist_wait(region, &line, 1);
}

int directory_store(struct region *region, struct directory *directory)
{
	unsigned other = !directory->copy;
	int result;

	directory->header.generation++;
	directory->header.crc32c = checksum(directory);
	result = store_copy(region, other, directory);
	return result == FARLOG_OK ? store_copy(region, directory->copy, directory) : result;
}

void directory_show(struct region *region, const struct directory_entry *entry)
{
	region->ops->narrow(region, entry->off, entry->len);
	region->directory = region->base - entry->off;
	region->directory_off = entry->off;
	region->directory_generation = entry->generation;
}

int directory_open(struct region *region, const char *uri, const char *name, bool is_writable, struct farlog_error *error)
{
	struct directory *directory = malloc(sizeof(*directory));
	int result;
	int found;

	if (directory == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "open region \"%s\": out of memory", uri);
	result = directory_load(region, uri, directory, error);
	found = result == FARLOG_OK ? directory_find(directory, name) : -1;
	if (result == FARLOG_EXISTS || result == FARLOG_INVALID)
		result = FARLOG_NOT_A_RING; /* but a blank region stays NOT_FOUND: any ring can be made in it */
	else if (result == FARLOG_OK && found < 0)
		result = error_set(error, FARLOG_NOT_FOUND, 0, "region \"%s\": none of the %u rings in its directory has the name \"%s\"", uri,
			directory->header.entry_count, name);
	else if (result == FARLOG_OK && is_writable && region->ops->flush(region, 0, DIRECTORY_TAILS_OFF) != FARLOG_OK)
		result = error_set(error, FARLOG_IO, 0, "flush directory of region \"%s\"", uri);
	else if (result == FARLOG_OK)
		directory_show(region, &directory->entries[found]);
	if (error != NULL && result != FARLOG_OK)
		error->result = result;
	free(directory);
	return result;
}

bool directory_has(const struct region *region)
{
	struct directory *directory = malloc(sizeof(*directory));
	bool has = false;

	if (directory == NULL || !load_beside(region->directory, directory)) {
		free(directory);
		return false;
	}
	for (uint32_t i = 0; i < directory->header.entry_count; i++)
		has |= directory->entries[i].off == region->directory_off && directory->entries[i].generation == region->directory_generation;
	free(directory);
	return has;
}
