/* log/terms.c -- level, policy and deadline of a writer that runs. See log/terms.h.
 *
 * What a ring's flush gives does not depend on the level: a ring alone gives its contract's always, so that only the
 * word changes. Of several members those count that give it. So a stronger level is asked of them before the first
 * record is placed that says it, and a weaker one allowed when all that was placed before is there. */
#include "log/terms.h"

#include <string.h>

#include "base/err.h"
#include "log/shared.h"
#include "log/writer.h"

/* stage_news, submit_news -- the ways of the next record. */
static int stage_news(
	struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t ticks, struct farlog_position *position)
{
	writer_take_terms(writer);
	return writer->terms.stage(writer, entry, ticks, position);
}

static int submit_news(struct farlog_writer *writer, const struct farlog_entry *entry, struct farlog_position *position)
{
	writer_take_terms(writer);
	return writer->terms.submit(writer, entry, position);
}

/* set_ways -- with the mutex held. */
static void set_ways(struct farlog_writer *writer, bool is_news)
{
	atomic_store_release(&writer->terms.is_news, is_news);
	__atomic_store_n(&writer->stage, is_news ? stage_news : writer->terms.stage, __ATOMIC_RELAXED);
	__atomic_store_n(&writer->submit, is_news ? submit_news : writer->terms.submit, __ATOMIC_RELAXED);
}

void writer_begin_terms(struct farlog_writer *writer)
{
	struct writer_terms *terms = &writer->terms;

	pthread_mutex_init(&terms->mutex, NULL);
	writer->has_terms = true;
	writer->level_before = writer->level_least = writer->level;
	terms->stage = writer->stage;
	terms->submit = writer->submit;
	terms->now = (struct farlog_writer_terms){
		.level = writer->level, .policy = writer->policy, .deadline_ns = writer->deadline_ns};
}

void writer_end_terms(struct farlog_writer *writer)
{
	if (writer->has_terms)
		pthread_mutex_destroy(&writer->terms.mutex);
}

uint8_t writer_level_at(const struct farlog_writer *writer, uint64_t lsn)
{
	if (__builtin_expect(lsn >= writer->level_lsn, 1))
		return writer->level;
	return lsn >= writer->level_before_lsn ? writer->level_before : writer->level_least;
}

/* change_level -- from the next record on. */
static void change_level(struct farlog_writer *writer, uint8_t level)
{
	writer->region->ops->members.set_level(writer->region, level, writer->ring.appended_lsn);
	writer->level_before = writer->level;
	writer->level_before_lsn = writer->level_lsn;
	writer->level_lsn = writer->ring.appended_lsn;
	writer->level = level;
	if (level < writer->level_least)
		writer->level_least = level;
	atomic_store_relaxed(&writer->counters->level, level);
}

void writer_take_terms(struct farlog_writer *writer)
{
	struct writer_terms *terms = &writer->terms;
	bool is_level_free;

	pthread_mutex_lock(&terms->mutex);
	/* Two changes of the level at most lie among what is not acknowledged yet: another one waits. */
	is_level_free =
		terms->next.level == writer->level || atomic_load_relaxed(&writer->counters->durable_lsn) >= writer->level_lsn;
	if (terms->is_news && is_level_free) {
		if (terms->next.level != writer->level)
			change_level(writer, (uint8_t)terms->next.level);
		__atomic_store_n(&writer->policy, (uint8_t)terms->next.policy, __ATOMIC_RELAXED);
		atomic_store_relaxed(&writer->deadline_ns, terms->next.deadline_ns);
		terms->now = terms->next;
		terms->now.from_lsn = writer->level_lsn;
		set_ways(writer, false);
	}
	pthread_mutex_unlock(&terms->mutex);
}

/* check -- can the ring do so at all? */
static int check(struct farlog_writer *writer, const struct farlog_writer_terms *terms, struct farlog_error *error)
{
	if (terms->level == 0 || terms->level > FARLOG_LEVEL_PERSISTENT || terms->policy > FARLOG_POLICY_REJECT)
		return error_set(error, FARLOG_INVALID, 0,
			"level %u and policy %u of a writer: expected one of posted, visible and persistent, and a policy of those "
			"in farlog.h",
			terms->level, terms->policy);
	return writer->region->ops->members.check_level(writer->region, terms->level, error);
}

int farlog_writer_set_terms(farlog_writer *writer, const struct farlog_writer_terms *asked, struct farlog_error *error)
{
	struct writer_terms *terms = &writer->terms;
	int result = check(writer, asked, error);

	if (result != FARLOG_OK)
		return result;
	pthread_mutex_lock(&terms->mutex);
	terms->next = *asked;
	if (asked->deadline_ns == 0)
		terms->next.deadline_ns = writer->region->contract.deadline_default_ns;
	set_ways(writer,
		terms->next.level != terms->now.level || terms->next.policy != terms->now.policy ||
			terms->next.deadline_ns != terms->now.deadline_ns);
	pthread_mutex_unlock(&terms->mutex);
	return FARLOG_OK;
}

int farlog_shared_set_terms(farlog_shared *shared, const struct farlog_writer_terms *terms, struct farlog_error *error)
{
	return farlog_writer_set_terms(shared_writer(shared), terms, error);
}

void farlog_writer_terms_read(farlog_writer *writer, struct farlog_writer_terms *terms)
{
	pthread_mutex_lock(&writer->terms.mutex);
	*terms = writer->terms.now;
	pthread_mutex_unlock(&writer->terms.mutex);
}

void farlog_shared_terms_read(farlog_shared *shared, struct farlog_writer_terms *terms)
{
	farlog_writer_terms_read(shared_writer(shared), terms);
}
