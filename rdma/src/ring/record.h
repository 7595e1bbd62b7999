/* ring/record.h -- the record: its bytes, its making and its check (docs/reference/format.md section 2). No input or
 * output. */
#ifndef FARLOG_RECORD_H
#define FARLOG_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "farlog/farlog.h"
#include "ring/gather.h"

#define RECORD_MAGIC 0x31474C46u /* "FLG1" */
#define RECORD_VERSION 1u
#define RECORD_VERSION_ENCRYPTED 2u /* of a record with RECORD_FLAG_ENCRYPTED, and of no other */
#define RECORD_HEADER_LEN 56u
#define RECORD_TRAILER_LEN 8u
#define RECORD_CRC_OFF 52u
#define RECORD_PAD_STORED_LEN 64u
#define RECORD_EPOCH_PAYLOAD_LEN 32u
#define RECORD_CLOCK_ERR_UNKNOWN 0xFFFFFFFFu

enum record_flag {
	RECORD_FLAG_PAD = 1,
	RECORD_FLAG_EPOCH = 2,
	RECORD_FLAG_HEARTBEAT = 4,
	RECORD_FLAG_SEAL = 8,
	RECORD_FLAG_GAP = 16,
	RECORD_FLAG_ENCRYPTED = 32, /* the application's: ring/encrypt.h. All other flags are of farlog's own records */
	RECORD_FLAGS_CONTROL = RECORD_FLAG_PAD | RECORD_FLAG_EPOCH | RECORD_FLAG_HEARTBEAT | RECORD_FLAG_SEAL |
		RECORD_FLAG_GAP,
};

struct record_header {
	uint32_t magic;
	uint8_t version;
	uint8_t header_words;
	uint16_t flags;
	uint64_t lsn;
	uint32_t epoch;
	uint32_t payload_len;
	uint64_t seq;
	uint64_t ts_ns;
	uint32_t clock_err_ns;
	uint16_t class_id;
	uint16_t key_len;
	uint32_t stream_id;
	uint32_t crc32c;
};

_Static_assert(GATHER_HEAD_LEN == RECORD_HEADER_LEN, "a gather begins with a record's header");
_Static_assert(sizeof(struct record_header) == RECORD_HEADER_LEN, "record header is 56 bytes");
_Static_assert(offsetof(struct record_header, lsn) == 8, "record_header.lsn");
_Static_assert(offsetof(struct record_header, payload_len) == 20, "record_header.payload_len");
_Static_assert(offsetof(struct record_header, ts_ns) == 32, "record_header.ts_ns");
_Static_assert(offsetof(struct record_header, class_id) == 44, "record_header.class_id");
_Static_assert(GATHER_CRC_OFF == RECORD_CRC_OFF, "where a gather puts the CRC");
_Static_assert(offsetof(struct record_header, crc32c) == RECORD_CRC_OFF, "record_header.crc32c");

struct record_epoch_payload {
	uint32_t prev_epoch;
	uint32_t reserved;
	uint64_t start_lsn;
	uint8_t ring_uuid[16];
};

_Static_assert(sizeof(struct record_epoch_payload) == RECORD_EPOCH_PAYLOAD_LEN, "epoch payload is 32 bytes");

/* What a ring's records are checked against; constant from open on. */
struct record_identity {
	uint64_t salt;
	uint64_t capacity;
	uint32_t align;
	uint32_t record_len_max;
	uint32_t stream_id;
	uint32_t block_len; /* of a ring on blocks: an LBA, with which a commit ends; 0 = in memory */
};

/* Where a walk stands: the next record must continue this. */
struct record_cursor {
	uint64_t lsn;
	uint64_t seq;
	uint32_t epoch;     /* of the record before; 0 = none */
	uint32_t epoch_max; /* none above it is believed */
};

/* record_version -- of a record with these flags: a program that does not know encrypted ones takes none for a plain
 * one. */
static inline uint8_t record_version(uint16_t flags)
{
	return flags & RECORD_FLAG_ENCRYPTED ? RECORD_VERSION_ENCRYPTED : RECORD_VERSION;
}

