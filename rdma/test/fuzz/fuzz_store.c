/* fuzz_store.c -- a store of any bytes: opening it, seeking in it and reading it end, with a result, inside the files.
 *
 * An input is two segments of a stream, and the manifest and the index of the first one. Magic, numbers and checksums
 * are made right for most inputs, so that what is behind them is reached. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "history/store_reader.h"

#define STREAM "desk7"
#define FRONT_LEN 128u    /* of a header, in an input */
#define RECORDS_MAX 4096u /* that one input can have: each is 64 bytes at least */

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* What an input begins with. */
struct preface {
	uint8_t choice; /* 1: mend headers; 2: mend records; 4: there is a manifest; 8: and an index; 16: seek */
	uint8_t align_shift;
	uint16_t first_len;  /* of the bytes behind, those of the first segment's records */
	uint16_t index_len;  /* and, of the rest, of the index */
	uint16_t used_bytes; /* that the manifest names */
	uint8_t fronts[2][FRONT_LEN];
};

static char store_dir[64];
static uint8_t segment[STORE_DATA_OFF + (1u << 17)];

static void check(int claim)
{
	if (!claim)
		abort();
}

static void remove_store(void)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -r %s", store_dir);
	(void)!system(command);
}

static void write_file(const char *name, const void *bytes, size_t len)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", store_dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	check(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
	close(fd);
}

static void remove_file(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", store_dir, name);
	unlink(path);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char identity[] = "{\"format\":\"farlog-store\",\"version\":1}\n";
	char path[128];

	(void)argc, (void)argv;
	strcpy(store_dir, "/dev/shm/farlog-fuzz-XXXXXX");
	check(mkdtemp(store_dir) != NULL);
	atexit(remove_store);
	snprintf(path, sizeof(path), "%s/streams", store_dir);
	check(mkdir(path, 0700) == 0);
	strcat(path, "/" STREAM);
	check(mkdir(path, 0700) == 0);
	write_file("store.json", identity, sizeof(identity) - 1);
	check(clock_start() == 0);
	return 0;
}

static void put(uint8_t *to, size_t off, const void *word, size_t len)
{
	memcpy(to + off, word, len);
}

/* mend_header -- magic, version, number, stream, alignment and checksum of a segment's header. */
static void mend_header(uint64_t number, unsigned align_shift)
{
	const uint32_t version = 1 + (uint32_t)number % 2, data_off = STORE_DATA_OFF, align = 64u << align_shift % 7;
	uint32_t crc;

	put(segment, 0, "FARLOGSG", 8);
	put(segment, 8, &version, sizeof(version));
	put(segment, 12, &data_off, sizeof(data_off));
	put(segment, 56, &align, sizeof(align));
	put(segment, 64, &number, sizeof(number));
	memset(segment + 128, 0, 64);
	put(segment, 128, STREAM, sizeof(STREAM) - 1);
	crc = crc32c_update(0, segment, 508);
	put(segment, 508, &crc, sizeof(crc));
}

/* mend_records -- magic, trailer and checksum of each record, as far as their lengths lead. */
static void mend_records(size_t len, unsigned align_shift)
{
	uint64_t salt, trailer;

	memcpy(&salt, segment + 48, sizeof(salt));
	for (size_t at = STORE_DATA_OFF; at + RECORD_HEADER_LEN + RECORD_TRAILER_LEN <= len;) {
		struct record_header header;
		uint64_t extent;

		memcpy(&header, segment + at, sizeof(header));
		header.magic = RECORD_MAGIC;
		header.version = RECORD_VERSION;
		header.header_words = RECORD_HEADER_LEN / 8;
		header.key_len %= 64;
		header.payload_len %= 1024;
		extent = header.flags & RECORD_FLAG_PAD ?
			RECORD_PAD_STORED_LEN :
			record_extent(64u << align_shift % 7, header.key_len, header.payload_len);
		if (at + extent > len)
			return;
		memcpy(segment + at, &header, sizeof(header));
		trailer = header.lsn ^ salt;
		memcpy(segment + at + extent - RECORD_TRAILER_LEN, &trailer, sizeof(trailer));
		header.crc32c = crc32c_update((uint32_t)salt, segment + at, RECORD_CRC_OFF);
		if (!(header.flags & RECORD_FLAG_PAD))
			header.crc32c = crc32c_update(
				header.crc32c, segment + at + RECORD_HEADER_LEN, (uint64_t)header.key_len + header.payload_len);
		memcpy(segment + at + RECORD_CRC_OFF, &header.crc32c, sizeof(header.crc32c));
		at += extent;
	}
}

