/* blocks/nvme_calls.c -- commands that are waited for, and the words that lie in blocks of their own. See
 * blocks/nvme.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/err.h"
#include "blocks/nvme.h"
#include "blocks/passthrough.h"

#define NAP_NS 20000
#define WORDS_PATIENCE_NS 2000000u /* of an append that waits for free space: its deadline may be short */

const struct nvme_item nvme_items[NVME_ITEM_COUNT] = {
	{LAYOUT_SUPERBLOCK_A_OFF, sizeof(struct superblock), NVME_SUPERBLOCK_A},
	{LAYOUT_SUPERBLOCK_B_OFF, sizeof(struct superblock), NVME_SUPERBLOCK_B},
	{LAYOUT_HEAD_A_OFF, LAYOUT_LINE_LEN, NVME_HEAD_A},
	{LAYOUT_HEAD_B_OFF, LAYOUT_LINE_LEN, NVME_HEAD_B},
};

void nvme_sleep(uint64_t limit_ns)
{
	nanosleep(&(struct timespec){0, (long)(limit_ns < NAP_NS ? limit_ns : NAP_NS)}, NULL);
}

void nvme_lock_queue(uint64_t *is_busy)
{
	while (!nvme_try_lock_queue(is_busy))
		nvme_sleep(NAP_NS);
}

void nvme_note_trouble(struct region_nvme *nvme, int failure)
{
	uint16_t status = nvme->device->status;
	char said[64] = "";

	if (failure == ENODEV)
		atomic_store_relaxed(&nvme->region.is_removed, 1);
	errno = failure;
	if (status != 0)
		snprintf(said, sizeof(said), " (NVMe status 0x%x %s)", status, passthrough_status_name(status));
	snprintf(nvme->trouble, sizeof(nvme->trouble), "a command to the device failed: %.60s%s",
		failure == EBADE ? "reservation conflict: another host's writer has taken over" : strerror(failure), said);
}

int nvme_note_errno(struct region_nvme *nvme)
{
	int failure = errno != 0 ? errno : EIO;

	nvme_note_trouble(nvme, failure);
	return failure;
}

/* ---------------------------------------------------------------- words that lie in blocks of their own */

void nvme_build_words(struct region_nvme *nvme, uint8_t *block, uint64_t first, uint64_t second)
{
	struct nvme_words words = {.words = {first, second}};

	words.crc32c = crc32c_update(0, &words, offsetof(struct nvme_words, crc32c));
	memset(block, 0, nvme->device->lba_len);
	memcpy(block, &words, sizeof(words));
}

void nvme_build_hints(struct region_nvme *nvme, uint8_t *block, uint32_t closed_epoch)
{
	struct nvme_words words = {
		.words = {*nvme_word_at(nvme, LAYOUT_TAIL_HINT_OFF), *nvme_word_at(nvme, LAYOUT_DURABLE_HINT_OFF)},
		.closed_epoch = closed_epoch};

	words.crc32c = crc32c_update(0, &words, offsetof(struct nvme_words, crc32c));
	memset(block, 0, nvme->device->lba_len);
	memcpy(block, &words, sizeof(words));
}

static bool load_words(const uint8_t *block, struct nvme_words *words)
{
	memcpy(words, block, sizeof(*words));
	return words->crc32c == crc32c_update(0, words, offsetof(struct nvme_words, crc32c));
}

/* take_words -- fence and credit, as they were read. */
void nvme_load_words(struct region_nvme *nvme, uint8_t *blocks)
{
	struct nvme_words words;
	uint64_t fence = 0;

	for (unsigned slot = 0; slot < 2; slot++)
		if (load_words(nvme_block_of(blocks, NVME_FENCE_A + slot), &words) && words.words[0] > fence) {
			fence = words.words[0];
			nvme->fence_slot = slot;
		}
	/* Two looks may cross: a fence never goes down. */
	if (!nvme->is_fence_due && fence > *nvme_word_at(nvme, LAYOUT_FENCE_OFF))
		atomic_store_release(nvme_word_at(nvme, LAYOUT_FENCE_OFF), fence);
	if (nvme->role != REGION_ROLE_DRAIN || !nvme->is_credit_due)
		atomic_store_release(nvme_word_at(nvme, LAYOUT_CREDIT_OFF),
			load_words(nvme_block_of(blocks, NVME_CREDIT), &words) ? words.words[0] : 0);
}

