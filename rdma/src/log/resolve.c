/* log/resolve.c -- what became of an append whose outcome the caller does not know. */
#include <string.h>

#include "log/late.h"
#include "region/superblock.h"

static void describe_record(const struct farlog_writer *writer, const struct record_header *header, uint8_t level,
	struct farlog_position *position)
{
	position->seq = header->seq;
	position->epoch = header->epoch;
	position->end_lsn = position->lsn + record_extent(writer->identity.align, header->key_len, header->payload_len);
	position->level = level;
}

static int read_header(const struct farlog_writer *writer, uint64_t lsn, struct record_header *header)
{
	return writer->region->ops->data.read(
		writer->region, LAYOUT_DATA_OFF + lsn % writer->identity.capacity, header, sizeof(*header));
}

/* is_decided -- a far ring has been closed to this writer. What was under way then is in the log below its end, and
 * made durable by who closed it, or it never will be. Of several members that is so of what as many have as an
 * acknowledgement needs, and of what none has; of the rest the next writer decides. */
static bool is_decided(struct farlog_writer *writer, const struct farlog_position *position, int *result)
{
	const struct region *region = writer->region;

	*result = FARLOG_OK;
	if (position->end_lsn <= atomic_load_acquire(&region->quorum_durable_lsn))
		return true;
	if (!region_can_fence_writer(region) || !writer_is_fenced(writer) ||
		atomic_load_acquire(&region->is_fence_lsn_pending))
		return false;
	*result = position->lsn >= region->fence_lsn ? FARLOG_FENCED : FARLOG_OK;
	return position->lsn >= region->fence_lsn || region->is_fence_exact;
}

/* wait_own_durable -- as writer_wait_durable, for one record: its fate may be known where that of others is not. */
static int wait_own_durable(
	struct farlog_writer *writer, const struct farlog_position *position, struct deadline *deadline)
{
	while (writer->durable_lsn < position->end_lsn) {
		int result = writer_advance_flush(writer);
		int verdict;

		if (writer->durable_lsn >= position->end_lsn)
			break;
		if (is_decided(writer, position, &verdict))
			return verdict;
		if (result == FARLOG_OK && !deadline_pause(deadline, writer, true)) {
			region_push(writer->region);
			late_begin(writer, position->end_lsn, deadline->at_ns - deadline->duration_ns);
			result = FARLOG_UNKNOWN;
		}
		late_touch(writer);
		if (result != FARLOG_OK) {
			atomic_bump(&writer->counters->unknown_count, 1);
			return result;
		}
	}
	return FARLOG_OK;
}

/* resolve_own -- a position of this epoch: what this writer appended it never takes back. */
static int resolve_own(struct farlog_writer *writer, struct deadline *deadline, struct farlog_position *position)
{
	struct record_header header;
	bool is_drained = position->lsn < writer->ring.credit_lsn;
	bool is_here;
	int result;

	if (read_header(writer, position->lsn, &header) != FARLOG_OK)
		return FARLOG_UNKNOWN;
	/* The epoch too: below a PAD the header of a record that recovery dropped may still lie. */
	is_here = header.magic == RECORD_MAGIC && header.lsn == position->lsn && header.epoch == writer->epoch &&
		!(header.flags & RECORD_FLAG_PAD);
	position->epoch = writer->epoch;
	if (is_here)
		describe_record(writer, &header, FARLOG_LEVEL_POSTED, position);
	if (is_drained) {
		position->level = FARLOG_LEVEL_STORED;
		return FARLOG_OK;
	}
	if (!is_here)
		return FARLOG_NOT_FOUND;
	result = wait_own_durable(writer, position, deadline);
	if (result == FARLOG_OK) {
		position->level = writer_level_at(writer, position->lsn);
		position->copies = writer_copies(writer);
	}
	return result;
}

/* is_written_over -- from this head the chain cannot be walked any more: what lay there was freed by a later one. */
static bool is_written_over(const struct farlog_writer *writer, const struct resolve_bounds *bounds, uint64_t head_lsn)
{
	return bounds->appended_lsn - head_lsn > writer->identity.capacity;
}

