/* fuzz_ring.c -- an arbitrary ring image: opening, scanning, reading, draining and writing to it end, with a result,
 * inside its bytes.
 *
 * The image lies in a memory file. Checksums of superblocks and head slots are made right for most inputs, so that what
 * is behind them is reached; the first bytes of the input choose. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "ring/layout.h"
#include "farlog/farlog.h"

#define CAPACITY (16u << 10)
#define SIZE (LAYOUT_DATA_OFF + CAPACITY)

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static uint8_t *image;
static char uri[100];
static uint8_t buffer[8192];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	int fd = memfd_create("ring", 0);

	(void)argc;
	(void)argv;
	if (fd < 0 || ftruncate(fd, SIZE) != 0)
		abort();
	image = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (image == MAP_FAILED)
		abort();
	/* flush=none: the bytes are what is tested, and the flush's choice takes milliseconds. */
	snprintf(uri, sizeof(uri), "mem:/proc/%ld/fd/%d?flush=none", (long)getpid(), fd);
	clock_start();
	return 0;
}

static void mend(unsigned choice)
{
	struct superblock superblock;
	struct head_slot head;

	for (unsigned i = 0; i < 2; i++) {
		uint8_t *place = image + (i == 0 ? LAYOUT_SUPERBLOCK_A_OFF : LAYOUT_SUPERBLOCK_B_OFF);

		memcpy(&superblock, place, sizeof(superblock));
		if (choice & 1) {
			superblock.magic = LAYOUT_SUPERBLOCK_MAGIC;
			superblock.version = LAYOUT_VERSION;
			superblock.superblock_len = sizeof(superblock);
		}
		if (choice & 2) {
			superblock.capacity = 4096 * (1 + superblock.capacity % (CAPACITY / 4096));
			superblock.align = 64u << superblock.align % 7;
			superblock.record_len_max = (uint32_t)(superblock.record_len_max % (superblock.capacity / 4 + 1));
		}
		superblock.crc32c = crc32c_update(0, &superblock, offsetof(struct superblock, crc32c));
		memcpy(place, &superblock, sizeof(superblock));
	}
	for (unsigned i = 0; i < 2 && (choice & 4); i++) {
		uint8_t *place = image + (i == 0 ? LAYOUT_HEAD_A_OFF : LAYOUT_HEAD_B_OFF);

		memcpy(&head, place, sizeof(head));
		if ((choice & 8) && superblock.align != 0)
			head.head_lsn -= head.head_lsn % superblock.align;
		head.crc32c = crc32c_update((uint32_t)superblock.salt, &head, offsetof(struct head_slot, crc32c));
		memcpy(place, &head, sizeof(head));
	}
}

static void read_all(uint32_t is_drain)
{
	struct farlog_reader_config config = {.is_drain = is_drain};
	struct farlog_ring_status status;
	struct farlog_batch batch;
	farlog_reader *reader;

	if (farlog_reader_open(uri, &config, &reader, NULL) != FARLOG_OK)
		return;
	farlog_reader_status(reader, &status);
	for (unsigned i = 0; i < 8 && farlog_reader_read(reader, buffer, i % 2 ? sizeof(buffer) : 300, &batch) == FARLOG_OK;
		i++) {
		if (batch.len == 0 || batch.len > sizeof(buffer) || batch.next_lsn == batch.first_lsn)
			abort();
		if (is_drain)
			farlog_reader_release(reader, batch.next_lsn, batch.next_seq, batch.last_epoch);
	}
	farlog_reader_close(reader);
}

static void write_some(void)
{
	struct farlog_writer_config config = {
		.level = FARLOG_LEVEL_VISIBLE, .policy = FARLOG_POLICY_REJECT, .counters_dir = ""};
	struct farlog_entry entry = {.data = buffer, .len = 200};
	struct farlog_position position;
	struct farlog_cursors cursors;
	farlog_writer *writer;

	if (farlog_writer_open(uri, &config, &writer, NULL) != FARLOG_OK)
		return;
	for (unsigned i = 0; i < 100 && farlog_append(writer, &entry, 0, &position) == FARLOG_OK; i++)
		;
	farlog_resolve(writer, position.lsn, 0, &position);
	farlog_writer_cursors(writer, &cursors);
	if (cursors.appended_lsn - cursors.head_lsn > cursors.capacity_bytes)
		abort();
	farlog_writer_close(writer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct farlog_ring_status status;
	unsigned choice;

	if (len < 4)
		return 0;
	choice = data[0];
	memset(image, 0, SIZE);
	/* Short inputs matter most where the words are: the rest of the header is skipped. */
	data += 4;
	len -= 4;
	for (uint64_t off = 0, used = 0; used < len && off < SIZE; off += 512) {
		uint64_t count = len - used < 512 ? len - used : 512;

		if (off == 512)
			off = LAYOUT_SUPERBLOCK_B_OFF;
		else if (off == LAYOUT_SUPERBLOCK_B_OFF + 512)
			off = LAYOUT_HEAD_A_OFF;
		else if (off == LAYOUT_HEAD_A_OFF + 512)
			off = LAYOUT_DATA_OFF;
		memcpy(image + off, data + used, count);
		used += count;
	}
	if (choice & 16)
		mend(choice);
	farlog_ring_inspect(uri, &status, NULL);
	read_all(0);
	read_all(1);
	write_some();
	read_all(0);
	return 0;
}
