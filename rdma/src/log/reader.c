/* log/reader.c -- reading a ring from outside, and releasing what the store has.
 *
 * The reader copies first and checks the copy, because the writer may be in the middle of the bytes. What the writer's
 * tail hint covers is copied in large pieces; beyond it record by record, or from afar in pieces that grow while they
 * are full, and those are copied twice with a pause between, so that a half-landed record must keep a colliding CRC for
 * 10 us to be believed (research on live readers at the tip: 2^-32 a record is not enough at a billion polls a day). */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "log/reader.h"
#include "scan/walk.h"

#define TIP_PAUSE_NS 10000u
#define TIP_LEN_LAST (1u << 20)
#define AGAIN_LEN (1u << 20)       /* of a READ of the second look */
#define AHEAD_PIECE_LEN (1u << 19) /* of what has been read ahead: checked while it is in the cache */

/* One pass over the ring into the caller's buffer. */
struct pass {
	uint8_t *buf;
	size_t buf_len;
	size_t used;
	size_t tentative_from; /* bytes of buf from here lie beyond the tail hint */
	uint64_t tentative_lsn;
	struct record_cursor tentative_cursor;
	uint64_t tentative_count;
	uint64_t tentative_ts_ns; /* last_ts_ns before them */
	uint64_t record_count;
	uint64_t last_ts_ns;
	uint64_t need;       /* bytes the next record takes when it did not fit */
	uint64_t reread_lsn; /* of a far ring: what the second look has loaded; none before it */
	uint64_t reread_len;
	int result; /* of reading from afar */
};

static uint64_t data_off(const struct farlog_reader *reader, uint64_t lsn)
{
	return LAYOUT_DATA_OFF + lsn % reader->identity.capacity;
}

/* hint_at -- a word of the writer's, who may have stored anything there: 0, no hint, where it cannot be one. */
static uint64_t hint_at(const struct farlog_reader *reader, uint64_t off)
{
	uint64_t lsn = region_load_word(reader->region, off);
	bool can_be = lsn % reader->identity.align == 0 &&
		(lsn <= reader->cursor.lsn || lsn - reader->cursor.lsn <= reader->identity.capacity);

	return can_be ? lsn : 0;
}

/* piece_len -- how much to copy at once: all that the hint covers, unless it was said of this place before and nothing
 * was there; beyond it one record, whose length is not known before its header, or of a far ring, where a READ costs
 * more than its bytes, as much as was full the last time and more. */
static uint64_t piece_len(const struct farlog_reader *reader, const struct pass *pass, uint64_t hint_lsn)
{
	uint64_t lsn = reader->cursor.lsn;
	uint64_t left_in_ring = reader->identity.capacity - lsn % reader->identity.capacity;
	uint64_t len = pass->buf_len - pass->used;
	uint64_t tip_len = reader->region->caps.needs_fetch ? reader->tip_len : RECORD_PAD_STORED_LEN;

	if (len > left_in_ring)
		len = left_in_ring;
	if (len > AHEAD_PIECE_LEN && reader->is_drain && reader->region->caps.can_prefetch)
		len = AHEAD_PIECE_LEN;
	if (hint_lsn > lsn && reader->empty_lsn != lsn)
		return len < hint_lsn - lsn ? len : hint_lsn - lsn;
	return len < tip_len ? len : tip_len;
}

static void accept_record(struct farlog_reader *reader, struct pass *pass, const struct record_found *found)
{
	record_advance(&reader->cursor, found);
	pass->used += found->stored_len;
	if (found->flags & RECORD_FLAG_PAD)
		return;
	pass->record_count++;
	pass->last_ts_ns = found->ts_ns;
}

/* keep_record -- the record at `at` of what was read becomes the next of the batch, in which the bytes that a PAD skips
 * are left out. */
static void keep_record(struct pass *pass, const uint8_t *at, const struct record_found *found)
{
	uint8_t *place = pass->buf + pass->used;

	if (place != at)
		memmove(place, at, found->stored_len);
}

