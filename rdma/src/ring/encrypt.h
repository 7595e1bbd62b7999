/* ring/encrypt.h -- encrypted records: AES-256-GCM over key and payload (docs/reference/format-encryption.md).
 *
 * The payload of an encrypted record is the ciphertext of key and payload, and behind it an envelope. The header is
 * authenticated and stays clear; the record's CRC covers the ciphertext, so that whoever moves records needs no key.
 *
 * A nonce is never used twice with one key: each opening of a writer derives a key of its own from 16 random bytes, and
 * within an opening no two records have one LSN (docs/adr/0042-a-key-for-each-opening.md). */
#ifndef FARLOG_ENCRYPT_H
#define FARLOG_ENCRYPT_H

#include "base/keys.h"
#include "ring/record.h"

#define ENCRYPT_TAG_LEN 16u
#define ENCRYPT_SCHEME 1u /* AES-256-GCM, keys by HKDF-SHA-256 */
#define ENCRYPT_THREAD_COUNT_MAX 64u

/* Behind the ciphertext. */
struct encrypt_envelope {
	uint8_t tag[ENCRYPT_TAG_LEN];
	uint8_t opening[KEY_OPENING_LEN];
	uint8_t key_id[KEY_ID_LEN];
	uint16_t key_len; /* of the record's key, which the ciphertext begins with */
	uint16_t scheme;
};

#define ENCRYPT_ENVELOPE_LEN 44u

_Static_assert(sizeof(struct encrypt_envelope) == ENCRYPT_ENVELOPE_LEN, "encrypt_envelope is 44 bytes");
_Static_assert(offsetof(struct encrypt_envelope, key_id) == 32, "encrypt_envelope.key_id");
_Static_assert(offsetof(struct encrypt_envelope, scheme) == 42, "encrypt_envelope.scheme");

/* What one opening of a writer encrypts with. */
struct encrypter;

/* encrypter_open -- draw the opening and derive its key from the first of `keys`. IO, NO_MEMORY. */
int encrypter_open(const struct keys *keys, uint64_t stream_salt, struct encrypter **encrypter,
	struct farlog_error *error) FARLOG_MUST_CHECK;
void encrypter_close(struct encrypter *encrypter);

/* encrypt_head -- make the head of a record, whose extent has the envelope, that of an encrypted one. */
static inline void encrypt_head(struct gather *gather)
{
	uint64_t key_len = gather->piece[0].len;

	gather->head[0] += (uint64_t)(RECORD_VERSION_ENCRYPTED - RECORD_VERSION) << 32;
	gather->head[0] |= (uint64_t)RECORD_FLAG_ENCRYPTED << 48;
	gather->head[2] += (key_len + ENCRYPT_ENVELOPE_LEN) << 32; /* payload_len */
	gather->head[5] &= UINT64_MAX >> 16;                       /* key_len */
}

static inline bool gather_is_encrypted(const struct gather *gather)
{
	return (gather->head[0] >> 48 & RECORD_FLAG_ENCRYPTED) != 0;
}

/* encrypter_gather -- encrypt the pieces, which then are one, at dst. They may lie there already. One call for each
 * LSN. False: libcrypto failed, and the LSN must not be used. Any thread; allocates nothing, waits only while
 * ENCRYPT_THREAD_COUNT_MAX other threads are in it. */
bool encrypter_gather(struct encrypter *encrypter, struct gather *gather, uint8_t *dst) FARLOG_MUST_CHECK;

/* What a reader decrypts with: one thread. */
struct decrypter;

/* decrypter_open -- takes over the keys, also where it fails. NO_MEMORY. */
int decrypter_open(struct keys *keys, struct decrypter **decrypter, struct farlog_error *error) FARLOG_MUST_CHECK;
void decrypter_close(struct decrypter *decrypter);

/* decrypter_open_record -- decrypt in place the record at `raw`, which is valid and encrypted: key and payload then lie
 * behind the header, one behind the other. The header is not changed. OK; NO_KEY: the keys do not have its key, *error
 * names it; CORRUPT: it is not what was encrypted under this header, and its bytes are zero now. */
int decrypter_open_record(struct decrypter *decrypter, uint64_t stream_salt, uint8_t *raw, uint16_t *key_len,
	uint32_t *payload_len, struct farlog_error *error) FARLOG_MUST_CHECK;

/* decrypter_refuse_clear -- an application's record that is not encrypted, where all have to be: whoever can write to
 * the ring or the store can make one without a key. CORRUPT. */
int decrypter_refuse_clear(uint64_t lsn, uint32_t epoch, struct farlog_error *error) FARLOG_MUST_CHECK;

/* decrypter_rewrite_record -- as decrypter_open_record, and make a plain record of it, with the same place, time and
 * class: at most as long. *stored_len: what it takes. */
int decrypter_rewrite_record(struct decrypter *decrypter, const struct record_identity *identity, uint8_t *raw,
	uint64_t *stored_len, struct farlog_error *error) FARLOG_MUST_CHECK;

#endif
