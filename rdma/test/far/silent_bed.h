/* silent_bed.h -- a stream with three members, each at a target in a process of its own, of which the last falls
 * silent. */
#ifndef FARLOG_TEST_SILENT_BED_H
#define FARLOG_TEST_SILENT_BED_H

#include <stddef.h>

#include "far_test.h"
#include "held_wire.h"
#include "members/members.h"

#define COUNT 3u
#define SILENT 2u /* the one that is, by its index */
#define DRAIN_COUNT 2u
#define PAYLOAD_LEN 8000u
#define SHORT_NS 300000000u

struct silent {
	struct bed beds[COUNT];
	struct wire wire;
	farlog_writer *writer;
	farlog_reader *drains[DRAIN_COUNT];
	struct farlog_position last; /* the last that was acknowledged */
	uint64_t number;
};

/* silent_make -- its writer and drains are open. uri: of all members, the last one by the wire where it has one. False:
 * reported. */
bool silent_make(struct silent *silent, bool has_wire, char *uri, size_t room);
void silent_free(struct silent *silent);
farlog_writer *silent_open_writer(const char *uri, uint32_t epoch, char letter);
farlog_reader *silent_open_drain(const struct bed *bed);

struct region_members *silent_members(const struct silent *silent);
const struct farlog_member_counters *silent_counters(const struct silent *silent);
bool silent_is(const struct silent *silent, enum farlog_member_state state);
void silent_await(const struct silent *silent, enum farlog_member_state state);
/* silent_await_whole -- it has all that was acknowledged. */
void silent_await_whole(const struct silent *silent);

/* silent_slot -- where the record lies. silent_lsn_at_target -- of the record that lies there, in the silent member's
 * ring. silent_credit -- the writer's. silent_is_alike -- word by word, its ring and another member's, of all that is
 * undrained. */
uint64_t silent_slot(const struct silent *silent, uint64_t lsn);
uint64_t silent_lsn_at_target(const struct silent *silent, uint64_t lsn);
uint64_t silent_credit(const struct silent *silent);
bool silent_is_alike(const struct silent *silent);

int silent_append(struct silent *silent, uint64_t deadline_ns, struct farlog_position *position);
/* silent_drain -- by those that are not silent: all that they have. */
void silent_drain(struct silent *silent);
/* silent_append_until -- none of the appends waits for the silent member. silent_write_over -- until other records lie
 * where this one did, undrained. */
void silent_append_until(struct silent *silent, uint64_t until_lsn);
void silent_write_over(struct silent *silent, const struct farlog_position *position);

/* silent_stop, silent_thaw -- the process of that target. silent_begin -- one record more, which the silent member is
 * sent and does not confirm: that is found out when its own deadline is over, and waited for by nobody. */
void silent_stop(const struct silent *silent, unsigned i);
void silent_thaw(const struct silent *silent, unsigned i);
struct farlog_position silent_begin(struct silent *silent);

#endif
