/* encrypted.h -- what the tests of encrypted records share. */
#ifndef FARLOG_TEST_ENCRYPTED_H
#define FARLOG_TEST_ENCRYPTED_H

#include <sys/types.h>

#include "ring/encrypt.h"
#include "ring/layout.h"
#include "unit.h"

#define ENCRYPTED_CAPACITY (256u << 10)
#define ENCRYPTED_SIZE (LAYOUT_DATA_OFF + ENCRYPTED_CAPACITY)
#define KEY_A "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define KEY_B "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eff"

extern char encrypted_key_path[];
extern uint8_t encrypted_batch[ENCRYPTED_SIZE];

/* encrypted_keys -- the one file of keys, with this content. */
const char *encrypted_keys(const char *text, mode_t mode);

/* encrypted_format -- a fresh ring. salt 0: any. */
void encrypted_format(const char *uri, uint64_t salt);

int encrypted_try_open(const char *uri, const char *key_file, farlog_writer **writer, struct farlog_error *error);
farlog_writer *encrypted_writer(const char *uri, const char *key_file);
farlog_reader *encrypted_reader(const char *uri, const char *key_file);

/* encrypted_read_all -- the last result, and how many records came before it. */
int encrypted_read_all(farlog_reader *reader, uint64_t *count);

/* One record of a batch. */
struct encrypted_seen {
	struct record_header header;
	const uint8_t *key;
	const uint8_t *payload;
	uint64_t stored_len;
};

struct encrypted_seen encrypted_see(const uint8_t *raw);

#endif
