/* route/carry.c -- the carrier of a leg: appends the records of its buffer to its ring, each once. route/route.h says
 * how. */
#include "route/route.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/err.h"

#define SLICE_NS 5000000u /* of one step, waiting for the ring's media */
#define NAP_NS 50000
#define RETRY_FIRST_NS 20000000u
#define RETRY_LAST_NS 1000000000u
#define IDLE_NAP_LAST_NS 2000000

/* Progress of a batch: the head that may be released once the records are durable in the leg's ring. */
struct load {
	struct head_slot slot;
	uint64_t ring_seq; /* of the next record */
	uint64_t count;    /* of records appended by this step */
};

static void sleep_ns(long ns)
{
	nanosleep(&(struct timespec){0, ns}, NULL);
}

/* rewind_reader -- to the head: records that were read and not released are read again. */
static void rewind_reader(struct route_leg *leg)
{
	struct farlog_reader *reader = leg->reader;

	reader->cursor = (struct record_cursor){.lsn = reader->released.head_lsn,
		.seq = reader->released.head_seq,
		.epoch = reader->released.last_epoch,
		.epoch_max = reader->superblock.writer_epoch};
	reader->empty_lsn = UINT64_MAX;
	leg->next_ring_seq = leg->head_ring_seq;
}

static int release_head(struct route_leg *leg, struct head_slot *slot, uint32_t ring_epoch, uint64_t ring_seq)
{
	int result;

	slot->far_epoch = ring_epoch;
	slot->far_seq = (uint32_t)ring_seq;
	result = reader_release_spill(leg->reader, slot);
	if (result != FARLOG_OK)
		return result;
	leg->head_ring_seq = ring_seq;
	atomic_store_release(&leg->carried_lsn, slot->head_lsn);
	return FARLOG_OK;
}

/* next_record -- of a batch, at *at. False: the batch has no more. */
static bool next_record(const struct route_leg *leg, const struct farlog_batch *batch, size_t *at,
	struct record_header *header, struct farlog_entry *entry)
{
	const uint8_t *bytes = leg->batch + *at;

	if (*at >= batch->len)
		return false;
	memcpy(header, bytes, sizeof(*header));
	*entry = (struct farlog_entry){.data = bytes + RECORD_HEADER_LEN + header->key_len,
		.len = header->payload_len,
		.class_id = header->class_id,
		.key_len = header->key_len,
		.key = bytes + RECORD_HEADER_LEN};
	*at += header->flags & RECORD_FLAG_PAD ?
		RECORD_PAD_STORED_LEN :
		record_extent(leg->reader->identity.align, header->key_len, header->payload_len);
	return true;
}

/* is_carriable -- plain and GAP records; others belong to the buffer itself. */
static bool is_carriable(const struct record_header *header)
{
	return (header->flags & ~(RECORD_FLAG_GAP | RECORD_FLAG_ENCRYPTED)) == 0;
}

static void advance_head(const struct route_leg *leg, const struct record_header *header, struct head_slot *slot)
{
	if (header->flags & RECORD_FLAG_PAD)
		return; /* the head moves over it with the next record */
	slot->head_lsn = header->lsn + record_extent(leg->reader->identity.align, header->key_len, header->payload_len);
	slot->head_seq = header->seq + 1;
	slot->last_epoch = header->epoch;
}

/* A pass over the records of the buffer from the head on. */
struct pass {
	struct farlog_batch batch;
	size_t at;
};

static struct pass begin_pass(struct route_leg *leg)
{
	rewind_reader(leg);
	return (struct pass){0};
}

/* pass_next -- OK; NOT_YET: that was the last record; another result: the buffer cannot be read. */
static int pass_next(struct route_leg *leg, struct pass *pass, struct record_header *header, struct farlog_entry *entry)
{
	while (!next_record(leg, &pass->batch, &pass->at, header, entry)) {
		int result = farlog_reader_read(leg->reader, leg->batch, leg->batch_len, &pass->batch);

		if (result != FARLOG_OK)
			return result;
		pass->at = 0;
	}
	return FARLOG_OK;
}

/* skip_landed -- move the head over the first `count` records, which are in the leg's ring. OK; else a record could not
 * be read: the leg stays away, since records that are in the ring would be appended again. */