/* read_piece -- copy a piece and walk it. False: stop (nothing valid follows, or the buffer is full). */
static bool read_piece(struct farlog_reader *reader, struct pass *pass, uint64_t len)
{
	const struct region_data_ops *ops = &reader->region->ops->data;
	uint8_t *start = pass->buf + pass->used;
	uint64_t walked = 0;
	struct record_found found;
	enum record_verdict verdict;

	if (len < RECORD_PAD_STORED_LEN)
		return false;
	pass->result = ops->read(reader->region, data_off(reader, reader->cursor.lsn), start, len);
	if (pass->result != FARLOG_OK)
		return false;
	while (walked < len) {
		verdict = record_check(&reader->identity, &reader->cursor, start + walked, len - walked, &found);
		if (verdict == RECORD_VALID && !reader_is_of_log(reader, reader->cursor.lsn, found.epoch))
			return false;
		if (verdict == RECORD_VALID) {
			keep_record(pass, start + walked, &found);
			accept_record(reader, pass, &found);
			walked += found.extent; /* of a PAD at the ring's end: beyond the piece */
			continue;
		}
		if (verdict == RECORD_NOT_HERE || len - walked < RECORD_PAD_STORED_LEN)
			return verdict == RECORD_CUT && walked > 0;
		/* from there on in the next piece, unless the record does not fit into the buffer: that would be a READ for
		 * nothing */
		if (reader->region->caps.needs_fetch && walked > 0)
			return found.stored_len <= pass->buf_len - pass->used;
		pass->need = found.stored_len;
		if (pass->need > pass->buf_len - pass->used)
			return false;
		/* The piece ended inside this record: copy it whole. */
		start = pass->buf + pass->used;
		len = pass->need;
		pass->result = ops->read(reader->region, data_off(reader, reader->cursor.lsn), start, len);
		if (pass->result != FARLOG_OK ||
			record_check(&reader->identity, &reader->cursor, start, len, &found) != RECORD_VALID)
			return false;
		accept_record(reader, pass, &found);
		return true;
	}
	return true;
}

/* adapt_tip -- a READ beyond the hint that was mostly full asks for a longer next one, one that was mostly empty for a
 * shorter. */
static void adapt_tip(struct farlog_reader *reader, uint64_t asked_len, uint64_t found_len)
{
	if (found_len > asked_len / 2 && reader->tip_len < TIP_LEN_LAST)
		reader->tip_len *= 4;
	else if (found_len <= asked_len / 8 && reader->tip_len > READER_TIP_LEN_FIRST)
		reader->tip_len /= 4;
}

static void begin_tentative(struct farlog_reader *reader, struct pass *pass)
{
	pass->tentative_from = pass->used;
	pass->tentative_lsn = reader->cursor.lsn;
	pass->tentative_cursor = reader->cursor;
	pass->tentative_count = pass->record_count;
	pass->tentative_ts_ns = pass->last_ts_ns;
}

/* reread -- a far ring's bytes from lsn on, for the second look. On blocks in one READ for many commits, with what
 * their PADs skip, which is less than an LBA. */
static int reread(struct farlog_reader *reader, struct pass *pass, uint64_t lsn, uint64_t run_len)
{
	uint64_t left_in_ring = reader->identity.capacity - lsn % reader->identity.capacity;
	uint64_t len = reader->identity.block_len != 0 ? reader->cursor.lsn - lsn : run_len;

	if (reader->again == NULL)
		reader->again = malloc(AGAIN_LEN);
	if (reader->again == NULL)
		return FARLOG_NO_MEMORY;
	if (len > left_in_ring)
		len = left_in_ring;
	pass->reread_lsn = lsn;
	pass->reread_len = len < AGAIN_LEN ? len : AGAIN_LEN;
	return reader->region->ops->data.read(reader->region, data_off(reader, lsn), reader->again, pass->reread_len);
}

