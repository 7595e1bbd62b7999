/* The bytes on media are frozen: C builds what golden.txt describes, byte for byte, and reads the same values out of
 * the files. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "ring/layout.h"
#include "ring/record.h"
#include "scan/recover.h"
#include "region/region.h"
#include "blocks/nvme.h"
#include "encrypted.h"
#include "region/superblock.h"

#ifndef GOLDEN_DIR
#define GOLDEN_DIR "rdma/test/golden"
#endif
#define FILE_LEN_MAX 65536u

static uint8_t bytes[FILE_LEN_MAX] __attribute__((aligned(4096)));
static uint8_t made[FILE_LEN_MAX] __attribute__((aligned(4096)));
static char value[4096];

static size_t load(const char *name)
{
	char path[300];
	FILE *file;
	size_t len;

	snprintf(path, sizeof(path), GOLDEN_DIR "/%s", name);
	file = fopen(path, "rb");
	if (file == NULL)
		fail_msg("%s is missing", path);
	len = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	return len;
}

static const char *text_of(const char *name, const char *field)
{
	char line[5000];
	char prefix[200];
	FILE *file = fopen(GOLDEN_DIR "/golden.txt", "r");
	size_t len = (size_t)snprintf(prefix, sizeof(prefix), "%s %s ", name, field);

	assert_non_null(file);
	value[0] = '\0';
	while (fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, prefix, len) == 0)
			snprintf(value, sizeof(value), "%.*s", (int)strcspn(line + len, "\n"), line + len);
	fclose(file);
	if (value[0] == '\0')
		fail_msg("golden.txt says nothing of %s %s", name, field);
	return value;
}

static uint64_t number_of(const char *name, const char *field)
{
	return strtoull(text_of(name, field), NULL, 10);
}

static size_t bytes_of(const char *name, const char *field, uint8_t *to)
{
	const char *hex = text_of(name, field);
	size_t len = hex[0] == '-' ? 0 : strlen(hex) / 2;

	for (size_t i = 0; i < len; i++) {
		unsigned byte;

		assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
		to[i] = (uint8_t)byte;
	}
	return len;
}

static struct record_identity identity_of(const char *name)
{
	return (struct record_identity){
		.salt = number_of(name, "salt"),
		.align = (uint32_t)number_of(name, "align"),
		.record_len_max = (uint32_t)number_of(name, "record_len_max"),
		.stream_id = 0,
	};
}

static struct record_header header_of(const char *name)
{
	return (struct record_header){
		.flags = (uint16_t)number_of(name, "flags"),
		.lsn = number_of(name, "lsn"),
		.epoch = (uint32_t)number_of(name, "epoch"),
		.payload_len = (uint32_t)number_of(name, "payload_len"),
		.seq = number_of(name, "seq"),
		.ts_ns = number_of(name, "ts_ns"),
		.clock_err_ns = (uint32_t)number_of(name, "clock_err_ns"),
		.class_id = (uint16_t)number_of(name, "class"),
		.key_len = (uint16_t)number_of(name, "key_len"),
		.stream_id = (uint32_t)number_of(name, "stream_id"),
	};
}

static void check_record_file(const char *name)
{
	struct record_identity identity = identity_of(name);
	struct record_header header = header_of(name);
	struct record_header stored;
	struct record_found found;
	struct record_cursor cursor = {
		.lsn = header.lsn, .seq = header.seq, .epoch = header.epoch, .epoch_max = header.epoch};
	uint64_t extent = number_of(name, "extent");
	uint64_t stored_len = number_of(name, "stored_len");
	bool is_pad = header.flags & RECORD_FLAG_PAD;
	uint8_t key[256];
	uint8_t payload[2048];
	size_t len = load(name);

	/* Any ring that the record fits into will do; a PAD must reach its end. */
	identity.capacity = is_pad ? header.lsn + extent : (header.lsn / 4096 + 4) * 4096;
	bytes_of(name, "key", key);
	bytes_of(name, "payload", payload);
	assert_int_equal(len, stored_len);
	memset(made, 0xEE, sizeof(made));
	if (is_pad)
		record_build_pad(&identity, &header, extent, made);
	else
		record_build(&identity, &header, key, payload, made);
	assert_memory_equal(made, bytes, len);
	assert_int_equal(record_check(&identity, &cursor, bytes, len, &found), RECORD_VALID);
	assert_int_equal(found.extent, extent);
	assert_int_equal(found.stored_len, stored_len);
	memcpy(&stored, bytes, sizeof(stored));
	assert_int_equal(stored.crc32c, number_of(name, "crc32c"));
}

