/* history/position.h -- where a named consumer of a stream has got to, in a file of its own: the same file that Go's
 * pkg/consume and `farlog tail --name` keep. */
#ifndef FARLOG_POSITION_H
#define FARLOG_POSITION_H

#include <limits.h>
#include <stdbool.h>

#include "farlog/consume.h"

struct position {
	char path[PATH_MAX];
	char stream_json[6 * FARLOG_STREAM_NAME_LEN + 1]; /* the stream's name as JSON has it */
	struct farlog_place place;
	uint64_t next_lsn;
	bool is_there;
	int lock_fd;
};

/* position_open -- take the position of this name and stream. state_dir: NULL = where `farlog tail` has its own.
 * INVALID, HELD (a living process has the name), IO. */
int position_open(struct position *position, const char *state_dir, const char *name, const char *stream,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* position_keep -- replace the file, durably; nothing when it says so already. IO. */
int position_keep(struct position *position, const struct farlog_place *place, uint64_t next_lsn,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* position_close -- give the name back. */
void position_close(struct position *position);

#endif
