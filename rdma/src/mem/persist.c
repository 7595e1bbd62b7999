/* mem/persist.c -- flush instructions, chosen by CPUID and by measurement. */
#include "mem/persist.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "ring/stream.h"

#define LINE_LEN 64

static void copy_plain(void *dst, const void *src, size_t len)
{
	memcpy(dst, src, len);
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define CPUID_7_EBX_CLFLUSHOPT (1u << 23)
#define CPUID_7_EBX_CLWB (1u << 24)

static unsigned leaf7_ebx;

/* Asked once, before main: a hypervisor takes 10 us and more to answer. */
__attribute__((constructor(101))) static void read_cpuid_leaf7(void)
{
	unsigned eax, ebx, ecx, edx;

	if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
		leaf7_ebx = ebx;
}

static bool has_cpuid_leaf7(unsigned bit)
{
	return leaf7_ebx & bit;
}

__attribute__((target("clwb"))) static void copy_clwb(void *dst, const void *src, size_t len)
{
	char *line = dst;

	memcpy(dst, src, len);
	for (size_t off = 0; off < len; off += LINE_LEN)
		_mm_clwb(line + off);
}

__attribute__((target("clflushopt"))) static void copy_clflushopt(void *dst, const void *src, size_t len)
{
	char *line = dst;

	memcpy(dst, src, len);
	for (size_t off = 0; off < len; off += LINE_LEN)
		_mm_clflushopt(line + off);
}

/* stream_16 -- past the cache by the instruction itself: the compilers' intrinsic is advice to them, of which clang has
 * made an ordinary store. */
static inline void stream_16(void *dst, __m128i value)
{
	__asm__ volatile("movntdq %1, %0" : "=m"(*(__m128i *)dst) : "x"(value));
}

/* Four 16-byte stores fill a line's write-combining buffer, which then leaves as one burst. */
static void copy_nt(void *dst, const void *src, size_t len)
{
	const __m128i *from = src;
	__m128i *to = dst;

	for (size_t left = len; left > 0; left -= LINE_LEN, from += 4, to += 4) {
		__m128i a = _mm_load_si128(from);
		__m128i b = _mm_load_si128(from + 1);
		__m128i c = _mm_load_si128(from + 2);
		__m128i d = _mm_load_si128(from + 3);

		stream_16(to, a);
		stream_16(to + 1, b);
		stream_16(to + 2, c);
		stream_16(to + 3, d);
	}
}

__attribute__((target("clwb"))) static void gather_clwb(uint8_t *dst, struct gather *gather)
{
	gather_copy(dst, gather);
	for (size_t off = 0; off < gather->len; off += LINE_LEN)
		_mm_clwb(dst + off);
}

__attribute__((target("clflushopt"))) static void gather_clflushopt(uint8_t *dst, struct gather *gather)
{
	gather_copy(dst, gather);
	for (size_t off = 0; off < gather->len; off += LINE_LEN)
		_mm_clflushopt(dst + off);
}

/* stream_pair -- the two words come from registers: a 16-byte load over two fresh 8-byte stores would wait for the
 * cache, and the compiler must not make one of them. */
static inline void stream_pair(uint8_t *dst, uint64_t low, uint64_t high)
{
	__asm__("" : "+r"(low), "+r"(high));
	stream_16(dst, _mm_set_epi64x((long long)high, (long long)low));
}

static void gather_nt(uint8_t *dst, struct gather *gather)
{
	/* of pieces and zeros, counted from the head's end */
	uint64_t end = gather->len - GATHER_HEAD_LEN - GATHER_TAIL_LEN;
	uint64_t first_len = gather->piece[0].len;
	uint64_t body_len = first_len + gather->piece[1].len;
	uint8_t *body = dst + GATHER_HEAD_LEN;
	uint64_t pos = 8;

	gather_own(gather);
	gather_seal(gather);
	for (; pos < first_len && pos + 8 < end; pos += 16)
		stream_pair(body + pos, gather_word(gather, pos), gather_word(gather, pos + 8));
	for (; pos + 16 <= body_len; pos += 16)
		stream_16(body + pos, _mm_loadu_si128((const __m128i *)(gather->piece[1].start + (pos - first_len))));
	for (; pos + 8 < end; pos += 16)
		stream_pair(body + pos, gather_word(gather, pos), gather_word(gather, pos + 8));
	if (end > 0)
		stream_pair(body + pos, gather_word(gather, pos), gather->tail);
	for (unsigned i = 0; i + 1 < GATHER_HEAD_COUNT; i += 2)
		stream_pair(dst + i * 8, gather->head[i], gather->head[i + 1]);
	stream_pair(body - 8, gather->head[GATHER_HEAD_COUNT - 1], end > 0 ? gather_word(gather, 0) : gather->tail);
}

STREAM_TARGET static void gather_stream(uint8_t *dst, struct gather *gather)
{
	if (gather->len <= STREAM_LEN_MAX)
		stream_record(dst, gather, true);
	else
		gather_nt(dst, gather);
}
#elif defined(__aarch64__)
static void gather_cvap(uint8_t *dst, struct gather *gather)
{
	gather_copy(dst, gather);
	for (size_t off = 0; off < gather->len; off += LINE_LEN)
		__asm__ volatile("sys #3, c7, c12, #1, %0" ::"r"(dst + off) : "memory"); /* dc cvap */
}

static void copy_cvap(void *dst, const void *src, size_t len)
{
	char *line = dst;

	memcpy(dst, src, len);
	for (size_t off = 0; off < len; off += LINE_LEN)
		__asm__ volatile("sys #3, c7, c12, #1, %0" ::"r"(line + off) : "memory"); /* dc cvap */
}
#endif

bool persist_is_supported(enum farlog_flush_method method)
{
	switch (method) {
	case FARLOG_FLUSH_NONE:
	case FARLOG_FLUSH_MSYNC:
		return true;
#if defined(__x86_64__)
	case FARLOG_FLUSH_NT_STORE:
		return true;
	case FARLOG_FLUSH_CLWB:
		return has_cpuid_leaf7(CPUID_7_EBX_CLWB);
	case FARLOG_FLUSH_CLFLUSHOPT:
		return has_cpuid_leaf7(CPUID_7_EBX_CLFLUSHOPT);
#elif defined(__aarch64__)
	case FARLOG_FLUSH_CVAP:
		return true;
#endif
	default:
		return false;
	}
}

persist_copy_fn persist_find_copy(enum farlog_flush_method method)
{
	if (!persist_is_supported(method))
		return NULL;
	switch (method) {
#if defined(__x86_64__)
	case FARLOG_FLUSH_NT_STORE:
		return copy_nt;
	case FARLOG_FLUSH_CLWB:
		return copy_clwb;
	case FARLOG_FLUSH_CLFLUSHOPT:
		return copy_clflushopt;
#elif defined(__aarch64__)
	case FARLOG_FLUSH_CVAP:
		return copy_cvap;
#endif
	default:
		return copy_plain;
	}
}

#if defined(__x86_64__)
__attribute__((target("clwb"))) static void range_clwb(const char *line, const char *end)
{
	for (; line < end; line += LINE_LEN)
		_mm_clwb((void *)(uintptr_t)line);
}

__attribute__((target("clflushopt"))) static void range_clflushopt(const char *line, const char *end)
{
	for (; line < end; line += LINE_LEN)
		_mm_clflushopt((void *)(uintptr_t)line);
}

static void write_back(const char *line, const char *end)
{
	if (persist_is_supported(FARLOG_FLUSH_CLWB))
		range_clwb(line, end);
	else if (persist_is_supported(FARLOG_FLUSH_CLFLUSHOPT))
		range_clflushopt(line, end);
	else
		for (; line < end; line += LINE_LEN)
			_mm_clflush(line); /* every x86-64 has it */
}
#elif defined(__aarch64__)
static void write_back(const char *line, const char *end)
{
	for (; line < end; line += LINE_LEN)
		__asm__ volatile("sys #3, c7, c12, #1, %0" ::"r"(line) : "memory"); /* dc cvap */
}
#endif

void persist_range(const void *start, size_t len)
{
	const char *end;
	const char *line = persist_lines(start, len, &end);

	write_back(line, end);
	persist_fence();
}

int persist_msync(void *start, size_t len, int flags)
{
	return msync(start, len, flags);
}

persist_gather_fn persist_find_gather(enum farlog_flush_method method)
{
	switch (method) {
#if defined(__x86_64__)
	case FARLOG_FLUSH_NT_STORE:
		return stream_is_supported() ? gather_stream : gather_nt;
	case FARLOG_FLUSH_CLWB:
		return gather_clwb;
	case FARLOG_FLUSH_CLFLUSHOPT:
		return gather_clflushopt;
#elif defined(__aarch64__)
	case FARLOG_FLUSH_CVAP:
		return gather_cvap;
#endif
	default:
		return gather_copy;
	}
}

static const struct {
	const char *name;
	enum farlog_flush_method method;
} method_names[] = {
	{"none", FARLOG_FLUSH_NONE},
	{"clwb", FARLOG_FLUSH_CLWB},
	{"clflushopt", FARLOG_FLUSH_CLFLUSHOPT},
	{"nt", FARLOG_FLUSH_NT_STORE},
	{"cvap", FARLOG_FLUSH_CVAP},
	{"msync", FARLOG_FLUSH_MSYNC},
	{"fault", FARLOG_FLUSH_FAULT},
};

bool persist_find_method(const char *name, enum farlog_flush_method *method)
{
	if (strcmp(name, "auto") == 0) {
		*method = persist_find_fastest();
		return true;
	}
	for (size_t i = 0; i < sizeof(method_names) / sizeof(method_names[0]); i++) {
		if (strcmp(name, method_names[i].name) == 0) {
			*method = method_names[i].method;
			return true;
		}
	}
	return false;
}

const char *persist_method_name(enum farlog_flush_method method)
{
	for (size_t i = 0; i < sizeof(method_names) / sizeof(method_names[0]); i++)
		if (method_names[i].method == method)
			return method_names[i].name;
	return "?";
}

#define MEASURE_RECORD_LEN 256u
#define MEASURE_RECORD_COUNT 1024u
#define MEASURE_LEN (MEASURE_RECORD_LEN * MEASURE_RECORD_COUNT)
#define MEASURE_ROUNDS 3u
#define MEASURE_CANDIDATES 4u
#define MEASURE_SCRATCH_LEN ((size_t)MEASURE_LEN * MEASURE_ROUNDS * MEASURE_CANDIDATES)

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t measure(enum farlog_flush_method method, uint8_t *scratch)
{
	static const uint8_t record[MEASURE_RECORD_LEN] __attribute__((aligned(LINE_LEN)));
	persist_copy_fn copy = persist_find_copy(method);
	uint64_t start = now_ns();

	for (unsigned i = 0; i < MEASURE_RECORD_COUNT; i++) {
		copy(scratch + (size_t)i * MEASURE_RECORD_LEN, record, MEASURE_RECORD_LEN);
		persist_fence();
	}
	return now_ns() - start;
}

static enum farlog_flush_method fastest = FARLOG_FLUSH_NONE;

/* Each round writes to lines that no round wrote before, as a ring's next records lie on lines that left the cache
 * a lap ago; the least of the rounds counts, because noise only adds. */
static void measure_fastest(void)
{
	static const enum farlog_flush_method candidates[MEASURE_CANDIDATES] = {
		FARLOG_FLUSH_NT_STORE, FARLOG_FLUSH_CLFLUSHOPT, FARLOG_FLUSH_CLWB, FARLOG_FLUSH_CVAP};
	uint64_t best_ns = UINT64_MAX;
	uint8_t *scratch =
		mmap(NULL, MEASURE_SCRATCH_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	uint8_t *next = scratch;

	for (unsigned i = 0; i < MEASURE_CANDIDATES; i++) {
		if (!persist_is_supported(candidates[i]))
			continue;
		if (fastest == FARLOG_FLUSH_NONE)
			fastest = candidates[i];
		for (unsigned round = 0; scratch != MAP_FAILED && round < MEASURE_ROUNDS; round++, next += MEASURE_LEN) {
			uint64_t elapsed_ns = measure(candidates[i], next);

			if (elapsed_ns < best_ns) {
				best_ns = elapsed_ns;
				fastest = candidates[i];
			}
		}
	}
	if (scratch != MAP_FAILED)
		munmap(scratch, MEASURE_SCRATCH_LEN);
}

enum farlog_flush_method persist_find_fastest(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, measure_fastest);
	return fastest;
}
