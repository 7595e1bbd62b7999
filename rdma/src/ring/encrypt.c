/* ring/encrypt.c -- encrypting and decrypting records. */
#include "ring/encrypt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomics.h"
#include "base/err.h"

#define NONCE_LEN 12u

struct encrypter {
	const struct lib_crypto *lib;
	uint64_t free_contexts; /* a bit each */
	uint8_t opening[KEY_OPENING_LEN];
	uint8_t key_id[KEY_ID_LEN];
	unsigned context_count;
	struct evp_cipher_ctx_st *contexts[ENCRYPT_THREAD_COUNT_MAX];
};

struct decrypter {
	struct keys *keys;
	struct evp_cipher_ctx_st *context;
	bool has_key; /* that of: */
	uint64_t stream_salt;
	uint8_t opening[KEY_OPENING_LEN];
	uint8_t key_id[KEY_ID_LEN];
};

/* What is authenticated besides: the header, with key_len and scheme of the envelope in the place of its CRC. */
union associated {
	uint64_t words[GATHER_HEAD_COUNT];
	struct record_header header;
	uint8_t bytes[RECORD_HEADER_LEN];
};

static void associate(union associated *associated, const struct encrypt_envelope *envelope)
{
	associated->header.crc32c = envelope->key_len | (uint32_t)envelope->scheme << 16;
}

/* make_nonce -- the LSN, which no other record of the opening has. The time behind it is for a process that was copied
 * with its memory, such as by a snapshot of a virtual machine, and goes on twice from one LSN. */
static void make_nonce(const struct record_header *header, uint8_t nonce[NONCE_LEN])
{
	memcpy(nonce, &header->lsn, 8);
	memcpy(nonce + 8, &header->ts_ns, 4);
}

/* begin -- the key stays that of the context. */
static bool begin(const struct lib_crypto *lib, struct evp_cipher_ctx_st *context, const union associated *associated,
	int is_encrypting)
{
	uint8_t nonce[NONCE_LEN];
	int len;

	make_nonce(&associated->header, nonce);
	return lib->EVP_CipherInit_ex(context, NULL, NULL, NULL, nonce, is_encrypting) == 1 &&
		lib->EVP_CipherUpdate(context, NULL, &len, associated->bytes, RECORD_HEADER_LEN) == 1;
}

/* update -- libcrypto counts in int. */
static bool update(
	const struct lib_crypto *lib, struct evp_cipher_ctx_st *context, uint8_t *dst, const uint8_t *src, uint64_t src_len)
{
	int len = 0;

	return src_len == 0 ||
		(src_len <= INT32_MAX && lib->EVP_CipherUpdate(context, dst, &len, src, (int)src_len) == 1 &&
			(uint64_t)len == src_len);
}

static bool set_key(
	const struct lib_crypto *lib, struct evp_cipher_ctx_st *context, const uint8_t key[KEY_LEN], int is_encrypting)
{
	return lib->EVP_CipherInit_ex(context, lib->EVP_aes_256_gcm(), NULL, key, NULL, is_encrypting) == 1;
}

static int make_contexts(struct encrypter *encrypter, const uint8_t key[KEY_LEN], struct farlog_error *error)
{
	for (unsigned i = 0; i < ENCRYPT_THREAD_COUNT_MAX; i++) {
		encrypter->contexts[i] = encrypter->lib->EVP_CIPHER_CTX_new();
		encrypter->context_count += encrypter->contexts[i] != NULL;
		if (encrypter->contexts[i] == NULL || !set_key(encrypter->lib, encrypter->contexts[i], key, 1))
			return error_set(error, FARLOG_IO, 0, "encryption: libcrypto gives no AES-256-GCM");
	}
	encrypter->free_contexts = UINT64_MAX;
	return FARLOG_OK;
}

int encrypter_open(const struct keys *keys, uint64_t stream_salt, struct encrypter **opened, struct farlog_error *error)
{
	struct encrypter *encrypter = calloc(1, sizeof(*encrypter));
	uint8_t key[KEY_LEN];
	int result = FARLOG_OK;

	*opened = NULL;
	if (encrypter == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "encryption: out of memory");
	encrypter->lib = keys->lib;
	memcpy(encrypter->key_id, keys->key[0].id, KEY_ID_LEN);
	if (!keys_draw_opening(encrypter->opening))
		result = error_set(error, FARLOG_IO, errno, "encryption: no random number for this opening");
	else if (!keys_derive(keys, &keys->key[0], encrypter->opening, stream_salt, key))
		result = error_set(error, FARLOG_IO, 0, "encryption: libcrypto gives no HMAC of SHA-256");
	if (result == FARLOG_OK)
		result = make_contexts(encrypter, key, error);
	explicit_bzero(key, sizeof(key));
	if (result != FARLOG_OK) {
		encrypter_close(encrypter);
		return result;
	}
	*opened = encrypter;
	return FARLOG_OK;
}