/* record_extent -- ring bytes of a record with this key and payload, as 64-bit so that it cannot overflow. */
static inline uint64_t record_extent(uint32_t align, uint32_t key_len, uint32_t payload_len)
{
	uint64_t len = (uint64_t)RECORD_HEADER_LEN + key_len + payload_len + RECORD_TRAILER_LEN;

	return (len + align - 1) & ~(uint64_t)(align - 1);
}

/* record_pad_len -- on blocks, from lsn to the end of the LBA that it lies in; 0: it is where one begins, or the ring
 * is in memory. */
static inline uint64_t record_pad_len(const struct record_identity *identity, uint64_t lsn)
{
	return identity->block_len == 0 ? 0 : -lsn & (identity->block_len - 1);
}

/* record_pad_fits -- a PAD ends with the ring, left_in_ring from it, or with the LBA that it lies in. */
static inline bool record_pad_fits(
	const struct record_identity *identity, uint64_t lsn, uint64_t extent, uint64_t left_in_ring)
{
	return extent == left_in_ring || extent == record_pad_len(identity, lsn);
}

/* record_gather -- the whole record as pieces: header, key, payload, zero fill, trailer; its CRC is made when it is
 * copied. `header` gives all fields but magic, version, header_words and crc; `extent` is its record_extent; key and
 * payload must outlive the use of *gather; `scratch` is for who copies to give. The header is made of whole words: what
 * is stored in 8 bytes and loaded in 8 bytes goes straight from the processor's store buffer to the load. */
static inline void record_gather(const struct record_identity *identity, const struct record_header *header,
	const void *key, const void *payload, uint64_t extent, struct gather *gather)
{
	gather->head[0] = (uint64_t)RECORD_MAGIC | (uint64_t)record_version(header->flags) << 32 |
		(uint64_t)(RECORD_HEADER_LEN / 8) << 40 | (uint64_t)header->flags << 48;
	gather->head[1] = header->lsn;
	gather->head[2] = (uint64_t)header->epoch | (uint64_t)header->payload_len << 32;
	gather->head[3] = header->seq;
	gather->head[4] = header->ts_ns;
	gather->head[5] =
		(uint64_t)header->clock_err_ns | (uint64_t)header->class_id << 32 | (uint64_t)header->key_len << 48;
	gather->head[6] = header->stream_id;
	gather->piece[0] = (struct gather_piece){key, header->key_len};
	gather->piece[1] = (struct gather_piece){payload, header->payload_len};
	gather->tail = header->lsn ^ identity->salt;
	gather->len = extent;
	gather->salt = (uint32_t)identity->salt;
}

/* record_build -- the whole record at dst. ASSUMPTIONS: dst holds record_extent bytes and is ours alone; key and
 * payload may already lie in their places. */
static inline void record_build(const struct record_identity *identity, const struct record_header *header,
	const void *key, const void *payload, uint8_t *dst)
{
	struct gather gather;

	record_gather(
		identity, header, key, payload, record_extent(identity->align, header->key_len, header->payload_len), &gather);
	gather_build(dst, &gather);
}

/* record_build_pad -- write the 64 bytes of a PAD that skips `extent` bytes of the ring. */
void record_build_pad(
	const struct record_identity *identity, const struct record_header *header, uint64_t extent, uint8_t *dst);

enum record_verdict {
	RECORD_VALID = 0,
	RECORD_NOT_HERE, /* nothing, or something older or torn: not a record of this position */
	RECORD_CUT,      /* the header is plausible but `available` ends before the record does */
};

struct record_found {
	uint64_t extent;     /* ring bytes */
	uint64_t stored_len; /* bytes that are copied and stored: extent, or 64 for a PAD */
	uint16_t flags;
	uint32_t epoch;
	uint64_t ts_ns;
	uint32_t crc32c; /* of all of it */
};

/* record_check -- is there a valid record of `cursor` at src, of which `available` bytes may be read? Bounds are
 * checked before use; src may hold anything. */
enum record_verdict record_check(const struct record_identity *identity, const struct record_cursor *cursor,
	const uint8_t *src, uint64_t available, struct record_found *found);

/* record_advance -- move a cursor over a record that record_check found valid. */
void record_advance(struct record_cursor *cursor, const struct record_found *found);

#endif
