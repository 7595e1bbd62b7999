/* history/store_segment.c -- headers, marks, indexes and manifests of segments, read and never written. */
#include "history/store_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/err.h"

#define HEADER_LEN 512u
#define HEADER_CRC_OFF 508u
#define MARK_A_OFF 512u
#define MARK_B_OFF 1024u
#define MARK_CRC_OFF 28u
#define FRONT_LEN (STORE_DATA_OFF + RECORD_HEADER_LEN)
#define SEGMENT_VERSION_MAX 2u
#define INDEX_VERSION 1u
#define ALIGN_MAX 4096u
#define INDEX_HEADER_LEN 56u
#define INDEX_ENTRY_LEN 40u
#define INDEX_MARK_LEN 24u
#define FILE_LEN_MAX (1u << 30) /* of an index or a manifest */

static uint64_t word_at(const uint8_t *raw, size_t off)
{
	uint64_t word;

	memcpy(&word, raw + off, sizeof(word));
	return word;
}

static uint32_t half_at(const uint8_t *raw, size_t off)
{
	uint32_t half;

	memcpy(&half, raw + off, sizeof(half));
	return half;
}

/* escape -- the directory's name of a stream, one to one. */
static void escape(const char *stream, char *to)
{
	static const char digits[] = "0123456789ABCDEF";

	for (size_t i = 0; stream[i] != '\0'; i++) {
		uint8_t c = (uint8_t)stream[i];
		bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
			c == '-' || (c == '.' && i > 0 && stream[i + 1] != '\0');

		if (is_plain) {
			*to++ = (char)c;
			continue;
		}
		*to++ = '%';
		*to++ = digits[c >> 4];
		*to++ = digits[c & 15];
	}
	*to = '\0';
}

int store_dir_open(struct store_dir *dir, const char *store_dir, const char *stream, struct farlog_error *error)
{
	char escaped[3 * FARLOG_STREAM_NAME_LEN + 1];
	char identity[PATH_MAX];
	size_t len = strlen(stream);

	if (len == 0 || len > FARLOG_STREAM_NAME_LEN)
		return error_set(
			error, FARLOG_INVALID, 0, "stream name \"%s\": expected 1 to %d bytes", stream, FARLOG_STREAM_NAME_LEN);
	escape(stream, escaped);
	memcpy(dir->stream, stream, len + 1);
	if (snprintf(identity, sizeof(identity), "%s/store.json", store_dir) >= (int)sizeof(identity) ||
		snprintf(dir->path, sizeof(dir->path), "%s/streams/%s", store_dir, escaped) >= (int)sizeof(dir->path))
		return error_set(
			error, FARLOG_INVALID, 0, "store \"%.100s...\": path is longer than %d bytes", store_dir, PATH_MAX);
	if (access(identity, R_OK) != 0)
		return error_set(error, errno == ENOENT || errno == ENOTDIR ? FARLOG_NOT_FOUND : FARLOG_IO, errno,
			"store \"%s\": expected a directory with a store.json", store_dir);
	if (access(dir->path, R_OK | X_OK) != 0)
		return error_set(error, errno == ENOENT ? FARLOG_NOT_FOUND : FARLOG_IO, errno, "store \"%s\": stream \"%s\"",
			store_dir, stream);
	return FARLOG_OK;
}

void store_segment_path(const struct store_dir *dir, uint64_t number, const char *suffix, char path[PATH_MAX + 32])
{
	snprintf(path, PATH_MAX + 32, "%s/%010lu%s", dir->path, number, suffix);
}

