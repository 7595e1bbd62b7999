/* base/keys.h -- the keys of encrypted streams, from a file (docs/reference/format-encryption.md). */
#ifndef FARLOG_KEYS_H
#define FARLOG_KEYS_H

#include <stdint.h>

#include "base/lib_crypto.h"

#define KEY_LEN 32u
#define KEY_ID_LEN 8u
#define KEY_COUNT_MAX 64u
#define KEY_OPENING_LEN 16u

struct key {
	uint8_t id[KEY_ID_LEN]; /* a hash of the key: what a record names it by */
	uint8_t bytes[KEY_LEN];
};

struct keys {
	const struct lib_crypto *lib;
	uint32_t count;
	struct key key[KEY_COUNT_MAX]; /* the first one encrypts; all decrypt */
};

/* keys_default_file -- what FARLOG_KEY_FILE names; NULL: nothing. */
const char *keys_default_file(void);

/* keys_open -- read the keys of a file. Errors: NOT_FOUND, INVALID (others than its owner may read it, or a line is no
 * key: the text gives its number and nothing of what it holds), IO, UNSUPPORTED, NO_MEMORY. */
int keys_open(const char *path, struct keys **keys, struct farlog_error *error) FARLOG_MUST_CHECK;

/* keys_close -- wipe and free. Safe on NULL. */
void keys_close(struct keys *keys);

/* keys_find -- the key of this id; NULL: there is none. */
const struct key *keys_find(const struct keys *keys, const uint8_t id[KEY_ID_LEN]);

/* keys_draw_opening -- random bytes. False: the kernel gives none, errno says why. */
bool keys_draw_opening(uint8_t opening[KEY_OPENING_LEN]) FARLOG_MUST_CHECK;

/* keys_derive -- the key of one opening of one stream: HKDF-SHA-256 (RFC 5869) of the key, with the opening as its salt
 * and the stream's salt in its info. False: libcrypto failed. */
bool keys_derive(const struct keys *keys, const struct key *key, const uint8_t opening[KEY_OPENING_LEN],
	uint64_t stream_salt, uint8_t derived[KEY_LEN]) FARLOG_MUST_CHECK;

#endif
