/* sweep_world.c -- see sweep_world.h. */
#include "sweep_world.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ring/record.h"

struct run run;
struct images images;
const struct farlog_writer_config sweep_writer = {.level = FARLOG_LEVEL_VISIBLE,
	.counters_dir = "",
	.deadline_ns = 30000000000};

int append_one(farlog_writer *writer, uint64_t number)
{
	struct farlog_entry entry = {.data = &number, .len = sizeof(number)};
	struct farlog_position position = {0};
	int result = farlog_append(writer, &entry, 0, &position);

	if (result == FARLOG_UNKNOWN && position.lsn != 0) {
		int outcome = farlog_resolve(writer, position.lsn, 0, &position);

		run.is_absent[number] = outcome == FARLOG_NOT_FOUND;
		result = outcome == FARLOG_OK ? FARLOG_OK : result;
	}
	if (result == FARLOG_OK)
		run.is_acked[number] = true;
	return result;
}

int append_some(uint64_t first, unsigned count, bool is_closed)
{
	farlog_writer *writer;
	int result = farlog_writer_open(run.uri, &sweep_writer, &writer, &run.error);
	int closed;

	if (result != FARLOG_OK)
		return result;
	for (unsigned i = 0; i < count && result == FARLOG_OK; i++)
		result = append_one(writer, first + i);
	if (!is_closed)
		return result;
	closed = farlog_writer_close(writer);
	return result != FARLOG_OK ? result : closed;
}

/* take -- the numbers of a batch's records, behind those that are there. */
static unsigned take(const uint8_t *bytes, uint64_t len, uint64_t numbers[NUMBERS], unsigned count)
{
	for (uint64_t off = 0; off + sizeof(struct record_header) <= len && count < NUMBERS;) {
		struct record_header header;

		memcpy(&header, bytes + off, sizeof(header));
		if (header.flags == 0)
			memcpy(&numbers[count++], bytes + off + RECORD_HEADER_LEN + header.key_len, sizeof(numbers[0]));
		off += header.flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN :
												record_extent(64, header.key_len, header.payload_len);
	}
	return count;
}

/* read_rest -- all that a reader gives; the result of its last read, *batch its last batch that held records. */
static int read_rest(farlog_reader *reader, uint64_t numbers[NUMBERS], unsigned *count, struct farlog_batch *last)
{
	static uint8_t buf[RING_SIZE];
	struct farlog_batch batch;
	unsigned idle = 0;
	int result = FARLOG_OK;

	*count = 0;
	while ((result == FARLOG_OK || result == FARLOG_NOT_YET) && idle < 200) { /* members are reached by threads */
		result = farlog_reader_read(reader, buf, sizeof(buf), &batch);
		if (result == FARLOG_OK) {
			*count = take(buf, batch.len, numbers, *count);
			*last = batch;
			idle = 0;
		} else if (run.kind->file_count == 1) {
			break;
		} else {
			idle++;
			usleep(1000);
		}
	}
	return result;
}

int drain_ring(uint64_t numbers[NUMBERS], unsigned *count)
{
	struct farlog_reader_config config = {.is_drain = 1};
	struct farlog_batch last = {0};
	farlog_reader *reader;
	int result = farlog_reader_open(run.uri, &config, &reader, &run.error);

	*count = 0;
	if (result != FARLOG_OK)
		return result;
	result = read_rest(reader, numbers, count, &last);
	if (result == FARLOG_NOT_YET)
		result = *count > 0 ? farlog_reader_release(reader, last.next_lsn, last.next_seq, last.last_epoch) : FARLOG_OK;
	farlog_reader_close(reader);
	return result;
}

/* find_record -- the header of a record that is its number, as a reader gives it. */
static int find_record(uint64_t number, struct record_header *header)
{
	static uint8_t buf[RING_SIZE];
	farlog_reader *reader;
	struct farlog_batch batch;
	int result = farlog_reader_open(run.uri, NULL, &reader, &run.error);
	bool is_found = false;

	if (result != FARLOG_OK)
		return result;
	result = farlog_reader_read(reader, buf, sizeof(buf), &batch);
	for (uint64_t off = 0; result == FARLOG_OK && !is_found && off < batch.len;) {
		memcpy(header, buf + off, sizeof(*header));
		is_found = header->flags == 0 && memcmp(buf + off + RECORD_HEADER_LEN, &number, sizeof(number)) == 0;
		off += header->flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN : record_extent(64, 0, header->payload_len);
	}
	farlog_reader_close(reader);
	return result == FARLOG_OK && !is_found ? FARLOG_NOT_FOUND : result;
}

