/* log/writer.h -- the inside of a writer, shared by its files: opening, appending, and the many-thread front. */
#ifndef FARLOG_WRITER_H
#define FARLOG_WRITER_H

#include "base/clock.h"
#include "base/stats.h"
#include "farlog/farlog.h"
#include "log/settings.h"
#include "region/region.h"
#include "ring/encrypt.h"
#include "ring/layout.h"
#include "ring/record.h"
#include "ring/ring.h"

/* When the ring is in use so far, unless the configuration says otherwise. */
#define WRITER_WARN_PERCENT 70u
#define WRITER_ALARM_PERCENT 85u

/* The stack protector is 2 % of an append's instructions. What carries this mark goes without it: all that it writes to
 * its stack has been checked against the size there (plain_len_max <= WRITER_SMALL_LEN). */
#define NO_STACK_PROTECTOR __attribute__((no_stack_protector))

/* Who asks, while the writer runs, how its stream is declared by now. */
struct writer_follower {
	/* Ask no more, and be freed. is_ended: tell that the writer ends by itself, with nothing under way. Waits for no
	 * answer. */
	void (*end)(struct writer_follower *follower, bool is_ended);
};

/* An append that ended UNKNOWN, and whose record is not durable yet: log/late.h. */
struct writer_late {
	uint64_t end_lsn;  /* of its record; 0: there is none. What follows is stored before it */
	uint64_t start_ns; /* since then its acknowledgement is waited for */
	uint64_t seen_ns;  /* until then somebody has waited in vain */
};

/* Fields of the append path first; all are owned by the writer's thread (in a shared writer: by who holds its reserve
 * lock, except where log/shared.c says otherwise). */
struct farlog_writer {
	struct region *region;
	struct ring ring;
	struct record_identity identity;
	uint64_t durable_lsn;
	uint64_t persisting_lsn; /* durable_lsn once the persist under way is complete */
	uint64_t persist_tag;
	uint64_t hint_ticks; /* when the hints were last stored */
	uint64_t hint_interval_ticks;
	uint64_t fenced_epoch; /* 0 = not fenced */
	uint32_t epoch;
	uint32_t pressure;
	uint32_t plain_len_max; /* a record of at most this many ring bytes may be staged plainly; 0: none */
	/* if it ends before this: no PAD, no wrap, free space, no pressure. Moved by writer_stage_generally */
	uint64_t plain_limit_lsn;
	const uint64_t *plain_fence; /* the fence word for plain staging */
	int (*stage)(struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t ticks,
		struct farlog_position *position) FARLOG_MUST_CHECK;
	int (*submit)(struct farlog_writer *writer, const struct farlog_entry *entry,
		struct farlog_position *position) FARLOG_MUST_CHECK;
	bool is_persisting;
	union {
		struct {
			bool is_failed; /* the region gave an error: what was not acknowledged is unknown, nothing more is taken */
			bool is_packed; /* on blocks: a commit ends with an LBA */
		};
		uint16_t is_apart; /* either: one look where appends pass */
	};
	uint8_t level;
	uint8_t policy;
	uint8_t wait;
	/* key and payload of the standing claim, or of a large record, where they would lie in it */
	uint8_t *staging;
	struct farlog_counters *counters;
	int counters_lock_fd; /* of their file; -1: none */
	char *counters_dir;   /* where they are; NULL: the default one */

	uint64_t deadline_ns;
	uint32_t claim_len; /* of the standing claim */
	uint16_t claim_class;
	uint16_t claim_key_len;
	bool has_claim;
	bool has_clock;
	bool has_settings;
	uint8_t level_before; /* of records from level_before_lsn up to level_lsn, from which on it is `level` */
	uint8_t level_least;  /* that it ever had */
	uint64_t level_lsn;
	uint64_t level_before_lsn;
	struct writer_settings settings;  /* as others would have them */
	struct writer_follower *follower; /* NULL: nobody */
	struct superblock superblock;
	struct farlog_recovery recovery;
	struct writer_late late;
	struct clock_task guest; /* what follows is its turns' alone */
	uint64_t seen_durable_lsn;
	uint64_t seen_hint_lsn;
	uint64_t hinted_lsn;
	struct encrypter *encrypter; /* NULL: the ring's records are not encrypted */
	uint32_t envelope_len;       /* of an encrypted record; 0: none is */
};

/* The PAD behind the last record of a commit. */
struct writer_pad {
	struct record_header header;
	uint64_t off; /* in the ring's data */
	uint64_t len;
};