/* load_header_blocks -- all of it. */
static void load_header_blocks(struct region_nvme *nvme, uint8_t *blocks)
{
	struct nvme_words words;

	for (size_t i = 0; i < NVME_ITEM_COUNT; i++)
		memcpy(nvme->copy + nvme_items[i].off, nvme_block_of(blocks, nvme_items[i].control), nvme_items[i].len);
	if (!nvme->is_fence_due)
		*nvme_word_at(nvme, LAYOUT_FENCE_OFF) = 0; /* of a ring that was formatted again */
	nvme_load_words(nvme, blocks);
	if (!load_words(nvme_block_of(blocks, NVME_HINTS), &words))
		words = (struct nvme_words){0};
	nvme->region.closed_epoch = words.closed_epoch;
	atomic_store_release(nvme_word_at(nvme, LAYOUT_TAIL_HINT_OFF), words.words[0]);
	atomic_store_release(nvme_word_at(nvme, LAYOUT_DURABLE_HINT_OFF), words.words[1]);
}

/* ---------------------------------------------------------------- calls: the queue is taken */

/* finish_call -- until the call under way is back, or patience ends. */
static int finish_call(struct region_nvme *nvme, uint64_t persist_timeout_ns)
{
	struct block_device *device = nvme->device;
	uint64_t until_ns = clock_after_ns(persist_timeout_ns);
	int failure = 0;

	for (uint64_t turn = 0;; turn++) {
		struct block_answer answers[2];
		unsigned count = device->ops->take(device, BLOCK_CALLS, answers, 2);
		uint64_t now_ns;

		for (unsigned i = 0; i < count; i++) {
			nvme->is_call_flying = false; /* there is never more than one */
			failure = answers[i].failure;
			/* Also of one that nobody waits for any more: a slow device's word is as good, later. */
			if (nvme->is_call_for_words && failure == 0)
				nvme_load_words(nvme, nvme->called);
		}
		if (failure != 0)
			nvme_note_trouble(nvme, failure);
		if (!nvme->is_call_flying)
			return failure != 0 ? FARLOG_IO : FARLOG_OK;
		now_ns = clock_monotonic_ns();
		if (device->is_clockless ? turn >= NVME_CLOCKLESS_TURN_COUNT || persist_timeout_ns == 0 : now_ns >= until_ns) {
			snprintf(nvme->trouble, sizeof(nvme->trouble), "the device has not answered for %lu ms",
				persist_timeout_ns / 1000000u);
			return FARLOG_IO;
		}
		if (device->ops->wait(device, BLOCK_CALLS, now_ns < until_ns ? until_ns - now_ns : 0) != FARLOG_OK) {
			may_fail(nvme_note_errno(nvme)); /* the result is said below */
			return FARLOG_IO;
		}
	}
}

int nvme_call(struct region_nvme *nvme, enum block_verb verb, uint64_t off, uint8_t *bytes, uint64_t len,
	uint64_t persist_timeout_ns)
{
	struct block_command command = {
		.verb = verb, .off = off, .bytes = bytes, .len = (uint32_t)len, .id = ++nvme->call_id};

	if (nvme->is_call_flying && (finish_call(nvme, 0) != FARLOG_OK || nvme->is_call_flying))
		return FARLOG_IO;
	nvme->is_call_flying = true;
	nvme->is_call_for_words = nvme->is_words_call_next;
	nvme->is_words_call_next = false;
	nvme->device->ops->put(nvme->device, BLOCK_CALLS, &command);
	return finish_call(nvme, persist_timeout_ns);
}