static int skip_landed(struct route_leg *leg, uint64_t count, struct head_slot *slot)
{
	struct pass pass = begin_pass(leg);
	struct record_header header;
	struct farlog_entry entry;
	int result = FARLOG_OK;

	while (count > 0 && (result = pass_next(leg, &pass, &header, &entry)) == FARLOG_OK) {
		count -= is_carriable(&header);
		advance_head(leg, &header, slot);
	}
	return result == FARLOG_NOT_YET ? FARLOG_OK : result;
}

/* count_carriable -- records in the buffer. OK, or why it cannot be read. */
static int count_carriable(struct route_leg *leg, uint64_t *count)
{
	struct pass pass = begin_pass(leg);
	struct record_header header;
	struct farlog_entry entry;
	int result;

	*count = 0;
	while ((result = pass_next(leg, &pass, &header, &entry)) == FARLOG_OK)
		*count += is_carriable(&header);
	return result == FARLOG_NOT_YET ? FARLOG_OK : result;
}

/* count_sent -- of the plain records from the head on: how many were appended to the leg's ring, with whatever outcome,
 * and how many were not. */
static void count_sent(struct route_leg *leg, uint64_t *sent, uint64_t *unsent)
{
	struct pass pass = begin_pass(leg);
	uint64_t ring_seq = leg->head_ring_seq;
	struct record_header header;
	struct farlog_entry entry;
	int result;

	while ((result = pass_next(leg, &pass, &header, &entry)) == FARLOG_OK) {
		bool is_sent = is_carriable(&header) && leg->writer != NULL && ring_seq++ < leg->writer->ring.next_seq;

		if ((header.flags & ~RECORD_FLAG_ENCRYPTED) != 0)
			continue; /* a GAP reports records that are counted already */
		*sent += is_sent;
		*unsent += !is_sent;
	}
	if (result != FARLOG_NOT_YET) /* records that cannot be read may have been sent */
		*sent += shared_writer(leg->buffer)->ring.next_seq - leg->reader->cursor.seq;
}

void route_drop_memory(struct route_leg *leg)
{
	uint64_t sent = 0, unsent = 0;

	if (leg->carried_lsn == shared_published_lsn(leg->buffer))
		return;
	/* else the reader may not see the last records */
	may_fail(shared_wait_durable(leg->buffer, shared_published_lsn(leg->buffer), clock_after_ns(SLICE_NS)));
	count_sent(leg, &sent, &unsent);
	atomic_add(&leg->counters.unknown_count, sent);
	atomic_add(&leg->counters.dropped_count, unsent);
	leg->has_dropped = sent + unsent != 0;
	atomic_store_release(&leg->carried_lsn, shared_published_lsn(leg->buffer));
}

int route_init_head(struct route_leg *leg)
{
	struct head_slot slot = leg->reader->released;
	const struct record_cursor *end = &leg->reader->cursor;
	uint64_t count;
	bool is_empty;

	if (count_carriable(leg, &count) != FARLOG_OK)
		return FARLOG_IO;
	is_empty = count == 0; /* the cursor is behind the EPOCH record of the buffer's new epoch */
	slot.head_lsn = end->lsn;
	slot.head_seq = end->seq;
	slot.last_epoch = end->epoch;
	if (is_empty && release_head(leg, &slot, 0, 0) != FARLOG_OK)
		return FARLOG_IO;
	atomic_store_release(&leg->carried_lsn, leg->reader->released.head_lsn);
	rewind_reader(leg);
	return FARLOG_OK;
}

/* reconcile_head -- called when the leg's ring has been recovered, before its next epoch is visible: only now the ring
 * shows for certain which records of the buffer it has. */
