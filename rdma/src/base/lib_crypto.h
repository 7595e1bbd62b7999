/* base/lib_crypto.h -- OpenSSL's libcrypto, loaded when the first file of keys is read.
 *
 * The prototypes are written out, so that the core builds without OpenSSL's headers: these functions have had them
 * since OpenSSL 1.1. rdma/test/unit/test_encrypt.c compares them with the headers. */
#ifndef FARLOG_LIB_CRYPTO_H
#define FARLOG_LIB_CRYPTO_H

#include <stddef.h>

#include "farlog/farlog.h"

#define LIB_CRYPTO_GET_TAG 0x10 /* EVP_CTRL_AEAD_GET_TAG */
#define LIB_CRYPTO_SET_TAG 0x11 /* EVP_CTRL_AEAD_SET_TAG */

struct engine_st;

/* result, name, parameters */
#define LIB_CRYPTO_TABLE(X) \
	X(const struct evp_cipher_st *, EVP_aes_256_gcm, (void)) \
	X(const struct evp_md_st *, EVP_sha256, (void)) \
	X(struct evp_cipher_ctx_st *, EVP_CIPHER_CTX_new, (void)) \
	X(void, EVP_CIPHER_CTX_free, (struct evp_cipher_ctx_st * context)) \
	X(int, EVP_CIPHER_CTX_ctrl, (struct evp_cipher_ctx_st * context, int type, int arg, void *bytes)) \
	X(int, EVP_CipherInit_ex, \
		(struct evp_cipher_ctx_st * context, const struct evp_cipher_st *cipher, struct engine_st *engine, \
			const unsigned char *key, const unsigned char *nonce, int is_encrypting)) \
	X(int, EVP_CipherUpdate, \
		(struct evp_cipher_ctx_st * context, unsigned char *dst, int *dst_len, const unsigned char *src, int len)) \
	X(int, EVP_CipherFinal_ex, (struct evp_cipher_ctx_st * context, unsigned char *dst, int *dst_len)) \
	X(unsigned char *, HMAC, \
		(const struct evp_md_st *digest, const void *key, int key_len, const unsigned char *src, size_t len, \
			unsigned char *mac, unsigned *mac_len))

struct lib_crypto {
#define LIB_CRYPTO_FIELD(type, name, parameters) type(*name) parameters;
	LIB_CRYPTO_TABLE(LIB_CRYPTO_FIELD)
#undef LIB_CRYPTO_FIELD
};

/* lib_crypto_load -- once a process, by any thread. OK, or UNSUPPORTED with a text that says what to install. */
int lib_crypto_load(const struct lib_crypto **lib, struct farlog_error *error) FARLOG_MUST_CHECK;

#endif
