/* adversary/medium.c -- see adversary/medium.h. */
#include "adversary/medium.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "adversary/random.h"

void medium_make(struct block_medium *medium, uint64_t size_bytes, uint32_t lba_len, uint64_t seed)
{
	*medium = (struct block_medium){.size_bytes = size_bytes, .lba_len = lba_len, .random = seed != 0 ? seed : 1};
	medium->visible = calloc(1, size_bytes);
	medium->durable = calloc(1, size_bytes);
	medium->is_stopped = calloc(1, size_bytes / lba_len);
	if (medium->visible == NULL || medium->durable == NULL || medium->is_stopped == NULL)
		abort();
}

void medium_free(struct block_medium *medium)
{
	medium_settle(medium, 0, UINT64_MAX);
	free(medium->cached);
	free(medium->visible);
	free(medium->durable);
	free(medium->is_stopped);
}

uint64_t medium_draw(struct block_medium *medium)
{
	return random_draw(&medium->random);
}

void medium_land(struct block_medium *medium, uint64_t lba, const uint8_t *bytes, const void *command)
{
	struct medium_cached *cached;

	if (medium->cached_count == medium->cached_room) {
		medium->cached_room = medium->cached_room * 2 + 64;
		medium->cached = realloc(medium->cached, medium->cached_room * sizeof(medium->cached[0]));
		if (medium->cached == NULL)
			abort();
	}
	cached = &medium->cached[medium->cached_count++];
	*cached = (struct medium_cached){lba, malloc(medium->lba_len), command};
	if (cached->bytes == NULL)
		abort();
	memcpy(cached->bytes, bytes, medium->lba_len);
	memcpy(medium->visible + lba * medium->lba_len, bytes, medium->lba_len);
}

void medium_settle(struct block_medium *medium, uint64_t from, uint64_t to)
{
	uint64_t kept = 0;

	for (uint64_t i = 0; i < medium->cached_count; i++) {
		struct medium_cached *cached = &medium->cached[i];

		if (cached->lba < from || cached->lba >= to) {
			medium->cached[kept++] = *cached;
			continue;
		}
		memcpy(medium->durable + cached->lba * medium->lba_len, cached->bytes, medium->lba_len);
		free(cached->bytes);
	}
	medium->cached_count = kept;
}

void medium_come_back(struct block_medium *medium, const void *command)
{
	for (uint64_t i = 0; i < medium->cached_count; i++)
		if (medium->cached[i].command == command)
			medium->cached[i].command = NULL;
}

void medium_flush(struct block_medium *medium)
{
	uint64_t first = medium->cached_count;

	for (uint64_t i = medium->cached_count; i-- > 0;) {
		struct medium_cached *cached = &medium->cached[i];
		bool is_over = medium->is_stopped[cached->lba]; /* by one that landed later */

		if (!is_over && cached->command != NULL && medium_draw(medium) % 2 == 0) {
			medium->cached[--first] = *cached;
			continue;
		}
		if (!is_over)
			memcpy(medium->durable + cached->lba * medium->lba_len, cached->bytes, medium->lba_len);
		medium->is_stopped[cached->lba] = 1;
		free(cached->bytes);
	}
	memset(medium->is_stopped, 0, medium->size_bytes / medium->lba_len);
	medium->cached_count -= first;
	if (medium->cached_count > 0) /* there is no memory for them before the first */
		memmove(medium->cached, medium->cached + first, medium->cached_count * sizeof(medium->cached[0]));
}

void medium_lose(struct block_medium *medium, uint64_t keep_of_256)
{
	for (uint64_t i = 0; i < medium->cached_count; i++) {
		struct medium_cached *cached = &medium->cached[i];

		if (!medium->is_stopped[cached->lba] && medium_draw(medium) % 256 < keep_of_256)
			memcpy(medium->durable + cached->lba * medium->lba_len, cached->bytes, medium->lba_len);
		else
			medium->is_stopped[cached->lba] = 1;
	}
	for (uint64_t i = 0; i < medium->cached_count; i++) {
		medium->is_stopped[medium->cached[i].lba] = 0;
		free(medium->cached[i].bytes);
	}
	medium->cached_count = 0;
}

void medium_wipe(struct block_medium *medium, uint64_t off, uint64_t len)
{
	medium_settle(medium, 0, UINT64_MAX);
	memset(medium->visible + off, 0, len);
	memset(medium->durable + off, 0, len);
}

void medium_garble(struct block_medium *medium, uint64_t lba, const uint8_t *wanted)
{
	uint8_t *bytes = medium->durable + lba * medium->lba_len;

	switch (medium_draw(medium) % 3) {
	case 0:
		memcpy(bytes, wanted, medium->lba_len / 2);
		break;
	case 1:
		memset(bytes, 0, medium->lba_len);
		break;
	default:
		for (uint32_t i = 0; i < medium->lba_len; i += 8) {
			uint64_t noise = medium_draw(medium);

			memcpy(bytes + i, &noise, 8);
		}
		break;
	}
}
