/* bed.c -- a ring at a target in a process of its own, and numbered records in it, for the cases of the far test. */
#include "far_test.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ring/record.h"

#define BUFFER_LEN (64u << 10)

bool check_ok(int result, const char *call, const char *text, int line)
{
	if (result == FARLOG_OK)
		return true;
	printf("far: %s: line %d: %s: %s: %s\n", now_testing, line, call, farlog_result_name(result), text);
	failed++;
	return false;
}

static bool serve(struct bed *bed)
{
	return CHECK_ASK(&bed->host, "serve ring %s?flush=%s tenant", bed->local_uri,
		strncmp(bed->path, "/dev/shm", 8) == 0 ? "clwb" : "auto");
}

bool bed_make(struct bed *bed, const char *directory, const char *listen_uri)
{
	/* alike: several may be members of a stream */
	struct farlog_ring_config config = {
		.size_bytes = RING_BYTES, .record_len_max = 8192, .is_forced = 1, .salt = 7, .stream_name = "far"};
	static unsigned made_count; /* a case may have several */
	struct farlog_error error = {0};

	memset(bed, 0, sizeof(*bed));
	snprintf(bed->path, sizeof(bed->path), "%s/farlog-far-%ld-%u.ring", directory, (long)getpid(), made_count++);
	bed->level = strncmp(directory, "/dev/shm", 8) == 0 ? FARLOG_LEVEL_VISIBLE : FARLOG_LEVEL_PERSISTENT;
	snprintf(bed->local_uri, sizeof(bed->local_uri), "mem:%s", bed->path);
	if (!CHECK_OK(farlog_ring_format(bed->local_uri, &config, &error)) ||
		!CHECK_HOST(host_start(&bed->host, listen_uri), &bed->host, __LINE__))
		return false;
	snprintf(bed->uri, sizeof(bed->uri), "%s/ring", bed->host.uri);
	return serve(bed);
}

bool bed_again(struct bed *bed)
{
	char listen_uri[128];

	snprintf(listen_uri, sizeof(listen_uri), "%s", bed->host.uri);
	return CHECK_HOST(host_start(&bed->host, listen_uri), &bed->host, __LINE__) && serve(bed);
}

void bed_free(struct bed *bed)
{
	host_kill(&bed->host);
	unlink(bed->path);
}

farlog_writer *open_far_writer(
	const struct bed *bed, const char *options, uint32_t epoch, char token_letter, struct farlog_error *error)
{
	uint8_t token[FARLOG_TOKEN_LEN];
	struct farlog_writer_config config = {.level = bed->level,
		.policy = FARLOG_POLICY_REJECT,
		.epoch = epoch,
		.counters_dir = "",
		.grant_token = token,
		.deadline_ns = LONG_NS};
	farlog_writer *writer = NULL;
	char uri[256];

	host_token(token_letter, token);
	snprintf(uri, sizeof(uri), "%s%s", bed->uri, options);
	error->result = farlog_writer_open(uri, &config, &writer, error);
	return writer;
}

/* open_or_report -- for those that must be let in. */
farlog_writer *open_or_report(const struct bed *bed, const char *options, uint32_t epoch, char token_letter)
{
	struct farlog_error error = {0};
	farlog_writer *writer = open_far_writer(bed, options, epoch, token_letter, &error);

	check_ok(error.result, "open writer", error.text, __LINE__);
	return writer;
}

/* Payloads of changing length whose words are all the number: a record that is mixed of two is found out. */
int append_number(farlog_writer *writer, uint64_t number, uint64_t deadline_ns, struct farlog_position *position)
{
	uint64_t words[64];
	struct farlog_entry entry = {.data = words, .len = (uint32_t)(8 + number % 63 * 8), .class_id = 1};

	for (unsigned i = 0; i < 64; i++)
		words[i] = number;
	return farlog_append(writer, &entry, deadline_ns, position);
}

static bool is_number(const uint8_t *record, uint64_t number)
{
	const struct record_header *header = (const void *)record;

	if (header->payload_len != 8 + number % 63 * 8)
		return false;
	for (uint32_t off = 0; off < header->payload_len; off += 8)
		if (memcmp(record + RECORD_HEADER_LEN + header->key_len + off, &number, 8) != 0)
			return false;
	return true;
}

bool check_numbers(const uint8_t *buffer, const struct farlog_batch *batch, uint64_t first, uint64_t *seen)
{
	uint64_t off = 0;

	while (off < batch->len) {
		const struct record_header *header = (const void *)(buffer + off);

		off += header->flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN :
												 record_extent(64, header->key_len, header->payload_len);
		if (header->flags & (RECORD_FLAG_PAD | RECORD_FLAG_EPOCH))
			continue;
		if (!is_number((const uint8_t *)header, first + *seen)) {
			printf("far: %s: record at lsn %lu is not number %lu\n", now_testing, header->lsn, first + *seen);
			failed++;
			return false;
		}
		(*seen)++;
	}
	return true;
}

bool expect_numbers(farlog_reader *reader, uint64_t first, uint64_t count)
{
	static uint8_t buffer[BUFFER_LEN] __attribute__((aligned(64)));
	struct farlog_batch batch;
	uint64_t seen = 0;
	time_t until = time(NULL) + (time_t)(LONG_NS / 1000000000u);

	while (seen < count && time(NULL) < until) {
		int result = farlog_reader_read(reader, buffer, sizeof(buffer), &batch);

		if (result == FARLOG_NOT_YET)
			continue;
		if (!check_ok(result, "farlog_reader_read", farlog_result_text(result), __LINE__) ||
			!check_numbers(buffer, &batch, first, &seen))
			return false;
	}
	CHECK(seen == count);
	return seen == count;
}

farlog_reader *open_reader(const char *uri, bool is_drain, char token_letter)
{
	uint8_t token[FARLOG_TOKEN_LEN];
	struct farlog_reader_config config = {.is_drain = is_drain, .grant_token = token};
	struct farlog_error error = {0};
	farlog_reader *reader = NULL;

	host_token(token_letter, token);
	CHECK_OK(farlog_reader_open(uri, &config, &reader, &error));
	return reader;
}