/* take_header -- NULL, or what is wrong with it. */
static const char *take_header(const uint8_t *raw, const struct store_dir *dir, struct store_segment *segment)
{
	char stream[FARLOG_STREAM_NAME_LEN + 1] = {0};

	if (memcmp(raw, "FARLOGSG", 8) != 0)
		return "no segment's magic";
	if (half_at(raw, 8) < 1 || half_at(raw, 8) > SEGMENT_VERSION_MAX || half_at(raw, 12) != STORE_DATA_OFF)
		return "a version or header length that is not known";
	segment->header_crc = half_at(raw, HEADER_CRC_OFF);
	if (crc32c_update(0, raw, HEADER_CRC_OFF) != segment->header_crc)
		return "a header whose CRC does not match";
	memcpy(stream, raw + 128, FARLOG_STREAM_NAME_LEN);
	if (word_at(raw, 64) != segment->number || strcmp(stream, dir->stream) != 0)
		return "the header of another segment";
	memcpy(segment->ring_uuid, raw + 32, 16);
	segment->salt = word_at(raw, 48);
	segment->align = half_at(raw, 56);
	segment->record_len_max = half_at(raw, 60);
	segment->generation = word_at(raw, 72);
	segment->first_lsn = segment->low_lsn = word_at(raw, 80);
	segment->first_seq = word_at(raw, 88);
	segment->prev_next_lsn = word_at(raw, 104);
	segment->prev_next_seq = word_at(raw, 112);
	segment->prev_epoch = half_at(raw, 120);
	if (segment->align < 64 || segment->align > ALIGN_MAX || (segment->align & (segment->align - 1)) != 0)
		return "an alignment that no ring has";
	return NULL;
}

/* take_marks -- how far it was synced: the valid mark that says most. */
static void take_marks(const uint8_t *raw, struct store_segment *segment)
{
	static const uint32_t offs[] = {MARK_A_OFF, MARK_B_OFF};

	segment->synced_off = STORE_DATA_OFF;
	for (unsigned i = 0; i < 2; i++) {
		const uint8_t *mark = raw + offs[i];

		if (half_at(mark, MARK_CRC_OFF) == crc32c_update((uint32_t)segment->salt, mark, MARK_CRC_OFF) &&
			word_at(mark, 8) > 0 && word_at(mark, 0) > segment->synced_off)
			segment->synced_off = word_at(mark, 0);
	}
}

static bool is_zero(const uint8_t *raw, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (raw[i] != 0)
			return false;
	}
	return true;
}