/* write_words -- one block of the header, by a call. */
static int write_words(struct region_nvme *nvme, enum nvme_control control, uint64_t word, enum block_verb verb)
{
	uint8_t *block = nvme_block_of(nvme->called, control);

	if (nvme->is_call_flying && (finish_call(nvme, 0) != FARLOG_OK || nvme->is_call_flying))
		return FARLOG_IO; /* the block is not ours yet */
	nvme_build_words(nvme, block, word, 0);
	return nvme_call(nvme, verb, nvme_control_at(nvme, control), block, nvme->device->lba_len, NVME_PATIENCE_NS);
}

void nvme_call_words(struct region_nvme *nvme)
{
	/* An answer that has come since is taken first, and may be all that is wanted. */
	if (nvme->is_call_flying)
		may_fail(finish_call(nvme, 0)); /* the look below asks again */
	nvme->is_words_call_next = true;
	/* What fails shows the words as they were. */
	may_fail(nvme_call(nvme, BLOCK_READ, nvme_control_at(nvme, NVME_FENCE_A), nvme_block_of(nvme->called, NVME_FENCE_A),
		(NVME_CREDIT - NVME_FENCE_A + 1) * LAYOUT_BLOCK_LEN, WORDS_PATIENCE_NS));
	nvme->is_words_call_next = false;
}

int nvme_write_hints(struct region_nvme *nvme)
{
	uint8_t *block = nvme_block_of(nvme->called, NVME_HINTS);
	int result = FARLOG_IO;

	/* Before the words are read: what is stored from here on is due again. */
	(void)__atomic_exchange_n(&nvme->are_hints_due, 0, __ATOMIC_ACQ_REL);
	if (!nvme->is_call_flying || (finish_call(nvme, 0) == FARLOG_OK && !nvme->is_call_flying)) {
		nvme_build_hints(nvme, block, 0);
		result = nvme_call(nvme, BLOCK_WRITE_DURABLE, nvme_control_at(nvme, NVME_HINTS), block, nvme->device->lba_len,
			NVME_PATIENCE_NS);
	}
	if (result != FARLOG_OK)
		atomic_store_release(&nvme->are_hints_due, 1);
	return result;
}

int nvme_write_fence(struct region_nvme *nvme)
{
	unsigned slot = nvme->fence_slot ^ 1;
	int result = write_words(nvme, NVME_FENCE_A + slot, *nvme_word_at(nvme, LAYOUT_FENCE_OFF), BLOCK_WRITE_DURABLE);

	if (result == FARLOG_OK) {
		nvme->fence_slot = slot;
		nvme->is_fence_due = false;
	}
	return result;
}

/* nvme_write_credit -- after the head is durable. It need not be: a power cut that takes it back leaves an older
 * one. */
int nvme_write_credit(struct region_nvme *nvme)
{
	int result = write_words(nvme, NVME_CREDIT, *nvme_word_at(nvme, LAYOUT_CREDIT_OFF), BLOCK_WRITE);

	if (result == FARLOG_OK)
		nvme->is_credit_due = false;
	return result;
}

static int load_header(struct region_nvme *nvme)
{
	uint64_t now_ns = clock_monotonic_ns();
	uint64_t until_ns = nvme->region.until_ns;
	uint64_t persist_timeout_ns = nvme->persist_timeout_ns;
	int result;

	if (until_ns != 0 && until_ns < now_ns + persist_timeout_ns)
		persist_timeout_ns = until_ns > now_ns ? until_ns - now_ns : 0;
	result = nvme_call(nvme, BLOCK_READ, nvme_control_at(nvme, 0), nvme->called, NVME_CONTROL_LEN, persist_timeout_ns);

	if (result == FARLOG_OK)
		load_header_blocks(nvme, nvme->called);
	return result;
}

int nvme_load(struct region_nvme *nvme)
{
	int result;

	nvme_lock_queue(&nvme->are_calls_busy);
	result = load_header(nvme);
	/* What a call that was given up on left undone. */
	if (result == FARLOG_OK && nvme->is_credit_due)
		may_fail(nvme_write_credit(nvme)); /* what fails stays due */
	nvme_unlock_queue(&nvme->are_calls_busy);
	return result;
}
