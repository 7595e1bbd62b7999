/* blocks/nvme_commit.c -- the commits of a ring on raw blocks, and what goes along with them. See blocks/nvme.c. The
 * caller has taken the commits' queue. */
#include "blocks/nvme.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"

#define PIECE_COUNT_MAX (BLOCK_DEPTH / 2)
#define ASIDE_INTERVAL_NS 5000000u

enum command_id { ID_PIECE = 1, ID_HINTS = 2, ID_WORDS = 3 };

static bool is_all_out(const struct region_nvme *nvme)
{
	return nvme->span_at == nvme->span_count;
}

bool nvme_commit_is_under_way(const struct region_nvme *nvme)
{
	return nvme->flying_count > 0 || !is_all_out(nvme);
}

static void put_commit(struct region_nvme *nvme, uint64_t off, uint8_t *bytes, uint64_t len)
{
	struct block_command command = {
		.verb = BLOCK_WRITE_DURABLE, .off = off, .bytes = bytes, .len = (uint32_t)len, .id = ID_PIECE};

	nvme->device->ops->put(nvme->device, BLOCK_COMMITS, &command);
	nvme->flying_count++;
}

/* put_items -- those of the header that the span covers. */
static void put_items(struct region_nvme *nvme, const struct region_span *span)
{
	for (size_t i = 0; i < NVME_ITEM_COUNT; i++) {
		uint8_t *block = nvme_block_of(nvme->controls, nvme_items[i].control);

		if (span->off >= nvme_items[i].off + nvme_items[i].len || span->off + span->len <= nvme_items[i].off)
			continue;
		memset(block, 0, nvme->device->lba_len);
		memcpy(block, nvme->copy + nvme_items[i].off, nvme_items[i].len);
		put_commit(nvme, nvme_control_at(nvme, nvme_items[i].control), block, nvme->device->lba_len);
	}
}

/* nvme_put_pieces -- as many as the queue takes, from where the last ones ended. */
void nvme_put_pieces(struct region_nvme *nvme)
{
	while (!is_all_out(nvme) && nvme->flying_count < PIECE_COUNT_MAX) {
		const struct region_span *span = &nvme->spans[nvme->span_at];
		uint64_t off = span->off + nvme->span_done;
		uint64_t len = span->len - nvme->span_done;
		uint64_t left = BLOCK_BUFFER_LEN - off % BLOCK_BUFFER_LEN;

		if (off < LAYOUT_DATA_OFF) {
			put_items(nvme, span);
			nvme->span_at++;
			continue;
		}
		if (len > nvme->device->command_len_max)
			len = nvme->device->command_len_max;
		if (len > left)
			len = left;
		put_commit(nvme, nvme_data_at(nvme, off), nvme->copy + off, len);
		nvme->span_done += len;
		if (nvme->span_done < span->len)
			continue;
		nvme->span_at++;
		nvme->span_done = 0;
	}
}

void nvme_put_hints(struct region_nvme *nvme)
{
	uint8_t *block = nvme_block_of(nvme->controls, NVME_HINTS);
	struct block_command command = {.verb = nvme->is_closing ? BLOCK_WRITE_DURABLE : BLOCK_WRITE,
		.off = nvme_control_at(nvme, NVME_HINTS),
		.bytes = block,
		.len = nvme->device->lba_len,
		.id = ID_HINTS};

	/* Before the words are read: what is stored from here on is due again. */
	(void)__atomic_exchange_n(&nvme->are_hints_due, 0, __ATOMIC_ACQ_REL);
	nvme_build_hints(nvme, block, nvme->is_closing ? nvme->epoch : 0);
	nvme->is_hints_flying = true;
	nvme->device->ops->put(nvme->device, BLOCK_COMMITS, &command);
}

