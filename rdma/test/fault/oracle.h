/* oracle.h -- what a crash test knows to be true, kept apart from the core and made from the public answers alone.
 *
 * It remembers every record that was ever submitted, which of them were acknowledged, and a model of the store with a
 * synced and an unsynced part. It decodes the bytes that readers return by docs/reference/format.md, not by the core's
 * code. */
#ifndef FARLOG_TEST_ORACLE_H
#define FARLOG_TEST_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "farlog/farlog.h"

enum oracle_stored {
	ORACLE_NOT_STORED = 0,
	ORACLE_UNSYNCED = 1,
	ORACLE_SYNCED = 2,
};

/* One record that was submitted. Its content follows from `id`. */
struct oracle_record {
	uint64_t id;
	uint64_t lsn;
	uint64_t end_lsn;
	uint64_t seq;
	uint32_t epoch;
	uint32_t len;
	uint16_t class_id;
	uint16_t key_len;
	bool is_acked;   /* its loss is a failure */
	bool is_dropped; /* a recovery did not find it: it must never be seen again */
	bool is_found;   /* scratch of oracle_recovered */
	uint8_t stored;
};

/* One record in the model store; record_index -1 for PAD and EPOCH. */
struct oracle_entry {
	uint64_t lsn;
	uint64_t end_lsn;
	uint64_t next_seq;
	uint32_t epoch;
	int64_t record_index;
};

struct oracle_epoch {
	uint32_t epoch;
	uint64_t start_lsn;
};

#define ORACLE_RECORD_MAX 65536u
#define ORACLE_EPOCH_MAX 4096u

struct oracle {
	struct oracle_record records[ORACLE_RECORD_MAX]; /* in order of (epoch, lsn) */
	uint32_t record_count;
	uint32_t unacked_from; /* everything before it is acknowledged or dropped */
	uint32_t proven_count; /* everything before it is dropped or synced in the store */
	struct oracle_entry entries[ORACLE_RECORD_MAX * 2];
	uint32_t entry_count;
	uint32_t synced_count;
	struct oracle_epoch epochs[ORACLE_EPOCH_MAX];
	uint32_t epoch_count;
	uint32_t epoch_opened; /* the highest that a writer was opened with */
	uint64_t salt;
	uint64_t capacity;
	uint32_t align;
	uint32_t block_len; /* of the LBAs that the ring lies on, 0 = none */
	uint8_t ring_uuid[16];
	uint64_t next_id;
	char failure[400]; /* "" = none so far; the first one stays */
};

/* Where a walk along the log stands. */
struct oracle_walk {
	uint64_t lsn;
	uint64_t seq;
	uint32_t epoch;
	uint64_t pad_lsn;   /* of the PAD just passed: where an epoch of pad_epoch begins */
	uint32_t pad_epoch; /* 0 = the record before was no PAD */
	bool has_seq;       /* false: the walk has just begun */
};

void oracle_start(struct oracle *oracle, const struct farlog_ring_status *status, uint32_t block_len);
void oracle_fail(struct oracle *oracle, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline bool oracle_has_failed(const struct oracle *oracle)
{
	return oracle->failure[0] != '\0';
}

/* oracle_content -- fill key and payload of the record `id`. */
void oracle_content(uint64_t id, uint8_t *key, uint32_t key_len, uint8_t *payload, uint32_t len);

/* oracle_submitted -- the core said where a record went. */
void oracle_submitted(
	struct oracle *oracle, const struct farlog_entry *entry, uint64_t id, const struct farlog_position *position);

/* oracle_acked -- everything submitted that ends at or below durable_lsn is acknowledged. */
void oracle_acked(struct oracle *oracle, uint64_t durable_lsn);

/* oracle_walked -- check what a reader returned, and with is_for_store put it into the store, as a store does: what is
 * not above the last (epoch, lsn) is there already. */
void oracle_walked(
	struct oracle *oracle, struct oracle_walk *walk, const uint8_t *bytes, uint64_t len, bool is_for_store);

/* oracle_recovering, oracle_recovered -- a writer was opened: between the two calls the log is walked from head_lsn to
 * its end, and what was not found is either acknowledged, a failure, or dropped for ever. */
void oracle_recovering(struct oracle *oracle);
void oracle_recovered(struct oracle *oracle, uint64_t head_lsn);

/* oracle_head -- the head was seen at head_lsn: everything acknowledged below it is synced in the store. */
void oracle_head(struct oracle *oracle, uint64_t head_lsn);

void oracle_sync(struct oracle *oracle);
/* oracle_cut_store -- the store's power cut: of what was not synced, the first keep_count entries survive. */
void oracle_cut_store(struct oracle *oracle, uint32_t keep_count);

/* oracle_find -- index of the record (epoch, lsn), -1 = never submitted. */
int64_t oracle_find(const struct oracle *oracle, uint32_t epoch, uint64_t lsn);

#endif
