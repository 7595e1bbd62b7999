/* Encrypted records: what a writer appends comes back by its key and by no other way; and who has no key, or gives one
 * to a ring that is not encrypted, is refused. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "encrypted.h"
#include "farlog/consume.h"
#include "legs.h"

#if __has_include(<openssl/evp.h>)
#include <openssl/evp.h>
#include <openssl/hmac.h>

#define SAME_AS_HEADER(type, name, parameters) \
	_Static_assert(__builtin_types_compatible_p(__typeof__(((struct lib_crypto *)NULL)->name), __typeof__(&name)), \
		#name " is declared as in OpenSSL");
LIB_CRYPTO_TABLE(SAME_AS_HEADER)
_Static_assert(LIB_CRYPTO_GET_TAG == EVP_CTRL_AEAD_GET_TAG && LIB_CRYPTO_SET_TAG == EVP_CTRL_AEAD_SET_TAG, "controls");
#endif

/* ---- what is put in comes out */

static uint8_t content[20000];

static void fill_content(void)
{
	for (size_t i = 0; i < sizeof(content); i++)
		content[i] = (uint8_t)unit_random();
}

static uint32_t len_of(unsigned i)
{
	static const uint32_t lens[] = {0, 1, 15, 16, 17, 84, 192, 1000, 3988, 3989, 4096, 16000};

	return lens[i % (sizeof(lens) / sizeof(lens[0]))];
}

static struct farlog_entry entry_at(unsigned i)
{
	return (struct farlog_entry){.data = content + i,
		.len = len_of(i),
		.class_id = (uint16_t)(i + 1),
		.key = content + 100 + i,
		.key_len = (uint16_t)(i % 3 == 0 ? 0 : i)};
}

/* append_each_way -- entries from `first` on; how many. */
static unsigned append_each_way(farlog_writer *writer, unsigned first)
{
	struct farlog_entry entries[5];
	struct farlog_position positions[5];
	size_t done, submitted;
	void *payload;

	for (unsigned i = 0; i < 5; i++)
		entries[i] = entry_at(first + i);
	assert_int_equal(farlog_append(writer, &entries[0], 0, positions), FARLOG_OK);
	assert_int_equal(farlog_try_append(writer, &entries[1], positions), FARLOG_OK);
	assert_int_equal(farlog_heartbeat(writer, 0, positions), FARLOG_OK);
	assert_int_equal(farlog_append_batch(writer, &entries[2], 2, 0, positions, &done, &submitted), FARLOG_OK);
	assert_int_equal(
		farlog_claim(writer, entries[4].len, entries[4].class_id, entries[4].key, entries[4].key_len, &payload),
		FARLOG_OK);
	memcpy(payload, entries[4].data, entries[4].len);
	assert_int_equal(farlog_commit(writer, 0, positions), FARLOG_OK);
	return 5;
}

static unsigned append_shared(farlog_shared *shared, unsigned first)
{
	struct farlog_position position;

	for (unsigned i = 0; i < 5; i++) {
		struct farlog_entry entry = entry_at(first + i);

		assert_int_equal(farlog_shared_append(shared, &entry, 0, &position), FARLOG_OK);
	}
	return 5;
}

static void check_entry(const struct encrypted_seen *seen, unsigned i)
{
	struct farlog_entry entry = entry_at(i);

	assert_int_equal(seen->header.flags, 0);
	assert_int_equal(seen->header.version, RECORD_VERSION);
	assert_int_equal(seen->header.class_id, entry.class_id);
	assert_int_equal(seen->header.key_len, entry.key_len);
	assert_int_equal(seen->header.payload_len, entry.len);
	assert_memory_equal(seen->key, entry.key, entry.key_len);
	assert_memory_equal(seen->payload, entry.data, entry.len);
}

