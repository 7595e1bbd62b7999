/* route/carry.c -- the carrier of a leg: from its buffer to its ring, each record once. See route/route.h for why. */
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

/* What of a batch has been appended to the leg's ring: the head that may be released once it is durable there. */
struct load {
	struct head_slot slot;
	uint64_t far_seq; /* of the next one */
	uint64_t count;   /* of records that were appended now */
};

static void nap(long ns)
{
	nanosleep(&(struct timespec){0, ns}, NULL);
}

/* rewind_reader -- to the head: what was read and not released is read again. */
static void rewind_reader(struct route_leg *leg)
{
	struct farlog_reader *reader = leg->reader;

	reader->cursor = (struct record_cursor){.lsn = reader->released.head_lsn,
		.seq = reader->released.head_seq,
		.epoch = reader->released.last_epoch,
		.epoch_max = reader->superblock.writer_epoch};
	reader->barren_lsn = UINT64_MAX;
	leg->next_far_seq = leg->head_far_seq;
}

static int release(struct route_leg *leg, struct head_slot *slot, uint32_t far_epoch, uint64_t far_seq)
{
	int result;

	slot->far_epoch = far_epoch;
	slot->far_seq = (uint32_t)far_seq;
	result = reader_release_spill(leg->reader, slot);
	if (result != FARLOG_OK)
		return result;
	leg->head_far_seq = far_seq;
	atomic_store_release(&leg->carried_lsn, slot->head_lsn);
	return FARLOG_OK;
}

/* next_record -- of a batch. False: there is no more. */
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

/* is_carried -- records of the buffer itself stay in it. */
static bool is_carried(const struct record_header *header)
{
	return (header->flags & ~RECORD_FLAG_GAP) == 0;
}

static void pass(const struct route_leg *leg, const struct record_header *header, struct head_slot *slot)
{
	if (header->flags & RECORD_FLAG_PAD)
		return; /* it goes with the record behind it */
	slot->head_lsn = header->lsn + record_extent(leg->reader->identity.align, header->key_len, header->payload_len);
	slot->head_seq = header->seq + 1;
	slot->last_epoch = header->epoch;
}

/* read_on -- the next batch of the buffer from the cursor on. OK; NOT_YET: that was all; else it cannot be read,
 * and what it has is not known. */
static int read_on(struct route_leg *leg, struct farlog_batch *batch)
{
	return farlog_reader_read(leg->reader, leg->batch, leg->batch_len, batch);
}

/* skip -- the first `count` records from the head on are in the leg's ring: let the head pass them. What cannot be
 * read is not passed, and the leg stays away: behind a head that stands before records which are in the leg's ring
 * these would be appended once more. */
static int skip(struct route_leg *leg, uint64_t count, struct head_slot *slot)
{
	struct farlog_batch batch;
	int result = FARLOG_OK;

	rewind_reader(leg);
	while (count > 0 && (result = read_on(leg, &batch)) == FARLOG_OK) {
		struct record_header header;
		struct farlog_entry entry;

		for (size_t at = 0; count > 0 && next_record(leg, &batch, &at, &header, &entry);) {
			count -= is_carried(&header);
			pass(leg, &header, slot);
		}
	}
	return result == FARLOG_NOT_YET ? FARLOG_OK : result;
}

/* count_carriable -- records in the buffer. OK, or why it cannot be read. */
static int count_carriable(struct route_leg *leg, uint64_t *count)
{
	struct farlog_batch batch;
	int result;

	*count = 0;
	rewind_reader(leg);
	while ((result = read_on(leg, &batch)) == FARLOG_OK) {
		struct record_header header;
		struct farlog_entry entry;

		for (size_t at = 0; next_record(leg, &batch, &at, &header, &entry);)
			*count += is_carried(&header);
	}
	return result == FARLOG_NOT_YET ? FARLOG_OK : result;
}

/* count_memory -- of the records from the head on: those that the leg's ring was sent, whatever has become of them, and
 * those that it was not. */
static void count_memory(struct route_leg *leg, uint64_t *sent, uint64_t *unsent)
{
	struct farlog_batch batch;
	uint64_t far_seq = leg->head_far_seq;
	int result;

	rewind_reader(leg);
	while ((result = read_on(leg, &batch)) == FARLOG_OK) {
		struct record_header header;
		struct farlog_entry entry;

		for (size_t at = 0; next_record(leg, &batch, &at, &header, &entry);) {
			bool is_sent = is_carried(&header) && leg->far != NULL && far_seq++ < leg->far->ring.next_seq;

			if (header.flags != 0)
				continue; /* a GAP tells of what has been counted */
			*sent += is_sent;
			*unsent += !is_sent;
		}
	}
	if (result != FARLOG_NOT_YET) /* of what cannot be read it is not known whether it was sent */
		*sent += shared_writer(leg->buffer)->ring.next_seq - leg->reader->cursor.seq;
}

