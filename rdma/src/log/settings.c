/* log/settings.c -- level, policy and deadline of a writer that runs. See log/settings.h.
 *
 * What a ring's flush gives does not depend on the level: a ring alone gives its contract's always, so that only the
 * word changes. Of several members those count that give it. So a stronger level is asked of them before the first
 * record is placed that says it, and a weaker one allowed when all that was placed before is there. */
#include "log/settings.h"

#include <string.h>

#include "base/err.h"
#include "log/shared.h"
#include "log/writer.h"

/* stage_after_change, submit_after_change -- of the next record. */
static int stage_after_change(
	struct farlog_writer *writer, const struct farlog_entry *entry, uint64_t ticks, struct farlog_position *position)
{
	writer_apply_settings(writer);
	return writer->settings.stage(writer, entry, ticks, position);
}

static int submit_after_change(
	struct farlog_writer *writer, const struct farlog_entry *entry, struct farlog_position *position)
{
	writer_apply_settings(writer);
	return writer->settings.submit(writer, entry, position);
}

/* set_stage_functions -- with the mutex held. */
static void set_stage_functions(struct farlog_writer *writer, bool is_change_pending)
{
	atomic_store_release(&writer->settings.is_change_pending, is_change_pending);
	__atomic_store_n(&writer->stage, is_change_pending ? stage_after_change : writer->settings.stage, __ATOMIC_RELAXED);
	__atomic_store_n(
		&writer->submit, is_change_pending ? submit_after_change : writer->settings.submit, __ATOMIC_RELAXED);
}

void writer_begin_settings(struct farlog_writer *writer)
{
	struct writer_settings *settings = &writer->settings;

	pthread_mutex_init(&settings->mutex, NULL);
	writer->has_settings = true;
	writer->level_before = writer->level_least = writer->level;
	settings->stage = writer->stage;
	settings->submit = writer->submit;
	settings->now = (struct farlog_writer_settings){
		.level = writer->level, .policy = writer->policy, .deadline_ns = writer->deadline_ns};
}

void writer_end_settings(struct farlog_writer *writer)
{
	if (writer->has_settings)
		pthread_mutex_destroy(&writer->settings.mutex);
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

void writer_apply_settings(struct farlog_writer *writer)
{
	struct writer_settings *settings = &writer->settings;
	bool is_level_free;

	pthread_mutex_lock(&settings->mutex);
	/* Two changes of the level at most lie among what is not acknowledged yet: another one waits. */
	is_level_free = settings->next.level == writer->level ||
		atomic_load_relaxed(&writer->counters->durable_lsn) >= writer->level_lsn;
	if (settings->is_change_pending && is_level_free) {
		if (settings->next.level != writer->level)
			change_level(writer, (uint8_t)settings->next.level);
		__atomic_store_n(&writer->policy, (uint8_t)settings->next.policy, __ATOMIC_RELAXED);
		atomic_store_relaxed(&writer->deadline_ns, settings->next.deadline_ns);
		settings->now = settings->next;
		settings->now.from_lsn = writer->level_lsn;
		set_stage_functions(writer, false);
	}
	pthread_mutex_unlock(&settings->mutex);
}

/* check_settings -- can the ring do so at all? */
static int check_settings(
	struct farlog_writer *writer, const struct farlog_writer_settings *settings, struct farlog_error *error)
{
	if (settings->level == 0 || settings->level > FARLOG_LEVEL_PERSISTENT || settings->policy > FARLOG_POLICY_REJECT)
		return error_set(error, FARLOG_INVALID, 0,
			"level %u and policy %u of a writer: expected one of posted, visible and persistent, and a policy of those "
			"in farlog.h",
			settings->level, settings->policy);
	return writer->region->ops->members.check_level(writer->region, settings->level, error);
}

int farlog_writer_settings_set(
	farlog_writer *writer, const struct farlog_writer_settings *asked, struct farlog_error *error)
{
	struct writer_settings *settings = &writer->settings;
	int result = check_settings(writer, asked, error);

	if (result != FARLOG_OK)
		return result;
	pthread_mutex_lock(&settings->mutex);
	settings->next = *asked;
	if (asked->deadline_ns == 0)
		settings->next.deadline_ns = writer->region->contract.deadline_default_ns;
	set_stage_functions(writer,
		settings->next.level != settings->now.level || settings->next.policy != settings->now.policy ||
			settings->next.deadline_ns != settings->now.deadline_ns);
	pthread_mutex_unlock(&settings->mutex);
	return FARLOG_OK;
}

int farlog_shared_settings_set(
	farlog_shared *shared, const struct farlog_writer_settings *settings, struct farlog_error *error)
{
	return farlog_writer_settings_set(shared_writer(shared), settings, error);
}

void farlog_writer_settings_read(farlog_writer *writer, struct farlog_writer_settings *settings)
{
	pthread_mutex_lock(&writer->settings.mutex);
	*settings = writer->settings.now;
	pthread_mutex_unlock(&writer->settings.mutex);
}

void farlog_shared_settings_read(farlog_shared *shared, struct farlog_writer_settings *settings)
{
	farlog_writer_settings_read(shared_writer(shared), settings);
}
