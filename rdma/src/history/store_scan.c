/* history/store_scan.c -- reading records from a segment's file. */
#include "history/store_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/err.h"

/* How much is read at a time: a little at first, then twice as much each time. A longer record makes the buffer grow to
 * its length. */
#define CHUNK_FIRST_LEN (16u << 10)
#define CHUNK_LEN_MAX (256u << 10)

int store_scan_open(struct store_scan *scan, const struct store_dir *dir, const struct store_segment *segment,
	struct farlog_error *error)
{
	char path[PATH_MAX + 32];

	store_scan_close(scan);
	store_segment_path(dir, segment->number, ".seg", path);
	scan->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (scan->fd < 0)
		return error_set(error, FARLOG_IO, errno, "open segment \"%s\"", path);
	scan->segment = segment;
	scan->off = STORE_DATA_OFF;
	scan->len = 0;
	return FARLOG_OK;
}

void store_scan_close(struct store_scan *scan)
{
	if (scan->fd >= 0)
		close(scan->fd);
	scan->fd = -1;
}

bool store_scan_is_linked(const struct store_scan *scan)
{
	struct stat status;

	return scan->fd >= 0 && fstat(scan->fd, &status) == 0 && status.st_nlink > 0;
}

void store_scan_free(struct store_scan *scan)
{
	store_scan_close(scan);
	free(scan->buf);
	scan->buf = NULL;
	scan->buf_len = 0;
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* fill -- have `need` bytes at off, or all there are. */
static int fill(struct store_scan *scan, size_t need, struct farlog_error *error)
{
	size_t want = 2 * scan->buf_len < CHUNK_LEN_MAX ? larger(2 * scan->buf_len, CHUNK_FIRST_LEN) : CHUNK_LEN_MAX;

	if (scan->len >= need)
		return FARLOG_OK;
	want = larger(want, need);
	if (scan->buf_len < want) {
		uint8_t *grown = realloc(scan->buf, want);

		if (grown == NULL)
			return error_set(
				error, FARLOG_NO_MEMORY, 0, "read segment %lu: no memory for %zu bytes", scan->segment->number, want);
		scan->buf = grown;
		scan->buf_len = want;
	}
	scan->at = 0;
	scan->len = 0;
	while (scan->len < need) {
		ssize_t got = pread(scan->fd, scan->buf + scan->len, scan->buf_len - scan->len, (off_t)(scan->off + scan->len));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return error_set(
				error, FARLOG_IO, errno, "read segment %lu at offset %lu", scan->segment->number, scan->off);
		if (got == 0)
			break;
		scan->len += (size_t)got;
	}
	return FARLOG_OK;
}

/* measure -- the lengths that a header claims, and what is wrong with them; NULL: nothing. */
static const char *measure(const struct store_segment *segment, struct store_record *record)
{
	const struct record_header *header = &record->header;
	bool is_pad = (header->flags & RECORD_FLAG_PAD) != 0;

	if (header->magic != RECORD_MAGIC)
		return "bytes that are no record's magic";
	if (header->version != record_version(header->flags) || header->header_words != RECORD_HEADER_LEN / 8)
		return "a record of a version that is not known";
	record->extent = is_pad ? (uint64_t)header->payload_len + RECORD_PAD_STORED_LEN :
							  record_extent(segment->align, header->key_len, header->payload_len);
	record->stored_len = is_pad ? RECORD_PAD_STORED_LEN : record->extent;
	if ((segment->record_len_max != 0 && record->extent > segment->record_len_max) ||
		(is_pad && header->key_len != 0) || record->extent % segment->align != 0)
		return "a record of a length that its ring does not take";
	return NULL;
}

/* prove -- NULL: the record proves itself. */
static const char *prove(const struct store_segment *segment, const struct store_record *record)
{
	uint64_t body_len =
		record->header.flags & RECORD_FLAG_PAD ? 0 : (uint64_t)record->header.key_len + record->header.payload_len;
	uint64_t trailer;

	memcpy(&trailer, record->raw + record->stored_len - RECORD_TRAILER_LEN, sizeof(trailer));
	if (trailer != (record->header.lsn ^ segment->salt))
		return "a record whose trailer does not match";
	if (crc32c_record((uint32_t)segment->salt, record->raw, record->raw + RECORD_HEADER_LEN, body_len) !=
		record->header.crc32c)
		return "a record whose CRC does not match";
	return NULL;
}

int store_scan_next(struct store_scan *scan, struct store_record *record, const char **why, struct farlog_error *error)
{
	int result = fill(scan, RECORD_PAD_STORED_LEN, error);

	if (result != FARLOG_OK)
		return result;
	*why = "nothing";
	if (scan->len < RECORD_PAD_STORED_LEN)
		return FARLOG_NOT_YET;
	memcpy(&record->header, scan->buf + scan->at, sizeof(record->header));
	if (record->header.magic == 0)
		return FARLOG_NOT_YET;
	*why = measure(scan->segment, record);
	if (*why != NULL)
		return FARLOG_NOT_YET;
	result = fill(scan, record->stored_len, error);
	if (result != FARLOG_OK)
		return result;
	*why = "a record that is cut";
	if (scan->len < record->stored_len)
		return FARLOG_NOT_YET;
	/* What fill read again may be newer than the header that was looked at. */
	record->raw = scan->buf + scan->at;
	if (memcmp(record->raw, &record->header, sizeof(record->header)) != 0)
		return FARLOG_NOT_YET;
	*why = prove(scan->segment, record);
	return *why == NULL ? FARLOG_OK : FARLOG_NOT_YET;
}
