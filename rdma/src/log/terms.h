/* log/terms.h -- how a writer acknowledges, and how that is changed while it runs: what log/terms.c and the writer's
 * other files share.
 *
 * Whoever sets them leaves them under the mutex, and puts a way into the place of the writer's own by which the next
 * record passes: that takes them in, on the writer's thread, and puts the ways back. So an append that has nothing to
 * take in looks at nothing for it. */
#ifndef FARLOG_WRITER_TERMS_H
#define FARLOG_WRITER_TERMS_H

#include <pthread.h>

#include "farlog/terms.h"

struct writer_terms {
	pthread_mutex_t mutex;
	struct farlog_writer_terms next; /* to be taken in. Guarded by the mutex, and so is the next one */
	struct farlog_writer_terms now;  /* copy of what the writer has, for others */
	uint64_t is_news;                /* stored with the mutex held */
	int (*stage)(struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t ticks,
		struct farlog_position *position) FARLOG_MUST_CHECK; /* the writer's own ways */
	int (*submit)(struct farlog_writer *writer, const struct farlog_entry *entry,
		struct farlog_position *position) FARLOG_MUST_CHECK;
};

/* writer_begin_terms -- when the writer has its level, its policy, its deadline and its ways. writer_end_terms --
 * before it is freed; safe where they never began. */
void writer_begin_terms(struct farlog_writer *writer);
void writer_end_terms(struct farlog_writer *writer);

/* writer_take_terms -- the writer's thread (of a shared writer: who holds its reserve lock), before a record is placed.
 * What is placed from now on is at the new level. */
void writer_take_terms(struct farlog_writer *writer);

/* writer_level_at -- of a record of this writer. The writer's thread, which has not appended beyond the last change but
 * one unless all before that was durable. */
uint8_t writer_level_at(const struct farlog_writer *writer, uint64_t lsn);

#endif