/* check_ring -- entries 0 to count - 1, read with the key. */
static void check_ring(const char *uri, const char *key_file, unsigned count)
{
	farlog_reader *reader = encrypted_reader(uri, key_file);
	struct farlog_batch batch;
	unsigned i = 0;

	assert_int_equal(farlog_reader_read(reader, encrypted_batch, sizeof(encrypted_batch), &batch), FARLOG_OK);
	for (size_t at = 0; at < batch.len;) {
		struct encrypted_seen seen = encrypted_see(encrypted_batch + at);

		if (seen.header.class_id != 0)
			check_entry(&seen, i++);
		at += seen.stored_len;
	}
	assert_int_equal(i, count);
	assert_string_equal(farlog_reader_trouble(reader), "");
	farlog_reader_close(reader);
}

static void append__each_way_comes_back(void **state)
{
	const char *const uris[] = {unit_tmpfs_uri("encrypt"), FAULT_URI};
	const char *key_file = encrypted_keys(KEY_A "\n", 0600);

	(void)state;
	fill_content();
	for (unsigned u = 0; u < 2; u++) {
		unsigned count = 0;
		farlog_writer *writer;
		farlog_shared *shared;

		farlog_fault_drop(FAULT_NAME);
		encrypted_format(uris[u], 0);
		writer = encrypted_writer(uris[u], key_file);
		for (unsigned i = 0; i < 3; i++)
			count += append_each_way(writer, count);
		farlog_writer_close(writer);
		assert_int_equal(
			farlog_shared_open(uris[u], CONFIG(.level = FARLOG_LEVEL_VISIBLE, .key_file = key_file), &shared, NULL),
			FARLOG_OK);
		for (unsigned i = 0; i < 2; i++)
			count += append_shared(shared, count);
		assert_int_equal(farlog_shared_close(shared), FARLOG_OK);
		check_ring(uris[u], key_file, count);
	}
}

/* Of the ring's bytes nothing is what was appended, and who has no key sees records that say so. */
static void append__nothing_clear_on_media(void **state)
{
	const char *uri = unit_tmpfs_uri("encrypt-clear");
	const char *key_file = encrypted_keys("# of this year\n" KEY_B "\r\n\n" KEY_A, 0600);
	static const char text[] = "a text that is found where it is written as it is";
	struct farlog_entry entry = {.data = text, .len = sizeof(text), .key = text, .key_len = 20, .class_id = 3};
	struct farlog_position position;
	farlog_writer *writer;
	farlog_reader *reader;
	struct farlog_batch batch;
	struct encrypted_seen seen = {0};

	(void)state;
	encrypted_format(uri, 0);
	writer = encrypted_writer(uri, key_file);
	assert_int_equal(farlog_append(writer, &entry, 0, &position), FARLOG_OK);
	farlog_writer_close(writer);
	reader = encrypted_reader(uri, "");
	assert_int_equal(farlog_reader_read(reader, encrypted_batch, sizeof(encrypted_batch), &batch), FARLOG_OK);
	assert_null(memmem(encrypted_batch, batch.len, text, 8));
	for (size_t at = 0; at < batch.len; at += seen.stored_len)
		seen = encrypted_see(encrypted_batch + at);
	assert_int_equal(seen.header.flags, RECORD_FLAG_ENCRYPTED);
	assert_int_equal(seen.header.version, RECORD_VERSION_ENCRYPTED);
	assert_int_equal(seen.header.key_len, 0);
	assert_int_equal(seen.header.payload_len, sizeof(text) + 20 + ENCRYPT_ENVELOPE_LEN);
	farlog_reader_close(reader);
}

/* ---- who is refused */

