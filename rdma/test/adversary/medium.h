/* adversary/medium.h -- the medium of adversarial blocks: what is on it, and what lies in the cache before it. */
#ifndef FARLOG_BLOCK_MEDIUM_H
#define FARLOG_BLOCK_MEDIUM_H

#include <stdint.h>

/* What landed on an LBA and no flush has covered yet. */
struct medium_cached {
	uint64_t lba;
	uint8_t *bytes;
	const void *command; /* that has not come back yet; NULL = it has */
};

struct block_medium {
	uint64_t size_bytes;
	uint32_t lba_len;
	uint8_t *visible;
	uint8_t *durable;
	uint8_t *is_stopped; /* scratch of a power cut: a later landing on this LBA is lost too */
	struct medium_cached *cached;
	uint64_t cached_count;
	uint64_t cached_room;
	uint64_t random;
};

/* medium_make -- all zero. medium_free -- what it points to. */
void medium_make(struct block_medium *medium, uint64_t size_bytes, uint32_t lba_len, uint64_t seed);
void medium_free(struct block_medium *medium);

uint64_t medium_draw(struct block_medium *medium);

/* medium_land -- an LBA of a command is visible now, and in the cache. medium_come_back -- the command has come back: a
 * flush takes what it landed. */
void medium_land(struct block_medium *medium, uint64_t lba, const uint8_t *bytes, const void *command);
void medium_come_back(struct block_medium *medium, const void *command);

/* medium_settle -- what lies in the cache of LBAs from..to is durable now. */
void medium_settle(struct block_medium *medium, uint64_t from, uint64_t to);

/* medium_flush -- what lies in the cache of commands that have come back is durable now, with what it was landed upon;
 * of the others, any. */
void medium_flush(struct block_medium *medium);

/* medium_lose -- the power cut: of what lies in the cache, for each LBA a prefix, each landing kept with this chance of
 * 256. */
void medium_lose(struct block_medium *medium, uint64_t keep_of_256);

/* medium_wipe -- bytes that are zero, and durable. */
void medium_wipe(struct block_medium *medium, uint64_t off, uint64_t len);

/* medium_garble -- what a longer write that had not come back may leave of an LBA: half of it, zeros, or noise. */
void medium_garble(struct block_medium *medium, uint64_t lba, const uint8_t *wanted);

#endif
