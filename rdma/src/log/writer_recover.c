/* log/writer_recover.c -- where a ring's log ends, found by the writer that opens it, and whether acknowledged bytes
 * are missing before it goes on from there. */
#include <stdio.h>

#include "base/err.h"
#include "log/writer.h"
#include "region/superblock.h"
#include "scan/recover.h"

#define ORPHAN_WINDOW_LEN (4u << 20) /* where unacknowledged records are counted; they are dropped wherever they lie */

static int flush_records(struct farlog_writer *writer, const char *uri, uint64_t from_lsn, struct farlog_error *error)
{
	struct region_span spans[2];
	unsigned span_count =
		from_lsn == writer->ring.appended_lsn ? 0 : writer_spans(writer, from_lsn, writer->ring.appended_lsn, spans);

	for (unsigned i = 0; i < span_count; i++)
		if (writer->region->ops->data.flush(writer->region, spans[i].off, spans[i].len) != FARLOG_OK)
			return region_set_error(writer->region, FARLOG_IO, "flush undrained records of ring", uri, error);
	return FARLOG_OK;
}

static void start_ring(struct farlog_writer *writer, const struct farlog_writer_config *config,
	const struct recover_scan *scan, uint64_t head_lsn)
{
	uint64_t capacity = writer->identity.capacity;

	writer->ring = (struct ring){
		.capacity = capacity,
		.appended_lsn = scan->tail.lsn,
		.appended_off = scan->tail.lsn % capacity,
		.credit_lsn = writer->is_packed ? head_lsn & ~((uint64_t)writer->identity.block_len - 1) : head_lsn,
		.next_seq = scan->tail.seq,
		.warn_bytes = capacity / 100 * (config->warn_percent ? config->warn_percent : WRITER_WARN_PERCENT),
		.alarm_bytes = capacity / 100 * (config->alarm_percent ? config->alarm_percent : WRITER_ALARM_PERCENT),
	};
	writer->durable_lsn = scan->tail.lsn;
	writer_choose_stage(writer);
}

/* is_possible_end -- may the log have ended there? What cannot be says nothing: a far writer has a key to the hint, and
 * proposes superblocks. */
static bool is_possible_end(const struct farlog_writer *writer, const struct head_slot *head, uint64_t lsn)
{
	return lsn % writer->identity.align == 0 && lsn - head->head_lsn <= writer->identity.capacity;
}

/* find_loss -- has the log once gone further than it does now, as far as what is on the media can say
 * (docs/explanation/durability.md)? Something behind the tail was acknowledged, or found by a recovery: `why` says it.
 * "" = what lies behind the tail may never have been acknowledged. */
static void find_loss(const struct farlog_writer *writer, const struct head_slot *head, uint64_t tail_lsn,
	const struct recover_orphans *orphans, uint64_t hint_lsn, char *why, size_t size)
{
	const struct superblock *superblock = &writer->superblock;
	uint64_t start_lsn = superblock->epoch_start_lsn;
	bool is_one = !writer->region->caps.has_checked_rings; /* else each ring is judged for itself */
	bool was_member = superblock->floor_lsn != 0; /* which is sent several commits at once when it was behind */

	if (tail_lsn < hint_lsn && is_possible_end(writer, head, hint_lsn))
		snprintf(why, size, "everything below lsn %lu was acknowledged", hint_lsn);
	else if (is_one && tail_lsn < start_lsn && is_possible_end(writer, head, start_lsn))
		snprintf(why, size, "epoch %u was begun at lsn %lu, behind it", superblock->writer_epoch, start_lsn);
	else if (is_one && !was_member && orphans->later_lsn != UINT64_MAX)
		snprintf(why, size, "the record at lsn %lu was written when that was durable", orphans->later_lsn);
}

/* check_loss -- refuse when acknowledged bytes are gone; and an operator's word that they may be, where they are
 * not, or at another place. */