static void write_segment(const struct preface *preface, uint64_t number, const uint8_t *records, size_t len)
{
	char name[64];

	memset(segment, 0, STORE_DATA_OFF);
	memcpy(segment, preface->fronts[number - 1], FRONT_LEN);
	memcpy(segment + STORE_DATA_OFF, records, len);
	if (preface->choice & 1)
		mend_header(number, preface->align_shift);
	if (preface->choice & 2)
		mend_records(STORE_DATA_OFF + len, preface->align_shift);
	snprintf(name, sizeof(name), "streams/" STREAM "/%010lu.seg", number);
	write_file(name, segment, STORE_DATA_OFF + len);
}

static void write_index(const struct preface *preface, const uint8_t *bytes, size_t len)
{
	static uint8_t index[56 + 65536];
	uint64_t used = STORE_DATA_OFF + preface->used_bytes, number = 1;
	uint32_t version = 1, crc;
	char manifest[64];

	remove_file("streams/" STREAM "/0000000001.json");
	remove_file("streams/" STREAM "/0000000001.idx");
	if (!(preface->choice & 4))
		return;
	snprintf(manifest, sizeof(manifest), "{\"used_bytes\":%lu}\n", used);
	write_file("streams/" STREAM "/0000000001.json", manifest, strlen(manifest));
	if (!(preface->choice & 8) || len < 60)
		return;
	memcpy(index, bytes, len);
	put(index, 0, "FARLOGIX", 8);
	put(index, 8, &version, sizeof(version));
	put(index, 16, preface->fronts[0] + 32, 16);
	put(index, 32, &number, sizeof(number));
	put(index, 40, &used, sizeof(used));
	crc = crc32c_update(0, index, len - 4);
	put(index, len - 4, &crc, sizeof(crc));
	write_file("streams/" STREAM "/0000000001.idx", index, len);
}

static void read_store(const struct preface *preface)
{
	struct farlog_error error = {0};
	struct store_reader *reader;
	struct store_item item;
	unsigned count = 0;
	int result;

	if (store_reader_open(store_dir, STREAM, &reader, &error) != FARLOG_OK) {
		check(error.text[0] != '\0');
		return;
	}
	if (preface->choice & 16)
		(void)!store_reader_seek_lsn(reader, preface->used_bytes, &error);
	while ((result = store_reader_next(reader, &item, &error)) == FARLOG_OK) {
		check(++count <= RECORDS_MAX && item.record.stored_len <= sizeof(segment));
		check(item.record.header.key_len + (uint64_t)item.record.header.payload_len <= item.record.extent ||
			item.record.header.flags & RECORD_FLAG_PAD);
	}
	check(result < 0);
	store_reader_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct preface preface;
	size_t index_len, first_len;

	if (len < sizeof(preface) || len - sizeof(preface) > sizeof(segment) - STORE_DATA_OFF)
		return 0;
	memcpy(&preface, data, sizeof(preface));
	data += sizeof(preface);
	len -= sizeof(preface);
	index_len = preface.index_len < len ? preface.index_len : len;
	write_index(&preface, data, index_len);
	data += index_len;
	len -= index_len;
	first_len = preface.first_len < len ? preface.first_len : len;
	write_segment(&preface, 1, data, first_len);
	write_segment(&preface, 2, data + first_len, len - first_len);
	read_store(&preface);
	return 0;
}