static void put_words_read(struct region_nvme *nvme)
{
	struct block_command command = {.verb = BLOCK_READ,
		.off = nvme_control_at(nvme, NVME_FENCE_A),
		.bytes = nvme_block_of(nvme->looked, NVME_FENCE_A),
		.len = (NVME_CREDIT - NVME_FENCE_A + 1) * LAYOUT_BLOCK_LEN,
		.id = ID_WORDS};

	nvme->is_words_read_flying = true;
	nvme->device->ops->put(nvme->device, BLOCK_COMMITS, &command);
}

/* The device has to do these commands all the same, and the commit beside them takes longer: hints and the read of
 * fence and credit go with one commit, and there are few of those. A writer that runs out of space reads them
 * itself. */
void nvme_put_side_commands(struct region_nvme *nvme)
{
	uint64_t now_ns;

	if (nvme->role != REGION_ROLE_WRITER)
		return;
	now_ns = nvme->device->is_clockless ? UINT64_MAX : clock_monotonic_ns();
	if (nvme->is_words_read_flying || now_ns - nvme->side_commands_ns < ASIDE_INTERVAL_NS)
		return;
	nvme->side_commands_ns = nvme->device->is_clockless ? 0 : now_ns;
	nvme->words_read_ns = nvme->side_commands_ns;
	if (atomic_load_acquire(&nvme->are_hints_due) && !nvme->is_hints_flying)
		nvme_put_hints(nvme);
	put_words_read(nvme);
}

static void note_answer(struct region_nvme *nvme, const struct block_answer *answer)
{
	switch (answer->id) {
	case ID_HINTS:
		nvme->is_hints_flying = false;
		break;
	case ID_WORDS:
		nvme->is_words_read_flying = false;
		if (answer->failure == 0)
			nvme_load_words(nvme, nvme->looked);
		break;
	case NVME_ID_FENCE:
		nvme_release_commit(nvme, answer->failure);
		break;
	case NVME_ID_LOG_END:
		nvme_load_log_end(nvme, answer->failure);
		break;
	default:
		nvme->flying_count--;
		if (answer->failure == 0)
			break;
		nvme->failure = answer->failure;
		nvme_note_trouble(nvme, answer->failure);
		if (answer->failure == EBADE)
			nvme_begin_fencing(nvme);
		break;
	}
}

/* nvme_collect_answers -- what has come back; the rest of a long commit goes out. */
void nvme_collect_answers(struct region_nvme *nvme)
{
	struct block_device *device = nvme->device;
	struct block_answer answers[16];
	unsigned count;

	while ((count = device->ops->take(device, BLOCK_COMMITS, answers, 16)) > 0)
		for (unsigned i = 0; i < count; i++)
			note_answer(nvme, &answers[i]);
	if (!is_all_out(nvme) && !nvme->is_held && nvme->failure == 0 && nvme->flying_count < PIECE_COUNT_MAX / 2) {
		nvme_put_pieces(nvme);
		if (device->ops->send(device, BLOCK_COMMITS) != FARLOG_OK)
			nvme->failure = nvme_note_errno(nvme);
	}
	if (!nvme_commit_is_under_way(nvme) && nvme->failure == 0)
		atomic_store_relaxed(&nvme->region.tag_done, nvme->tag_asked);
}

/* nvme_set_commit_spans -- widened to whole LBAs: what else lies in them was never acknowledged. */
void nvme_set_commit_spans(struct region_nvme *nvme, const struct region_span *spans, unsigned span_count)
{
	uint64_t mask = nvme->device->lba_len - 1;

	for (unsigned i = 0; i < span_count; i++) {
		uint64_t off = spans[i].off < LAYOUT_DATA_OFF ? spans[i].off : spans[i].off & ~mask;
		uint64_t end = spans[i].off + spans[i].len;

		nvme->spans[i] = (struct region_span){off, (spans[i].off < LAYOUT_DATA_OFF ? end : (end + mask) & ~mask) - off};
	}
	nvme->span_count = span_count;
	nvme->span_at = 0;
	nvme->span_done = 0;
}
