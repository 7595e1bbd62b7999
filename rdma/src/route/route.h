/* route/route.h -- the inside of a route, shared by its files: opening, appending, and the carrying of what waits in a
 * leg's buffer.
 *
 * A leg that does not simply fail has a buffer: a ring on this host, which is the spill, or memory of this process. The
 * appending thread puts records into it, and a thread of the leg's own, the carrier, appends them to the leg's ring.
 *
 * No record is lost or appended twice, because the buffer's head slot states two things. Records from the head on are
 * not known to be durable in the leg's ring. And they have been, or are going to be, appended there in the epoch
 * far_epoch, the first with the seq far_seq. Recovery of the leg's ring finds how far the log of that epoch goes: the
 * difference of the seqs is the number of these records that are in the ring. The result is stored in the head slot,
 * with the next epoch, before that epoch becomes visible (writer_watch). A record is carried only when it is durable in
 * its buffer, so that a power cut never takes a record that has been counted. */
#ifndef FARLOG_ROUTE_INSIDE_H
#define FARLOG_ROUTE_INSIDE_H

#include <pthread.h>

#include "farlog/host.h"
#include "farlog/member.h"
#include "farlog/route.h"
#include "farlog/route_end.h"

#include "log/reader.h"
#include "log/shared.h"
#include "log/writer.h"

/* Who may use a leg's ring and the reader of its buffer. The carrier of a required leg gives up ownership when nothing
 * is left to carry; the appender takes it when it next appends. The carrier of an optional leg keeps it. */
enum route_owner {
	ROUTE_OWNER_APPENDER = 0,
	ROUTE_OWNER_CARRIER = 1,
	ROUTE_OWNER_NONE = 2,
};

struct route_counters {
#define ROUTE_COUNTER_FIELD(name, kind, help) uint64_t name;
	FARLOG_LEG_COUNTER_TABLE(ROUTE_COUNTER_FIELD)
#undef ROUTE_COUNTER_FIELD
};

/* Copies of the arguments by which a leg opens its ring again. */
struct route_opening {
	char *uri;
	struct farlog_writer_config config;
	char *writer_name;
	char *counters_dir;
	char *key_file; /* also of its spill; NULL: none */
	uint8_t ring_uuid[16 * FARLOG_MEMBER_COUNT_MAX];
	uint8_t grant_token[FARLOG_TOKEN_LEN * FARLOG_MEMBER_COUNT_MAX];
};

/* Dropped records that no GAP record reports yet. */
struct route_gap {
	uint64_t count;
	uint64_t from_number;
	uint64_t from_ts_ns;
	uint64_t to_ts_ns;
};

struct route_leg {
	uint64_t owner; /* enum route_owner; stored with release by the one that gives it up */
	/* of its ring; NULL = not open. Used by the owner; the carrier sets it with writer_lock held, with which any thread
	 * may read it. */
	struct farlog_writer *writer;
	struct farlog_shared *buffer; /* only the appender appends; NULL = required with policy FAIL */
	struct farlog_reader *reader; /* of the buffer, as its drain. Used by the owner */
	struct decrypter *decrypter;  /* of a spill with a key. Used by the carrier; NULL: none */
	uint64_t deadline_ns;         /* of an append to its ring, when none was given */
	uint64_t carried_lsn;         /* of the buffer: all below is in the ring. Stored by the carrier */
	uint64_t state;               /* enum farlog_leg_state */
	uint64_t fenced_epoch;
	uint32_t criticality_min;
	bool is_required;
	bool has_spill;

	uint64_t is_heartbeat_due;        /* the carrier sends a heartbeat when it has nothing to carry */
	uint64_t heartbeat_offered_count; /* offered_count at the last heartbeat call. The appender's */
	uint64_t offered_number;          /* the appender's, as the gap */
	struct route_gap gap;

	uint64_t head_ring_seq; /* seq in the ring of the first record from the buffer's head on. The owner's */
	uint64_t next_ring_seq; /* the same of the next record that is read */
	uint8_t *batch;
	size_t batch_len;
	uint64_t retry_at_ns;
	uint64_t retry_ns;
	uint64_t has_tried_open; /* the first attempt to open its ring has ended */
	uint64_t is_stopping;
	bool was_open;
	bool has_thread;
	bool has_dropped; /* records in its memory were lost when the route ended */
	pthread_t thread;

