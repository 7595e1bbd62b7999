/* three.h -- three rings of one stream, whose bytes are put there as a writer of them all would. */
#ifndef FARLOG_TEST_THREE_H
#define FARLOG_TEST_THREE_H

#include "region/region.h"
#include "ring/layout.h"
#include "unit.h"

#define CAPACITY 65536u
#define SIZE (LAYOUT_DATA_OFF + CAPACITY)
#define PAYLOAD_LEN 100u
#define COUNT 3u
#define TRIES 20000u /* of 1 ms, until a member is found again */

extern uint8_t three_buffer[SIZE];
extern const char *three_uris[COUNT];
extern char three_uri[1024];

/* three_make -- three empty rings of one stream, three_uri names all of them. */
void three_make(void);

struct region *three_open_bytes(unsigned i);

/* three_copy -- what a writer puts into a second member: its epoch and its hints, and of its records those in
 * [from, to). The head is the drain's. */
void three_copy(unsigned from, unsigned to, uint64_t from_lsn, uint64_t to_lsn);

/* three_forget_hints -- of a writer that died before it could tell. */
void three_forget_hints(unsigned i);

/* three_write_to -- an epoch with so many records, in one member alone. The result is where its log ends. */
uint64_t three_write_to(unsigned i, uint32_t epoch, unsigned count);

farlog_reader *three_open_members(bool is_drain);

/* three_await_batch -- members are asked by turns: what one has comes after a moment. */
void three_await_batch(farlog_reader *reader, struct farlog_batch *batch);

uint64_t three_head_of(unsigned i);

#endif
