/* ring/layout.h -- where things lie in a region with one ring (docs/reference/format.md section 3). */
#ifndef FARLOG_LAYOUT_H
#define FARLOG_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "farlog/farlog.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the format on media is little endian; this machine is not, and conversions are not written"
#endif

/* In this order so that what a far drain may write is one piece, as is what a far writer may write: keys are given by
 * piece. */
#define LAYOUT_SUPERBLOCK_A_OFF 0x0000u
#define LAYOUT_SUPERBLOCK_B_OFF 0x1000u
#define LAYOUT_FENCE_OFF 0x2000u
#define LAYOUT_HEAD_A_OFF 0x2040u
#define LAYOUT_HEAD_B_OFF 0x2080u
#define LAYOUT_CREDIT_OFF 0x20C0u
#define LAYOUT_TAIL_HINT_OFF 0x2100u
#define LAYOUT_DURABLE_HINT_OFF 0x2108u
#define LAYOUT_PROPOSAL_OFF 0x2800u /* a far writer's superblock, until its target has stored it */
#define LAYOUT_DATA_OFF 0x3000u

#define LAYOUT_BLOCK_LEN 4096u
#define LAYOUT_LINE_LEN 64u
#define LAYOUT_SUPERBLOCK_MAGIC 0x4253474F4C524146ull /* "FARLOGSB" */
#define LAYOUT_VERSION 2u        /* of a ring in memory; on blocks, one whose records begin on LBAs */
#define LAYOUT_VERSION_PACKED 3u /* on blocks: records follow one another, and a commit ends with an LBA */
/* Added to either for a ring with encrypted records: programs that do not know them refuse it. */
#define LAYOUT_VERSION_ENCRYPTED 2u

struct superblock {
	uint64_t magic;
	uint32_t version;
	uint32_t superblock_len;
	uint8_t ring_uuid[16];
	uint64_t salt;
	uint64_t capacity;
	uint32_t align;
	uint32_t record_len_max;
	uint64_t generation;
	uint32_t stream_id;
	uint32_t writer_epoch;
	uint64_t epoch_start_lsn;
	uint64_t epoch_start_seq;
	uint64_t created_ns;
	uint64_t epoch_opened_ns;
	uint32_t block_len;  /* of a ring on blocks: the LBA that it was made for; 0 = a ring in memory */
	uint32_t encryption; /* enum farlog_encryption */
	uint8_t reserved_a[16];
	char stream_name[FARLOG_STREAM_NAME_LEN];
	char writer_id[FARLOG_WRITER_ID_LEN];
	/* of one of several members: where the undrained records began when the epoch was opened; other members may know
	 * more than its head */
	uint64_t floor_lsn;
	uint64_t floor_seq;
	uint32_t floor_epoch; /* of the record before, as head_slot.last_epoch */
	/* of a device that several hosts reach and that does not fence them: where the epoch was opened; 0 = no such
	 * device */
	uint8_t writer_host[8];
	uint8_t reserved_b[160];
	uint32_t crc32c;
};

struct head_slot {
	uint64_t head_lsn;
	uint64_t head_seq;
	uint32_t last_epoch;
	/* of a spill (route_carry.h): what lies from head_lsn on was or will be appended elsewhere in this epoch, */
	uint32_t far_epoch;
	uint32_t far_seq; /* the first of it with a seq of which these are the lower 32 bits. Both 0: no spill */
	uint32_t crc32c;
	uint8_t reserved_c[32];
};

_Static_assert(sizeof(struct superblock) == 512, "superblock is 512 bytes");
_Static_assert(offsetof(struct superblock, align) == 48, "superblock.align");
_Static_assert(offsetof(struct superblock, generation) == 56, "superblock.generation");
_Static_assert(offsetof(struct superblock, epoch_start_lsn) == 72, "superblock.epoch_start_lsn");
_Static_assert(offsetof(struct superblock, block_len) == 104, "superblock.block_len");
_Static_assert(offsetof(struct superblock, encryption) == 108, "superblock.encryption");
_Static_assert(offsetof(struct superblock, stream_name) == 128, "superblock.stream_name");
_Static_assert(offsetof(struct superblock, writer_id) == 192, "superblock.writer_id");
_Static_assert(offsetof(struct superblock, floor_lsn) == 320, "superblock.floor_lsn");
_Static_assert(offsetof(struct superblock, crc32c) == 508, "superblock.crc32c");
_Static_assert(sizeof(struct head_slot) == LAYOUT_LINE_LEN, "a head slot has a line of its own");
_Static_assert(offsetof(struct head_slot, crc32c) == 28, "head_slot.crc32c");

#endif
