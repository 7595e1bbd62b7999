/* log/tails.c -- a client's look at a target's page of tails: one READ for all rings of a tenant there. */
#include "farlog/tails.h"

#include "ring/tails_page.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/err.h"
#include "base/uri.h"
#include "region/region.h"

#define LINE_COUNT_FIRST 63u /* read before it is known how many there are: 4 KiB with the header */
#define STALE_NS 200000000u  /* a target that keeps its page looks every millisecond */
/* and of READs: a thread that comes back from a long pause may answer one before it looks */
#define STALE_COUNT 3u

struct farlog_tails {
	struct region *region;
	uint32_t line_count; /* to read the next time */
	uint64_t turn;
	uint64_t turned_at_ns; /* when it was first seen */
	uint32_t same_count;   /* READs that saw it */
	uint8_t bytes[(TAILS_LINE_COUNT_MAX + 1) * LAYOUT_LINE_LEN];
};

int farlog_tails_open(const char *uri, const uint8_t *grant_token, farlog_tails **opened, struct farlog_error *error)
{
	struct region_options options = {.access = REGION_READ, .role = REGION_ROLE_TAILS, .token = grant_token};
	struct farlog_tails *tails;
	struct uri parsed;
	int result = uri_parse(uri, &parsed, error);

	*opened = NULL;
	if (result != FARLOG_OK)
		return result;
	if (!uri_is_remote(&parsed))
		return error_set(error, FARLOG_INVALID, 0,
			"tails of \"%s\": expected a ring on another host, verbs://host:port/ring or ofi:...", uri);
	tails = calloc(1, sizeof(*tails));
	if (tails == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "tails of \"%s\": out of memory", uri);
	tails->line_count = LINE_COUNT_FIRST;
	result = region_open(uri, &options, &tails->region, error);
	if (result == FARLOG_OK && tails->region->contract.size_bytes != TAILS_REGION_LEN)
		result = error_set(error, FARLOG_UNSUPPORTED, 0, "tails of \"%s\": a page of %lu bytes; expected %u", uri,
			tails->region->contract.size_bytes, TAILS_REGION_LEN);
	if (result != FARLOG_OK) {
		farlog_tails_close(tails);
		return result;
	}
	*opened = tails;
	return FARLOG_OK;
}

static bool is_whole(const void *line)
{
	uint32_t crc;

	memcpy(&crc, (const uint8_t *)line + LAYOUT_LINE_LEN - sizeof(crc), sizeof(crc));
	return crc32c_update(0, line, LAYOUT_LINE_LEN - sizeof(crc)) == crc;
}

/* check_header -- OK, or NOT_YET: torn, or of a page that nobody keeps any more. */
static int check_header(struct farlog_tails *tails, struct tails_header *header)
{
	uint64_t now_ns = clock_monotonic_ns();

	memcpy(header, tails->bytes, sizeof(*header));
	if (!is_whole(header) || header->magic != TAILS_MAGIC || header->version != TAILS_VERSION ||
		header->line_count > TAILS_LINE_COUNT_MAX)
		return FARLOG_NOT_YET;
	if (header->turn != tails->turn || tails->turned_at_ns == 0) {
		tails->turn = header->turn;
		tails->turned_at_ns = now_ns;
		tails->same_count = 0;
	}
	return ++tails->same_count <= STALE_COUNT || now_ns - tails->turned_at_ns < STALE_NS ? FARLOG_OK : FARLOG_NOT_YET;
}

static void copy_line(const struct tails_line *line, struct farlog_tail *tail)
{
	memcpy(tail->ring_uuid, line->ring_uuid, sizeof(tail->ring_uuid));
	tail->tail_lsn = line->tail_lsn;
	tail->durable_lsn = line->durable_lsn;
	tail->head_lsn = line->head_lsn;
	tail->sequence = line->sequence;
	tail->writer_epoch = line->writer_epoch;
	tail->mark = line->mark;
}

int farlog_tails_read(farlog_tails *tails, struct farlog_tail *rings, size_t count_max, size_t *count)
{
	uint32_t line_count = tails->line_count;
	struct tails_header header;
	int result = tails->region->ops->data.read(
		tails->region, TAILS_OFF, tails->bytes, (line_count + 1) * (size_t)LAYOUT_LINE_LEN);

	*count = 0;
	if (result == FARLOG_OK)
		result = check_header(tails, &header);
	if (result != FARLOG_OK)
		return result;
	tails->line_count = header.line_count > LINE_COUNT_FIRST ? header.line_count : LINE_COUNT_FIRST;
	for (uint32_t i = 1; i <= line_count && i <= header.line_count && *count < count_max; i++) {
		struct tails_line line;

		memcpy(&line, tails->bytes + i * (size_t)LAYOUT_LINE_LEN, sizeof(line));
		if (is_whole(&line))
			copy_line(&line, &rings[(*count)++]);
	}
	return FARLOG_OK;
}

uint64_t farlog_tails_reads(const farlog_tails *tails)
{
	return tails->region->read_count;
}

void farlog_tails_close(farlog_tails *tails)
{
	if (tails == NULL)
		return;
	if (tails->region != NULL)
		tails->region->ops->close(tails->region);
	free(tails);
}