void route_drop_memory(struct route_leg *leg)
{
	uint64_t sent = 0, unsent = 0;

	if (leg->carried_lsn == shared_published_lsn(leg->buffer))
		return;
	/* else its reader may not see the last ones */
	may_fail(shared_settle(leg->buffer, shared_published_lsn(leg->buffer), clock_after_ns(SLICE_NS)));
	count_memory(leg, &sent, &unsent);
	atomic_add(&leg->counters.unknown_count, sent);
	atomic_add(&leg->counters.dropped_count, unsent);
	leg->has_lost = sent + unsent != 0;
	atomic_store_release(&leg->carried_lsn, shared_published_lsn(leg->buffer));
}

int route_begin_buffer(struct route_leg *leg)
{
	struct head_slot slot = leg->reader->released;
	const struct record_cursor *end = &leg->reader->cursor;
	uint64_t count;
	bool is_empty;

	if (count_carriable(leg, &count) != FARLOG_OK)
		return FARLOG_IO;
	is_empty = count == 0; /* and the cursor stands behind the record of the buffer's new epoch */
	slot.head_lsn = end->lsn;
	slot.head_seq = end->seq;
	slot.last_epoch = end->epoch;
	if (is_empty && release(leg, &slot, 0, 0) != FARLOG_OK)
		return FARLOG_IO;
	atomic_store_release(&leg->carried_lsn, leg->reader->released.head_lsn);
	rewind_reader(leg);
	return FARLOG_OK;
}

/* settle_head -- the leg's ring has been recovered and its next epoch is not there yet: what of the buffer it has is
 * known now, and never as surely again. */
static int settle_head(void *context, const struct farlog_writer *far, struct farlog_error *error)
{
	struct route_leg *leg = context;
	struct head_slot slot = leg->reader->released;
	uint32_t last_epoch = far->superblock.writer_epoch;
	int32_t landed = (int32_t)((uint32_t)far->ring.next_seq - slot.far_seq);
	uint64_t doubt_count;
	int result = FARLOG_OK;

	if (slot.far_epoch != 0 && last_epoch == slot.far_epoch && landed > 0)
		result = skip(leg, (uint64_t)landed, &slot);
	else if (slot.far_epoch != 0 && last_epoch > slot.far_epoch) {
		result = count_carriable(leg, &doubt_count);
		atomic_add(&leg->counters.doubt_count, result == FARLOG_OK ? doubt_count : 0);
	}
	if (result == FARLOG_OK) /* the EPOCH record comes first */
		result = release(leg, &slot, far->epoch, far->ring.next_seq + 1);
	rewind_reader(leg);
	return result == FARLOG_OK ?
		result :
		error_set(error, FARLOG_IO, 0, "leg \"%s\": its spill cannot be read, or its head not be stored", leg->name);
}

static void set_away(struct route_leg *leg, int result, const char *text)
{
	bool is_final = result == FARLOG_FENCED;

	route_say(leg, text);
	atomic_store_release(&leg->state, is_final ? FARLOG_LEG_FENCED : FARLOG_LEG_AWAY);
	leg->retry_ns = leg->retry_ns == 0    ? RETRY_FIRST_NS :
		leg->retry_ns * 2 < RETRY_LAST_NS ? leg->retry_ns * 2 :
											RETRY_LAST_NS;
	leg->retry_at_ns = clock_after_ns(leg->retry_ns);
}

/* set_far -- others may be looking at the one that is there. */
static void set_far(struct route_leg *leg, struct farlog_writer *far)
{
	pthread_mutex_lock(&leg->far_lock);
	leg->far = far;
	pthread_mutex_unlock(&leg->far_lock);
}

static bool open_far(struct route_leg *leg)
{
	struct farlog_writer *far;
	struct writer_watch watch = {.recovered = settle_head, .context = leg};
	struct farlog_error error = {0};
	int result;

	if (leg->retry_at_ns != 0 && clock_monotonic_ns() < leg->retry_at_ns)
		return false;
	result = writer_open(leg->place.uri, &leg->place.config, &watch, &far, &error);
	if (result != FARLOG_OK) {
		set_away(leg, result, error.text);
		atomic_store_release(&leg->is_tried, 1);
		return false;
	}
	set_far(leg, far);
	atomic_add(&leg->counters.reopen_count, leg->was_open);
	leg->was_open = true;
	leg->retry_ns = 0;
	leg->retry_at_ns = 0;
	leg->head_far_seq = leg->far->ring.next_seq;
	atomic_store_relaxed(&leg->deadline_ns, leg->far->deadline_ns);
	rewind_reader(leg);
	route_say(leg, NULL);
	atomic_store_release(&leg->state, FARLOG_LEG_CARRYING);
	atomic_store_release(&leg->is_tried, 1);
	return true;
}

