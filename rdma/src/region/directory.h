/* region/directory.h -- the directory of a region with many rings: where each ring is (docs/reference/format.md
 * section 3).
 *
 * There are two copies. Every change writes both, one after the other: a crash in the middle leaves the old or the new
 * directory, and damage to one copy loses nothing. A change of it holds REGION_ROLE_FORMAT of the whole region. */
#ifndef FARLOG_DIRECTORY_H
#define FARLOG_DIRECTORY_H

#include "base/uri.h"
#include "region/region.h"
#include "ring/layout.h"

#define DIRECTORY_MAGIC 0x5244474F4C524146ull /* "FARLOGDR" */
#define DIRECTORY_VERSION 1u
#define DIRECTORY_RING_COUNT_MAX 511u

#define DIRECTORY_A_OFF 0x00000u
#define DIRECTORY_B_OFF 0x10000u
#define DIRECTORY_COPY_LEN 0x10000u
#define DIRECTORY_TAILS_OFF 0x20000u /* a line a ring */
#define DIRECTORY_LEN 0x28000u       /* rings begin here */

/* directory_region_len -- bytes of the whole region, in the unit of the entries: with extra_len. */
static inline uint64_t directory_region_len(const struct region *region)
{
	return region->contract.size_bytes + region->caps.extra_len;
}

struct directory_header {
	uint64_t magic;
	uint32_t version;
	uint32_t entry_count;
	uint8_t region_uuid[16];
	uint64_t generation;
	uint8_t reserved[84];
	uint32_t crc32c;
};

/* Entries are sorted by off. */
struct directory_entry {
	uint64_t off;
	uint64_t len;
	uint64_t
		generation; /* of the directory when the entry was made: unique among all entries that the region ever has */
	uint64_t created_ns;
	uint32_t slot; /* its line of the tails */
	uint8_t reserved[28];
	char name[FARLOG_STREAM_NAME_LEN];
};

struct directory {
	struct directory_header header;
	struct directory_entry entries[DIRECTORY_RING_COUNT_MAX];
	unsigned copy; /* the copy that it was loaded from: 0 or 1; not on media */
};

_Static_assert(sizeof(struct directory_header) == 128, "directory_header is two lines");
_Static_assert(offsetof(struct directory_header, crc32c) == 124, "directory_header.crc32c");
_Static_assert(sizeof(struct directory_entry) == 128, "directory_entry is two lines");
_Static_assert(offsetof(struct directory_entry, name) == 64, "directory_entry.name");
_Static_assert(offsetof(struct directory, copy) == DIRECTORY_COPY_LEN, "a copy is full");

/* directory_load -- load the newest whole copy and check its entries. The region is whole or narrowed. NOT_FOUND: the
 * region is all zeros; EXISTS: it is one ring; NOT_A_RING: foreign bytes; CORRUPT, UNSUPPORTED, INVALID (too small),
 * IO. */
int directory_load(
	struct region *region, const char *uri, struct directory *directory, struct farlog_error *error) FARLOG_MUST_CHECK;

/* directory_find -- index of the entry with this name, -1 = none. */
int directory_find(const struct directory *directory, const char *name) FARLOG_MUST_CHECK;

/* directory_store -- raise the generation, persist both copies. OK or IO. Blocks. */
int directory_store(struct region *region, struct directory *directory) FARLOG_MUST_CHECK;

/* directory_select -- narrow the region to the ring of this entry, after directory_load. Results as of
 * region_block_ops.narrow. */
int directory_select(struct region *region, const struct directory_entry *entry) FARLOG_MUST_CHECK;

/* directory_open -- narrow the region to the ring with this name. is_writable: flush the directory first, because a
 * dead process may have left it in a cache. NOT_FOUND (also: the region is all zeros), NOT_A_RING, CORRUPT,
 * UNSUPPORTED, NO_MEMORY, IO. */
int directory_open(struct region *region, const char *uri, const char *name, bool is_writable,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* directory_contains_ring -- is the ring that the region is narrowed to still in its directory? 1, 0, NO_MEMORY or
 * IO. */
int directory_contains_ring(struct region *region) FARLOG_MUST_CHECK;

/* directory_format -- farlog_ring_format of the ring uri->ring in a region with a directory. */
int directory_format(const char *text, const struct uri *uri, const struct farlog_ring_config *config,
	struct farlog_error *error) FARLOG_MUST_CHECK;

#endif
