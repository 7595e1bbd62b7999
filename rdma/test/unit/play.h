/* play.h -- a ring beside an image of it that is built record by record, and the ways to append to both
 * (test_methods.c). */
#ifndef FARLOG_TEST_PLAY_H
#define FARLOG_TEST_PLAY_H

#include "unit.h"
#include "log/writer.h"

#define CAPACITY (128u << 10)
#define RECORD_LEN_MAX (32u << 10)
#define PENDING_MAX 24u /* records submitted before a wait */

enum way { WAY_APPEND, WAY_TRY, WAY_SUBMIT, WAY_CLAIM, WAY_COUNT };

struct play {
	farlog_writer *writer; /* or */
	farlog_shared *shared;
	farlog_reader *drain;
	const uint8_t *region;
	const uint8_t *ring; /* its data */
	char uri[400];
	uint64_t salt;
	uint32_t align;
	uint32_t record_len_max;
	uint64_t lsn; /* of the next record, with its PAD */
	uint64_t seq;
	uint64_t checked_lsn; /* below it the image has what the ring has */
	uint64_t drained_lsn;
	unsigned pending_count;
	uint8_t image[CAPACITY];
};

extern struct play play;

/* play_fill -- with what no other record has. play_make_entry -- of such bytes, which lie against the end of what may
 * be read. play_extent_of -- its bytes in the ring. */
void play_fill(uint8_t *bytes, size_t len);
struct farlog_entry play_make_entry(uint16_t key_len, uint32_t len);
uint64_t play_extent_of(const struct farlog_entry *entry);

/* play_append_by -- to the ring alone. play_expect -- into the image what was appended there; it must be it. */
int play_append_by(enum way way, const struct farlog_entry *entry, struct farlog_position *position);
void play_expect(const struct farlog_entry *entry, unsigned flags, const struct farlog_position *position);

/* play_append, play_append_heartbeat, play_append_any_batch -- to both. */
void play_append(enum way way, uint16_t key_len, uint32_t len);
void play_append_heartbeat(void);
void play_append_any_batch(void);

/* play_make_room -- drain, where it takes that. play_wait_all -- for what was submitted. play_check -- the image's new
 * records against the ring. play_drain -- all of both. */
void play_make_room(uint64_t extent);
void play_wait_all(void);
void play_check(void);
void play_drain(void);

/* play_over_methods -- one script, over all that this processor has. */
void play_over_methods(void (*script)(void), uint32_t align, uint32_t record_len_max, bool is_shared);

#endif
