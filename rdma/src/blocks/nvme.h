/* blocks/nvme.h -- a ring on raw blocks, as a region: what its two files share, blocks/nvme.c, what it does while it is
 * open, and blocks/nvme_open.c.
 *
 * On the device the header is spread: whatever is stored whole has an LBA of its own, at the beginning of one of the
 * first eight blocks of 4096 bytes, and the ring's data follows (docs/reference/format.md section 3). To the rest of
 * the core it looks as every ring does: `base` is a copy, with everything where ring/layout.h says. A writer's copy is
 * all of the ring, and where its commands take their bytes from; a drain or reader has the header and reads through a
 * window. */
#ifndef FARLOG_REGION_NVME_H
#define FARLOG_REGION_NVME_H

#include "base/uri.h"
#include "blocks/block.h"
#include "region/region.h"
#include "ring/layout.h"

enum nvme_control {
	NVME_SUPERBLOCK_A = 0,
	NVME_SUPERBLOCK_B = 1,
	NVME_HEAD_A = 2,
	NVME_HEAD_B = 3,
	NVME_FENCE_A = 4,
	NVME_FENCE_B = 5,
	NVME_CREDIT = 6,
	NVME_HINTS = 7,
	NVME_CONTROL_COUNT = 8,
};

#define NVME_CONTROL_LEN (NVME_CONTROL_COUNT * LAYOUT_BLOCK_LEN)
#define NVME_DATA_OFF NVME_CONTROL_LEN                   /* on the device */
#define NVME_EXTRA_LEN (NVME_DATA_OFF - LAYOUT_DATA_OFF) /* what a device must have beyond what the region shows */
#define NVME_WINDOW_LEN (1u << 20)
#define NVME_SPAN_COUNT_MAX 2
#define NVME_AHEAD_COUNT 8u /* windows of a drain that reads ahead */
#define NVME_AHEAD_LEN (1u << 19)
/* the patience of tests, whose machine may stand still for longer than any time */
#define NVME_CLOCKLESS_TURN_COUNT 1000u
#define NVME_PATIENCE_NS 5000000000u /* with a device that answers nothing: of calls */

/* What lies at the beginning of the blocks of fence, credit and hints. Zeros are not sound: nothing was stored yet. */
struct nvme_words {
	uint64_t words[2];
	/* of the hints: this epoch's writer has closed, and nothing of it was under way; 0 = none says so */
	uint32_t closed_epoch;
	uint8_t reserved[8];
	uint32_t crc32c;
};

/* A window of what was read ahead. */
struct nvme_slot {
	uint64_t at;  /* as region_ops.expect counts */
	uint64_t off; /* in the region */
	uint32_t len;
	uint32_t done_len; /* of its bytes, from the first: nobody wants them any more */
	bool is_flying;
	bool is_stale; /* nobody wants it any more, or it failed: free as soon as it is back */
};

/* What a drain has read ahead: `count` windows from `first` on, in the order in which they will be read, and behind
 * them what is to be fetched next. */
struct nvme_ahead {
	uint8_t *bytes; /* NULL = nothing was expected yet */
	struct nvme_slot slots[NVME_AHEAD_COUNT];
	unsigned first;
	unsigned count;
	uint64_t at;                 /* where the first span begins */
	struct region_span spans[2]; /* the second counts when the first is done; len 0 = none */
};

struct region_nvme {
	struct region region;
	struct block_device *device;
	struct staging *staging; /* where the copy's records lie; NULL = with its header */
	uint8_t *copy;
	uint64_t copy_len;
	uint8_t *own;            /* the buffers below, in one piece */
	uint8_t *controls;       /* commits: header blocks on their way to the device */
	uint8_t *looked;         /* commits: header blocks on their way here */
	uint8_t *called;         /* calls: header blocks either way */
	uint8_t *window;         /* calls: the ring's data on its way here, and a directory on its way there */
	uint8_t *directory;      /* calls: of all of the device, NULL = not fetched yet */
	struct nvme_ahead ahead; /* calls */
	enum region_role role;
	uint64_t is_busy; /* the commits' queue is in use */
	uint64_t are_calls_busy;

