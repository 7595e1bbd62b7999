/* region/superblock.h -- superblock and head of a ring: two slots of each, written alternately. */
#ifndef FARLOG_SUPERBLOCK_H
#define FARLOG_SUPERBLOCK_H

#include "region/region.h"
#include "ring/layout.h"
#include "ring/record.h"

/* superblock_load -- load the valid superblock with the higher generation. NOT_A_RING (all zeros, or foreign), CORRUPT,
 * UNSUPPORTED. Error texts name the URI and, of a region of zeros, the command that formats it. */
int superblock_load(const struct region *region, const char *uri, struct superblock *superblock,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* superblock_is_zero -- are all bytes before the data zero? */
bool superblock_is_zero(const struct region *region);

/* superblock_version -- of a ring of this kind, when it is made. */
uint32_t superblock_version(const struct superblock *superblock);

/* superblock_checksums -- the checksum of each slot, 0 of one never written. False: one of them is torn. */
bool superblock_checksums(const struct region *region, uint32_t marks[2]);

/* superblock_store -- raise the generation, write the other slot, persist. is_persisted false: the caller persists it.
 * Results as of region_fence_ops.store_superblock. */
int superblock_store(struct region *region, struct superblock *superblock, bool is_persisted) FARLOG_MUST_CHECK;

/* head_load -- load the valid slot with the higher head_lsn. False: neither is valid. */
bool head_load(const struct region *region, const struct superblock *superblock, struct head_slot *slot);

/* superblock_seal, head_seal -- compute the checksum, of one that is not stored by superblock_store or head_store. */
void superblock_seal(struct superblock *superblock);
void head_seal(const struct superblock *superblock, struct head_slot *slot);

/* head_raise_to_floor -- set the start of a member's recovery: the higher of its head and the floor that its former
 * writer was given. */
void head_raise_to_floor(const struct superblock *superblock, struct head_slot *slot);

/* head_store -- write the slot that does not hold the present head, persist it. OK or IO. Blocks. */
int head_store(
	struct region *region, const struct superblock *superblock, const struct head_slot *slot) FARLOG_MUST_CHECK;

/* superblock_describe -- copy the fields of the superblock into a status; its other fields stay unchanged. */
void superblock_describe(const struct superblock *superblock, struct farlog_ring_status *status);

/* superblock_identity -- the values that records are checked against. */
struct record_identity superblock_identity(const struct superblock *superblock);

#endif