void encrypter_close(struct encrypter *encrypter)
{
	for (unsigned i = 0; encrypter != NULL && i < encrypter->context_count; i++)
		encrypter->lib->EVP_CIPHER_CTX_free(encrypter->contexts[i]); /* which wipes its key */
	free(encrypter);
}

/* take_context -- one thread gets the same one each time. */
static unsigned take_context(struct encrypter *encrypter)
{
	for (;;) {
		uint64_t present = atomic_load_relaxed(&encrypter->free_contexts);

		if (present != 0 && atomic_swap_if(&encrypter->free_contexts, present, present & (present - 1)))
			return (unsigned)__builtin_ctzll(present);
		cpu_relax();
	}
}

bool encrypter_gather(struct encrypter *encrypter, struct gather *gather, uint8_t *dst)
{
	const struct lib_crypto *lib = encrypter->lib;
	uint64_t key_len = gather->piece[0].len;
	uint64_t body_len = key_len + gather->piece[1].len;
	unsigned number = take_context(encrypter);
	struct evp_cipher_ctx_st *context = encrypter->contexts[number];
	struct encrypt_envelope envelope = {.key_len = (uint16_t)key_len, .scheme = ENCRYPT_SCHEME};
	union associated associated;
	uint8_t nothing[16];
	int len;
	bool is_done;

	memcpy(associated.words, gather->head, sizeof(associated.words));
	associate(&associated, &envelope);
	is_done = begin(lib, context, &associated, 1) && update(lib, context, dst, gather->piece[0].start, key_len) &&
		update(lib, context, dst + key_len, gather->piece[1].start, gather->piece[1].len) &&
		lib->EVP_CipherFinal_ex(context, nothing, &len) == 1 &&
		lib->EVP_CIPHER_CTX_ctrl(context, LIB_CRYPTO_GET_TAG, ENCRYPT_TAG_LEN, envelope.tag) == 1;
	__atomic_fetch_or(&encrypter->free_contexts, 1ull << number, __ATOMIC_RELEASE);
	if (!is_done)
		return false;
	memcpy(envelope.opening, encrypter->opening, KEY_OPENING_LEN);
	memcpy(envelope.key_id, encrypter->key_id, KEY_ID_LEN);
	memcpy(dst + body_len, &envelope, sizeof(envelope));
	gather->piece[0] = (struct gather_piece){NULL, 0};
	gather->piece[1] = (struct gather_piece){dst, body_len + ENCRYPT_ENVELOPE_LEN};
	return true;
}

int decrypter_open(struct keys *keys, struct decrypter **opened, struct farlog_error *error)
{
	struct decrypter *decrypter = calloc(1, sizeof(*decrypter));

	*opened = NULL;
	if (decrypter != NULL)
		decrypter->context = keys->lib->EVP_CIPHER_CTX_new();
	if (decrypter == NULL || decrypter->context == NULL) {
		free(decrypter);
		keys_close(keys);
		return error_set(error, FARLOG_NO_MEMORY, 0, "decryption: out of memory");
	}
	decrypter->keys = keys;
	*opened = decrypter;
	return FARLOG_OK;
}

void decrypter_close(struct decrypter *decrypter)
{
	if (decrypter == NULL)
		return;
	decrypter->keys->lib->EVP_CIPHER_CTX_free(decrypter->context);
	keys_close(decrypter->keys);
	free(decrypter);
}

/* take_key -- that of the record's opening, which is that of nearly every record before it. */
static int take_key(struct decrypter *decrypter, uint64_t stream_salt, const struct record_header *header,
	const struct encrypt_envelope *envelope, struct farlog_error *error)
{
	const struct keys *keys = decrypter->keys;
	const struct key *key;
	uint8_t derived[KEY_LEN];
	bool is_done;

	if (decrypter->has_key && decrypter->stream_salt == stream_salt &&
		memcmp(decrypter->key_id, envelope->key_id, KEY_ID_LEN) == 0 &&
		memcmp(decrypter->opening, envelope->opening, KEY_OPENING_LEN) == 0)
		return FARLOG_OK;
	decrypter->has_key = false;
	key = keys_find(keys, envelope->key_id);
	if (key == NULL) {
		uint64_t id;

		memcpy(&id, envelope->key_id, sizeof(id));
		return error_set(error, FARLOG_NO_KEY, 0,
			"record at lsn %lu is encrypted with key %016lx, and none of the %u keys given has that id", header->lsn,
			__builtin_bswap64(id), keys->count);
	}
	is_done = keys_derive(keys, key, envelope->opening, stream_salt, derived) &&
		set_key(keys->lib, decrypter->context, derived, 0);
	explicit_bzero(derived, sizeof(derived));
	if (!is_done)
		return error_set(error, FARLOG_IO, 0, "decryption: libcrypto gives no AES-256-GCM");
	memcpy(decrypter->opening, envelope->opening, KEY_OPENING_LEN);
	memcpy(decrypter->key_id, envelope->key_id, KEY_ID_LEN);
	decrypter->stream_salt = stream_salt;
	decrypter->has_key = true;
	return FARLOG_OK;
}

