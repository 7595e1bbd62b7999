/* base/stats.h -- a writer's counters in shared memory, and its latency histogram.
 *
 * One writer stores, anybody maps the file and loads; each word is whole. The file outlives the writer, who holds a
 * shared lock (flock) of it for life: the daemons of the host remove it when nobody has held one for a day. */
#ifndef FARLOG_STATS_H
#define FARLOG_STATS_H

#include "base/atomics.h"
#include "farlog/farlog.h"
#include "farlog/member.h"

/* stats_open -- map the counters of a ring for writing, zeroed. directory: as in struct farlog_writer_config. They stay
 * private to the process where the directory or the last writer's file belongs to another user. *lock_fd: holds the
 * lock, -1 = there is none; the caller keeps it for stats_close, since whatever lies in the file others may have
 * changed. */
int stats_open(const char *directory, const uint8_t ring_uuid[16], struct farlog_counters **counters, int *lock_fd,
	struct farlog_error *error) FARLOG_MUST_CHECK;
void stats_close(struct farlog_counters *counters, int lock_fd);

/* stats_link -- they are found by another ring's uuid, too: the one that it was opened by is the one before now. No
 * harm where they are private, or where it cannot be. */
void stats_link(const char *directory, const uint8_t ring_uuid[16], const uint8_t also_uuid[16]);

/* stats_members -- of the same file: space for those of so many members, at most FARLOG_MEMBER_COUNT_MAX, which are
 * read from now on. Good until stats_close. */
struct farlog_member_counters *stats_members(struct farlog_counters *counters, unsigned count) FARLOG_MUST_CHECK;

/* stats_bucket -- bucket of a latency: 0..63 ns one each, then 32 an octave. */
static inline unsigned stats_bucket(uint64_t latency_ns)
{
	unsigned octave;
	unsigned bucket;

	if (latency_ns < 64)
		return (unsigned)latency_ns;
	octave = 63u - (unsigned)__builtin_clzll(latency_ns); /* >= 6 */
	bucket = (octave - 4) * 32 + (unsigned)((latency_ns >> (octave - 5)) & 31);
	return bucket < FARLOG_HISTOGRAM_BUCKET_COUNT ? bucket : FARLOG_HISTOGRAM_BUCKET_COUNT - 1;
}

/* stats_latency -- record one append's latency. Only the writer's thread. */
static inline void stats_latency(struct farlog_counters *counters, uint64_t latency_ns)
{
	atomic_bump(&counters->latency_count, 1);
	atomic_bump(&counters->latency_sum_ns, latency_ns);
	atomic_bump(&counters->latency_bucket[stats_bucket(latency_ns)], 1);
	if (latency_ns > atomic_load_relaxed(&counters->latency_max_ns))
		atomic_store_relaxed(&counters->latency_max_ns, latency_ns);
}

/* stats_latency_shared -- the same from several threads. */
static inline void stats_latency_shared(struct farlog_counters *counters, uint64_t latency_ns)
{
	atomic_add(&counters->latency_count, 1);
	atomic_add(&counters->latency_sum_ns, latency_ns);
	atomic_add(&counters->latency_bucket[stats_bucket(latency_ns)], 1);
	atomic_raise(&counters->latency_max_ns, latency_ns);
}

#endif