/* load_head -- where the chain of records begins of which the writer's memory still has all: the head may have gone on
 * since it was fetched, and what lay there been written over. False: that is not known, or the chain does not reach
 * back to this position. */
static bool load_head(const struct farlog_writer *writer, const struct resolve_bounds *bounds,
	struct deadline *deadline, uint64_t lsn, struct head_slot *head)
{
	struct region *region = writer->region;
	bool is_known = head_load(region, &writer->superblock, head);

	/* A head that has gone on since frees what it passed, and the walk from there would end at once. A device of this
	 * host is asked for it each time, a target only when it has to be. */
	if (region->caps.needs_fetch &&
		(!region->caps.is_remote || (is_known && is_written_over(writer, bounds, head->head_lsn)))) {
		region->until_ns = deadline->at_ns != 0 ? deadline->at_ns : clock_after_ns(deadline->duration_ns);
		is_known =
			region_fetch(region, 0, LAYOUT_DATA_OFF) == FARLOG_OK && head_load(region, &writer->superblock, head);
		region->until_ns = 0;
	}
	/* Of several members the later head may be at one that has gone since, or does not answer. */
	is_known = is_known && !is_written_over(writer, bounds, head->head_lsn);
	return is_known && head->head_lsn <= lsn && bounds->credit_lsn <= lsn;
}

/* writer_resolve_inherited -- a position below this epoch: recovery has decided. What it kept is the chain of valid
 * records from the head on; a header at the right place proves nothing. Of what is drained the ring no longer knows. */
int writer_resolve_inherited(const struct farlog_writer *writer, struct resolve_bounds *bounds,
	struct deadline *deadline, struct farlog_position *position)
{
	const uint8_t *data = writer->region->base + LAYOUT_DATA_OFF;
	struct record_header header;
	struct record_found found;
	struct head_slot head;
	struct record_cursor walk;

	if (!load_head(writer, bounds, deadline, position->lsn, &head))
		return FARLOG_UNKNOWN;
	bounds->head_lsn = head.head_lsn;
	walk = (struct record_cursor){
		.lsn = head.head_lsn, .seq = head.head_seq, .epoch = head.last_epoch, .epoch_max = writer->epoch};
	for (;;) {
		uint64_t off = walk.lsn % writer->identity.capacity;

		if (walk.lsn > position->lsn ||
			record_check(&writer->identity, &walk, data + off, writer->identity.capacity - off, &found) != RECORD_VALID)
			return region_has_lost_page(writer->region) ? FARLOG_UNKNOWN : FARLOG_NOT_FOUND;
		if (walk.lsn == position->lsn)
			break;
		record_advance(&walk, &found);
	}
	if (found.flags & RECORD_FLAG_PAD)
		return FARLOG_NOT_FOUND;
	if (read_header(writer, position->lsn, &header) != FARLOG_OK)
		return FARLOG_UNKNOWN;
	describe_record(writer, &header, bounds->level, position);
	position->copies = writer_copies(writer);
	return FARLOG_OK;
}

struct resolve_bounds writer_resolve_bounds(const struct farlog_writer *writer, uint64_t lsn)
{
	return (struct resolve_bounds){writer->ring.appended_lsn, writer->ring.credit_lsn, 0, writer_level_at(writer, lsn)};
}

int writer_resolve(struct farlog_writer *writer, struct deadline *deadline, struct farlog_position *position)
{
	struct resolve_bounds bounds;

	if (position->lsn % writer->identity.align != 0)
		return FARLOG_INVALID;
	if (position->lsn >= writer->ring.appended_lsn)
		return FARLOG_NOT_FOUND;
	writer_read_credit(writer, true);
	bounds = writer_resolve_bounds(writer, position->lsn);
	if (position->lsn < writer->recovery.tail_lsn)
		return writer_resolve_inherited(writer, &bounds, deadline, position);
	return resolve_own(writer, deadline, position);
}

int farlog_resolve(farlog_writer *writer, uint64_t lsn, uint64_t deadline_ns, struct farlog_position *position)
{
	struct deadline deadline = deadline_make(writer, deadline_ns);

	*position = (struct farlog_position){.lsn = lsn, .copies = 1};
	return writer_resolve(writer, &deadline, position);
}