/* check_same -- OK: the ring holds these bytes still; NOT_YET: others; IO: what is far away did not come. */
static int check_same(struct farlog_reader *reader, struct pass *pass, uint64_t lsn, const uint8_t *bytes, uint64_t len)
{
	uint64_t piece_len;

	if (!reader->region->caps.needs_fetch)
		return memcmp(reader->region->base + data_off(reader, lsn), bytes, len) == 0 ? FARLOG_OK : FARLOG_NOT_YET;
	for (uint64_t done = 0; done < len; done += piece_len) {
		uint64_t at = lsn + done;
		bool is_loaded = at >= pass->reread_lsn && at < pass->reread_lsn + pass->reread_len;
		int result = is_loaded ? FARLOG_OK : reread(reader, pass, at, len - done);

		if (result != FARLOG_OK)
			return result;
		piece_len = pass->reread_lsn + pass->reread_len - at;
		if (piece_len > len - done)
			piece_len = len - done;
		if (memcmp(reader->again + (at - pass->reread_lsn), bytes + done, piece_len) != 0)
			return FARLOG_NOT_YET;
	}
	return FARLOG_OK;
}

/* run_len -- of the bytes at `at`, how many lie side by side in the ring too: up to a PAD, which is stored without what
 * it skips. */
static size_t run_len(
	const struct farlog_reader *reader, const struct pass *pass, size_t at, uint64_t lsn, uint64_t *ring_len)
{
	size_t len = 0;

	*ring_len = 0;
	while (at + len < pass->used) {
		struct record_header header;

		memcpy(&header, pass->buf + at + len, sizeof(header));
		if (header.flags & RECORD_FLAG_PAD) {
			*ring_len = len + RECORD_PAD_STORED_LEN + (uint64_t)header.payload_len;
			return len + RECORD_PAD_STORED_LEN;
		}
		len += record_extent(reader->identity.align, header.key_len, header.payload_len);
		*ring_len = len;
		/* Without a PAD a record may end where the ring ends. */
		if ((lsn + len) % reader->identity.capacity == 0)
			return len;
	}
	return len;
}

/* confirm_tip -- the second look. If one byte differs, everything beyond the hint is left for the next poll. */
static void confirm_tip(struct farlog_reader *reader, struct pass *pass)
{
	uint64_t lsn = pass->tentative_lsn;
	uint64_t until_ns = clock_monotonic_ns() + TIP_PAUSE_NS;

	while (clock_monotonic_ns() < until_ns)
		cpu_relax();
	__atomic_thread_fence(__ATOMIC_ACQUIRE); /* the second loads come after the pause */
	for (size_t at = pass->tentative_from; at < pass->used;) {
		uint64_t ring_len;
		size_t len = run_len(reader, pass, at, lsn, &ring_len);
		int result = check_same(reader, pass, lsn, pass->buf + at, len);

		if (result != FARLOG_OK) {
			pass->result = result == FARLOG_NOT_YET ? FARLOG_OK : result;
			reader->cursor = pass->tentative_cursor;
			pass->used = pass->tentative_from;
			pass->record_count = pass->tentative_count;
			pass->last_ts_ns = pass->tentative_ts_ns;
			return;
		}
		at += len;
		lsn += ring_len;
	}
}

/* is_overtaken -- the writer may have the bytes at lsn. After a power cut the credit may be older than the head slot,
 * which a writer goes by when it opens. */
static bool is_overtaken(const struct farlog_reader *reader, uint64_t lsn)
{
	struct head_slot head;

	return region_load_word(reader->region, LAYOUT_CREDIT_OFF) > lsn ||
		(head_load(reader->region, &reader->superblock, &head) && head.head_lsn > lsn);
}

/* confirm_corrupt -- the record at our position is unreadable although it was acknowledged. Of a ring far away what was
 * looked at first, its header, may have been overtaken before the record was looked at: by a drain and a writer, or in
 * the time that a connection took to come back. */
static int confirm_corrupt(struct farlog_reader *reader)
{
	uint32_t known = reader->superblock.crc32c;
	int result;

	if (!reader->region->caps.needs_fetch)
		return FARLOG_CORRUPT;
	result = region_fetch(reader->region, 0, LAYOUT_DATA_OFF);
	if (result != FARLOG_OK)
		return result;
	if (is_overtaken(reader, reader->cursor.lsn))
		return reader->is_drain ? FARLOG_HELD : FARLOG_OVERRUN; /* nobody but another drain moves a drain's head */
	reader_refresh(reader);
	return reader->superblock.crc32c != known ? FARLOG_NOT_YET : FARLOG_CORRUPT;
}

/* explain_empty_batch -- why not. durable_lsn was loaded before the ring was looked at: a record that came between is
 * not missing. */
