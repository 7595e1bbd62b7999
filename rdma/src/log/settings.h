/* log/settings.h -- how a writer acknowledges, and how that is changed while it runs: what log/settings.c and the
 * writer's other files share.
 *
 * A change is stored under the mutex, and the writer's stage and submit functions are replaced by ones that apply it
 * with the next record, on the writer's thread, and put the own ones back. So an append costs nothing while there is no
 * change. */
#ifndef FARLOG_WRITER_TERMS_H
#define FARLOG_WRITER_TERMS_H

#include <pthread.h>

#include "farlog/settings.h"

struct writer_settings {
	pthread_mutex_t mutex;
	struct farlog_writer_settings next; /* to be applied. Guarded by the mutex, and so is `now` */
	struct farlog_writer_settings now;  /* copy of what the writer has, for others */
	uint64_t is_change_pending;         /* stored with the mutex held */
	int (*stage)(struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t ticks,
		struct farlog_position *position) FARLOG_MUST_CHECK; /* the writer's own functions */
	int (*submit)(struct farlog_writer *writer, const struct farlog_entry *entry,
		struct farlog_position *position) FARLOG_MUST_CHECK;
};

/* writer_begin_settings -- when the writer has its level, its policy, its deadline and its functions.
 * writer_end_settings -- before it is freed; safe where they never began. */
void writer_begin_settings(struct farlog_writer *writer);
void writer_end_settings(struct farlog_writer *writer);

/* writer_apply_settings -- the writer's thread (of a shared writer: who holds its reserve lock), before a record is
 * placed. What is placed from now on is at the new level. */
void writer_apply_settings(struct farlog_writer *writer);

/* writer_level_at -- of a record of this writer. The writer's thread, which has not appended beyond the last change but
 * one unless all before that was durable. */
uint8_t writer_level_at(const struct farlog_writer *writer, uint64_t lsn);

#endif
