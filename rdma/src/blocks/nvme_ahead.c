/* blocks/nvme_ahead.c -- what a drain is going to read next is fetched before it asks: the device works while the last
 * bytes are checked and stored. See blocks/nvme.h.
 *
 * Only what region_ops.expect names is fetched, and its caller ensures that it does not change before it is read.
 * It comes into windows of a ring, in the order in which it is going to be read. A window is kept until a read begins
 * behind it: the reader takes a record that a piece has cut once more. */
#include "base/err.h"
#include "blocks/nvme.h"

#include <string.h>

#include "base/clock.h"

static struct nvme_slot *slot_at(struct nvme_ahead *ahead, unsigned i)
{
	return &ahead->slots[(ahead->first + i) % NVME_AHEAD_COUNT];
}

static uint8_t *bytes_of(struct nvme_ahead *ahead, const struct nvme_slot *slot)
{
	return ahead->bytes + (size_t)(slot - ahead->slots) * NVME_AHEAD_LEN;
}

static void collect_answers(struct region_nvme *nvme)
{
	struct nvme_ahead *ahead = &nvme->ahead;
	struct block_answer answers[NVME_AHEAD_COUNT];
	unsigned count = nvme->device->ops->take(nvme->device, BLOCK_AHEAD, answers, NVME_AHEAD_COUNT);

	for (unsigned i = 0; i < count; i++) {
		struct nvme_slot *slot = &ahead->slots[answers[i].id];

		slot->is_flying = false;
		slot->is_stale |= answers[i].failure != 0; /* the reader asks for it again, and gets the error */
	}
	while (ahead->count > 0 && slot_at(ahead, 0)->is_stale && !slot_at(ahead, 0)->is_flying) {
		ahead->first = (ahead->first + 1) % NVME_AHEAD_COUNT;
		ahead->count--;
	}
}

/* fill_windows -- the free windows with what comes next. */
static void fill_windows(struct region_nvme *nvme)
{
	struct nvme_ahead *ahead = &nvme->ahead;
	uint64_t step = nvme_window_len(nvme) < NVME_AHEAD_LEN ? nvme_window_len(nvme) : NVME_AHEAD_LEN;
	unsigned before = ahead->count;

	while (ahead->count < NVME_AHEAD_COUNT && ahead->spans[0].len > 0) {
		struct region_span *span = &ahead->spans[0];
		struct nvme_slot *slot = slot_at(ahead, ahead->count++);

		*slot = (struct nvme_slot){.at = ahead->at,
			.off = span->off,
			.len = (uint32_t)(span->len < step ? span->len : step),
			.is_flying = true};
		ahead->at += slot->len;
		nvme->region.read_count++;
		nvme->device->ops->put(nvme->device, BLOCK_AHEAD,
			&(struct block_command){.verb = BLOCK_READ,
				.off = nvme_data_at(nvme, slot->off),
				.len = slot->len,
				.bytes = bytes_of(ahead, slot),
				.id = (uint64_t)(slot - ahead->slots)});
		span->off += slot->len;
		span->len -= slot->len;
		if (span->len == 0) {
			ahead->spans[0] = ahead->spans[1];
			ahead->spans[1].len = 0;
		}
	}
	if (ahead->count != before)
		may_fail(nvme->device->ops->send(nvme->device, BLOCK_AHEAD)); /* what fails is seen by who waits for it */
}

static bool has_byte(const struct nvme_slot *slot, uint64_t off)
{
	return !slot->is_stale && off >= slot->off + slot->done_len && off - slot->off < slot->len;
}

/* find_slot -- the window that has this byte; the count of all: none has. */
static unsigned find_slot(struct nvme_ahead *ahead, uint64_t off)
{
	unsigned i = 0;

	while (i < ahead->count && !has_byte(slot_at(ahead, i), off))
		i++;
	return i;
}

/* drop_before -- the windows before the one that has this byte; all, where none has. */
static void drop_before(struct nvme_ahead *ahead, uint64_t off)
{
	unsigned at = find_slot(ahead, off);

	for (unsigned i = 0; i < at; i++)
		slot_at(ahead, i)->is_stale = true;
}

static void drop_all(struct nvme_ahead *ahead)
{
	for (unsigned i = 0; i < ahead->count; i++)
		slot_at(ahead, i)->is_stale = true;
}

/* skip_spans -- so much of the spans has been asked for. */
static void skip_spans(struct nvme_ahead *ahead, uint64_t len)
{
	for (unsigned i = 0; i < 2 && len > 0; i++) {
		uint64_t part = len < ahead->spans[0].len ? len : ahead->spans[0].len;

		ahead->spans[0].off += part;
		ahead->spans[0].len -= part;
		len -= part;
		if (ahead->spans[0].len > 0)
			continue;
		ahead->spans[0] = ahead->spans[1];
		ahead->spans[1].len = 0;
	}
}

/* keep_windows_from -- of the windows only what lies at `at` or behind it, in one piece; of a window that has it what
 * lies before is done with, because the next lap of the ring may be at the same place in another one. */
