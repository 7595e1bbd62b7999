/* log/reader.h -- a reader or drain of a ring, as log/reader_open.c, log/reader.c and log/release.c share it. */
#ifndef FARLOG_READER_H
#define FARLOG_READER_H

#include "region/region.h"
#include "region/superblock.h"
#include "ring/encrypt.h"
#include "ring/record.h"

#define READER_TIP_LEN_FIRST 4096u /* of a READ beyond the hint, where nothing may be */

struct reader_members;

/* The public functions: of a ring, or of a stream with several. */
struct reader_ops {
	int (*read)(struct farlog_reader *reader, void *buf, size_t buf_len, struct farlog_batch *batch) FARLOG_MUST_CHECK;
	int (*release)(struct farlog_reader *reader, const struct head_slot *slot) FARLOG_MUST_CHECK;
	int (*suspect)(struct farlog_reader *reader, struct farlog_suspect *suspect) FARLOG_MUST_CHECK;
	int (*status)(struct farlog_reader *reader, struct farlog_ring_status *status) FARLOG_MUST_CHECK;
	uint64_t (*reads)(const struct farlog_reader *reader);
	struct region_waits (*waits)(const struct farlog_reader *reader);
	void (*close)(struct farlog_reader *reader);
};

struct farlog_reader {
	struct region *region;
	const struct reader_ops *ops;
	struct region_renewal *renewal; /* the reader's own: freed with it. NULL: none */
	/* of a reader that was opened by a token: those that it was given since. NULL: none */
	struct reader_grants *grants;
	struct reader_members *members; /* of a stream with several: all else is theirs, one of these each. NULL: a ring */
	struct superblock superblock;
	struct record_identity identity;
	struct record_cursor cursor;
	struct head_slot released; /* what release last stored */
	/* of one member of several: a head that another one has, below which there is no need to look here */
	struct head_slot floor;
	uint64_t dropped_lsn;
	uint32_t superblock_checksums[2]; /* checksums of both superblocks when they were looked at last */
	bool has_marks;                   /* false: one of them was not whole then */
	bool is_drain;
	bool is_member; /* one of several: between two epochs that it has seen there may have been others, elsewhere */
	bool is_resync_needed;
	bool is_rewound;
	uint32_t tip_len; /* of a far ring: how much to READ beyond the hint */
	uint8_t *again;   /* AGAIN_LEN bytes for the second look at a far ring; NULL until it is needed */
	/* a hint covered it, and nothing was there: until there is, no more is fetched than beyond a hint */
	uint64_t empty_lsn;
	/* of a drain of a far ring: below it the log is what it is, said the header that was fetched last; 0: it said
	 * nothing */
	uint64_t sure_lsn;
	uint64_t reconnect_count;   /* of the region when the head was last seen to be the one released */
	struct head_slot open_slot; /* with is_release_open: what it was to store */
	bool is_release_open; /* a far release has failed: its slot may be torn at the target, or on its way there still */
	struct decrypter *decrypter; /* NULL: encrypted records are given as they are */
	/* of one with keys, for good: an application's record that is not encrypted was made by somebody without a key */
	bool is_clear_refused;
	int decrypt_result; /* not OK: the record at decrypt_lsn cannot be decrypted. For good */
	uint64_t decrypt_lsn;
	struct farlog_error trouble; /* why */
};

/* reader_open_decrypter -- by the keys of `config`, or of FARLOG_KEY_FILE where that may concern the reader. OK;
 * INVALID of a drain with keys; the errors of keys_open. */