/* lose_far -- its region has failed, or another writer has the stream. */
static void lose_far(struct route_leg *leg, int result)
{
	struct farlog_writer *far = leg->far;
	struct region *region = far->region;
	char text[200];

	snprintf(text, sizeof(text), "its ring: %s%s%.120s", farlog_result_text(result),
		region->trouble != NULL ? ": " : "", region->trouble != NULL ? region->trouble : "");
	if (result == FARLOG_FENCED)
		atomic_store_release(&leg->fenced_epoch, atomic_load_relaxed(&far->fenced_epoch));
	set_far(leg, NULL);
	writer_unfollow(far, false); /* the route goes on: it has not ended */
	(void)farlog_writer_close(far);
	set_away(leg, result, text);
	rewind_reader(leg);
}

/* put_too_large -- the leg's ring takes no record as long as this one: a GAP in its place, so that the seqs go on. */
static int put_too_large(struct route_leg *leg, struct farlog_position *position)
{
	struct clock_reading now;
	struct farlog_gap gap = {.reason = FARLOG_GAP_TOO_LARGE, .count = 1};
	struct farlog_entry entry = {.data = &gap, .len = sizeof(gap)};
	int result;

	clock_read(clock_ticks(), &now);
	gap.from_ts_ns = gap.to_ts_ns = now.utc_ns;
	result = writer_stage(leg->far, &entry, RECORD_FLAG_GAP, clock_ticks(), position);
	if (result == FARLOG_OK) {
		atomic_add(&leg->counters.dropped_count, 1);
		atomic_add(&leg->counters.gap_count, 1);
	}
	return result;
}

/* send -- what of the batch the ring has room for. OK; FULL: not all of it; FENCED, CLOSED. */
static int send(struct route_leg *leg, const struct farlog_batch *batch, struct load *load)
{
	struct record_header header;
	struct farlog_entry entry;

	for (size_t at = 0; next_record(leg, batch, &at, &header, &entry); pass(leg, &header, &load->slot)) {
		struct farlog_position position;
		int result = FARLOG_OK;

		if (!is_carried(&header))
			continue;
		if (load->far_seq >= leg->far->ring.next_seq) { /* else it is on its way already */
			result = writer_stage(leg->far, &entry, header.flags & RECORD_FLAG_GAP, clock_ticks(), &position);
			if (result == FARLOG_TOO_LARGE || result == FARLOG_INVALID)
				result = put_too_large(leg, &position);
			if (result != FARLOG_OK)
				return result;
		}
		load->far_seq++;
		load->count++;
	}
	return FARLOG_OK;
}

/* settle_far -- until all that was appended to the ring is durable there, for SLICE_NS. OK, NOT_YET; FENCED, UNKNOWN:
 * it has failed. */
static int settle_far(struct route_leg *leg)
{
	struct farlog_writer *far = leg->far;
	uint64_t until_ns = clock_after_ns(SLICE_NS);
	int result = FARLOG_OK;

	while (far->durable_lsn < far->ring.appended_lsn && result == FARLOG_OK) {
		uint64_t now_ns;

		result = writer_pump(far);
		if (result != FARLOG_OK || far->durable_lsn >= far->ring.appended_lsn)
			break;
		region_push(far->region);
		result = writer_shut_out(far);
		now_ns = clock_monotonic_ns();
		if (result == FARLOG_OK && now_ns >= until_ns)
			result = FARLOG_NOT_YET;
		else if (result == FARLOG_OK)
			far->region->ops->data.wait(far->region, until_ns - now_ns);
	}
	if (result == FARLOG_OK)
		may_fail(farlog_poll(far, &(uint64_t){0})); /* the hint, for its readers */
	return result;
}

/* settle_buffer -- what has been read is durable here before anybody else gets it. */
static int settle_buffer(struct route_leg *leg, uint64_t lsn)
{
	uint64_t until_ns = clock_after_ns(SLICE_NS);

	if (shared_published_lsn(leg->buffer) < lsn)
		return FARLOG_NOT_YET;
	return shared_settle(leg->buffer, lsn, until_ns) == FARLOG_OK ? FARLOG_OK : FARLOG_NOT_YET;
}