static void keep_windows_from(struct nvme_ahead *ahead, uint64_t at)
{
	uint64_t expected_at = at;

	for (unsigned i = 0; i < ahead->count; i++) {
		struct nvme_slot *slot = slot_at(ahead, i);

		if (slot->is_stale || slot->at + slot->len <= at || slot->at > expected_at) {
			slot->is_stale = true;
			continue;
		}
		if (slot->at < at)
			slot->done_len = (uint32_t)(at - slot->at);
		expected_at = slot->at + slot->len;
	}
	ahead->at = expected_at;
}

void nvme_prefetch(struct region *region, uint64_t at, const struct region_span *spans, unsigned span_count)
{
	struct region_nvme *nvme = nvme_of(region);
	struct nvme_ahead *ahead = &nvme->ahead;
	uint64_t mask = nvme->device->lba_len - 1;
	uint64_t first_at;
	uint64_t known_len;

	if (nvme->role != REGION_ROLE_DRAIN)
		return;
	if (ahead->bytes == NULL && span_count > 0)
		ahead->bytes = nvme_map_own((uint64_t)NVME_AHEAD_COUNT * NVME_AHEAD_LEN);
	if (ahead->bytes == NULL)
		return;
	nvme_lock_queue(&nvme->are_calls_busy);
	collect_answers(nvme);
	ahead->spans[0] = ahead->spans[1] = (struct region_span){0, 0};
	for (unsigned i = 0; i < span_count; i++) {
		uint64_t off = spans[i].off & ~mask;
		uint64_t end = (spans[i].off + spans[i].len) & ~mask; /* an LBA of which a part may change is not fetched */

		ahead->spans[i] = (struct region_span){off, end > off ? end - off : 0};
	}
	if (span_count == 0)
		drop_all(ahead);
	keep_windows_from(ahead, at);
	first_at = at - (span_count > 0 ? spans[0].off & mask : 0); /* from its LBA on */
	known_len = ahead->at > at ? ahead->at - first_at : 0;
	if (known_len > ahead->spans[0].len + ahead->spans[1].len) {
		drop_all(ahead);
		known_len = 0;
	}
	skip_spans(ahead, known_len);
	ahead->at = first_at + known_len;
	collect_answers(nvme);
	fill_windows(nvme);
	nvme_unlock_queue(&nvme->are_calls_busy);
}

void nvme_ahead_begin(struct region_nvme *nvme, uint64_t off)
{
	struct nvme_ahead *ahead = &nvme->ahead;
	if (find_slot(ahead, off) == ahead->count)
		ahead->spans[0].len = ahead->spans[1].len = 0; /* another place than was expected */
	drop_before(ahead, off);
	collect_answers(nvme);
	fill_windows(nvme);
}

/* wait_window -- until this window is back. OK; IO: the device does not answer. */
static int wait_window(struct region_nvme *nvme, const struct nvme_slot *slot)
{
	struct block_device *device = nvme->device;
	uint64_t until_ns = clock_after_ns(NVME_PATIENCE_NS);

	for (uint64_t turn = 0; slot->is_flying; turn++) {
		uint64_t now_ns = clock_monotonic_ns();

		if (device->is_clockless ? turn >= NVME_CLOCKLESS_TURN_COUNT : now_ns >= until_ns)
			return FARLOG_IO;
		if (device->ops->wait(device, BLOCK_AHEAD, now_ns < until_ns ? until_ns - now_ns : 0) != FARLOG_OK)
			return FARLOG_IO;
		collect_answers(nvme);
	}
	return FARLOG_OK;
}

uint64_t nvme_ahead_copy(struct region_nvme *nvme, uint64_t off, uint8_t *dst, uint64_t len)
{
	struct nvme_ahead *ahead = &nvme->ahead;
	unsigned at = find_slot(ahead, off);
	struct nvme_slot *slot = slot_at(ahead, at);
	uint64_t from, left;

	if (at == ahead->count || wait_window(nvme, slot) != FARLOG_OK || slot->is_stale)
		return 0;
	from = off - slot->off;
	left = slot->len - from;
	if (len > left)
		len = left;
	memcpy(dst, bytes_of(ahead, slot) + from, len);
	return len;
}

void nvme_ahead_end(struct region_nvme *nvme, uint64_t persist_timeout_ns)
{
	struct nvme_ahead *ahead = &nvme->ahead;
	uint64_t until_ns = clock_after_ns(persist_timeout_ns);

	if (ahead->bytes == NULL)
		return; /* nor has the device a queue for it */
	ahead->spans[0].len = ahead->spans[1].len = 0;
	drop_all(ahead);
	collect_answers(nvme);
	while (ahead->count > 0) {
		uint64_t now_ns = clock_monotonic_ns();

		if (now_ns >= until_ns || nvme->device->ops->wait(nvme->device, BLOCK_AHEAD, until_ns - now_ns) != FARLOG_OK)
			return;
		collect_answers(nvme);
	}
}
