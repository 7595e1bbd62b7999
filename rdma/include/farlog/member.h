/* member.h -- libfarlog: the rings of a stream that has several, as its reader or drain sees them. On top of farlog.h.
 *
 * Their URI is "members:K URI URI ...", K of which an acknowledgement needs; ring_uuid and grant_token of a configuration then point to as many of them, one
 * behind the other, in the order of the URIs. One that is all zero is none. */
#ifndef FARLOG_MEMBER_H
#define FARLOG_MEMBER_H

#include "farlog.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FARLOG_MEMBER_COUNT_MAX 9

enum farlog_member_state {
	FARLOG_MEMBER_UP = 1,    /* it has the stream's newest epoch */
	FARLOG_MEMBER_STALE = 2, /* a writer has come that did not have it: what it holds is not believed until it has joined again */
	FARLOG_MEMBER_AWAY = 3,  /* it does not answer, or cannot be opened: text says why. It is tried again */
};

struct farlog_member_status {
	uint32_t state;        /* enum farlog_member_state */
	uint32_t is_read;      /* 1: records come from this one */
	uint32_t writer_epoch; /* of its superblock; 0 = it was never seen */
	uint32_t reserved;
	uint64_t head_lsn;     /* first LSN not yet stored, as it keeps it */
	uint64_t tail_lsn;     /* the writer's last word there */
	char text[200];        /* "" = nothing is wrong with it */
};

/* farlog_reader_members -- how the members are, in the order of their URIs: at most `room` of them; the result is how many there are, 0 of a reader of one ring. It
 * does no input or output: what was seen last. As old as the last farlog_reader_read. */
FARLOG_API unsigned farlog_reader_members(const farlog_reader *reader, struct farlog_member_status *members, unsigned room);

#ifdef __cplusplus
}
#endif
#endif