int store_segment_look(
	const struct store_dir *dir, uint64_t number, struct store_segment *segment, struct farlog_error *error)
{
	char path[PATH_MAX + 32];
	uint8_t raw[FRONT_LEN] = {0};
	const char *why;
	ssize_t got;
	int fd;

	store_segment_path(dir, number, ".seg", path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return FARLOG_NOT_FOUND;
	if (fd < 0)
		return error_set(error, FARLOG_IO, errno, "open segment \"%s\"", path);
	got = pread(fd, raw, sizeof(raw), 0);
	if (got < 0) {
		int os_errno = errno;

		close(fd);
		return error_set(error, FARLOG_IO, os_errno, "read segment \"%s\"", path);
	}
	close(fd);
	memset(segment, 0, sizeof(*segment));
	segment->number = number;
	why = take_header(raw, dir, segment);
	if (why != NULL && is_zero(raw + HEADER_LEN, sizeof(raw) - HEADER_LEN))
		return FARLOG_NOT_FOUND;
	if (why != NULL)
		return error_set(error, FARLOG_CORRUPT, 0, "segment \"%s\" has %s", path, why);
	take_marks(raw, segment);
	return FARLOG_OK;
}

int store_file_load(const char *path, uint8_t **raw, size_t *len)
{
	struct stat status;
	int result = FARLOG_IO;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? FARLOG_NOT_FOUND : FARLOG_IO;
	if (fstat(fd, &status) != 0 || status.st_size > FILE_LEN_MAX)
		goto err_close;
	*len = (size_t)status.st_size;
	*raw = malloc(*len + 1);
	result = FARLOG_NO_MEMORY;
	if (*raw == NULL)
		goto err_close;
	(*raw)[*len] = 0;
	result = FARLOG_OK;
	if (pread(fd, *raw, *len, 0) != (ssize_t)*len) {
		free(*raw);
		result = FARLOG_IO;
	}
err_close:
	close(fd);
	return result;
}

/* The name of a field cannot be within a string of the manifest: there its quotes are escaped. */
int store_segment_used(const struct store_dir *dir, uint64_t number, uint64_t *used_bytes, struct farlog_error *error)
{
	static const char field[] = "\"used_bytes\":";
	char path[PATH_MAX + 32];
	uint8_t *raw;
	const char *found;
	char *end = NULL;
	size_t len;
	int result;

	store_segment_path(dir, number, ".json", path);
	result = store_file_load(path, &raw, &len);
	if (result == FARLOG_NOT_FOUND)
		return result;
	if (result != FARLOG_OK)
		return error_set(error, result, 0, "read manifest \"%s\"", path);
	found = strstr((const char *)raw, field);
	if (found != NULL)
		*used_bytes = strtoull(found + strlen(field), &end, 10);
	result =
		found != NULL && (*end == ',' || *end == '}') && *used_bytes >= STORE_DATA_OFF ? FARLOG_OK : FARLOG_CORRUPT;
	free(raw);
	if (result != FARLOG_OK)
		error_set(error, result, 0, "manifest \"%s\" names no used_bytes", path);
	return result;
}

/* is_index_of -- whether an index is whole and of this segment. */
static bool is_index_of(const uint8_t *raw, size_t len, const struct store_segment *segment, uint64_t used_bytes)
{
	uint64_t entries, marks;

	if (len < INDEX_HEADER_LEN + 4 || memcmp(raw, "FARLOGIX", 8) != 0 || half_at(raw, 8) != INDEX_VERSION ||
		crc32c_update(0, raw, len - 4) != half_at(raw, len - 4))
		return false;
	entries = half_at(raw, 12);
	marks = half_at(raw, 48);
	return memcmp(raw + 16, segment->ring_uuid, 16) == 0 && word_at(raw, 32) == segment->number &&
		word_at(raw, 40) == used_bytes &&
		len - 4 == INDEX_HEADER_LEN + entries * INDEX_ENTRY_LEN + marks * INDEX_MARK_LEN;
}

int store_segment_marks(
	const struct store_dir *dir, const struct store_segment *segment, struct store_mark **marks, size_t *count)
{
	char path[PATH_MAX + 32];
	uint64_t used_bytes;
	uint8_t *raw;
	size_t len, off;
	int result = store_segment_used(dir, segment->number, &used_bytes, NULL);

	if (result != FARLOG_OK)
		return FARLOG_NOT_FOUND;
	store_segment_path(dir, segment->number, ".idx", path);
	if (store_file_load(path, &raw, &len) != FARLOG_OK)
		return FARLOG_NOT_FOUND;
	result = FARLOG_NOT_FOUND;
	if (!is_index_of(raw, len, segment, used_bytes))
		goto err_free;
	*count = half_at(raw, 48);
	*marks = malloc((*count + 1) * sizeof(**marks));
	result = FARLOG_NO_MEMORY;
	if (*marks == NULL)
		goto err_free;
	off = INDEX_HEADER_LEN + (size_t)half_at(raw, 12) * INDEX_ENTRY_LEN;
	for (size_t i = 0; i < *count; i++, off += INDEX_MARK_LEN)
		(*marks)[i] = (struct store_mark){
			.generation = segment->generation, .epoch = half_at(raw, off), .start_lsn = word_at(raw, off + 8)};
	result = FARLOG_OK;
err_free:
	free(raw);
	return result;
}

bool store_chain_takes(const struct store_chain *chain, const struct record_header *header)
{
	const struct record_cursor *at = &chain->cursor;

	if (header->epoch == 0)
		return false;
	if (!chain->is_begun)
		return true;
	if (header->epoch < at->epoch ||
		(header->epoch > at->epoch && (header->flags & (RECORD_FLAG_EPOCH | RECORD_FLAG_PAD)) == 0))
		return false;
	if (header->lsn == at->lsn && header->seq == at->seq)
		return true;
	return header->lsn < at->lsn && header->epoch > at->epoch && header->seq <= at->seq;
}
