/* region/superblock.c -- superblocks A/B and head slots A/B. */
#include "region/superblock.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/err.h"
#include "region/directory.h"

#define SUPERBLOCK_CRC_LEN offsetof(struct superblock, crc32c)
#define HEAD_CRC_LEN offsetof(struct head_slot, crc32c)

static const uint64_t superblock_offs[2] = {LAYOUT_SUPERBLOCK_A_OFF, LAYOUT_SUPERBLOCK_B_OFF};
static const uint64_t head_offs[2] = {LAYOUT_HEAD_A_OFF, LAYOUT_HEAD_B_OFF};

static bool superblock_is_sound(const struct superblock *superblock)
{
	return superblock->magic == LAYOUT_SUPERBLOCK_MAGIC &&
		crc32c_update(0, superblock, SUPERBLOCK_CRC_LEN) == superblock->crc32c;
}

static bool is_power_of_two(uint32_t value)
{
	return value != 0 && (value & (value - 1)) == 0;
}

uint32_t superblock_version(const struct superblock *superblock)
{
	return (superblock->block_len != 0 ? LAYOUT_VERSION_PACKED : LAYOUT_VERSION) +
		(superblock->encryption != FARLOG_ENCRYPTION_NONE ? LAYOUT_VERSION_ENCRYPTED : 0);
}

/* has_known_version -- a packed ring must not be read by a build that takes every PAD for the ring's end, nor the other
 * way round. */
static bool has_known_version(const struct superblock *superblock)
{
	if (superblock->encryption > FARLOG_ENCRYPTION_AES_256_GCM)
		return false;
	if (superblock->block_len == 0)
		return superblock->version == superblock_version(superblock);
	return is_power_of_two(superblock->block_len) && superblock->block_len <= LAYOUT_BLOCK_LEN &&
		superblock->record_len_max >= superblock->block_len &&
		(superblock->version == superblock_version(superblock) ||
			(superblock->version == LAYOUT_VERSION && superblock->encryption == FARLOG_ENCRYPTION_NONE &&
				superblock->align >= superblock->block_len));
}

/* superblock_is_usable -- a valid checksum does not prove that this build can use it. */
static bool superblock_is_usable(const struct superblock *superblock, uint64_t region_len)
{
	return has_known_version(superblock) && superblock->superblock_len == sizeof(*superblock) &&
		superblock->capacity % LAYOUT_BLOCK_LEN == 0 && superblock->capacity > 0 &&
		superblock->capacity <= region_len - LAYOUT_DATA_OFF && is_power_of_two(superblock->align) &&
		superblock->align >= LAYOUT_LINE_LEN && superblock->align <= LAYOUT_BLOCK_LEN &&
		superblock->record_len_max <= superblock->capacity / 4;
}

/* set_media_error -- the layouts in memory and on blocks differ. */
static int set_media_error(const char *uri, const struct superblock *superblock, struct farlog_error *error)
{
	return error_set(error, FARLOG_UNSUPPORTED, 0, "region \"%s\" holds a ring that was made %s; open it by an %s URI",
		uri, superblock->block_len != 0 ? "on blocks" : "in memory", superblock->block_len != 0 ? "nvme:" : "mem:");
}

static int set_load_error(
	const struct region *region, const char *uri, const struct superblock seen[2], struct farlog_error *error)
{
	bool is_zero = seen[0].magic == 0 && seen[1].magic == 0;

	if (seen[0].magic == DIRECTORY_MAGIC)
		return error_set(error, FARLOG_NOT_A_RING, 0,
			"region \"%s\" holds a directory of many rings; expected the name of one: %s%cring=NAME", uri, uri,
			strchr(uri, '?') != NULL ? '&' : '?');
	for (int i = 0; i < 2; i++) {
		if (seen[i].magic != LAYOUT_SUPERBLOCK_MAGIC)
			continue;
		/* an interrupted format leaves 0 */
		if (seen[i].version != LAYOUT_VERSION && seen[i].version != superblock_version(&seen[i]) &&
			seen[i].version != 0)
			return error_set(error, FARLOG_UNSUPPORTED, 0,
				"region \"%s\": ring format version %u; this build reads version %u%s", uri, seen[i].version,
				superblock_version(&seen[i]), seen[i].block_len != 0 ? " and the one before" : "");
		if (superblock_is_sound(&seen[i]) && seen[i].encryption > FARLOG_ENCRYPTION_AES_256_GCM)
			return error_set(error, FARLOG_UNSUPPORTED, 0,
				"region \"%s\": its records are encrypted by method %u; this build knows method %u", uri,
				seen[i].encryption, FARLOG_ENCRYPTION_AES_256_GCM);
		if (superblock_is_sound(&seen[i]) && (seen[i].block_len != 0) != (region->caps.commit_len != 0))
			return set_media_error(uri, &seen[i], error);
		if (superblock_is_sound(&seen[i]) && seen[i].capacity > region->contract.size_bytes - LAYOUT_DATA_OFF)
			return error_set(error, FARLOG_CORRUPT, 0,
				"region \"%s\" has %lu bytes, but its ring says that it needs %lu: the end of it is not here; "
				"restore the whole region",
				uri, region->contract.size_bytes, seen[i].capacity + LAYOUT_DATA_OFF);
		return error_set(error, FARLOG_CORRUPT, 0,
			"region \"%s\": both superblocks fail their check although one has the magic; run" REGION_DUMP, uri,
			REGION_DUMP_OF(region, uri));
	}
	return error_set(error, FARLOG_NOT_A_RING, 0,
		"region \"%s\" (%lu bytes) is %s; to make an empty ring of it, destroying what it holds: "
		"farlog ring format%s '%s'",
		uri, region->contract.size_bytes,
		region->caps.commit_len != 0 ? "a device without a ring" :
			is_zero                  ? "all zeros, not a ring" :
									   "foreign data, not a ring",
		is_zero ? "" : " --force", uri);
}