	uint64_t tag_asked; /* the commit under way, or the last one */
	struct region_span spans[NVME_SPAN_COUNT_MAX];
	unsigned span_count;
	unsigned span_at; /* the next to go out: this one, from span_done on */
	uint64_t span_done;
	unsigned flying_count; /* commands of it that are not back */
	int failure;           /* of one of them; errno */
	bool is_hints_flying;
	bool is_words_read_flying;
	uint64_t are_hints_due; /* stored by who appends, without is_busy, behind the words */
	bool is_fence_due;      /* stored, not yet on the device */
	bool is_credit_due;
	uint64_t words_read_ns;    /* when the last look began */
	uint64_t side_commands_ns; /* when the last one did that went along with a commit */
	uint64_t call_id;
	bool is_call_flying;         /* perhaps one that nobody waits for any more: its buffers are not ours */
	bool is_call_for_words;      /* what it brings is fence and credit */
	bool is_words_call_next;     /* the next one will be */
	uint64_t persist_timeout_ns; /* of a call that brings the header */
	unsigned fence_slot;         /* of the newest fence on the device */
	char trouble[160];           /* the last command that failed, "" = none */
	/* Of a writer that a device may fence: blocks/nvme_fence.c. */
	uint32_t epoch;
	/* after a rest a look goes before the commit: the reservation may have gone with the target, and another writer
	 * have come */
	bool must_check_fence;
	bool is_held;     /* the commit under way is, until such a look has come back */
	uint64_t held_ns; /* when that look was put */
	bool is_log_end_flying;
	bool has_log_end_failed;
	uint64_t own_generation; /* of the superblock */
	uint64_t log_end_read_ns;
	/* Of a device that several hosts reach, and that does not fence them: blocks/nvme_shared_claim.c. */
	bool is_opening; /* this host's key says so, and the lock is held */
	bool is_closing; /* the next hints say that this epoch is closed */
};

#define NVME_ID_LOG_END 4u /* of a command, beside those of blocks/nvme.c */
#define NVME_ID_FENCE 5u

static inline struct region_nvme *nvme_of(struct region *region)
{
	return (struct region_nvme *)region;
}

/* region_nvme_open -- "nvme:/dev/nvme2n1", or "nvme:NQN/NAMESPACE". */
int region_nvme_open(const char *text, const struct uri *uri, const struct region_options *options,
	struct region **region, struct farlog_error *error) FARLOG_MUST_CHECK;

