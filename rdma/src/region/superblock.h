/* region/superblock.h -- a ring's identity and head, each kept in two places that are written in turn. */
#ifndef FARLOG_SUPERBLOCK_H
#define FARLOG_SUPERBLOCK_H

#include "region/region.h"
#include "ring/layout.h"
#include "ring/record.h"

/* superblock_load -- the valid one with the higher generation. NOT_A_RING (blank or foreign), CORRUPT; texts name the
 * URI and, for a blank region, the command that would format it. */
int superblock_load(const struct region *region, const char *uri, struct superblock *superblock,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* superblock_is_blank -- everything before the data is zero. */
bool superblock_is_blank(const struct region *region);

/* superblock_marks -- the checksum of each place, 0 of a blank one. False: one of them is torn or half written. */
bool superblock_marks(const struct region *region, uint32_t marks[2]);

/* superblock_store -- raise the generation, write to the other place, persist. is_persisted false: the caller
 * persists it. */
int superblock_store(struct region *region, struct superblock *superblock, bool is_persisted) FARLOG_MUST_CHECK;

/* head_load -- the valid slot with the higher head_lsn. False: neither is valid. */
bool head_load(const struct region *region, const struct superblock *superblock, struct head_slot *slot);

/* superblock_seal, head_seal -- make the check sum of one that is put where no region stores it. */
void superblock_seal(struct superblock *superblock);
void head_seal(const struct superblock *superblock, struct head_slot *slot);

/* head_start -- where recovery of one of several members begins: at its head, or at the floor that its last writer was
 * given, whichever is higher. */
void head_start(const struct superblock *superblock, struct head_slot *slot);

/* head_store -- write a slot to the place that does not hold the present head, persist it. */
int head_store(
	struct region *region, const struct superblock *superblock, const struct head_slot *slot) FARLOG_MUST_CHECK;

/* superblock_describe -- what it says of its ring, into a status; the rest of the status stays as it is. */
void superblock_describe(const struct superblock *superblock, struct farlog_ring_status *status);

/* superblock_identity -- what records are checked against. */
struct record_identity superblock_identity(const struct superblock *superblock);

#endif