static int reconcile_head(void *context, const struct farlog_writer *writer, struct farlog_error *error)
{
	struct route_leg *leg = context;
	struct head_slot slot = leg->reader->released;
	uint32_t last_epoch = writer->superblock.writer_epoch;
	int32_t landed = (int32_t)((uint32_t)writer->ring.next_seq - slot.far_seq);
	uint64_t doubt_count;
	int result = FARLOG_OK;

	if (slot.far_epoch != 0 && last_epoch == slot.far_epoch && landed > 0)
		result = skip_landed(leg, (uint64_t)landed, &slot);
	else if (slot.far_epoch != 0 && last_epoch > slot.far_epoch) {
		result = count_carriable(leg, &doubt_count);
		atomic_add(&leg->counters.doubt_count, result == FARLOG_OK ? doubt_count : 0);
	}
	if (result == FARLOG_OK) /* seq of the EPOCH record: next_seq */
		result = release_head(leg, &slot, writer->epoch, writer->ring.next_seq + 1);
	rewind_reader(leg);
	return result == FARLOG_OK ?
		result :
		error_set(error, FARLOG_IO, 0, "leg \"%s\": its spill cannot be read, or its head not be stored", leg->name);
}

static void mark_away(struct route_leg *leg, int result, const char *text)
{
	bool is_final = result == FARLOG_FENCED;

	route_set_text(leg, text);
	atomic_store_release(&leg->state, is_final ? FARLOG_LEG_FENCED : FARLOG_LEG_AWAY);
	leg->retry_ns = leg->retry_ns == 0    ? RETRY_FIRST_NS :
		leg->retry_ns * 2 < RETRY_LAST_NS ? leg->retry_ns * 2 :
											RETRY_LAST_NS;
	leg->retry_at_ns = clock_after_ns(leg->retry_ns);
}

/* set_writer -- with the lock, since other threads may be reading it. */
static void set_writer(struct route_leg *leg, struct farlog_writer *writer)
{
	pthread_mutex_lock(&leg->writer_lock);
	leg->writer = writer;
	pthread_mutex_unlock(&leg->writer_lock);
}

static bool open_ring(struct route_leg *leg)
{
	struct farlog_writer *writer;
	struct writer_watch watch = {.recovered = reconcile_head, .context = leg};
	struct farlog_error error = {0};
	int result;

	if (leg->retry_at_ns != 0 && clock_monotonic_ns() < leg->retry_at_ns)
		return false;
	result = writer_open(leg->opening.uri, &leg->opening.config, &watch, &writer, &error);
	if (result != FARLOG_OK) {
		mark_away(leg, result, error.text);
		atomic_store_release(&leg->has_tried_open, 1);
		return false;
	}
	set_writer(leg, writer);
	atomic_add(&leg->counters.reopen_count, leg->was_open);
	leg->was_open = true;
	leg->retry_ns = 0;
	leg->retry_at_ns = 0;
	leg->head_ring_seq = leg->writer->ring.next_seq;
	atomic_store_relaxed(&leg->deadline_ns, leg->writer->deadline_ns);
	rewind_reader(leg);
	route_set_text(leg, NULL);
	atomic_store_release(&leg->state, FARLOG_LEG_CARRYING);
	atomic_store_release(&leg->has_tried_open, 1);
	return true;
}

/* close_failed_ring -- its region has failed, or another writer has the stream. */
static void close_failed_ring(struct route_leg *leg, int result)
{
	struct farlog_writer *writer = leg->writer;
	struct region *region = writer->region;
	char text[200];

	snprintf(text, sizeof(text), "its ring: %s%s%.120s", farlog_result_text(result),
		region->last_error != NULL ? ": " : "", region->last_error != NULL ? region->last_error : "");
	if (result == FARLOG_FENCED)
		atomic_store_release(&leg->fenced_epoch, atomic_load_relaxed(&writer->fenced_epoch));
	set_writer(leg, NULL);
	writer_stop_follower(writer, false); /* the route goes on: it has not ended */
	(void)farlog_writer_close(writer);
	mark_away(leg, result, text);
	rewind_reader(leg);
}

/* append_gap_too_large -- the ring does not take a record of this length: append a GAP in its place, so that the seqs
 * continue. */
static int append_gap_too_large(struct route_leg *leg, struct farlog_position *position)
{
	struct clock_reading now;
	struct farlog_gap gap = {.reason = FARLOG_GAP_TOO_LARGE, .count = 1};
	struct farlog_entry entry = {.data = &gap, .len = sizeof(gap)};
	int result;

	clock_read(clock_ticks(), &now);
	gap.from_ts_ns = gap.to_ts_ns = now.utc_ns;
	result = writer_stage(leg->writer, &entry, RECORD_FLAG_GAP, clock_ticks(), position);
	if (result == FARLOG_OK) {
		atomic_add(&leg->counters.dropped_count, 1);
		atomic_add(&leg->counters.gap_count, 1);
	}
	return result;
}