int superblock_load(
	const struct region *region, const char *uri, struct superblock *superblock, struct farlog_error *error)
{
	struct superblock seen[2] = {0};
	const struct superblock *best = NULL;

	if (region->contract.size_bytes < LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN)
		return error_set(error, FARLOG_NOT_A_RING, 0,
			"region \"%s\": %lu bytes are too few for a ring; expected at least %u", uri, region->contract.size_bytes,
			LAYOUT_DATA_OFF + LAYOUT_BLOCK_LEN);
	for (int i = 0; i < 2; i++) {
		memcpy(&seen[i], region->base + superblock_offs[i], sizeof(seen[i]));
		if (!superblock_is_sound(&seen[i]) || !superblock_is_usable(&seen[i], region->contract.size_bytes))
			continue;
		if (best == NULL || seen[i].generation > best->generation)
			best = &seen[i];
	}
	(void)region_load_word(
		region, LAYOUT_FENCE_OFF); /* whoever loads the superblock goes on to the page of the heads */
	if (region_has_lost_page(region))
		return region_set_error(region, FARLOG_IO, "read the header of ring", uri, error);
	if (best == NULL)
		return set_load_error(region, uri, seen, error);
	if ((best->block_len != 0) != (region->caps.commit_len != 0))
		return set_media_error(uri, best, error);
	if (best->block_len != region->caps.commit_len)
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"region \"%s\": its ring was made for LBAs of %u bytes, and the device now has LBAs of %u; "
			"format the namespace back, or make a new ring",
			uri, best->block_len, region->caps.commit_len);
	*superblock = *best;
	return FARLOG_OK;
}

bool superblock_is_zero(const struct region *region)
{
	for (uint64_t off = 0; off < LAYOUT_DATA_OFF; off += 8)
		if (region_load_word(region, off) != 0)
			return false;
	return !region_has_lost_page(region);
}

bool superblock_checksums(const struct region *region, uint32_t marks[2])
{
	bool are_whole = true;

	for (int i = 0; i < 2; i++) {
		struct superblock seen;

		memcpy(&seen, region->base + superblock_offs[i], sizeof(seen));
		marks[i] = seen.crc32c;
		are_whole &= superblock_is_sound(&seen) || (seen.magic == 0 && seen.crc32c == 0);
	}
	return are_whole;
}

void superblock_seal(struct superblock *superblock)
{
	superblock->crc32c = crc32c_update(0, superblock, SUPERBLOCK_CRC_LEN);
}

int superblock_store(struct region *region, struct superblock *superblock, bool is_persisted)
{
	struct superblock made __attribute__((aligned(LAYOUT_LINE_LEN)));
	uint64_t off = superblock_offs[(superblock->generation + 1) % 2];

	superblock->generation++;
	superblock_seal(superblock);
	made = *superblock;
	return region->ops->fence.store_superblock(region, off, &made, sizeof(made), is_persisted);
}

/* head_is_sound -- records begin only at multiples of `align`: a walk from elsewhere would read past the ring's end. */
static bool head_is_sound(const struct superblock *superblock, const struct head_slot *slot)
{
	return slot->crc32c != 0 && slot->head_lsn % superblock->align == 0 &&
		crc32c_update((uint32_t)superblock->salt, slot, HEAD_CRC_LEN) == slot->crc32c;
}