static void golden__records(void **state)
{
	static const char *const names[] = {"record_plain.bin", "record_key.bin", "record_empty.bin",
		"record_full_line.bin", "record_align4096.bin", "record_epoch.bin", "record_heartbeat.bin", "record_pad.bin",
		"record_encrypted.bin"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		check_record_file(names[i]);
}

static struct superblock superblock_of(const char *name)
{
	struct superblock superblock = {
		.magic = LAYOUT_SUPERBLOCK_MAGIC,
		.version = LAYOUT_VERSION,
		.superblock_len = sizeof(superblock),
		.salt = number_of(name, "salt"),
		.capacity = number_of(name, "capacity"),
		.align = (uint32_t)number_of(name, "align"),
		.record_len_max = (uint32_t)number_of(name, "record_len_max"),
		.generation = number_of(name, "generation"),
		.stream_id = (uint32_t)number_of(name, "stream_id"),
		.writer_epoch = (uint32_t)number_of(name, "writer_epoch"),
		.epoch_start_lsn = number_of(name, "epoch_start_lsn"),
		.epoch_start_seq = number_of(name, "epoch_start_seq"),
		.created_ns = number_of(name, "created_ns"),
		.epoch_opened_ns = number_of(name, "epoch_opened_ns"),
	};

	bytes_of(name, "ring_uuid", superblock.ring_uuid);
	strncpy(superblock.stream_name, text_of(name, "stream_name"), sizeof(superblock.stream_name) - 1);
	strncpy(superblock.writer_id, text_of(name, "writer_id"), sizeof(superblock.writer_id) - 1);
	superblock.crc32c = crc32c_update(0, &superblock, offsetof(struct superblock, crc32c));
	return superblock;
}

static void golden__superblock(void **state)
{
	struct superblock superblock = superblock_of("superblock.bin");
	size_t len = load("superblock.bin");

	(void)state;
	assert_true(len >= sizeof(superblock));
	assert_memory_equal(&superblock, bytes, sizeof(superblock));
}

static void golden__head_slot(void **state)
{
	const char *name = "head_slot.bin";
	struct head_slot slot = {.head_lsn = number_of(name, "head_lsn"),
		.head_seq = number_of(name, "head_seq"),
		.last_epoch = (uint32_t)number_of(name, "last_epoch")};
	uint64_t salt = number_of(name, "salt");
	size_t len = load(name);

	(void)state;
	slot.crc32c = crc32c_update((uint32_t)salt, &slot, offsetof(struct head_slot, crc32c));
	assert_true(len >= 32);
	assert_memory_equal(&slot, bytes, 32);
}

static void check_ring_record(const char *name, unsigned number, const struct record_cursor *at, const uint8_t *src,
	const struct record_found *found)
{
	char field[100];
	struct record_header header;
	uint8_t payload[2048];
	size_t len;

	memcpy(&header, src, sizeof(header));
	snprintf(field, sizeof(field), "record.%u.lsn", number);
	assert_int_equal(number_of(name, field), at->lsn);
	snprintf(field, sizeof(field), "record.%u.seq", number);
	assert_int_equal(number_of(name, field), header.seq);
	snprintf(field, sizeof(field), "record.%u.extent", number);
	assert_int_equal(number_of(name, field), found->extent);
	snprintf(field, sizeof(field), "record.%u.flags", number);
	assert_int_equal(number_of(name, field), header.flags);
	snprintf(field, sizeof(field), "record.%u.payload", number);
	len = bytes_of(name, field, payload);
	assert_memory_equal(payload, src + RECORD_HEADER_LEN + header.key_len, len);
}

/* check_ring -- identity, head, the walk over every record and the tail. */
static void check_ring(const char *name, struct region *region)
{
	struct record_identity identity;
	struct superblock superblock;
	struct recover_scan scan;
	struct record_cursor walk;
	struct head_slot head;
	unsigned count = 0;

	assert_int_equal(superblock_load(region, name, &superblock, NULL), FARLOG_OK);
	assert_int_equal(superblock.generation, number_of(name, "generation"));
	assert_int_equal(superblock.writer_epoch, number_of(name, "writer_epoch"));
	assert_true(head_load(region, &superblock, &head));
	assert_int_equal(head.head_lsn, number_of(name, "head_lsn"));
	assert_int_equal(head.head_seq, number_of(name, "head_seq"));
	assert_int_equal(recover_scan(region, &superblock, &head, &scan), FARLOG_OK);
	assert_int_equal(scan.tail.lsn, number_of(name, "tail_lsn"));
	assert_int_equal(scan.tail.seq, number_of(name, "next_seq"));
	assert_int_equal(scan.tail.epoch, number_of(name, "tail_epoch"));
	identity = superblock_identity(&superblock);
	walk = (struct record_cursor){
		.lsn = head.head_lsn, .seq = head.head_seq, .epoch = head.last_epoch, .epoch_max = superblock.writer_epoch};
	for (; walk.lsn < scan.tail.lsn; count++) {
		const uint8_t *src = region->base + LAYOUT_DATA_OFF + walk.lsn % identity.capacity;
		struct record_found found;

		assert_int_equal(record_check(&identity, &walk, src, identity.capacity - walk.lsn % identity.capacity, &found),
			RECORD_VALID);
		check_ring_record(name, count, &walk, src, &found);
		record_advance(&walk, &found);
	}
	assert_int_equal(count, number_of(name, "record_count"));
}

static void golden__ring_image(void **state)
{
	struct region region = {.base = bytes};

	(void)state;
	region.contract.size_bytes = load("ring_small.bin");
	check_ring("ring_small.bin", &region);
}

/* On the device header and data lie elsewhere: put together as a region of blocks shows them. */
static void golden__ring_on_blocks(void **state)
{
	struct region region = {.base = made};
	size_t len = load("ring_blocks.bin");

	(void)state;
	memset(made, 0, sizeof(made));
	for (unsigned i = 0; i < NVME_ITEM_COUNT; i++)
		memcpy(made + nvme_items[i].off, bytes + (size_t)nvme_items[i].control * LAYOUT_BLOCK_LEN, nvme_items[i].len);
	memcpy(made + LAYOUT_DATA_OFF, bytes + NVME_DATA_OFF, len - NVME_DATA_OFF);
	region.contract.size_bytes = len - NVME_EXTRA_LEN;
	region.caps.commit_len = (uint32_t)number_of("ring_blocks.bin", "block_len");
	check_ring("ring_blocks.bin", &region);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(golden__records),
	cmocka_unit_test(golden__superblock),
	cmocka_unit_test(golden__head_slot),
	cmocka_unit_test(golden__ring_image),
	cmocka_unit_test(golden__ring_on_blocks),
};
RUN_GROUP(golden, tests)

/* golden_encrypted__decrypted -- what Go's library has encrypted. */
static void golden_encrypted__decrypted(void **state)
{
	const char *name = "record_encrypted.bin";
	uint8_t key[512], payload[2048];
	uint16_t key_len;
	uint32_t payload_len;
	struct decrypter *decrypter;
	struct keys *keys;

	(void)state;
	assert_int_equal(keys_open(encrypted_keys(text_of(name, "encryption_key"), 0600), &keys, NULL), FARLOG_OK);
	assert_int_equal(decrypter_open(keys, &decrypter, NULL), FARLOG_OK);
	load(name);
	assert_int_equal(
		decrypter_open_record(decrypter, number_of(name, "salt"), bytes, &key_len, &payload_len, NULL), FARLOG_OK);
	assert_int_equal(bytes_of(name, "plain_key", key), key_len);
	assert_int_equal(bytes_of(name, "plain_payload", payload), payload_len);
	assert_memory_equal(bytes + RECORD_HEADER_LEN, key, key_len);
	assert_memory_equal(bytes + RECORD_HEADER_LEN + key_len, payload, payload_len);
	decrypter_close(decrypter);
}

/* A group of its own: libcrypto is loaded after the append path has been counted. */
static const struct CMUnitTest encrypted_tests[] = {
	cmocka_unit_test(golden_encrypted__decrypted),
};
RUN_GROUP(golden_encrypted, encrypted_tests)
