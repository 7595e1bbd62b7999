/* bench.h -- what the cases of the benchmark share: samples, floors, the result lines. */
#ifndef FARLOG_BENCH_H
#define FARLOG_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "farlog/farlog.h"

#define BENCH_RECORD_LEN 256u
#define BENCH_PAYLOAD_LEN 192u
#define BENCH_RING_LEN (64ull << 20)

/* ---- result lines */

/* One line of the result: ours against the floor of the same run. floor 0 = there is none. */
struct bench_case {
	const char *name;
	double ours;
	double floor;
	const char *unit;
	const char *flush;
	const char *level;
	const char *note; /* what stands behind the floor, or the setting */
};

/* bench_report -- one JSON line to stdout, one line of the table to stderr. */
void bench_report(const struct bench_case *result);

/* ---- samples in ticks of the processor's counter */

struct bench_samples {
	uint32_t *ticks;
	size_t count;
	size_t count_max;
};

void bench_samples_make(struct bench_samples *samples, size_t count_max);
void bench_samples_free(struct bench_samples *samples);
/* bench_quantile_ns -- sorts on the first call after an addition. */
double bench_quantile_ns(struct bench_samples *samples, double quantile);

static inline void bench_sample(struct bench_samples *samples, uint64_t ticks)
{
	if (samples->count < samples->count_max)
		samples->ticks[samples->count++] = ticks < UINT32_MAX ? (uint32_t)ticks : UINT32_MAX;
}

/* ---- a ring of ours on tmpfs, with a drain that only releases */

struct bench_ring {
	char path[256];
	char uri[320];
	farlog_writer *writer;
	farlog_reader *drain;
	uint8_t *buf;
};

/* bench_ring_open -- make it again and open it; flush forced, level as tmpfs gives it. Exits on an error: a benchmark
 * has nobody to return it to. is_open: with a writer and a drain. */
void bench_ring_make(struct bench_ring *ring, const char *name, uint64_t size_bytes);
void bench_ring_open(struct bench_ring *ring);
void bench_ring_close(struct bench_ring *ring);
/* bench_ring_drain -- read and release everything, so that the ring is never near full while the clock runs. */
void bench_ring_drain(struct bench_ring *ring);

/* ---- the floor: copy, CRC, flush, fence over memory of the same size and kind */

struct bench_floor {
	char path[256];
	uint8_t *map;
	uint64_t off;
	enum farlog_flush_method method; /* the fastest here */
	const char *method_name;
};

/* How the floor computes its CRC: the core's own function, or one crc32q after another. */
enum bench_crc { BENCH_CRC_CORE, BENCH_CRC_SERIAL };

/* bench_floor_make -- map it and choose the fastest flush by a measurement over it. */
void bench_floor_make(struct bench_floor *floor, const char *name);
void bench_floor_free(struct bench_floor *floor);
/* bench_floor_write -- one record: CRC of 256 bytes and a copy of 256 bytes that is on its way to memory; no fence. */
void bench_floor_write(struct bench_floor *floor, const uint8_t *record, enum bench_crc crc);
void bench_floor_fence(void);

/* ---- cases */

void bench_append(void);
void bench_encrypt(void);
void bench_submit(void);
void bench_shared(void);
void bench_recover(void);
void bench_clean(void);
void bench_far(void);
void bench_members(void);
void bench_blocks(void);
void bench_blocks_append(void);
void bench_blocks_fio(const char *ring_uri, const char *path, bool is_drained);

/* bench_members_writer -- what a child of the members' case does when this program is started with BENCH_MEMBERS_WRITER
 * first. Its exit code. */
#define BENCH_MEMBERS_WRITER "members-writer"
int bench_members_writer(int argc, char **argv);

/* bench_pin -- keep the calling thread on one core, counted from the last. */
void bench_pin(unsigned from_last);
_Noreturn void bench_fail(const char *what, const char *text);

extern double bench_seconds; /* how long each measured loop runs */

#endif