/* is_newer_head -- heads only rise. A spill stores a slot again at the same head when its records get another epoch or
 * seq in the leg's ring. */
static bool is_newer_head(const struct head_slot *slot, const struct head_slot *than)
{
	if (slot->head_lsn != than->head_lsn)
		return slot->head_lsn > than->head_lsn;
	return slot->far_epoch != than->far_epoch ? slot->far_epoch > than->far_epoch :
												(int32_t)(slot->far_seq - than->far_seq) > 0;
}

/* find_newest_head -- index of the valid slot with the higher head, -1 = none. A slot read while it is written fails
 * its check; the other one, which is not written then, is valid. */
static int find_newest_head(const struct region *region, const struct superblock *superblock, struct head_slot *slot)
{
	int best = -1;

	for (int i = 0; i < 2; i++) {
		struct head_slot seen;

		memcpy(&seen, region->base + head_offs[i], sizeof(seen));
		if (!head_is_sound(superblock, &seen) || (best >= 0 && !is_newer_head(&seen, slot)))
			continue;
		best = i;
		*slot = seen;
	}
	return best;
}

bool head_load(const struct region *region, const struct superblock *superblock, struct head_slot *slot)
{
	return find_newest_head(region, superblock, slot) >= 0;
}

void head_seal(const struct superblock *superblock, struct head_slot *slot)
{
	slot->crc32c = crc32c_update((uint32_t)superblock->salt, slot, HEAD_CRC_LEN);
}

void head_raise_to_floor(const struct superblock *superblock, struct head_slot *slot)
{
	if (superblock->floor_lsn <= slot->head_lsn)
		return;
	slot->head_lsn = superblock->floor_lsn;
	slot->head_seq = superblock->floor_seq;
	slot->last_epoch = superblock->floor_epoch;
}

/* clear_torn_head -- zero a slot that a power cut left torn, durably, before it is stored again. Else a second torn
 * store could complete the first one by the words that both have in common: a valid slot with a head that nobody
 * stored, above live records. */
static int clear_torn_head(struct region *region, const struct superblock *superblock, uint64_t off)
{
	static const struct head_slot nothing __attribute__((aligned(LAYOUT_LINE_LEN)));
	struct region_span span = {off, sizeof(nothing)};
	struct head_slot present;

	memcpy(&present, region->base + off, sizeof(present));
	if (head_is_sound(superblock, &present) || memcmp(&present, &nothing, sizeof(nothing)) == 0)
		return FARLOG_OK;
	region->ops->data.write(region, off, &nothing, sizeof(nothing));
	return region_persist_wait(region, &span, 1);
}

int head_store(struct region *region, const struct superblock *superblock, const struct head_slot *slot)
{
	struct head_slot made __attribute__((aligned(LAYOUT_LINE_LEN))) = *slot;
	struct head_slot present;
	int best = find_newest_head(region, superblock, &present);
	struct region_span span = {head_offs[best == 0 ? 1 : 0], sizeof(made)};
	int result = clear_torn_head(region, superblock, span.off);

	if (result != FARLOG_OK)
		return result;
	head_seal(superblock, &made);
	region->ops->data.write(region, span.off, &made, sizeof(made));
	return region_persist_wait(region, &span, 1);
}

struct record_identity superblock_identity(const struct superblock *superblock)
{
	struct record_identity identity = {
		.salt = superblock->salt,
		.capacity = superblock->capacity,
		.align = superblock->align,
		.record_len_max = superblock->record_len_max,
		.stream_id = superblock->stream_id,
		.block_len = superblock->block_len,
	};

	return identity;
}

void superblock_describe(const struct superblock *superblock, struct farlog_ring_status *status)
{
	memcpy(status->ring_uuid, superblock->ring_uuid, sizeof(status->ring_uuid));
	memcpy(status->stream_name, superblock->stream_name, sizeof(status->stream_name));
	memcpy(status->writer_id, superblock->writer_id, sizeof(status->writer_id));
	status->salt = superblock->salt;
	status->capacity_bytes = superblock->capacity;
	status->align = superblock->align;
	status->record_len_max = superblock->record_len_max;
	status->stream_id = superblock->stream_id;
	status->writer_epoch = superblock->writer_epoch;
	status->epoch_start_lsn = superblock->epoch_start_lsn;
	status->epoch_start_seq = superblock->epoch_start_seq;
	status->epoch_opened_ns = superblock->epoch_opened_ns;
	status->created_ns = superblock->created_ns;
	status->encryption = superblock->encryption;
}