static int explain_empty_batch(
	struct farlog_reader *reader, const struct pass *pass, uint64_t durable_lsn, struct farlog_batch *batch)
{
	uint64_t lsn = reader->cursor.lsn;

	if (pass->result != FARLOG_OK)
		return pass->result;
	if (pass->need > pass->buf_len) {
		batch->len = pass->need;
		return FARLOG_TOO_LARGE;
	}
	if (!reader->is_drain && is_overtaken(reader, lsn))
		return FARLOG_OVERRUN;
	batch->next_lsn = lsn;
	batch->next_seq = reader->cursor.seq;
	return durable_lsn > lsn ? confirm_corrupt(reader) : FARLOG_NOT_YET;
}

static void fill_batch(struct farlog_reader *reader, const struct pass *pass, struct farlog_batch *batch)
{
	batch->next_lsn = reader->cursor.lsn;
	batch->next_seq = reader->cursor.seq;
	batch->last_epoch = reader->cursor.epoch;
	batch->record_count = pass->record_count;
	batch->len = pass->used;
	batch->last_ts_ns = pass->last_ts_ns;
	batch->is_rewound = reader->is_rewound;
	reader->is_rewound = false;
}

/* can_skip_header -- may a drain take a batch of a far ring without a READ of the header before it? What was durable
 * stays in the log, whoever opens the ring next, and is this drain's until it releases it: while a whole batch lies
 * below, a look at the header would change nothing of what is read. Beyond, the log may have gone back, and the next
 * look must tell that before the batch before is released. */
static bool can_skip_header(const struct farlog_reader *reader, size_t buf_len)
{
	return reader->is_drain && reader->region->caps.needs_fetch && reader->sure_lsn > reader->cursor.lsn &&
		reader->sure_lsn - reader->cursor.lsn >= buf_len && !reader->is_resync_needed && !reader->is_release_open &&
		reader->reconnect_count == reader->region->reconnect_count;
}

/* reader_fetch_header -- fetch it, and take from it what a batch depends on. */
int reader_fetch_header(struct farlog_reader *reader)
{
	int result = region_fetch(reader->region, 0, LAYOUT_DATA_OFF);
	uint64_t durable_lsn;

	reader->sure_lsn = 0;
	if (result == FARLOG_OK && reader->is_drain && !reader->is_release_open &&
		reader->reconnect_count != reader->region->reconnect_count)
		result = reader_confirm_head(reader, reader->released.head_lsn, &(struct head_slot){0});
	if (result != FARLOG_OK)
		return result;
	durable_lsn = region_load_word(reader->region, LAYOUT_DURABLE_HINT_OFF);
	result = reader_follow_log(reader);
	if (result != FARLOG_OK)
		return result;
	/* Foreign bytes are not believed: not more than the ring can hold. */
	if (durable_lsn <= region_load_word(reader->region, LAYOUT_TAIL_HINT_OFF) &&
		durable_lsn - reader->released.head_lsn <= reader->identity.capacity)
		reader->sure_lsn = durable_lsn;
	return FARLOG_OK;
}

/* prefetch_next -- what is durable stays as it is until this drain releases it: it may be fetched ahead. Behind it a
 * record may still be missing, or become another's. */
static void prefetch_next(struct farlog_reader *reader)
{
	uint64_t lsn = reader->cursor.lsn;
	uint64_t len = reader->sure_lsn > lsn ? reader->sure_lsn - lsn : 0;
	uint64_t left_in_ring = reader->identity.capacity - lsn % reader->identity.capacity;
	struct region_span spans[2] = {{data_off(reader, lsn), left_in_ring}, {LAYOUT_DATA_OFF, 0}};

	if (!reader->is_drain || !reader->region->caps.can_prefetch)
		return;
	if (len < left_in_ring)
		spans[0].len = len;
	else
		spans[1].len = len - left_in_ring;
	reader->region->ops->data.prefetch(reader->region, lsn, spans, len > 0 ? 2 : 0);
}

