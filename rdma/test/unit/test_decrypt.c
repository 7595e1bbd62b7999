/* Encrypted records that were changed, or put in the place of others, whose CRC whoever did so has made right; and that
 * no two records are encrypted with one key and one nonce, whatever crashes between them. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "encrypted.h"
#include "farlog/consume.h"

/* ---- what was changed */

static struct decrypter *open_decrypter(const char *text)
{
	struct decrypter *decrypter;
	struct keys *keys;

	assert_int_equal(keys_open(encrypted_keys(text, 0600), &keys, NULL), FARLOG_OK);
	assert_int_equal(decrypter_open(keys, &decrypter, NULL), FARLOG_OK);
	return decrypter;
}

/* make_record -- encrypted, of a stream with this salt, at `lsn`. Its length. */
static uint64_t make_record(struct encrypter *encrypter, uint64_t salt, uint64_t lsn, uint8_t *raw)
{
	struct record_identity identity = {
		.salt = salt, .align = 64, .capacity = ENCRYPTED_CAPACITY, .record_len_max = 4096};
	struct record_header header = {.lsn = lsn,
		.seq = lsn / 64,
		.epoch = 3,
		.ts_ns = 1764331200000000000,
		.class_id = 5,
		.key_len = 4,
		.payload_len = 30};
	struct gather gather;

	record_gather(&identity, &header, "KEY1", "a payload of some thirty bytes", 192, &gather);
	encrypt_head(&gather);
	assert_true(encrypter_gather(encrypter, &gather, raw + RECORD_HEADER_LEN));
	gather_build(raw, &gather);
	return 192;
}

static struct encrypter *open_encrypter(const char *text, uint64_t salt)
{
	struct encrypter *encrypter;
	struct keys *keys;

	assert_int_equal(keys_open(encrypted_keys(text, 0600), &keys, NULL), FARLOG_OK);
	assert_int_equal(encrypter_open(keys, salt, &encrypter, NULL), FARLOG_OK);
	keys_close(keys);
	return encrypter;
}

static int decrypt(struct decrypter *decrypter, uint64_t salt, const uint8_t *raw, uint64_t len)
{
	struct farlog_error error = {0};
	uint8_t copy[256];
	uint16_t key_len = 0;
	uint32_t payload_len = 0;
	int result;

	memcpy(copy, raw, len);
	result = decrypter_open_record(decrypter, salt, copy, &key_len, &payload_len, &error);
	assert_true(result == FARLOG_OK ? key_len == 4 && payload_len == 30 : error.text[0] != '\0');
	if (result == FARLOG_OK)
		assert_memory_equal(copy + RECORD_HEADER_LEN, "KEY1a payload of some thirty bytes", 34);
	else
		assert_null(memmem(copy, len, "payload", 7));
	return result;
}