static int check_loss(const struct farlog_writer *writer, const char *uri, uint64_t tail_lsn, const char *why,
	const struct writer_watch *watch, struct farlog_error *error)
{
	bool is_cutting = watch != NULL && watch->is_cutting;

	if (is_cutting && why[0] == '\0')
		return error_set(error, FARLOG_INVALID, 0,
			"ring \"%s\" has lost nothing that is known of: its log ends at lsn %lu; open it as usual", uri, tail_lsn);
	if (is_cutting && watch->cut_lsn != tail_lsn)
		return error_set(error, FARLOG_INVALID, 0,
			"ring \"%s\": asked to accept the loss from lsn %lu on, and the record at lsn %lu is the first that is "
			"unreadable",
			uri, watch->cut_lsn, tail_lsn);
	if (is_cutting || why[0] == '\0')
		return FARLOG_OK;
	return error_set(error, FARLOG_CORRUPT, 0,
		"ring \"%s\": the record at lsn %lu is unreadable although %s; the media has lost bytes; run" REGION_DUMP
		"; to go on without what lies from there on: farlog ring cut '%s' --at %lu",
		uri, tail_lsn, why, REGION_DUMP_OF(writer->region, uri), writer->region->caps.is_remote ? "REGION" : uri,
		tail_lsn);
}

int writer_recover(struct farlog_writer *writer, const char *uri, const struct farlog_writer_config *config,
	const struct writer_watch *watch, struct farlog_error *error)
{
	uint64_t start_ns = clock_monotonic_ns();
	uint64_t durable_hint_lsn;
	struct recover_orphans orphans;
	struct recover_scan scan;
	char why[120] = "";
	struct head_slot head;
	int result;

	result = writer->region->ops->members.recover(writer->region, error);
	if (result != FARLOG_OK)
		return result;
	durable_hint_lsn = region_load_word(writer->region, LAYOUT_DURABLE_HINT_OFF);
	if (!head_load(writer->region, &writer->superblock, &head))
		return error_set(error, FARLOG_CORRUPT, 0,
			"ring \"%s\": both head slots fail their check, so where its records begin is not known; run" REGION_DUMP,
			uri, REGION_DUMP_OF(writer->region, uri));
	/* A living drain may have stored this slot an instant ago and not flushed it yet. Space below it is about to be
	 * written, so it is made durable now: after it was read, for a flush before would miss it. Should the drain have
	 * gone on meanwhile, then by way of a higher head that it did flush. */
	if (writer->region->ops->data.flush(writer->region, LAYOUT_HEAD_A_OFF, 2 * LAYOUT_LINE_LEN) != FARLOG_OK)
		return region_set_error(writer->region, FARLOG_IO, "flush head of ring", uri, error);
	head_raise_to_floor(&writer->superblock, &head);
	if (head.last_epoch > writer->superblock.writer_epoch)
		return error_set(error, FARLOG_CORRUPT, 0,
			"ring \"%s\": records of epoch %u were drained, but the newest sound superblock knows epoch %u at most: "
			"the one that opened it is "
			"damaged; run" REGION_DUMP,
			uri, head.last_epoch, writer->superblock.writer_epoch, REGION_DUMP_OF(writer->region, uri));
	result = recover_scan(writer->region, &writer->superblock, &head, &scan);
	if (result == FARLOG_OK)
		result =
			recover_orphans(writer->region, &writer->superblock, &scan, head.head_lsn, ORPHAN_WINDOW_LEN, &orphans);
	if (result != FARLOG_OK)
		return region_set_error(writer->region, FARLOG_IO, "read undrained records of ring", uri, error);
	find_loss(writer, &head, scan.tail.lsn, &orphans, durable_hint_lsn, why, sizeof(why));
	result = check_loss(writer, uri, scan.tail.lsn, why, watch, error);
	if (result != FARLOG_OK)
		return result;
	start_ring(writer, config, &scan, head.head_lsn);
	result = flush_records(writer, uri, head.head_lsn, error);
	writer->recovery = (struct farlog_recovery){
		.prev_epoch = writer->superblock.writer_epoch,
		.head_lsn = head.head_lsn,
		.tail_lsn = scan.tail.lsn,
		.next_seq = scan.tail.seq,
		.record_count = scan.record_count,
		.orphan_count = orphans.count,
		.scanned_bytes = scan.tail.lsn - head.head_lsn,
		.duration_ns = clock_monotonic_ns() - start_ns,
	};
	return result;
}
