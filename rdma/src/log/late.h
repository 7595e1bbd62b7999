/* log/late.h -- how long the oldest append that ended UNKNOWN has been without its acknowledgement.
 *
 * Such an append is in no latency when it ends: nobody knows yet how long it takes. While it lasts, each end raises the
 * longest latency; when its record is durable, the latency is recorded, to the last moment at which somebody waited
 * for it. Hours in which nobody asks what became of it are no latency. Any thread of a shared writer notes and looks;
 * only who moves the durable position ends it. */
#ifndef FARLOG_LATE_H
#define FARLOG_LATE_H

#include "base/clock.h"
#include "log/writer.h"

#define LATE_CLAIMED UINT64_MAX /* of end_lsn: its other fields are being stored */

/* late_begin -- a call ended UNKNOWN at its deadline: the record before end_lsn has been waited for since start_ns. */
static inline void late_begin(struct farlog_writer *writer, uint64_t end_lsn, uint64_t start_ns)
{
	struct writer_late *late = &writer->late;
	uint64_t now_ns = clock_monotonic_ns();

	if (atomic_swap_if(&late->end_lsn, 0, LATE_CLAIMED)) {
		atomic_store_relaxed(&late->start_ns, start_ns);
		atomic_store_relaxed(&late->seen_ns, now_ns);
		atomic_store_release(&late->end_lsn, end_lsn);
	}
	if (atomic_load_acquire(&late->end_lsn) == LATE_CLAIMED)
		return; /* by another thread, which raises it */
	atomic_raise(&late->seen_ns, now_ns);
	atomic_raise(&writer->counters->latency_max_ns, now_ns - atomic_load_relaxed(&late->start_ns));
}

/* late_touch -- the caller has waited until now. */
static inline void late_touch(struct farlog_writer *writer)
{
	uint64_t end_lsn = atomic_load_acquire(&writer->late.end_lsn);

	if (end_lsn != 0 && end_lsn != LATE_CLAIMED)
		atomic_raise(&writer->late.seen_ns, clock_monotonic_ns());
}

/* late_end -- the durable position has moved. */
static inline void late_end(struct farlog_writer *writer, uint64_t durable_lsn)
{
	struct writer_late *late = &writer->late;
	uint64_t end_lsn = atomic_load_acquire(&late->end_lsn);

	if (end_lsn == 0 || durable_lsn < end_lsn)
		return;
	stats_latency_shared(writer->counters, atomic_load_relaxed(&late->seen_ns) - atomic_load_relaxed(&late->start_ns));
	atomic_store_release(&late->end_lsn, 0);
}

#endif
