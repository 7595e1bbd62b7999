/* log/reader_decrypt.c -- a reader with keys: its batches hold the plain records that were encrypted. */
#include <string.h>

#include "base/err.h"
#include "log/reader.h"

int reader_open_decrypter(struct farlog_reader *reader, const char *uri, const struct farlog_reader_config *config,
	struct farlog_error *error)
{
	const char *path = config->key_file;
	struct keys *keys;
	int result;

	if (config->is_drain && path != NULL && path[0] != '\0')
		return error_set(error, FARLOG_INVALID, 0,
			"ring \"%s\": key file \"%s\" is given to a drain, which passes records on as they are; give it none", uri,
			path);
	if (path == NULL && !config->is_drain &&
		(reader->members != NULL || reader->superblock.encryption != FARLOG_ENCRYPTION_NONE))
		path = keys_default_file();
	if (path == NULL || path[0] == '\0')
		return FARLOG_OK;
	reader->is_clear_refused = config->key_file != NULL;
	result = keys_open(path, &keys, error);
	return result == FARLOG_OK ? decrypter_open(keys, &reader->decrypter, error) : result;
}

/* end_batch -- before the record that cannot be decrypted. Nothing is read beyond it. */
static int end_batch(struct farlog_reader *reader, const struct record_header *header, struct farlog_batch *batch)
{
	reader->decrypt_result = reader->trouble.result;
	reader->decrypt_lsn = header->lsn;
	batch->next_lsn = header->lsn;
	batch->next_seq = header->seq;
	return batch->len > 0 ? FARLOG_OK : reader->decrypt_result;
}

/* decrypt_record -- or refuse one that should be encrypted. *kept_len: what it takes then. */
static int decrypt_record(
	struct farlog_reader *reader, const struct record_header *header, uint8_t *raw, uint64_t *kept_len)
{
	if ((header->flags & RECORD_FLAG_ENCRYPTED) != 0)
		return decrypter_rewrite_record(reader->decrypter, &reader->identity, raw, kept_len, &reader->trouble);
	if ((header->flags & RECORD_FLAGS_CONTROL) != 0 || !reader->is_clear_refused)
		return FARLOG_OK;
	return decrypter_refuse_clear(header->lsn, header->epoch, &reader->trouble);
}

int reader_decrypt_batch(struct farlog_reader *reader, uint8_t *buf, struct farlog_batch *batch)
{
	const struct record_identity *identity = &reader->identity;
	size_t read_len = batch->len;
	struct record_header header;
	uint64_t stored_len;

	reader->is_clear_refused |= reader->superblock.encryption != FARLOG_ENCRYPTION_NONE;
	batch->len = batch->record_count = 0;
	for (size_t at = 0; at < read_len; at += stored_len) {
		uint64_t kept_len;
		bool is_pad;

		memcpy(&header, buf + at, sizeof(header));
		is_pad = (header.flags & RECORD_FLAG_PAD) != 0;
		stored_len =
			is_pad ? RECORD_PAD_STORED_LEN : record_extent(identity->align, header.key_len, header.payload_len);
		kept_len = stored_len;
		if (decrypt_record(reader, &header, buf + at, &kept_len) != FARLOG_OK)
			return end_batch(reader, &header, batch);
		if (batch->len != at)
			memmove(buf + batch->len, buf + at, kept_len);
		batch->len += kept_len;
		batch->record_count += !is_pad;
		batch->last_epoch = header.epoch;
		if (!is_pad)
			batch->last_ts_ns = header.ts_ns;
	}
	return FARLOG_OK;
}

const char *farlog_reader_trouble(const farlog_reader *reader)
{
	return reader->trouble.text;
}
