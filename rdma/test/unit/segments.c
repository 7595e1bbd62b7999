/* segments.c -- segments written byte by byte, by what docs/reference/format.md says and not by the code that reads
 * them. */
#include "segments.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"

static uint8_t batch_bytes[1 << 20];

static void make_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

void segments_open(struct segments *segments, const char *uri, uint64_t segment_bytes)
{
	char path[256];

	memset(segments, 0, sizeof(*segments));
	segments->uri = uri;
	segments->segment_bytes = segment_bytes;
	segments->fd = -1;
	snprintf(segments->store_dir, sizeof(segments->store_dir), "/dev/shm/farlog-store-XXXXXX");
	assert_non_null(mkdtemp(segments->store_dir));
	snprintf(path, sizeof(path), "%s/streams", segments->store_dir);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(segments->stream_dir, sizeof(segments->stream_dir), "%s/streams/desk7%%2Forders", segments->store_dir);
	assert_int_equal(mkdir(segments->stream_dir, 0755), 0);
	snprintf(path, sizeof(path), "%s/store.json", segments->store_dir);
	make_file(path, "{\"format\":\"farlog-store\",\"version\":1}\n");
}

void segments_close(struct segments *segments)
{
	char command[192];

	segments_kill(segments);
	if (segments->fd >= 0)
		close(segments->fd);
	snprintf(command, sizeof(command), "rm -r %s", segments->store_dir);
	assert_int_equal(system(command), 0);
}

const char *segments_path(const struct segments *segments)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%010lu.seg", segments->stream_dir, segments->number);
	return path;
}

static void put(uint8_t *raw, size_t off, uint64_t word)
{
	memcpy(raw + off, &word, sizeof(word));
}

/* begin -- the next segment, whose first record is this. */
static void begin(struct segments *segments, const struct record_header *first)
{
	uint8_t raw[512] = {0};
	uint64_t version;
	uint32_t crc;

	if (segments->fd >= 0)
		close(segments->fd);
	segments->number++;
	version = segments->number % 2 + 1; /* a store of before is written on, too */
	segments->fd = open(segments_path(segments), O_RDWR | O_CREAT | O_EXCL, 0644);
	assert_true(segments->fd >= 0);
	assert_int_equal(ftruncate(segments->fd, (off_t)segments->segment_bytes), 0);
	memcpy(raw, "FARLOGSG", 8);
	put(raw, 8, version | (uint64_t)STORE_DATA_OFF << 32);
	memcpy(raw + 32, segments->ring.ring_uuid, 16);
	put(raw, 48, segments->ring.salt);
	put(raw, 56, segments->ring.align | (uint64_t)segments->ring.record_len_max << 32);
	put(raw, 64, segments->number);
	put(raw, 72, segments->generation);
	put(raw, 80, first->lsn);
	put(raw, 88, first->seq);
	put(raw, 96, first->ts_ns);
	if (segments->cursor.epoch != 0) {
		put(raw, 104, segments->cursor.lsn);
		put(raw, 112, segments->cursor.seq);
		put(raw, 120, segments->cursor.epoch);
	}
	memcpy(raw + 128, SEGMENTS_STREAM, strlen(SEGMENTS_STREAM));
	if (version == 2) /* a digest and a signature, which a reader here leaves to verify */
		memset(raw + 200, 0x5A, 32 + 64);
	crc = crc32c_update(0, raw, 508);
	memcpy(raw + 508, &crc, sizeof(crc));
	assert_int_equal(pwrite(segments->fd, raw, sizeof(raw), 0), sizeof(raw));
	segments->off = STORE_DATA_OFF;
	segments->mark_count = 0;
}

/* take -- what is not known yet of a batch, at the end of the open segment or of the next. A drain that died reads
 * again what it has stored. */
static void take(struct segments *segments, const struct farlog_batch *batch)
{
	struct record_header header;
	uint64_t stored_len;

	for (uint64_t at = 0; at < batch->len; at += stored_len) {
		uint64_t extent;

		memcpy(&header, batch_bytes + at, sizeof(header));
		extent = header.flags & RECORD_FLAG_PAD ?
			header.payload_len + 64u :
			record_extent(segments->ring.align, header.key_len, header.payload_len);
		stored_len = header.flags & RECORD_FLAG_PAD ? 64 : extent;
		if (header.epoch <= segments->cursor.epoch && header.lsn < segments->cursor.lsn)
			continue;
		if (segments->cursor.epoch == 0 || segments->off + stored_len > segments->segment_bytes)
			begin(segments, &header);
		assert_int_equal(pwrite(segments->fd, batch_bytes + at, stored_len, (off_t)segments->off), stored_len);
		segments->off += stored_len;
		segments->cursor = (struct record_cursor){
			.lsn = header.lsn + extent, .seq = header.seq + !(header.flags & RECORD_FLAG_PAD), .epoch = header.epoch};
	}
}

void segments_store(struct segments *segments, size_t batch_len)
{
	struct farlog_ring_status ring;
	struct farlog_batch batch;
	int result;

	if (segments->drain == NULL)
		segments->drain = unit_read(segments->uri, FARLOG_START_HEAD, true);
	assert_int_equal(farlog_reader_status(segments->drain, &ring), FARLOG_OK);
	if (ring.salt != segments->ring.salt) {
		segments->generation++;
		memset(&segments->cursor, 0, sizeof(segments->cursor));
	}
	segments->ring = ring;
	while ((result = farlog_reader_read(segments->drain, batch_bytes, batch_len, &batch)) == FARLOG_OK) {
		take(segments, &batch);
		segments->last = batch;
	}
	assert_int_equal(result, FARLOG_NOT_YET);
}

void segments_kill(struct segments *segments)
{
	farlog_reader_close(segments->drain);
	segments->drain = NULL;
	segments->last.len = 0;
}

void segments_mark(struct segments *segments)
{
	uint8_t raw[32] = {0};
	uint32_t crc;

	if (segments->fd < 0)
		return;
	put(raw, 0, segments->off);
	put(raw, 8, ++segments->mark_count);
	crc = crc32c_update((uint32_t)segments->ring.salt, raw, 28);
	memcpy(raw + 28, &crc, sizeof(crc));
	assert_int_equal(pwrite(segments->fd, raw, sizeof(raw), segments->mark_count % 2 == 1 ? 512 : 1024), sizeof(raw));
}

void segments_release(struct segments *segments)
{
	if (segments->last.len > 0)
		assert_int_equal(farlog_reader_release(segments->drain, segments->last.next_lsn, segments->last.next_seq,
							 segments->last.last_epoch),
			FARLOG_OK);
}

void segments_drain(struct segments *segments)
{
	segments_store(segments, 4096);
	segments_mark(segments);
	segments_release(segments);
}