/* append_batch -- to the leg's ring, as far as it has space. OK; FULL: not all of it; FENCED, CLOSED. */
static int append_batch(struct route_leg *leg, const struct farlog_batch *batch, struct load *load)
{
	struct record_header header;
	struct farlog_entry entry;

	for (size_t at = 0; next_record(leg, batch, &at, &header, &entry); advance_head(leg, &header, &load->slot)) {
		struct farlog_position position;
		int result = FARLOG_OK;

		if (!is_carriable(&header))
			continue;
		if (load->ring_seq >= leg->writer->ring.next_seq) { /* else it has been appended already */
			result = route_decrypt(leg, &header, &entry);
			if (result == FARLOG_OK)
				result = writer_stage(leg->writer, &entry, header.flags & RECORD_FLAG_GAP, clock_ticks(), &position);
			if (result == FARLOG_TOO_LARGE || result == FARLOG_INVALID)
				result = append_gap_too_large(leg, &position);
			if (result != FARLOG_OK)
				return result;
		}
		load->ring_seq++;
		load->count++;
	}
	return FARLOG_OK;
}

/* wait_ring_durable -- until all appended records are durable in the leg's ring, for SLICE_NS at most. OK, NOT_YET;
 * FENCED, UNKNOWN: it has failed. */
static int wait_ring_durable(struct route_leg *leg)
{
	struct farlog_writer *writer = leg->writer;
	uint64_t until_ns = clock_after_ns(SLICE_NS);
	int result = FARLOG_OK;

	while (writer->durable_lsn < writer->ring.appended_lsn && result == FARLOG_OK) {
		uint64_t now_ns;

		result = writer_advance_flush(writer);
		if (result != FARLOG_OK || writer->durable_lsn >= writer->ring.appended_lsn)
			break;
		region_push(writer->region);
		result = writer_fenced_result(writer);
		now_ns = clock_monotonic_ns();
		if (result == FARLOG_OK && now_ns >= until_ns)
			result = FARLOG_NOT_YET;
		else if (result == FARLOG_OK)
			writer->region->ops->data.wait(writer->region, until_ns - now_ns);
	}
	if (result == FARLOG_OK)
		may_fail(farlog_poll(writer, &(uint64_t){0})); /* stores the durable hint for readers */
	return result;
}

/* wait_buffer_durable -- a record has to be durable in the buffer before it is appended elsewhere. OK or NOT_YET. */
static int wait_buffer_durable(struct route_leg *leg, uint64_t lsn)
{
	uint64_t until_ns = clock_after_ns(SLICE_NS);

	if (shared_published_lsn(leg->buffer) < lsn)
		return FARLOG_NOT_YET;
	return shared_wait_durable(leg->buffer, lsn, until_ns) == FARLOG_OK ? FARLOG_OK : FARLOG_NOT_YET;
}

/* carry_batch -- OK: continue; NOT_YET and FULL: try again later. */
static int carry_batch(struct route_leg *leg, const struct farlog_batch *batch)
{
	struct load load = {.slot = leg->reader->released, .ring_seq = leg->next_ring_seq};
	int sent, result = wait_buffer_durable(leg, batch->next_lsn);

	if (result != FARLOG_OK) {
		rewind_reader(leg);
		return result;
	}
	sent = append_batch(leg, batch, &load);
	result = sent == FARLOG_OK || sent == FARLOG_FULL ? FARLOG_OK : sent;
	if (result == FARLOG_OK)
		result = wait_ring_durable(leg);
	if (result == FARLOG_OK && load.slot.head_lsn > leg->reader->released.head_lsn) {
		result = release_head(leg, &load.slot, leg->writer->epoch, load.ring_seq);
		if (result == FARLOG_OK) {
			atomic_add(&leg->counters.carried_count, load.count);
			atomic_add(&leg->counters.acked_count, load.count);
		} else
			result = FARLOG_NOT_YET; /* an error of the buffer's media: trying again loses nothing */
	}
	if (result != FARLOG_OK && result != FARLOG_NOT_YET)
		close_failed_ring(leg, result);
	else if (result != FARLOG_OK || sent != FARLOG_OK)
		rewind_reader(leg);
	else
		leg->next_ring_seq = load.ring_seq;
	return result == FARLOG_OK ? sent : result;
}