/* A point in time that is computed only when somebody has to wait for it. */
struct deadline {
	uint64_t duration_ns;
	uint64_t at_ns;   /* 0 = not started */
	uint64_t turn_ns; /* other threads of a shared writer are waited for this much longer */
	uint32_t pauses;
};

/* deadline_pause -- wait a little, by the writer's strategy. False: the deadline has passed. */
bool deadline_pause(struct deadline *deadline, const struct farlog_writer *writer, bool is_for_region);

/* deadline_make -- of one call; 0 = the writer's own. */
struct deadline deadline_make(const struct farlog_writer *writer, uint64_t deadline_ns);

/* writer_read_credit -- learn from the drain how much space is free; urgently, where an append waits for it. */
void writer_read_credit(struct farlog_writer *writer, bool is_urgent);

/* writer_stage_generally -- place, build and write one record (flags: control records); nothing is durable yet. OK,
 * FULL, FENCED, TOO_LARGE, CLOSED, INVALID. */
int writer_stage_generally(struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t flags,
	uint64_t ticks, struct farlog_position *position) FARLOG_MUST_CHECK;

/* writer_stage -- the same, by the function that was chosen at opening. */
FARLOG_MUST_CHECK static inline int writer_stage(struct farlog_writer *writer, const struct farlog_entry *entry,
	uint64_t flags, uint64_t ticks, struct farlog_position *position)
{
	/* A change of the settings puts another function there. */
	return flags == 0 ? __atomic_load_n(&writer->stage, __ATOMIC_RELAXED)(writer, entry, ticks, position) :
						writer_stage_generally(writer, entry, flags, ticks, position);
}

/* Called by an opening writer with what it has found, durable by now: the log ends before ring.next_seq,
 * superblock.writer_epoch was its last epoch, `epoch` is going to be the next. Nothing has been written yet, and
 * nothing is unless the result is OK. */
struct writer_watch {
	/* NULL: not called */
	int (*recovered)(void *context, const struct farlog_writer *writer, struct farlog_error *error) FARLOG_MUST_CHECK;
	void *context;
	/* open only a ring that has lost acknowledged bytes, and whose log ends at cut_lsn since: its operator accepts
	 * that */
	bool is_cutting;
	uint64_t cut_lsn;
};

/* writer_open -- farlog_writer_open. watch: NULL = nobody. */
int writer_open(const char *uri, const struct farlog_writer_config *config, const struct writer_watch *watch,
	farlog_writer **writer, struct farlog_error *error) FARLOG_MUST_CHECK;

/* writer_open_ring -- the same for a URI that says where the ring is. */
int writer_open_ring(const char *uri, const struct farlog_writer_config *config, const struct writer_watch *watch,
	farlog_writer **writer, struct farlog_error *error) FARLOG_MUST_CHECK;

/* writer_recover -- while it opens: find the tail and make what lies below it durable; the ring's cursors start there.
 * CORRUPT: acknowledged bytes are gone, unless `watch` accepts that. */
int writer_recover(struct farlog_writer *writer, const char *uri, const struct farlog_writer_config *config,
	const struct writer_watch *watch, struct farlog_error *error) FARLOG_MUST_CHECK;

/* writer_stop_follower -- end its follower. Before it is closed; safe where it has none. */
void writer_stop_follower(struct farlog_writer *writer, bool is_ended);

/* writer_wait_durable -- drive flushes until end_lsn is durable. OK or UNKNOWN. */
int writer_wait_durable(struct farlog_writer *writer, uint64_t end_lsn, struct deadline *deadline) FARLOG_MUST_CHECK;

/* writer_fenced_result -- a far ring that is closed to its writer sends nothing back any more, so that waiting is over.
 * FENCED: it ended below all that is not yet durable, nothing of which was written, nor ever will be. UNKNOWN: some of
 * it may have been. OK: it is open, or that is not known yet. */
int writer_fenced_result(struct farlog_writer *writer) FARLOG_MUST_CHECK;

/* What resolving a position of an earlier epoch goes by. */
struct resolve_bounds {
	uint64_t appended_lsn;
	uint64_t credit_lsn;
	uint64_t head_lsn; /* where the walk began: right unless the ring has been written over from there meanwhile */
	uint8_t level;
};

struct resolve_bounds writer_resolve_bounds(const struct farlog_writer *writer, uint64_t lsn);

/* writer_resolve -- farlog_resolve of position->lsn. writer_resolve_inherited -- of one below recovery.tail_lsn, after
 * writer_read_credit; other threads may append meanwhile. */
int writer_resolve(
	struct farlog_writer *writer, struct deadline *deadline, struct farlog_position *position) FARLOG_MUST_CHECK;