static void open__keys_that_are_refused(void **state)
{
	const char *uri = unit_tmpfs_uri("encrypt-refused");
	const char *plain = unit_tmpfs_uri("encrypt-plain");
	static const struct {
		const char *text;
		mode_t mode;
		int result;
		const char *why;
	} cases[] = {
		{KEY_A, 0640, FARLOG_INVALID, "can be read by others than its owner (mode 0640): chmod 600"},
		{"", 0600, FARLOG_INVALID, "holds no key"},
		{"# " KEY_A, 0600, FARLOG_INVALID, "holds no key"},
		{KEY_A "\n" KEY_A "0", 0600, FARLOG_INVALID, "line 2: 65 characters that are no key"},
		{KEY_A "\n\n0g0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", 0600, FARLOG_INVALID,
			"line 3: 64"},
	};
	struct farlog_error error;
	farlog_writer *writer;

	(void)state;
	encrypted_format(uri, 0);
	unit_format(plain, ENCRYPTED_SIZE, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(
			encrypted_try_open(uri, encrypted_keys(cases[i].text, cases[i].mode), &writer, &error), cases[i].result);
		assert_non_null(strstr(error.text, cases[i].why));
		assert_null(strstr(error.text, "0405060708"));
		assert_null(writer);
	}
	assert_int_equal(encrypted_try_open(uri, "/dev/shm/farlog-no-such-file", &writer, &error), FARLOG_NOT_FOUND);
	assert_int_equal(encrypted_try_open(uri, NULL, &writer, &error), FARLOG_NO_KEY);
	assert_non_null(strstr(error.text, "FARLOG_KEY_FILE"));
	assert_int_equal(encrypted_try_open(plain, encrypted_keys(KEY_A, 0600), &writer, &error), FARLOG_INVALID);
	assert_non_null(strstr(error.text, "the ring is not encrypted"));
}

/* What the environment names is for encrypted rings, and a plain one does not care. */
static void open__by_the_environment(void **state)
{
	const char *uri = unit_tmpfs_uri("encrypt-environment");
	const char *plain = unit_tmpfs_uri("encrypt-plain-environment");
	struct farlog_ring_status status;
	farlog_writer *writer;

	(void)state;
	fill_content();
	encrypted_format(uri, 0);
	unit_format(plain, ENCRYPTED_SIZE, 0);
	setenv("FARLOG_KEY_FILE", encrypted_keys(KEY_A, 0600), 1);
	writer = encrypted_writer(uri, NULL);
	append_each_way(writer, 0);
	farlog_writer_close(writer);
	farlog_writer_close(encrypted_writer(plain, NULL));
	check_ring(uri, NULL, 5);
	assert_int_equal(farlog_ring_inspect(uri, &status, NULL), FARLOG_OK);
	assert_int_equal(status.encryption, FARLOG_ENCRYPTION_AES_256_GCM);
	unsetenv("FARLOG_KEY_FILE");
}

static void drain__takes_no_key_and_passes_records_on(void **state)
{
	const char *uri = unit_tmpfs_uri("encrypt-drain");
	const char *key_file = encrypted_keys(KEY_A, 0600);
	struct farlog_reader_config config = {.is_drain = 1, .key_file = key_file};
	struct farlog_position position;
	struct farlog_error error;
	struct farlog_batch batch;
	farlog_writer *writer;
	farlog_reader *drain;

	(void)state;
	encrypted_format(uri, 0);
	writer = encrypted_writer(uri, key_file);
	assert_int_equal(unit_append(writer, 100, 7, &position), FARLOG_OK);
	assert_int_equal(farlog_reader_open(uri, &config, &drain, &error), FARLOG_INVALID);
	assert_non_null(strstr(error.text, "passes records on as they are"));
	setenv("FARLOG_KEY_FILE", key_file, 1);
	drain = unit_read(uri, FARLOG_START_HEAD, true);
	unsetenv("FARLOG_KEY_FILE");
	assert_int_equal(farlog_reader_read(drain, encrypted_batch, sizeof(encrypted_batch), &batch), FARLOG_OK);
	assert_int_equal(batch.record_count, 2);
	assert_int_equal(batch.next_lsn, position.end_lsn);
	assert_int_equal(encrypted_see(encrypted_batch + 128).header.flags, RECORD_FLAG_ENCRYPTED);
	assert_int_equal(farlog_reader_release(drain, batch.next_lsn, batch.next_seq, batch.last_epoch), FARLOG_OK);
	farlog_reader_close(drain);
	farlog_writer_close(writer);
}