/* send_heartbeat -- when one is due and nothing is left to carry. It takes a seq in the leg's ring, so that records put
 * into the buffer from now on get a seq one higher: that is stored in the head before the heartbeat is visible. OK,
 * NOT_YET: not durable yet; else the ring has failed. */
static int send_heartbeat(struct route_leg *leg)
{
	struct farlog_entry nothing = {0};
	struct head_slot slot = leg->reader->released;
	struct farlog_position position;
	struct ring_place place;
	uint64_t extent, ring_seq = leg->writer->ring.next_seq + 1;
	int result;

	if (leg->writer->durable_lsn < leg->writer->ring.appended_lsn)
		return wait_ring_durable(leg); /* of the previous heartbeat */
	if (!atomic_load_acquire(&leg->is_heartbeat_due) || shared_published_lsn(leg->buffer) != leg->carried_lsn)
		return FARLOG_OK;
	atomic_store_relaxed(&leg->is_heartbeat_due, 0);
	if (writer_check_entry(leg->writer, &nothing, RECORD_FLAG_HEARTBEAT, &extent) != FARLOG_OK ||
		writer_find_place(leg->writer, extent, &place) != FARLOG_OK)
		return FARLOG_OK; /* the next heartbeat tries again */
	if (release_head(leg, &slot, leg->writer->epoch, ring_seq) != FARLOG_OK)
		return FARLOG_OK;
	leg->head_ring_seq = leg->next_ring_seq = ring_seq;
	result = writer_stage(leg->writer, &nothing, RECORD_FLAG_HEARTBEAT, clock_ticks(), &position);
	return result == FARLOG_OK ? wait_ring_durable(leg) : result;
}

/* release_ring -- of a required leg, when nothing is left to carry. A record that is put into the spill after this
 * check is seen by the appender before it owns the ring, or by the carrier in owns_ring. */
static void release_ring(struct route_leg *leg)
{
	if (leg->is_required && shared_published_lsn(leg->buffer) == leg->carried_lsn)
		atomic_store_release(&leg->owner, ROUTE_OWNER_NONE);
}

/* idle_step -- nothing is left to carry. */
static void idle_step(struct route_leg *leg)
{
	int result = leg->writer->is_failed ? FARLOG_CLOSED :
		writer_is_fenced(leg->writer)   ? FARLOG_FENCED :
										  send_heartbeat(leg);

	if (result == FARLOG_OK || result == FARLOG_NOT_YET)
		release_ring(leg);
	else
		close_failed_ring(leg, result);
}

static bool owns_ring(struct route_leg *leg)
{
	uint64_t owner = atomic_load_acquire(&leg->owner);

	if (owner == ROUTE_OWNER_NONE && shared_published_lsn(leg->buffer) != leg->carried_lsn)
		return atomic_swap_if(&leg->owner, ROUTE_OWNER_NONE, ROUTE_OWNER_CARRIER);
	return owner == ROUTE_OWNER_CARRIER;
}

bool route_carry(struct route_leg *leg)
{
	struct farlog_batch batch;
	int result;

	if (!owns_ring(leg) || atomic_load_relaxed(&leg->state) == FARLOG_LEG_FENCED ||
		(leg->writer == NULL && !open_ring(leg)))
		return false;
	result = farlog_reader_read(leg->reader, leg->batch, leg->batch_len, &batch);
	if (result == FARLOG_OK)
		return carry_batch(leg, &batch) == FARLOG_OK;
	if (result == FARLOG_NOT_YET)
		idle_step(leg);
	else
		route_set_text(leg, "its buffer cannot be read");
	return false;
}

void *route_carrier(void *argument)
{
	struct route_leg *leg = argument;
	long nap_ns = NAP_NS;

	while (!atomic_load_acquire(&leg->is_stopping)) {
		if (route_carry(leg)) {
			nap_ns = NAP_NS;
			continue;
		}
		sleep_ns(nap_ns);
		nap_ns = nap_ns * 2 < IDLE_NAP_LAST_NS ? nap_ns * 2 : IDLE_NAP_LAST_NS;
	}
	return NULL;
}