	struct route_counters counters; /* added to by both */
	struct route_opening opening;
	pthread_mutex_t writer_lock;
	pthread_mutex_t text_lock;
	char text[200];
	char name[FARLOG_ROUTE_NAME_LEN];
	int memory_fd; /* of DROP; -1 = none */
};

struct farlog_route {
	uint32_t leg_count;
	bool is_threaded; /* false: a test carries, by route_carry */
	bool is_closed;
	bool is_ended; /* all carriers have ended, and records left in memory are counted */
	bool has_clock;
	uint16_t class_legs[65536]; /* bit i: leg i takes this class */
	struct route_leg legs[FARLOG_ROUTE_LEG_COUNT_MAX];
	char name[FARLOG_ROUTE_NAME_LEN];
};

_Static_assert(FARLOG_ROUTE_LEG_COUNT_MAX <= 16, "a class has 16 bits for its legs");

/* route_open -- farlog_route_open; without threads a test calls route_carry. */
int route_open(const struct farlog_route_config *config, bool is_threaded, farlog_route **route,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* route_open_buffer -- open the writer and the reader of the leg's spill or memory. */
int route_open_buffer(struct route_leg *leg, const struct farlog_route_leg *asked, const char *route_name,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* route_init_head -- before the first record is put into the buffer. The head of an empty buffer gets far_epoch 0,
 * since the last route may have appended directly to the ring with seqs that the head would give to other records. OK
 * or IO. */
int route_init_head(struct route_leg *leg) FARLOG_MUST_CHECK;

/* route_carry -- one step of a leg's carrier. False: there is nothing to do now. Blocks for some milliseconds at
 * most. */
bool route_carry(struct route_leg *leg);

/* route_drop_memory -- of a leg that drops, after its thread has ended: count the records that are left in its memory,
 * as unknown where they were appended to the ring, else as dropped. */
void route_drop_memory(struct route_leg *leg);

/* route_carrier -- the loop of a carrier thread. */
void *route_carrier(void *leg) FARLOG_MUST_CHECK;

/* route_check_buffer -- has the buffer space for the record behind before_bytes of others? Results as
 * route_check_writer. ROUTE_KEPT_LEN_MAX bytes at most stay free: opening a full spill appends an EPOCH record, without
 * which it could not be emptied. */
#define ROUTE_KEPT_LEN_MAX 65536u
int route_check_buffer(
	const struct route_leg *leg, const struct farlog_entry *entry, uint64_t before_bytes) FARLOG_MUST_CHECK;

/* route_offer -- put a record into the buffer of an optional leg, or count it as dropped. Does not block. */
int route_offer(
	struct route_leg *leg, const struct farlog_entry *entry, struct farlog_route_result *result) FARLOG_MUST_CHECK;

/* route_append_gap -- a GAP record for the dropped records, if there are any. False: there is no space for it yet. */
bool route_append_gap(struct route_leg *leg);

/* route_own_ring -- true: the appender owns the ring of a required leg, and appends directly. */
bool route_own_ring(struct route_leg *leg);

/* route_begin_spill -- records from ring_seq on go to the spill, which is empty: store that in its head, durably. The
 * appender owns the ring. Next it puts the first record into the spill and calls route_pass_ring. OK or IO. */
int route_begin_spill(struct route_leg *leg, uint64_t ring_seq) FARLOG_MUST_CHECK;
/* route_pass_ring -- the carrier becomes the owner. */
void route_pass_ring(struct route_leg *leg);

/* route_decrypt -- of a record of the spill, in its batch, what was appended. OK, or why it is not known. */
int route_decrypt(
	struct route_leg *leg, const struct record_header *header, struct farlog_entry *entry) FARLOG_MUST_CHECK;

/* route_set_text -- the last error, for farlog_route_stats; NULL = none. */
void route_set_text(struct route_leg *leg, const char *text);

#define ROUTE_EACH(i, mask) \
	for (unsigned i = 0; (mask) >> i != 0; i++) \
		if ((mask) >> i & 1)

#endif