/* region_nvme_probe -- its contract, without touching its bytes. */
int region_nvme_probe(const char *text, const struct uri *uri, struct farlog_contract *contract,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* nvme_make -- a region on this device, which it owns from now on, also when it fails. */
int nvme_make(const char *text, struct block_device *device, const struct farlog_contract *contract,
	const struct region_options *options, struct region **region, struct farlog_error *error) FARLOG_MUST_CHECK;

/* What the core stores whole: where it lies in the copy, and in which block. */
#define NVME_ITEM_COUNT 4

struct nvme_item {
	uint64_t off;
	uint32_t len;
	enum nvme_control control;
};

extern const struct nvme_item nvme_items[NVME_ITEM_COUNT];

/* nvme_window_len -- what one call reads. */
static inline uint64_t nvme_window_len(const struct region_nvme *nvme)
{
	uint32_t limit = nvme->device->read_len_max;

	return limit != 0 && limit < NVME_WINDOW_LEN ? limit : NVME_WINDOW_LEN;
}

/* nvme_control_at, nvme_data_at -- where they lie on the device. */
static inline uint64_t nvme_control_at(const struct region_nvme *nvme, unsigned control)
{
	return nvme->device->ring_off + (uint64_t)control * LAYOUT_BLOCK_LEN;
}

static inline uint64_t nvme_data_at(const struct region_nvme *nvme, uint64_t off)
{
	return nvme->device->ring_off + off + NVME_EXTRA_LEN;
}

static inline uint8_t *nvme_block_of(uint8_t *blocks, unsigned control)
{
	return blocks + (size_t)control * LAYOUT_BLOCK_LEN;
}

static inline uint64_t *nvme_word_at(struct region_nvme *nvme, uint64_t off)
{
	return (uint64_t *)(nvme->copy + off);
}

/* A queue belongs to who has taken it. */
static inline bool nvme_try_lock_queue(uint64_t *is_busy)
{
	return __atomic_exchange_n(is_busy, 1, __ATOMIC_ACQUIRE) == 0;
}

static inline void nvme_unlock_queue(uint64_t *is_busy)
{
	atomic_store_release(is_busy, 0);
}

/* nvme_lock_queue -- without a deadline, because no other thread's append waits here. The commits' queue, is_busy: its
 * holder waits for the device in `wait`, at opening and at closing, and is then the thread that persists next, or the
 * last one; every other thread only tries. The calls' queue: who appends only tries; a call that is waited for ends
 * with its caller's deadline (load_header), a look after 2 ms. */
void nvme_lock_queue(uint64_t *is_busy);
void nvme_sleep(uint64_t limit_ns);
void nvme_note_trouble(struct region_nvme *nvme, int failure);
/* nvme_note_errno -- of a call that left it. Returns it. */
int nvme_note_errno(struct region_nvme *nvme) FARLOG_MUST_CHECK;

/* nvme_build_words -- a block of the header. nvme_load_words -- fence and credit, as they were read. */
void nvme_build_words(struct region_nvme *nvme, uint8_t *block, uint64_t first, uint64_t second);
void nvme_load_words(struct region_nvme *nvme, uint8_t *blocks);

/* nvme_call -- one command, waited for with patience. OK or IO. Of this and the next three the caller has taken the
 * calls' queue. */
int nvme_call(struct region_nvme *nvme, enum block_verb verb, uint64_t off, uint8_t *bytes, uint64_t len,
	uint64_t persist_timeout_ns) FARLOG_MUST_CHECK;
/* nvme_call_words -- bring fence and credit into the copy: now, or when a slow device has answered. */
void nvme_call_words(struct region_nvme *nvme);
int nvme_write_fence(struct region_nvme *nvme) FARLOG_MUST_CHECK;
/* nvme_write_hints -- durably, by a call, where none that went beside a commit is under way. */
int nvme_write_hints(struct region_nvme *nvme) FARLOG_MUST_CHECK;
int nvme_write_credit(struct region_nvme *nvme) FARLOG_MUST_CHECK;

/* nvme_load -- the header, from the device into the copy. OK or IO. */
int nvme_load(struct region_nvme *nvme) FARLOG_MUST_CHECK;

/* Commits, by who has taken their queue. nvme_set_commit_spans -- the next commit, widened to whole LBAs: what else
 * lies in them was never acknowledged. nvme_put_pieces -- as many as the queue takes, from where the last ones ended.
 * nvme_put_hints -- the hints, not waited for; durably when the region is closing. nvme_put_side_commands -- what goes
 * along with a commit of the writer and is not waited for. nvme_collect_answers -- what has come back; the rest of a
 * long commit goes out. nvme_commit_is_under_way -- some of it is not back. */
void nvme_set_commit_spans(struct region_nvme *nvme, const struct region_span *spans, unsigned span_count);
void nvme_put_pieces(struct region_nvme *nvme);
void nvme_put_hints(struct region_nvme *nvme);
void nvme_put_side_commands(struct region_nvme *nvme);
void nvme_collect_answers(struct region_nvme *nvme);
bool nvme_commit_is_under_way(const struct region_nvme *nvme);

/* nvme_claim -- what region_fence_ops.claim is. nvme_begin_fencing -- the device has refused a write, or a later epoch
 * has been seen. Of the rest the caller has taken the commits' queue. nvme_hold_commit -- must the commit that is
 * prepared wait for a look at the fence? Then that has been put. nvme_release_commit -- its answer. nvme_find_log_end
 * -- find out where our log ended: OK or IO. nvme_load_log_end -- an answer to that. */
int nvme_claim(struct region *region, const struct region_claim *claim, struct farlog_error *error) FARLOG_MUST_CHECK;
void nvme_begin_fencing(struct region_nvme *nvme);
void nvme_hold_commit(struct region_nvme *nvme);
void nvme_release_commit(struct region_nvme *nvme, int failure);
int nvme_find_log_end(struct region_nvme *nvme) FARLOG_MUST_CHECK;
void nvme_load_log_end(struct region_nvme *nvme, int failure);

/* nvme_prefetch -- what region_ops.expect is. Of the next three the caller has taken the calls' queue. nvme_ahead_begin
 * -- a read begins here: what lies before it is done with. nvme_ahead_copy -- as much from there on as one window has;
 * 0 = it was not read ahead, or that has failed. nvme_ahead_end -- nothing is expected any more: wait for what is under
 * way. */
void nvme_prefetch(struct region *region, uint64_t at, const struct region_span *spans, unsigned span_count);
void nvme_ahead_begin(struct region_nvme *nvme, uint64_t off);
uint64_t nvme_ahead_copy(struct region_nvme *nvme, uint64_t off, uint8_t *dst, uint64_t len);
void nvme_ahead_end(struct region_nvme *nvme, uint64_t persist_timeout_ns);

/* nvme_shared_claim -- what nvme_claim is where the device does not fence. nvme_shared_claim_end -- this writer is not
 * opening any more. nvme_mark_closed -- the writer of this epoch counts as closed from now on. nvme_is_closable -- is
 * it worth saying that this writer has closed? The caller knows that nothing is under way. nvme_build_hints -- the
 * block; closed_epoch 0 = open. */
int nvme_shared_claim(
	struct region_nvme *nvme, const struct region_claim *claim, struct farlog_error *error) FARLOG_MUST_CHECK;
void nvme_shared_claim_end(struct region_nvme *nvme);
int nvme_mark_closed(
	struct region_nvme *nvme, const char *uri, uint32_t epoch, struct farlog_error *error) FARLOG_MUST_CHECK;
bool nvme_is_closable(const struct region_nvme *nvme);
void nvme_build_hints(struct region_nvme *nvme, uint8_t *block, uint32_t closed_epoch);

/* nvme_map_own -- memory of its own, zero, kept out of forked children; NULL: none. */
void *nvme_map_own(uint64_t len) FARLOG_MUST_CHECK;

/* nvme_prepare_copy -- for the ring that the region now is. The next three are what region_ops has by these names:
 * blocks/nvme_part.c. */
int nvme_prepare_copy(
	const char *text, struct region_nvme *nvme, bool is_whole, struct farlog_error *error) FARLOG_MUST_CHECK;
int nvme_narrow(struct region *region, uint64_t off, uint64_t len) FARLOG_MUST_CHECK;
int nvme_fetch_directory(struct region *region) FARLOG_MUST_CHECK;
int nvme_store_directory(struct region *region, uint64_t off, const void *src, size_t len) FARLOG_MUST_CHECK;

void nvme_close(struct region *region);

extern const struct region_ops nvme_ops;

#endif