/* Rotation: each opening has the key that was first in the file then, and a reader needs all of them. */
static void read__keys_were_rotated(void **state)
{
	const char *uri = unit_tmpfs_uri("encrypt-rotated");
	struct farlog_position position;
	farlog_reader *reader;
	uint64_t count;

	(void)state;
	encrypted_format(uri, 0);
	for (unsigned turn = 0; turn < 2; turn++) {
		farlog_writer *writer = encrypted_writer(uri, encrypted_keys(turn == 0 ? KEY_A : KEY_B "\n" KEY_A, 0600));

		assert_int_equal(unit_append(writer, 100, 7, &position), FARLOG_OK);
		farlog_writer_close(writer);
	}
	reader = encrypted_reader(uri, encrypted_key_path);
	assert_int_equal(encrypted_read_all(reader, &count), FARLOG_NOT_YET);
	assert_int_equal(count, 4);
	farlog_reader_close(reader);
	reader = encrypted_reader(uri, encrypted_keys(KEY_A, 0600));
	assert_int_equal(encrypted_read_all(reader, &count), FARLOG_NO_KEY);
	assert_int_equal(count, 3);
	assert_non_null(strstr(farlog_reader_trouble(reader), "none of the 1 keys given has that id"));
	farlog_reader_close(reader);
	reader = encrypted_reader(uri, encrypted_keys(KEY_B, 0600));
	assert_int_equal(encrypted_read_all(reader, &count), FARLOG_NO_KEY);
	assert_int_equal(count, 1);
	farlog_reader_close(reader);
}

/* ---- a consumer */

static farlog_consumer *open_consumer(const char *uri, const char *state_dir, const char *key_file)
{
	struct farlog_consumer_config config = {
		.ring_uri = uri, .stream = "desk7/orders", .name = "risk", .state_dir = state_dir, .key_file = key_file};
	struct farlog_error error = {0};
	farlog_consumer *consumer;

	if (farlog_consumer_open(&config, &consumer, &error) != FARLOG_OK)
		fail_msg("open consumer: %s", error.text);
	return consumer;
}

static void remove_directory(const char *path)
{
	DIR *directory = opendir(path);

	assert_non_null(directory);
	for (const struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory))
		if (entry->d_name[0] != '.')
			assert_int_equal(unlinkat(dirfd(directory), entry->d_name, 0), 0);
	closedir(directory);
	assert_int_equal(rmdir(path), 0);
}

/* The record that it cannot decrypt is not passed over: not by the next call, and not by the position that it keeps. */
static void consume__stands_before_what_it_cannot_decrypt(void **state)
{
	const char *uri = unit_tmpfs_uri("encrypt-consume");
	char state_dir[] = "/dev/shm/farlog-unit-state-XXXXXX";
	struct farlog_consumed item;
	farlog_consumer *consumer;

	(void)state;
	fill_content();
	assert_non_null(mkdtemp(state_dir));
	encrypted_format(uri, 0);
	for (unsigned turn = 0; turn < 2; turn++) {
		struct farlog_entry entry = entry_at(5 + turn);
		struct farlog_position position;
		farlog_writer *writer = encrypted_writer(uri, encrypted_keys(turn == 0 ? KEY_A : KEY_B "\n" KEY_A, 0600));

		assert_int_equal(farlog_append(writer, &entry, 0, &position), FARLOG_OK);
		farlog_writer_close(writer);
	}
	consumer = open_consumer(uri, state_dir, encrypted_keys(KEY_A, 0600));
	assert_int_equal(farlog_consumer_next(consumer, 0, &item), FARLOG_OK);
	assert_int_equal(item.class_id, 6);
	assert_int_equal(item.flags, 0);
	assert_memory_equal(item.key, entry_at(5).key, item.key_len);
	assert_memory_equal(item.payload, entry_at(5).data, item.payload_len);
	assert_int_equal(item.payload_len, entry_at(5).len);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(farlog_consumer_next(consumer, 0, &item), FARLOG_NO_KEY);
	assert_non_null(strstr(farlog_consumer_trouble(consumer), "none of the 1 keys given has that id"));
	assert_int_equal(farlog_consumer_commit(consumer), FARLOG_OK);
	farlog_consumer_close(consumer);
	consumer = open_consumer(uri, state_dir, NULL);
	assert_int_equal(farlog_consumer_next(consumer, 0, &item), FARLOG_NO_KEY);
	farlog_consumer_close(consumer);
	consumer = open_consumer(uri, state_dir, encrypted_keys(KEY_B "\n" KEY_A, 0600));
	assert_int_equal(farlog_consumer_next(consumer, 0, &item), FARLOG_OK);
	assert_int_equal(item.class_id, 7);
	assert_memory_equal(item.payload, entry_at(6).data, item.payload_len);
	farlog_consumer_close(consumer);
	remove_directory(state_dir);
}