/* Each bit of header, ciphertext and envelope but the CRC, which whoever changes them makes again. */
static void decrypt__any_bit_changed(void **state)
{
	uint64_t salt = 0x1234567890ABCDEF;
	struct encrypter *encrypter = open_encrypter(KEY_A, salt);
	struct decrypter *decrypter = open_decrypter(KEY_A);
	uint8_t raw[192] __attribute__((aligned(64)));
	uint64_t len = make_record(encrypter, salt, 640, raw);
	uint64_t end = RECORD_HEADER_LEN + 34 + ENCRYPT_ENVELOPE_LEN;

	(void)state;
	assert_int_equal(decrypt(decrypter, salt, raw, len), FARLOG_OK);
	for (uint64_t bit = 0; bit < 8 * end; bit++) {
		int result;

		if (bit / 8 >= RECORD_CRC_OFF && bit / 8 < RECORD_HEADER_LEN)
			continue;
		if (bit / 8 >= 20 && bit / 8 < 24)
			continue; /* payload_len says where the envelope is: read__changed_in_the_ring */
		raw[bit / 8] ^= (uint8_t)(1u << bit % 8);
		result = decrypt(decrypter, salt, raw, len);
		if (result != FARLOG_CORRUPT && result != FARLOG_NO_KEY && result != FARLOG_UNSUPPORTED)
			fail_msg("bit %lu of byte %lu: %s", bit % 8, bit / 8, farlog_result_name(result));
		raw[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_int_equal(decrypt(decrypter, salt, raw, len), FARLOG_OK);
	assert_int_equal(decrypt(decrypter, salt + 1, raw, len), FARLOG_CORRUPT); /* of another stream */
	decrypter_close(decrypter);
	encrypter_close(encrypter);
}

/* A record in the place of another one, with its LSN, its seq, and a CRC that is right. */
static void decrypt__swapped(void **state)
{
	uint64_t salt = 0x1234567890ABCDEF;
	struct encrypter *encrypter = open_encrypter(KEY_A, salt);
	struct decrypter *decrypter = open_decrypter(KEY_A);
	uint8_t one[192] __attribute__((aligned(64))), other[192] __attribute__((aligned(64)));
	uint64_t len = make_record(encrypter, salt, 640, one);

	(void)state;
	make_record(encrypter, salt, 1280, other);
	memcpy(other + RECORD_HEADER_LEN, one + RECORD_HEADER_LEN, len - RECORD_HEADER_LEN);
	assert_int_equal(decrypt(decrypter, salt, other, len), FARLOG_CORRUPT);
	decrypter_close(decrypter);
	encrypter_close(encrypter);
}

/* reseal -- of whoever can write to the ring: the record at `at` with whatever was changed in it, and its CRC. */
static void reseal(uint8_t *raw, uint64_t salt)
{
	struct encrypted_seen seen = encrypted_see(raw);
	uint32_t crc = crc32c_record(
		(uint32_t)salt, raw, raw + RECORD_HEADER_LEN, (uint64_t)seen.header.key_len + seen.header.payload_len);

	memcpy(raw + RECORD_CRC_OFF, &crc, sizeof(crc));
}

/* Of a record that is valid for everybody without keys, but is not what was encrypted: a reader with the key says so,
 * gives nothing of it nor of what is behind it, and ends there for good. */
static void read__changed_in_the_ring(void **state)
{
	const char *uri = unit_tmpfs_uri("encrypt-changed");
	const char *key_file = encrypted_keys(KEY_A, 0600);
	static const unsigned places[] = {RECORD_HEADER_LEN + 20, 20, 44, 32};

	(void)state;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		uint64_t salt = 0xFEDCBA9876543211, count;
		struct farlog_position position;
		uint8_t raw[256] __attribute__((aligned(64)));
		farlog_writer *writer;
		farlog_reader *reader;
		FILE *file;

		encrypted_format(uri, salt);
		writer = encrypted_writer(uri, key_file);
		for (unsigned n = 0; n < 3; n++)
			assert_int_equal(unit_append(writer, 100, 7, &position), FARLOG_OK);
		farlog_writer_close(writer);
		file = fopen(unit_path(uri), "r+b");
		assert_non_null(file);
		assert_int_equal(fseek(file, LAYOUT_DATA_OFF + 128 + 256, SEEK_SET), 0);
		assert_int_equal(fread(raw, 1, sizeof(raw), file), sizeof(raw));
		raw[places[i]] ^= 1;
		reseal(raw, salt);
		assert_int_equal(fseek(file, LAYOUT_DATA_OFF + 128 + 256, SEEK_SET), 0);
		assert_int_equal(fwrite(raw, 1, sizeof(raw), file), sizeof(raw));
		fclose(file);
		reader = encrypted_reader(uri, "");
		assert_int_equal(encrypted_read_all(reader, &count), FARLOG_NOT_YET);
		assert_int_equal(count, 4);
		farlog_reader_close(reader);
		reader = encrypted_reader(uri, key_file);
		assert_int_not_equal(encrypted_read_all(reader, &count), FARLOG_NOT_YET);
		assert_int_equal(count, 2);
		assert_non_null(strstr(farlog_reader_trouble(reader), "lsn 384"));
		farlog_reader_close(reader);
	}
}

/* forge_clear -- in the place of the second of three records one that is not encrypted, with a CRC that is right. */
static void forge_clear(const char *uri, uint64_t salt)
{
	uint8_t raw[256] __attribute__((aligned(64)));
	FILE *file = fopen(unit_path(uri), "r+b");

	assert_non_null(file);
	assert_int_equal(fseek(file, LAYOUT_DATA_OFF + 128 + 256, SEEK_SET), 0);
	assert_int_equal(fread(raw, 1, sizeof(raw), file), sizeof(raw));
	assert_int_equal(raw[4], RECORD_VERSION_ENCRYPTED);
	raw[4] = RECORD_VERSION;
	raw[6] = raw[7] = 0; /* flags */
	reseal(raw, salt);
	assert_int_equal(fseek(file, LAYOUT_DATA_OFF + 128 + 256, SEEK_SET), 0);
	assert_int_equal(fwrite(raw, 1, sizeof(raw), file), sizeof(raw));
	fclose(file);
}

/* consume_all -- by keys of the configuration; NULL: of the environment. The last result, and what came before it. */
static int consume_all(const char *uri, const char *key_file, uint64_t *count, char *text, size_t text_len)
{
	struct farlog_consumer_config config = {
		.ring_uri = uri, .key_file = key_file, .start = FARLOG_CONSUME_HEAD, .is_control = 1};
	struct farlog_error error = {0};
	struct farlog_consumed item;
	farlog_consumer *consumer;
	int result;

	if (farlog_consumer_open(&config, &consumer, &error) != FARLOG_OK)
		fail_msg("consumer: %s", error.text);
	for (*count = 0; (result = farlog_consumer_next(consumer, 0, &item)) == FARLOG_OK;)
		++*count;
	assert_int_equal(farlog_consumer_next(consumer, 0, &item), result);
	snprintf(text, text_len, "%s", farlog_consumer_trouble(consumer));
	farlog_consumer_close(consumer);
	return result;
}

/* check_refused -- a reader and a consumer with keys give what is before the forged record, say why, and end there. */
static void check_refused(const char *uri, const char *key_file)
{
	farlog_reader *reader = encrypted_reader(uri, key_file);
	char text[512];
	uint64_t count;

	assert_int_equal(encrypted_read_all(reader, &count), FARLOG_CORRUPT);
	assert_int_equal(count, 2);
	assert_non_null(strstr(farlog_reader_trouble(reader), "lsn 384, epoch 1 is not encrypted"));
	farlog_reader_close(reader);
	assert_int_equal(consume_all(uri, key_file, &count, text, sizeof(text)), FARLOG_CORRUPT);
	assert_int_equal(count, 2);
	assert_non_null(strstr(text, "lsn 384, epoch 1 is not encrypted"));
}

/* Without a key anybody who can write to the ring makes records that are not encrypted. Whoever has keys takes none for
 * an application's: of an encrypted ring, of one with several members too. */
static void read__clear_in_an_encrypted_ring(void **state)
{
	const char *key_file = encrypted_keys(KEY_A, 0600);
	uint64_t salt = 0xFEDCBA9876543211, count;
	struct farlog_position position;
	char one[128], other[128], members[300];
	farlog_reader *reader;

	(void)state;
	snprintf(one, sizeof(one), "%s", unit_tmpfs_uri("encrypt-clear"));
	snprintf(other, sizeof(other), "%s", unit_tmpfs_uri("encrypt-clear-too"));
	snprintf(members, sizeof(members), "members:2 %s %s", one, other);
	for (unsigned i = 0; i < 2; i++) {
		farlog_writer *writer;

		encrypted_format(one, salt);
		encrypted_format(other, salt);
		writer = encrypted_writer(i == 0 ? one : members, key_file);
		for (unsigned n = 0; n < 3; n++)
			assert_int_equal(unit_append(writer, 100, 7, &position), FARLOG_OK);
		farlog_writer_close(writer);
		forge_clear(one, salt);
		if (i == 1)
			forge_clear(other, salt);
		reader = encrypted_reader(i == 0 ? one : members, "");
		assert_int_equal(encrypted_read_all(reader, &count), FARLOG_NOT_YET);
		assert_int_equal(count, 4);
		farlog_reader_close(reader);
		check_refused(i == 0 ? one : members, key_file);
		setenv("FARLOG_KEY_FILE", key_file, 1);
		check_refused(i == 0 ? one : members, NULL);
		unsetenv("FARLOG_KEY_FILE");
	}
}

/* A ring that is not encrypted is read with the keys of the environment, which are of others, but not with keys that
 * are given for it. */
static void read__ring_that_is_not_encrypted(void **state)
{
	const char *uri = unit_tmpfs_uri("encrypt-none");
	const char *key_file = encrypted_keys(KEY_A, 0600);
	struct farlog_position position;
	farlog_writer *writer;
	farlog_reader *reader;
	uint64_t count;
	char text[512];

	(void)state;
	assert_int_equal(
		farlog_ring_format(uri, &(struct farlog_ring_config){.size_bytes = ENCRYPTED_SIZE, .is_forced = 1}, NULL),
		FARLOG_OK);
	writer = encrypted_writer(uri, NULL);
	assert_int_equal(unit_append(writer, 100, 7, &position), FARLOG_OK);
	farlog_writer_close(writer);
	setenv("FARLOG_KEY_FILE", key_file, 1);
	reader = encrypted_reader(uri, NULL);
	assert_int_equal(encrypted_read_all(reader, &count), FARLOG_NOT_YET);
	assert_int_equal(count, 2);
	farlog_reader_close(reader);
	assert_int_equal(consume_all(uri, NULL, &count, text, sizeof(text)), FARLOG_NOT_YET);
	assert_int_equal(count, 2);
	unsetenv("FARLOG_KEY_FILE");
	reader = encrypted_reader(uri, key_file);
	assert_int_equal(encrypted_read_all(reader, &count), FARLOG_CORRUPT);
	assert_int_equal(count, 1);
	farlog_reader_close(reader);
	assert_int_equal(consume_all(uri, key_file, &count, text, sizeof(text)), FARLOG_CORRUPT);
	assert_int_equal(count, 1);
}

/* ---- nonces */

#define NONCE_COUNT_MAX 200000u

/* What the core has encrypted with: the key is that of the opening. */
struct used {
	uint8_t opening[KEY_OPENING_LEN];
	uint64_t lsn;
};

static struct used *used;
static size_t used_count;

bool __real_encrypter_gather(struct encrypter *encrypter, struct gather *gather, uint8_t *dst);
bool __wrap_encrypter_gather(struct encrypter *encrypter, struct gather *gather, uint8_t *dst);

bool __wrap_encrypter_gather(struct encrypter *encrypter, struct gather *gather, uint8_t *dst)
{
	bool is_done = __real_encrypter_gather(encrypter, gather, dst);

	if (used == NULL || !is_done)
		return is_done;
	assert_true(used_count < NONCE_COUNT_MAX);
	memcpy(used[used_count].opening,
		dst + gather->piece[1].len - ENCRYPT_ENVELOPE_LEN + offsetof(struct encrypt_envelope, opening),
		KEY_OPENING_LEN);
	used[used_count++].lsn = gather->head[1];
	return is_done;
}

static int compare_used(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct used));
}