int writer_resolve_inherited(const struct farlog_writer *writer, struct resolve_bounds *sight,
	struct deadline *deadline, struct farlog_position *position) FARLOG_MUST_CHECK;

/* writer_advance_flush -- one step: look at the flush under way, start the next. OK or UNKNOWN (the region failed). */
int writer_advance_flush(struct farlog_writer *writer) FARLOG_MUST_CHECK;

/* writer_copies -- how many regions have what was acknowledged last. */
static inline uint8_t writer_copies(const struct farlog_writer *writer)
{
	return (uint8_t)(1 + atomic_load_relaxed(&writer->region->extra_copies));
}

/* writer_is_fenced -- looks at the fence word; remembers. */
bool writer_is_fenced(struct farlog_writer *writer);

/* writer_check_entry -- OK, INVALID or TOO_LARGE; *extent is what the record takes, which has these flags. */
int writer_check_entry(const struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t flags,
	uint64_t *extent) FARLOG_MUST_CHECK;

/* writer_find_place -- OK or FULL; takes newer credit when needed. */
int writer_find_place(struct farlog_writer *writer, uint64_t extent, struct ring_place *place) FARLOG_MUST_CHECK;

/* writer_stage_many -- as many of `count` plain records, one behind the other, as can be staged plainly; all bear
 * the time of `ticks`. May be none: the next one must go by writer_stage. */
size_t writer_stage_many(struct farlog_writer *writer, const struct farlog_entry *entries, size_t count, uint64_t ticks,
	struct farlog_position *positions);

/* writer_choose_stage -- once, when ring and region are known: how records are staged. */
void writer_choose_stage(struct farlog_writer *writer);

/* writer_reject_append -- count the rejected entry and report why. Returns `result`. */
int writer_reject_append(struct farlog_writer *writer, int result, struct farlog_position *position) FARLOG_MUST_CHECK;

/* writer_update_counters -- after ring_advance: counters and pressure. */
void writer_update_counters(struct farlog_writer *writer, uint64_t record_count, uint64_t payload_bytes);

/* writer_gather -- the record of `entry` for `place`, which has not been advanced over, as pieces; scratch is left to
 * writer_write. */
void writer_gather(const struct farlog_writer *writer, const struct ring_place *place, const struct farlog_entry *entry,
	uint64_t flags, uint64_t ticks, struct gather *gather);

#define WRITER_SMALL_LEN 4096u

/* writer_write -- PAD if one is needed, then the record, encrypted where its head says so. One of more than
 * WRITER_SMALL_LEN ring bytes passes through `staging`: then only one thread at a time. False: it could not be
 * encrypted. Nothing was written then, and its LSN must not be used again. */
bool writer_write(
	const struct farlog_writer *writer, const struct ring_place *place, struct gather *gather) FARLOG_MUST_CHECK;

/* writer_open_encrypter -- while it opens: with the first key of config's file, where the ring is encrypted. OK; NO_KEY
 * and the errors of keys_open; INVALID: a key is given, and the ring is not encrypted. */
int writer_open_encrypter(struct farlog_writer *writer, const char *uri, const struct farlog_writer_config *config,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* writer_end_encryption -- after a record that could not be encrypted: nothing more is taken. CLOSED. */
int writer_end_encryption(struct farlog_writer *writer) FARLOG_MUST_CHECK;

/* writer_spans -- the ring bytes [from, to) as one span or, around the end, two. */
unsigned writer_spans(
	const struct farlog_writer *writer, uint64_t from_lsn, uint64_t to_lsn, struct region_span spans[2]);

/* writer_reserve_pad -- the place of the PAD with which a commit that ends here would end, advanced over; its bytes are
 * for writer_write_pad. False: it needs none. */
bool writer_reserve_pad(struct farlog_writer *writer, uint64_t ticks, struct writer_pad *pad);
void writer_write_pad(const struct farlog_writer *writer, const struct writer_pad *pad);

/* writer_end_commit -- both. */
void writer_end_commit(struct farlog_writer *writer);

/* writer_store_hints -- tell readers, now and then, how far the log goes. */
void writer_store_hints(struct farlog_writer *writer, uint64_t ticks, uint64_t appended_lsn, uint64_t durable_lsn);

/* writer_start_hints -- from now on until clock_remove_task a background thread stores the hints that a resting writer
 * does not. */
void writer_start_hints(struct farlog_writer *writer);

void writer_fill_position(
	const struct farlog_writer *writer, const struct ring_place *place, uint64_t seq, struct farlog_position *position);

#endif