/* ---- a spill */

/* What waits in a spill is encrypted there, and again for the leg's ring, at its place there. */
static void spill__encrypted_and_carried(void **state)
{
	struct farlog_ring_config ring = {.size_bytes = SIZE, .is_forced = 1, .encryption = FARLOG_ENCRYPTION_AES_256_GCM};
	struct farlog_route_leg leg = legs_leg_of("far", legs_fault_ring("fault:encrypt-far", 7));
	struct farlog_route_position position;
	struct farlog_batch batch;
	farlog_reader *reader;
	farlog_route *route;
	unsigned encrypted_count = 0;
	struct encrypted_seen seen;

	(void)state;
	assert_int_equal(farlog_ring_format("fault:encrypt-far", &ring, NULL), FARLOG_OK);
	farlog_fault_drop("encrypt-spill");
	leg.is_required = 1;
	leg.policy = FARLOG_ROUTE_SPILL;
	leg.spill_uri = "fault:encrypt-spill";
	leg.buffer_bytes = SIZE;
	leg.config.level = FARLOG_LEVEL_PERSISTENT;
	leg.config.key_file = encrypted_keys(KEY_A, 0600);
	route = legs_open_legs(&leg, 1, false);
	assert_int_equal(farlog_route_catch_up(route, SECOND_NS), FARLOG_OK);
	assert_int_equal(legs_append(route, 1, 0, 1, &position), FARLOG_OK);
	farlog_fault_set_slowness("encrypt-far", 256);
	for (uint64_t number = 2; number <= 4; number++)
		assert_int_equal(legs_append(route, 1, 0, number, &position), FARLOG_OK);
	assert_int_equal(position.legs[0].is_buffered, 1);
	reader = encrypted_reader(leg.spill_uri, "");
	assert_int_equal(farlog_reader_read(reader, encrypted_batch, sizeof(encrypted_batch), &batch), FARLOG_OK);
	for (size_t at = 0; at < batch.len; at += seen.stored_len) {
		seen = encrypted_see(encrypted_batch + at);
		encrypted_count += seen.header.flags == RECORD_FLAG_ENCRYPTED;
		assert_int_not_equal(seen.header.flags, 0);
	}
	assert_true(encrypted_count >= 3);
	farlog_reader_close(reader);
	farlog_fault_set_slowness("encrypt-far", 128);
	assert_int_equal(farlog_route_catch_up(route, SECOND_NS), FARLOG_OK);
	assert_int_equal(farlog_route_close(route, 0), FARLOG_OK);
	setenv("FARLOG_KEY_FILE", encrypted_key_path, 1);
	legs_assert_numbers(leg.uri, 1, 4);
	unsetenv("FARLOG_KEY_FILE");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(append__each_way_comes_back),
	cmocka_unit_test(append__nothing_clear_on_media),
	cmocka_unit_test(open__keys_that_are_refused),
	cmocka_unit_test(open__by_the_environment),
	cmocka_unit_test(drain__takes_no_key_and_passes_records_on),
	cmocka_unit_test(read__keys_were_rotated),
	cmocka_unit_test(consume__stands_before_what_it_cannot_decrypt),
	cmocka_unit_test(spill__encrypted_and_carried),
};
RUN_GROUP(encrypt, tests)