/* append_some -- of random lengths, by one of the ways. False: the power is out. */
static bool append_some(farlog_writer *writer)
{
	uint64_t count = 1 + unit_below(20);
	bool is_on = true;

	for (uint64_t i = 0; i < count && is_on; i++) {
		struct farlog_position position;
		int result = unit_below(2) == 0 ? unit_append(writer, (uint32_t)unit_below(300), (uint8_t)i, &position) :
										  unit_submit(writer, (uint32_t)unit_below(6000), (uint8_t)i, &position);

		is_on = result == FARLOG_OK;
	}
	return is_on;
}

/* drain_all -- and see that what is there decrypts: a crash leaves no record that was not encrypted so. */
static void drain_all(struct decrypter *decrypter, uint64_t salt)
{
	farlog_reader *drain = unit_read(FAULT_URI, FARLOG_START_HEAD, true);
	struct farlog_batch batch;
	int result;

	while ((result = farlog_reader_read(drain, encrypted_batch, sizeof(encrypted_batch), &batch)) == FARLOG_OK) {
		struct encrypted_seen seen;

		for (size_t at = 0; at < batch.len; at += seen.stored_len) {
			uint16_t key_len;
			uint32_t payload_len;

			seen = encrypted_see(encrypted_batch + at);
			if (seen.header.flags & RECORD_FLAG_ENCRYPTED)
				assert_int_equal(
					decrypter_open_record(decrypter, salt, encrypted_batch + at, &key_len, &payload_len, NULL),
					FARLOG_OK);
			else
				assert_int_not_equal(seen.header.flags, 0);
		}
		assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	}
	assert_int_equal(result, FARLOG_NOT_YET);
	farlog_reader_close(drain);
}