int reader_open_decrypter(struct farlog_reader *reader, const char *uri, const struct farlog_reader_config *config,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* reader_decrypt_batch -- make plain records of those that are encrypted. OK; NO_KEY, CORRUPT: the first one cannot be
 * decrypted, or is not encrypted where all have to be; later ones end the batch before them. */
int reader_decrypt_batch(struct farlog_reader *reader, uint8_t *buf, struct farlog_batch *batch) FARLOG_MUST_CHECK;

/* reader_confirm_head -- of a drain, by the header that has just been fetched: nobody else has drained while the
 * connection was away, the head is the one released last, or at expected_lsn. Then the credit, which may have been lost
 * with the connection, is sent again. OK; HELD: another drain has moved the head; CORRUPT. */
int reader_confirm_head(struct farlog_reader *reader, uint64_t expected_lsn, struct head_slot *head) FARLOG_MUST_CHECK;

/* reader_open_ring -- farlog_reader_open of one ring. renewal: who has another grant when its target does not take the
 * one of `config` any more; NULL: nobody. */
int reader_open_ring(const char *uri, const struct farlog_reader_config *config, struct region_renewal *renewal,
	farlog_reader **reader, struct farlog_error *error) FARLOG_MUST_CHECK;

/* reader_open -- of a ring, or of the members that a URI names. */
int reader_open(const char *uri, const struct farlog_reader_config *config, struct region_renewal *renewal,
	farlog_reader **reader, struct farlog_error *error) FARLOG_MUST_CHECK;

/* reader_seek -- from the cursor to where reading is to start. */
int reader_seek(struct farlog_reader *reader, const char *uri, const struct farlog_reader_config *config,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* reader_close_ring, reader_read_ring, reader_status_ring, reader_suspect_ring, reader_release_ring -- the public
 * functions, of one ring. */
void reader_close_ring(struct farlog_reader *reader);
int reader_read_ring(
	struct farlog_reader *reader, void *buf, size_t buf_len, struct farlog_batch *batch) FARLOG_MUST_CHECK;
int reader_status_ring(struct farlog_reader *reader, struct farlog_ring_status *status) FARLOG_MUST_CHECK;
int reader_suspect_ring(struct farlog_reader *reader, struct farlog_suspect *suspect) FARLOG_MUST_CHECK;
int reader_release_ring(struct farlog_reader *reader, const struct head_slot *slot) FARLOG_MUST_CHECK;

/* reader_release_spill -- of a spill, a ring of this host: as reader_release_ring, also to a head that is released
 * already, for another far_epoch or far_seq. */
int reader_release_spill(struct farlog_reader *reader, const struct head_slot *slot) FARLOG_MUST_CHECK;

/* reader_fetch_header -- fetch the header, and take from it what a batch depends on: the cursor is where the log is,
 * sure_lsn says how far it is durable. As reader_follow_log; IO, HELD. */
int reader_fetch_header(struct farlog_reader *reader) FARLOG_MUST_CHECK;

/* reader_refresh -- by the header that has just been fetched: who writes here. */
void reader_refresh(struct farlog_reader *reader);

/* reader_has_reconnected -- has its connection been another one since there were so many? What was seen before then is
 * not what is there now: the target's host may have been without power, and another drain may have been in. */
static inline bool reader_has_reconnected(const struct farlog_reader *reader, uint64_t reconnect_count)
{
	return reader->region->reconnect_count != reconnect_count;
}

/* reader_is_of_log -- false: a record found here is of an epoch that ended before it. Only a ring that one of the later
 * writers did not have, as a member of several, has any. */
static inline bool reader_is_of_log(const struct farlog_reader *reader, uint64_t lsn, uint32_t epoch)
{
	return lsn < reader->superblock.epoch_start_lsn || epoch >= reader->superblock.writer_epoch;
}

/* reader_store_head -- of a drain that knows that all below it will be in every log to come: a new writer makes no
 * difference. OK, also where the head is beyond it; IO, HELD. */
int reader_store_head(struct farlog_reader *reader, const struct head_slot *slot) FARLOG_MUST_CHECK;

/* reader_follow_log -- by the header that has just been fetched: a new writer may have come, and the log gone back
 * behind what was read. Then the cursor is where its epoch begins. OK; NOT_YET: that cannot be seen yet; OVERRUN. */
int reader_follow_log(struct farlog_reader *reader) FARLOG_MUST_CHECK;

#endif
