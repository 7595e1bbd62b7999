/* terms.h -- libfarlog: level, policy and deadline of a writer, changed while it runs. On top of farlog.h.
 *
 * A writer that was opened by "farlog://NAME" asks the host agent by itself how its stream is declared, and needs none
 * of this. It is for programs that open a ring by a grant of their own and learn from the control plane (ExtendWriter)
 * that the stream was changed. */
#ifndef FARLOG_TERMS_H
#define FARLOG_TERMS_H

#include "farlog.h"

#ifdef __cplusplus
extern "C" {
#endif

struct farlog_writer_settings {
	uint32_t level;       /* enum farlog_level, up to PERSISTENT; never 0 */
	uint32_t policy;      /* enum farlog_policy */
	uint64_t deadline_ns; /* default deadline of an append; given as 0: the contract's */
	/* from farlog_writer_settings_read: records from here on are acknowledged at `level`. Ignored where it is
	 * given */
	uint64_t from_lsn;
};

/* farlog_writer_settings_set -- how this writer acknowledges from now on. The writer's next append, submit, commit or
 * batch applies it: records from there on have the new level, and every acknowledgement says the level that its own
 * record was appended at. With a stronger level nothing of those is acknowledged before it is there at that level. A
 * weaker one does not hold for what was appended before: that is waited for as it was. An append under way keeps its
 * policy and its deadline, and one that was given a deadline of its own has that. Several before the next append: the
 * last one counts. Any thread, not while the writer is being closed; blocks for nobody. Durable is nothing of it: the
 * next opening has it from its configuration. OK: it is noted. INVALID: level or policy is none. LEVEL: the
 * region, or as many members as are needed, do not give that level now; nothing is changed. */
FARLOG_API int farlog_writer_settings_set(
	farlog_writer *writer, const struct farlog_writer_settings *terms, struct farlog_error *error) FARLOG_MUST_CHECK;
FARLOG_API int farlog_shared_settings_set(
	farlog_shared *shared, const struct farlog_writer_settings *terms, struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_writer_settings_read -- what it runs with: what was set last, once an append has applied it. Any thread, not
 * while the writer is being closed; never fails. */
FARLOG_API void farlog_writer_settings_read(farlog_writer *writer, struct farlog_writer_settings *terms);
FARLOG_API void farlog_shared_settings_read(farlog_shared *shared, struct farlog_writer_settings *terms);

#ifdef __cplusplus
}
#endif
#endif