/* Power cuts in the middle of any operation, openings that do not come through, records that are gone and whose LSNs
 * are written again by the next epoch, rings that are formatted again with the same salt and begin at LSN 0 and epoch
 * 1: no opening's key meets one LSN twice. */
static void nonce__never_twice(void **state)
{
	const char *key_file = encrypted_keys(KEY_A, 0600);
	struct decrypter *decrypter = open_decrypter(KEY_A);
	uint64_t salt = 0xFEDCBA9876543211;

	(void)state;
	used = calloc(NONCE_COUNT_MAX, sizeof(*used));
	used_count = 0;
	assert_non_null(used);
	for (unsigned turn = 0; turn < 400; turn++) {
		farlog_writer *writer;

		if (turn % 50 == 0) {
			farlog_fault_drop(FAULT_NAME);
			encrypted_format(FAULT_URI, salt);
			farlog_fault_reseed(FAULT_NAME, unit_random() | 1);
		}
		farlog_fault_arm(FAULT_NAME, unit_below(120));
		if (encrypted_try_open(FAULT_URI, key_file, &writer, NULL) == FARLOG_OK) {
			may_fail(append_some(writer));
			may_fail(farlog_writer_close(writer));
		}
		farlog_fault_arm(FAULT_NAME, UINT64_MAX);
		farlog_fault_crash(FAULT_NAME);
		if (turn % 3 == 0)
			drain_all(decrypter, salt);
	}
	assert_true(used_count > 500);
	qsort(used, used_count, sizeof(*used), compare_used);
	for (size_t i = 1; i < used_count; i++)
		if (compare_used(&used[i - 1], &used[i]) == 0)
			fail_msg("lsn %lu was encrypted twice with the key of one opening", used[i].lsn);
	print_message("nonces: %zu records, none twice\n", used_count);
	free(used);
	used = NULL;
	decrypter_close(decrypter);
	farlog_fault_drop(FAULT_NAME);
	unlink(encrypted_key_path);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(decrypt__any_bit_changed),
	cmocka_unit_test(decrypt__swapped),
	cmocka_unit_test(read__changed_in_the_ring),
	cmocka_unit_test(read__clear_in_an_encrypted_ring),
	cmocka_unit_test(read__ring_that_is_not_encrypted),
	cmocka_unit_test(nonce__never_twice),
};
RUN_GROUP(decrypt, tests)