int reader_read_ring(struct farlog_reader *reader, void *buf, size_t buf_len, struct farlog_batch *batch)
{
	struct pass pass = {.buf = buf, .buf_len = buf_len};
	bool skips_header = can_skip_header(reader, buf_len);
	uint64_t durable_lsn;
	uint64_t hint_lsn;
	bool is_tentative = false;
	bool is_more;
	uint64_t len;
	uint64_t before_lsn;
	int result;

	memset(batch, 0, sizeof(*batch));
	if (buf_len < RECORD_PAD_STORED_LEN) {
		batch->len = RECORD_PAD_STORED_LEN; /* no record is shorter */
		return FARLOG_TOO_LARGE;
	}
	result = skips_header ? FARLOG_OK : reader_fetch_header(reader);
	if (result != FARLOG_OK)
		return result;
	durable_lsn = skips_header ? reader->sure_lsn : hint_at(reader, LAYOUT_DURABLE_HINT_OFF);
	hint_lsn = skips_header ? reader->sure_lsn : hint_at(reader, LAYOUT_TAIL_HINT_OFF);
	batch->first_lsn = reader->cursor.lsn;
	prefetch_next(reader);
	for (;;) {
		if (skips_header && reader->cursor.lsn >= hint_lsn)
			break;
		if (!is_tentative && reader->cursor.lsn >= hint_lsn) {
			is_tentative = true;
			begin_tentative(reader, &pass);
		}
		len = piece_len(reader, &pass, hint_lsn);
		before_lsn = reader->cursor.lsn;
		is_more = read_piece(reader, &pass, len);
		if (is_tentative || reader->empty_lsn == reader->cursor.lsn)
			adapt_tip(reader, len, reader->cursor.lsn - before_lsn);
		else if (len >= RECORD_PAD_STORED_LEN && reader->cursor.lsn == before_lsn && pass.need == 0 &&
			pass.result == FARLOG_OK)
			reader->empty_lsn = reader->cursor.lsn;
		if (!is_more)
			break;
	}
	if (is_tentative && pass.used > pass.tentative_from)
		confirm_tip(reader, &pass);
	if (pass.used == 0) {
		reader->sure_lsn = 0;
		return explain_empty_batch(reader, &pass, durable_lsn, batch);
	}
	fill_batch(reader, &pass, batch);
	return FARLOG_OK;
}

int reader_status_ring(struct farlog_reader *reader, struct farlog_ring_status *status)
{
	struct farlog_counters counters;
	struct head_slot head = {0};
	int is_writer_held;
	int is_drain_held;
	int result = region_fetch(reader->region, 0, LAYOUT_DATA_OFF);

	if (result != FARLOG_OK)
		return result;
	is_writer_held = reader->region->ops->fence.is_locked(reader->region, REGION_ROLE_WRITER);
	is_drain_held = reader->region->ops->fence.is_locked(reader->region, REGION_ROLE_DRAIN);
	if (is_writer_held < 0 || is_drain_held < 0)
		return FARLOG_IO;
	reader_refresh(reader);
	memset(status, 0, sizeof(*status));
	if (!head_load(reader->region, &reader->superblock, &head))
		return FARLOG_CORRUPT;
	superblock_describe(&reader->superblock, status);
	status->epoch_min = (uint32_t)region_load_word(reader->region, LAYOUT_FENCE_OFF);
	status->head_lsn = head.head_lsn;
	status->head_seq = head.head_seq;
	status->last_epoch = head.last_epoch;
	status->credit_lsn = region_load_word(reader->region, LAYOUT_CREDIT_OFF);
	status->is_writer_held = is_writer_held > 0;
	status->is_drain_held = is_drain_held > 0;
	status->contract = reader->region->contract;
	status->appended_lsn = region_load_word(reader->region, LAYOUT_TAIL_HINT_OFF);
	status->durable_lsn = region_load_word(reader->region, LAYOUT_DURABLE_HINT_OFF);
	if (farlog_counters_read(NULL, reader->superblock.ring_uuid, &counters, NULL) == FARLOG_OK &&
		counters.epoch == reader->superblock.writer_epoch) {
		status->appended_lsn = counters.appended_lsn;
		status->durable_lsn = counters.durable_lsn;
	}
	if (status->appended_lsn < reader->cursor.lsn)
		status->appended_lsn = reader->cursor.lsn;
	status->lag_bytes = status->appended_lsn - status->head_lsn;
	return FARLOG_OK;
}
