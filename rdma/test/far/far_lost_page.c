/* far_lost_page.c -- a ring whose media does not give a page any more, at a target that guards its mappings: other
 * hosts get an error, and never the zeros that the target has in the place of the page. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "far_test.h"
#include "farlog/tails.h"
#include "ring/layout.h"

#define RECORD_COUNT 20u
#define KEPT_LEN (LAYOUT_DATA_OFF + 4096u) /* the header, and a page of records */

/* is_listed -- the target tells of the ring on its page of tails. */
static bool is_listed(farlog_tails *tails)
{
	struct farlog_tail rings[4];
	size_t count = 0;
	int result = farlog_tails_read(tails, rings, 4, &count);
	bool is_found = false;

	if (result != FARLOG_NOT_YET)
		CHECK(result == FARLOG_OK);
	for (size_t i = 0; i < count; i++)
		is_found |= rings[i].sequence != 0;
	return is_found;
}

/* check_read_fails -- what the media still give, then IO. */
static void check_read_fails(farlog_reader *drain)
{
	static uint8_t buffer[RING_BYTES];
	struct farlog_batch batch;
	int result = FARLOG_OK;

	while (result == FARLOG_OK)
		result = farlog_reader_read(drain, buffer, sizeof(buffer), &batch);
	CHECK(result == FARLOG_IO);
}

/* lose_pages -- under a drain with a connection; by the fence the target accesses what is lost. */
static void lose_pages(struct bed *bed, off_t kept_len)
{
	uint8_t token[FARLOG_TOKEN_LEN];
	struct farlog_error error = {0};
	farlog_reader *drain = open_reader(bed->uri, true, 'd');
	farlog_tails *tails = NULL;

	host_token('d', token);
	if (drain != NULL && CHECK_OK(farlog_tails_open(bed->uri, token, &tails, &error))) {
		CHECK(is_listed(tails));
		CHECK(truncate(bed->path, kept_len) == 0);
		CHECK(!host_ask(&bed->host, "fence ring 5") && strncmp(bed->host.reply, "IO ", 3) == 0);
		CHECK(!host_ask(&bed->host, "grant ring 0 6 b") && strncmp(bed->host.reply, "IO ", 3) == 0);
		if (kept_len > 0) /* it tries for seconds */
			check_read_fails(drain);
		CHECK(!is_listed(tails));
	}
	farlog_tails_close(tails);
	farlog_reader_close(drain);
}

static void lose_and_serve_again(off_t kept_len)
{
	static uint8_t whole[RING_BYTES];
	struct farlog_position position;
	farlog_writer *writer = NULL;
	farlog_reader *drain;
	struct bed bed;
	int fd = -1;

	if (!bed_make(&bed, "/var/tmp", "ofi:tcp://127.0.0.1:0") || !CHECK_ASK(&bed.host, "grant ring 0 2 a") ||
		!CHECK_ASK(&bed.host, "grant ring 1 0 d"))
		goto done;
	writer = open_or_report(&bed, "", 2, 'a');
	for (uint64_t i = 0; i < RECORD_COUNT && writer != NULL; i++)
		CHECK(append_number(writer, i, LONG_NS, &position) == FARLOG_OK);
	CHECK(farlog_writer_close(writer) == FARLOG_OK);
	fd = open(bed.path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0 && pread(fd, whole, sizeof(whole), 0) == (ssize_t)sizeof(whole));
	lose_pages(&bed, kept_len);
	CHECK(pwrite(fd, whole, sizeof(whole), 0) == (ssize_t)sizeof(whole));
	/* The media gives its pages again: the ring is served from new mappings, and all records are there. */
	if (!CHECK_ASK(&bed.host, "forget ring") || !CHECK_ASK(&bed.host, "serve ring %s tenant", bed.local_uri) ||
		!CHECK_ASK(&bed.host, "grant ring 1 0 e"))
		goto done;
	drain = open_reader(bed.uri, true, 'e');
	if (drain != NULL)
		expect_numbers(drain, 0, RECORD_COUNT);
	farlog_reader_close(drain);
done:
	if (fd >= 0)
		close(fd);
	bed_free(&bed);
}

void test_lost_page(void)
{
	lose_and_serve_again(KEPT_LEN);
	lose_and_serve_again(0);
}
