/* counters.h -- libfarlog: the counters of a writer. Part of farlog.h. */
#ifndef FARLOG_PUBLIC_COUNTERS_H
#define FARLOG_PUBLIC_COUNTERS_H

#include "result.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One table for every number a writer exports: name, kind ("counter" or "gauge"), help. Shared memory, one writer,
 * readable by any process at any time, also after the writer's death. */
#define FARLOG_COUNTER_TABLE(X) \
	X(appended_lsn, "gauge", "First LSN not yet appended.") \
	X(durable_lsn, "gauge", "First LSN not yet durable at the writer's level.") \
	X(credit_lsn, "gauge", "First LSN not yet stored, as the writer knows it.") \
	X(capacity_bytes, "gauge", "Size of the ring's data.") \
	X(epoch, "gauge", "Epoch of the writer.") \
	X(level, "gauge", "Durability level of acknowledgements.") \
	X(pid, "gauge", "Process of the writer.") \
	X(pressure, "gauge", "0 below warn, 1 at or above warn, 2 at or above alarm.") \
	X(clock_err_ns, "gauge", "Bound on the error of timestamps; 4294967295 = unknown.") \
	X(record_count, "counter", "Records appended.") \
	X(payload_bytes, "counter", "Payload and key bytes appended.") \
	X(flush_count, "counter", "Flushes completed.") \
	X(full_count, "counter", "Appends refused because the ring was full.") \
	X(fenced_count, "counter", "Appends refused because the writer was fenced.") \
	X(unknown_count, "counter", "Appends whose outcome was unknown at their deadline.") \
	X(too_large_count, "counter", "Appends refused because the record was too large.") \
	X(warn_count, "counter", "Times the ring passed its warning mark.") \
	X(alarm_count, "counter", "Times the ring passed its alarm mark.") \
	X(orphan_count, "counter", \
		"Records behind an unreadable one, dropped when this writer opened: whether they were acknowledged is not " \
		"known.")

#define FARLOG_HISTOGRAM_BUCKET_COUNT 1408

/* Log-linear histogram of append latencies in ns: 32 buckets an octave, at most 3.2 % wide.
 * farlog_histogram_bucket_ns gives the upper bound of bucket i. */
struct farlog_counters {
#define FARLOG_COUNTER_FIELD(name, kind, help) uint64_t name;
	FARLOG_COUNTER_TABLE(FARLOG_COUNTER_FIELD)
#undef FARLOG_COUNTER_FIELD
	uint64_t latency_count;
	uint64_t latency_sum_ns;
	uint64_t latency_max_ns;
	uint64_t latency_bucket[FARLOG_HISTOGRAM_BUCKET_COUNT];
};

/* farlog_counters_read -- copy the counters of the ring's present or last writer. NOT_FOUND: none were exported on this
 * machine. */
FARLOG_API int farlog_counters_read(const char *counters_dir, const uint8_t ring_uuid[16],
	struct farlog_counters *counters, struct farlog_error *error) FARLOG_MUST_CHECK;
FARLOG_API uint64_t farlog_histogram_bucket_ns(unsigned bucket);
/* farlog_histogram_quantile_ns -- quantile in [0, 1]; 1 gives the maximum recorded. 0 when nothing was recorded. */
FARLOG_API uint64_t farlog_histogram_quantile_ns(const struct farlog_counters *counters, double quantile);

#ifdef __cplusplus
}
#endif
#endif