int damage_record(void)
{
	struct record_header header;
	int result = append_some(0, 0, true);
	uint8_t *found;
	int fd;

	if (result == FARLOG_OK)
		result = find_record(DAMAGED_RECORD, &header);
	if (result != FARLOG_OK)
		return result;
	images.damaged_lsn = header.lsn;
	keep_files(START_DAMAGED);
	found = memmem(images.bytes[START_DAMAGED][0], images.lens[START_DAMAGED][0], &header, sizeof(header));
	if (found == NULL)
		return FARLOG_NOT_FOUND;
	found[RECORD_HEADER_LEN] ^= 0x40;
	fd = open(run.paths[0], O_WRONLY | O_CLOEXEC);
	if (fd < 0 || pwrite(fd, found, RECORD_HEADER_LEN + 1, found - (uint8_t *)images.bytes[START_DAMAGED][0]) < 0)
		result = FARLOG_IO;
	close(fd);
	return result;
}

/* judge_records -- what was acknowledged is there once and in order, and nothing that was said to be absent. first:
 * what was drained before. */
void judge_records(unsigned first_count, const uint64_t first[NUMBERS])
{
	uint64_t numbers[NUMBERS], before = 0;
	bool is_there[NUMBERS] = {false};
	unsigned count;
	int result = drain_ring(numbers, &count);

	if (result != FARLOG_OK) {
		FAIL("drained afterwards: %s: %s", farlog_result_name(result), run.error.text);
		return;
	}
	for (unsigned i = 0; i < first_count; i++)
		is_there[first[i]] = true;
	for (unsigned i = 0; i < count; i++) {
		if (numbers[i] >= NUMBERS || numbers[i] <= before) {
			FAIL("record %lu is behind record %lu", numbers[i], before);
			return;
		}
		before = numbers[i];
		is_there[before] = true;
	}
	for (unsigned i = 1; i < NUMBERS; i++) {
		if ((run.is_acked[i] && !is_there[i]) || (run.is_absent[i] && is_there[i]))
			FAIL("record %u is %sthere and was %s", i, is_there[i] ? "" : "not ",
				run.is_acked[i] ? "acknowledged" : "said to be absent");
	}
}

/* ---------------------------------------------------------------- files */

void name_files(const struct kind *kind)
{
	char uri[sizeof(run.uri)];
	int used = 0;

	run.kind = kind;
	for (unsigned i = 0; i < kind->file_count; i++) {
		snprintf(run.paths[i], sizeof(run.paths[i]), "%s/farlog-sweep-%ld-%u", kind->dir, (long)getpid(), i);
		snprintf(uri, sizeof(run.uris[i]), "%s%s%s", kind->scheme, run.paths[i], kind->options);
		strcpy(run.uris[i], uri);
	}
	if (kind->file_count > 1)
		used = snprintf(uri, sizeof(uri), "members:%u", kind->needed);
	for (unsigned i = 0; used > 0 && i < kind->file_count; i++)
		used += snprintf(uri + used, sizeof(uri) - (size_t)used, " %s", run.uris[i]);
	strcpy(run.uri, uri);
}

void remove_files(void)
{
	for (unsigned i = 0; i < run.kind->file_count; i++)
		unlink(run.paths[i]);
}

void put_files(enum start start)
{
	remove_files();
	for (unsigned i = 0; (start != START_NONE || run.kind->is_device) && i < run.kind->file_count; i++) {
		int fd = open(run.paths[i], O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

		if (fd < 0 || (start == START_NONE && ftruncate(fd, 2 * RING_SIZE) != 0) ||
			write(fd, images.bytes[start][i], images.lens[start][i]) != (ssize_t)images.lens[start][i]) {
			perror(run.paths[i]);
			exit(2);
		}
		close(fd);
	}
}

void keep_files(enum start start)
{
	for (unsigned i = 0; i < run.kind->file_count; i++) {
		int fd = open(run.paths[i], O_RDONLY | O_CLOEXEC);
		struct stat stat;

		if (fd < 0 || fstat(fd, &stat) != 0 ||
			(images.bytes[start][i] = realloc(images.bytes[start][i], (size_t)stat.st_size)) == NULL ||
			read(fd, images.bytes[start][i], (size_t)stat.st_size) != stat.st_size) {
			perror(run.paths[i]);
			exit(2);
		}
		images.lens[start][i] = (size_t)stat.st_size;
		close(fd);
	}
}
