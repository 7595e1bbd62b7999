/* route/route.h -- the inside of a route, shared by its files: opening, appending, and the carrying of what waits in a
 * leg's buffer.
 *
 * A leg that does not simply fail has a buffer: a ring on this host, which is the spill, or memory of this process. The
 * appending thread puts records into it, and a thread of the leg's own, the carrier, appends them to the leg's ring.
 *
 * No record is lost or comes twice, because a buffer's head slot says both: what lies from the head on has not been
 * known to be durable in the leg's ring, and in which epoch and from which seq on it was, or is going to be, appended
 * there (far_epoch, far_seq). Whoever opens the ring again is told by recovery how far that epoch's log goes; the
 * difference of the seqs is how many of the records are there. That is stored, with the next epoch, before that epoch
 * can be seen (writer_watch). A record is carried only when it is durable in its buffer: so a power cut never takes one
 * of them that is counted. */
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

/* Who may use a leg's ring and the reader of its buffer. A required leg's carrier offers the turn when nothing is left
 * to carry; an optional one keeps it. */
enum route_turn {
	ROUTE_TURN_APPENDER = 0,
	ROUTE_TURN_CARRIER = 1,
	ROUTE_TURN_OFFERED = 2,
};

struct route_counters {
#define ROUTE_COUNTER_FIELD(name, kind, help) uint64_t name;
	FARLOG_LEG_COUNTER_TABLE(ROUTE_COUNTER_FIELD)
#undef ROUTE_COUNTER_FIELD
};

/* What a leg needs to open its ring again: copies of what it was given. */
struct route_place {
	char *uri;
	struct farlog_writer_config config;
	char *writer_name;
	char *counters_dir;
	uint8_t ring_uuid[16 * FARLOG_MEMBER_COUNT_MAX];
	uint8_t grant_token[FARLOG_TOKEN_LEN * FARLOG_MEMBER_COUNT_MAX];
};

/* Dropped records that no GAP record tells of yet. */
struct route_gap {
	uint64_t count;
	uint64_t from_number;
	uint64_t from_ts_ns;
	uint64_t to_ts_ns;
};

struct route_leg {
	uint64_t turn; /* enum route_turn; released by who gives it away */
	/* of its ring: whose turn it is. NULL = not open. The carrier sets it, under far_lock, by which others look at
	 * it */
	struct farlog_writer *far;
	struct farlog_shared *buffer; /* appended to by the appender alone; NULL = required with FAIL */
	struct farlog_reader *reader; /* of the buffer, as its drain: whose turn it is */
	uint64_t deadline_ns;         /* of an append to its ring, when none was given */
	uint64_t carried_lsn;         /* of the buffer: below it the ring has all. The carrier's */
	uint64_t state;               /* enum farlog_leg_state */
	uint64_t fenced_epoch;
	uint32_t criticality_min;
	bool is_required;
	bool has_spill;

	uint64_t is_beat_due;        /* the carrier is to send a heartbeat, when it has nothing else to do */
	uint64_t beat_offered_count; /* the appender's: offered_count when heartbeats were asked for last */
	uint64_t offered_number;     /* the appender's, as the gap */
	struct route_gap gap;

	uint64_t head_far_seq; /* whose turn it is: seq in its ring of the first record from the buffer's head on */
	uint64_t next_far_seq; /* and of the next one that is read */
	uint8_t *batch;
	size_t batch_len;
	uint64_t retry_at_ns;
	uint64_t retry_ns;
	uint64_t is_tried; /* its ring has been opened, or could not be */
	uint64_t is_stopping;
	bool was_open;
	bool has_thread;
	bool has_lost; /* of its memory, when the route ended */
	pthread_t thread;

	struct route_counters counters; /* added to by both */
	struct route_place place;
	pthread_mutex_t far_lock;
	pthread_mutex_t text_lock;
	char text[200];
	char name[FARLOG_ROUTE_NAME_LEN];
	int memory_fd; /* of DROP; -1 = none */
};

struct farlog_route {
	uint32_t leg_count;
	bool is_threaded; /* false: a test carries, by route_carry */
	bool is_closed;
	bool is_ended; /* no carrier runs any more, and what was in memory is counted */
	bool has_clock;
	uint16_t class_legs[65536]; /* bit i: leg i takes this class */
	struct route_leg legs[FARLOG_ROUTE_LEG_COUNT_MAX];
	char name[FARLOG_ROUTE_NAME_LEN];
};

_Static_assert(FARLOG_ROUTE_LEG_COUNT_MAX <= 16, "a class has 16 bits for its legs");

/* route_open -- farlog_route_open; without threads a test calls route_carry. */
int route_open(const struct farlog_route_config *config, bool is_threaded, farlog_route **route,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* route_open_buffer -- the leg's spill or memory: its writer and its reader. */
int route_open_buffer(struct route_leg *leg, const struct farlog_route_leg *asked, const char *route_name,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* route_begin_buffer -- before anything is put into it. An empty one's head says that nothing of what comes is in the
 * leg's ring yet: the last route may have gone straight there, with seqs that the head would otherwise give to other
 * records. OK or IO. */
int route_begin_buffer(struct route_leg *leg) FARLOG_MUST_CHECK;

/* route_carry -- one step of a leg's carrier. False: there is nothing to do just now. Waits for the ring's media some
 * milliseconds at most. */
bool route_carry(struct route_leg *leg);

/* route_drop_memory -- of a leg that drops, when its route has ended and its thread with it: what waits there is
 * counted as dropped, or unknown where the ring was sent it. */
void route_drop_memory(struct route_leg *leg);

/* route_carrier -- its thread. */
void *route_carrier(void *leg) FARLOG_MUST_CHECK;

/* route_ask_buffer -- would it take the record now, behind before_bytes of others? Some room is kept: who opens a full
 * spill again needs it for the record of an epoch, or could not empty it. */
#define ROUTE_KEPT_LEN_MAX 65536u
int route_ask_buffer(
	const struct route_leg *leg, const struct farlog_entry *entry, uint64_t before_bytes) FARLOG_MUST_CHECK;

/* route_offer -- to an optional leg: into its buffer, or counted as dropped. Never waits. */
int route_offer(
	struct route_leg *leg, const struct farlog_entry *entry, struct farlog_route_result *result) FARLOG_MUST_CHECK;

/* route_tell_gap -- a GAP record for what was dropped, when there is room again. False: there still is none. */
bool route_tell_gap(struct route_leg *leg);

/* route_take_turn -- true: a required leg's records go straight to its ring. The appender's. */
bool route_take_turn(struct route_leg *leg);

/* route_turn_to_spill -- from far_seq on records go by way of the spill; stores that there, durably. The appender has
 * the turn; the spill is empty. Then it puts the first one into the spill and gives the turn away. OK or IO. */
int route_turn_to_spill(struct route_leg *leg, uint64_t far_seq) FARLOG_MUST_CHECK;
void route_give_turn(struct route_leg *leg);

/* route_say -- for farlog_route_stats: what went wrong last; NULL = nothing any more. */
void route_say(struct route_leg *leg, const char *text);

#define ROUTE_EACH(i, mask) \
	for (unsigned i = 0; (mask) >> i != 0; i++) \
		if ((mask) >> i & 1)

#endif