/* read_envelope -- and the length of the ciphertext before it. */
static int read_envelope(const uint8_t *raw, const struct record_header *header, struct encrypt_envelope *envelope,
	uint32_t *body_len, struct farlog_error *error)
{
	if (header->key_len != 0 || header->payload_len < ENCRYPT_ENVELOPE_LEN)
		return error_set(error, FARLOG_CORRUPT, 0,
			"record at lsn %lu is marked encrypted, with a clear key of %u bytes and a payload of %u; expected no key "
			"and at least %u bytes",
			header->lsn, header->key_len, header->payload_len, ENCRYPT_ENVELOPE_LEN);
	*body_len = header->payload_len - ENCRYPT_ENVELOPE_LEN;
	memcpy(envelope, raw + RECORD_HEADER_LEN + *body_len, sizeof(*envelope));
	if (envelope->scheme != ENCRYPT_SCHEME)
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"record at lsn %lu is encrypted by scheme %u; this build knows scheme %u", header->lsn, envelope->scheme,
			ENCRYPT_SCHEME);
	if (envelope->key_len > *body_len)
		return error_set(error, FARLOG_CORRUPT, 0, "record at lsn %lu: a key of %u bytes in a ciphertext of %u",
			header->lsn, envelope->key_len, *body_len);
	return FARLOG_OK;
}

int decrypter_open_record(struct decrypter *decrypter, uint64_t stream_salt, uint8_t *raw, uint16_t *key_len,
	uint32_t *payload_len, struct farlog_error *error)
{
	const struct lib_crypto *lib = decrypter->keys->lib;
	uint8_t *body = raw + RECORD_HEADER_LEN;
	struct encrypt_envelope envelope;
	union associated associated;
	uint8_t nothing[16];
	uint32_t body_len = 0;
	int len;
	int result;

	memcpy(associated.bytes, raw, RECORD_HEADER_LEN);
	result = read_envelope(raw, &associated.header, &envelope, &body_len, error);
	if (result == FARLOG_OK)
		result = take_key(decrypter, stream_salt, &associated.header, &envelope, error);
	if (result != FARLOG_OK)
		return result;
	associate(&associated, &envelope);
	if (!begin(lib, decrypter->context, &associated, 0) || !update(lib, decrypter->context, body, body, body_len) ||
		lib->EVP_CIPHER_CTX_ctrl(decrypter->context, LIB_CRYPTO_SET_TAG, ENCRYPT_TAG_LEN, envelope.tag) != 1 ||
		lib->EVP_CipherFinal_ex(decrypter->context, nothing, &len) != 1) {
		memset(body, 0, body_len); /* what was not proved is shown to nobody */
		return error_set(error, FARLOG_CORRUPT, 0,
			"record at lsn %lu, epoch %u: its header, key or payload is not what was encrypted: it was changed, or put "
			"in the place of another one",
			associated.header.lsn, associated.header.epoch);
	}
	*key_len = envelope.key_len;
	*payload_len = body_len - envelope.key_len;
	return FARLOG_OK;
}

int decrypter_refuse_clear(uint64_t lsn, uint32_t epoch, struct farlog_error *error)
{
	return error_set(error, FARLOG_CORRUPT, 0,
		"record at lsn %lu, epoch %u is not encrypted; expected all records of this stream to be: somebody without a "
		"key wrote it. Read a stream or a generation that was not encrypted without a key",
		lsn, epoch);
}

int decrypter_rewrite_record(struct decrypter *decrypter, const struct record_identity *identity, uint8_t *raw,
	uint64_t *stored_len, struct farlog_error *error)
{
	struct record_header header;
	uint32_t payload_len = 0;
	uint16_t key_len = 0;
	int result = decrypter_open_record(decrypter, identity->salt, raw, &key_len, &payload_len, error);

	if (result != FARLOG_OK)
		return result;
	memcpy(&header, raw, sizeof(header));
	header.flags &= (uint16_t)~RECORD_FLAG_ENCRYPTED;
	header.key_len = key_len;
	header.payload_len = payload_len;
	*stored_len = record_extent(identity->align, key_len, payload_len);
	record_build(identity, &header, raw + RECORD_HEADER_LEN, raw + RECORD_HEADER_LEN + key_len, raw);
	return FARLOG_OK;
}
