/* log/writer_encrypt.c -- the key of a writer whose ring is encrypted. */
#include "base/err.h"
#include "log/writer.h"

int writer_open_encrypter(struct farlog_writer *writer, const char *uri, const struct farlog_writer_config *config,
	struct farlog_error *error)
{
	const char *path = config->key_file != NULL ? config->key_file : keys_default_file();
	bool has_key = path != NULL && path[0] != '\0';
	struct keys *keys;
	int result;

	if (writer->superblock.encryption == FARLOG_ENCRYPTION_NONE && config->key_file != NULL && has_key)
		return error_set(error, FARLOG_INVALID, 0,
			"ring \"%s\": key file \"%s\" is given, and the ring is not encrypted: its records would be readable by "
			"all; format a ring with encryption, or give no key",
			uri, config->key_file);
	if (writer->superblock.encryption == FARLOG_ENCRYPTION_NONE)
		return FARLOG_OK;
	if (!has_key)
		return error_set(error, FARLOG_NO_KEY, 0,
			"ring \"%s\" takes records encrypted with aes-256-gcm alone, and no key is given; expected a file of keys "
			"in "
			"the configuration or in FARLOG_KEY_FILE",
			uri);
	result = keys_open(path, &keys, error);
	if (result != FARLOG_OK)
		return result;
	result = encrypter_open(keys, writer->superblock.salt, &writer->encrypter, error);
	keys_close(keys);
	if (result == FARLOG_OK)
		writer->envelope_len = ENCRYPT_ENVELOPE_LEN;
	return result;
}

int writer_end_encryption(struct farlog_writer *writer)
{
	writer->is_failed = true;
	writer->plain_len_max = 0;
	return FARLOG_CLOSED;
}
