/* encrypted.c -- see encrypted.h. */
#include "encrypted.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

char encrypted_key_path[] = "/dev/shm/farlog-unit-keys-XXXXXX";

const char *encrypted_keys(const char *text, mode_t mode)
{
	static int fd = -1;

	if (fd < 0)
		fd = mkstemp(encrypted_key_path);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(pwrite(fd, text, strlen(text), 0), (ssize_t)strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	return encrypted_key_path;
}

void encrypted_format(const char *uri, uint64_t salt)
{
	struct farlog_ring_config config = {.size_bytes = ENCRYPTED_SIZE,
		.record_len_max = 32768,
		.is_forced = 1,
		.salt = salt,
		.encryption = FARLOG_ENCRYPTION_AES_256_GCM};
	struct farlog_error error = {0};

	if (farlog_ring_format(uri, &config, &error) != FARLOG_OK)
		fail_msg("format: %s", error.text);
}

int encrypted_try_open(const char *uri, const char *key_file, farlog_writer **writer, struct farlog_error *error)
{
	return farlog_writer_open(uri,
		CONFIG(.level = FARLOG_LEVEL_VISIBLE, .policy = FARLOG_POLICY_REJECT, .key_file = key_file), writer, error);
}

farlog_writer *encrypted_writer(const char *uri, const char *key_file)
{
	struct farlog_error error = {0};
	farlog_writer *writer;

	if (encrypted_try_open(uri, key_file, &writer, &error) != FARLOG_OK)
		fail_msg("open: %s", error.text);
	return writer;
}

farlog_reader *encrypted_reader(const char *uri, const char *key_file)
{
	struct farlog_reader_config config = {.key_file = key_file};
	struct farlog_error error = {0};
	farlog_reader *reader;

	if (farlog_reader_open(uri, &config, &reader, &error) != FARLOG_OK)
		fail_msg("open reader: %s", error.text);
	return reader;
}

uint8_t encrypted_batch[ENCRYPTED_SIZE];

struct encrypted_seen encrypted_see(const uint8_t *raw)
{
	struct encrypted_seen seen;

	memcpy(&seen.header, raw, sizeof(seen.header));
	seen.key = raw + RECORD_HEADER_LEN;
	seen.payload = seen.key + seen.header.key_len;
	seen.stored_len = seen.header.flags & RECORD_FLAG_PAD ?
		RECORD_PAD_STORED_LEN :
		record_extent(64, seen.header.key_len, seen.header.payload_len);
	return seen;
}

int encrypted_read_all(farlog_reader *reader, uint64_t *count)
{
	struct farlog_batch batch;
	int result;

	for (*count = 0; (result = farlog_reader_read(reader, encrypted_batch, 4096, &batch)) == FARLOG_OK;)
		*count += batch.record_count;
	assert_int_equal(farlog_reader_read(reader, encrypted_batch, 4096, &batch), result);
	return result;
}