/* carry_batch -- OK: go on; NOT_YET and FULL: later. */
static int carry_batch(struct route_leg *leg, const struct farlog_batch *batch)
{
	struct load load = {.slot = leg->reader->released, .far_seq = leg->next_far_seq};
	int sent, result = settle_buffer(leg, batch->next_lsn);

	if (result != FARLOG_OK) {
		rewind_reader(leg);
		return result;
	}
	sent = send(leg, batch, &load);
	result = sent == FARLOG_OK || sent == FARLOG_FULL ? FARLOG_OK : sent;
	if (result == FARLOG_OK)
		result = settle_far(leg);
	if (result == FARLOG_OK && load.slot.head_lsn > leg->reader->released.head_lsn) {
		result = release(leg, &load.slot, leg->far->epoch, load.far_seq);
		if (result == FARLOG_OK) {
			atomic_add(&leg->counters.carried_count, load.count);
			atomic_add(&leg->counters.acked_count, load.count);
		} else
			result = FARLOG_NOT_YET; /* the buffer's media: nothing is lost by trying again */
	}
	if (result != FARLOG_OK && result != FARLOG_NOT_YET)
		lose_far(leg, result);
	else if (result != FARLOG_OK || sent != FARLOG_OK)
		rewind_reader(leg);
	else
		leg->next_far_seq = load.far_seq;
	return result == FARLOG_OK ? sent : result;
}

/* beat -- a heartbeat, when one is due and nothing waits before it. It takes a seq in the leg's ring, so that what is
 * put into the buffer from now on stands one further there: that is stored before the heartbeat can be seen. OK,
 * NOT_YET: it is not durable yet; else the ring has failed. */
static int beat(struct route_leg *leg)
{
	struct farlog_entry nothing = {0};
	struct head_slot slot = leg->reader->released;
	struct farlog_position position;
	struct ring_place place;
	uint64_t extent, far_seq = leg->far->ring.next_seq + 1;
	int result;

	if (leg->far->durable_lsn < leg->far->ring.appended_lsn)
		return settle_far(leg); /* the one before */
	if (!atomic_load_acquire(&leg->is_beat_due) || shared_published_lsn(leg->buffer) != leg->carried_lsn)
		return FARLOG_OK;
	atomic_store_relaxed(&leg->is_beat_due, 0);
	if (writer_check_entry(leg->far, &nothing, &extent) != FARLOG_OK ||
		writer_find_room(leg->far, extent, &place) != FARLOG_OK)
		return FARLOG_OK; /* another one comes */
	if (release(leg, &slot, leg->far->epoch, far_seq) != FARLOG_OK)
		return FARLOG_OK;
	leg->head_far_seq = leg->next_far_seq = far_seq;
	result = writer_stage(leg->far, &nothing, RECORD_FLAG_HEARTBEAT, clock_ticks(), &position);
	return result == FARLOG_OK ? settle_far(leg) : result;
}

/* offer_turn -- of a required leg: nothing is left to carry. What is put into the spill after this look is seen by the
 * appender before it takes the turn, or by us. */
static void offer_turn(struct route_leg *leg)
{
	if (leg->is_required && shared_published_lsn(leg->buffer) == leg->carried_lsn)
		atomic_store_release(&leg->turn, ROUTE_TURN_OFFERED);
}

/* rest -- there is nothing to carry. */
static void rest(struct route_leg *leg)
{
	int result = leg->far->is_failed ? FARLOG_CLOSED : writer_is_fenced(leg->far) ? FARLOG_FENCED : beat(leg);

	if (result == FARLOG_OK || result == FARLOG_NOT_YET)
		offer_turn(leg);
	else
		lose_far(leg, result);
}

static bool has_turn(struct route_leg *leg)
{
	uint64_t turn = atomic_load_acquire(&leg->turn);

	if (turn == ROUTE_TURN_OFFERED && shared_published_lsn(leg->buffer) != leg->carried_lsn)
		return atomic_swap_if(&leg->turn, ROUTE_TURN_OFFERED, ROUTE_TURN_CARRIER);
	return turn == ROUTE_TURN_CARRIER;
}

bool route_carry(struct route_leg *leg)
{
	struct farlog_batch batch;
	int result;

	if (!has_turn(leg) || atomic_load_relaxed(&leg->state) == FARLOG_LEG_FENCED || (leg->far == NULL && !open_far(leg)))
		return false;
	result = read_on(leg, &batch);
	if (result == FARLOG_OK)
		return carry_batch(leg, &batch) == FARLOG_OK;
	if (result == FARLOG_NOT_YET)
		rest(leg);
	else
		route_say(leg, "its buffer cannot be read");
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
		nap(nap_ns);
		nap_ns = nap_ns * 2 < IDLE_NAP_LAST_NS ? nap_ns * 2 : IDLE_NAP_LAST_NS;
	}
	return NULL;
}
