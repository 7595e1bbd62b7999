/* mem/persist.h -- instructions that make stores reach memory.
 *
 * A store lies in a cache until its line is written back; a fence then waits until the write-back is accepted by the
 * memory controller, which is inside the power-fail domain on machines with ADR (Intel 64 SDM vol. 1, 11.4.4 and vol.
 * 2, CLWB; Arm ARM, DC CVAP). */
#ifndef FARLOG_PERSIST_H
#define FARLOG_PERSIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "farlog/farlog.h"
#include "ring/gather.h"
#include "ring/layout.h"

/* Copies whole lines and starts their write-back. dst and src are 64-byte aligned, len is a multiple of 64. The
 * bytes are durable after the next persist_fence of the same thread. */
typedef void (*persist_copy_fn)(void *dst, const void *src, size_t len);

/* As persist_copy_fn, of a record whose parts lie in several places. Computes the CRC over the bytes that it copies.
 * dst is 64-byte aligned. */
typedef void (*persist_gather_fn)(uint8_t *dst, struct gather *gather);

/* persist_is_supported -- does this processor have the instruction? */
bool persist_is_supported(enum farlog_flush_method method);

/* persist_find_copy -- the copy function of a method; NULL: not supported. NONE and MSYNC: a plain copy. */
persist_copy_fn persist_find_copy(enum farlog_flush_method method);

/* persist_find_gather -- the gathering copy function of a supported method. */
persist_gather_fn persist_find_gather(enum farlog_flush_method method);

/* persist_find_fastest -- the supported method that is the fastest for 256-byte records. Measured once a process, about
 * 2 ms, on memory that is not in the cache: the order differs by processor. Any thread; the first call blocks. */
enum farlog_flush_method persist_find_fastest(void);

/* persist_find_method -- by name: "clwb", "clflushopt", "nt", "cvap", "msync", "none" or "auto". False: unknown. */
bool persist_find_method(const char *name, enum farlog_flush_method *method);
const char *persist_method_name(enum farlog_flush_method method);

/* persist_range -- write back all lines of a mapped range from all caches, whichever core stored them, and wait. Slow;
 * for recovery. */
void persist_range(const void *start, size_t len);

/* persist_lines -- the first byte of the first cache line that a range touches; *end is the end of the range. */
static inline const char *persist_lines(const void *start, size_t len, const char **end)
{
	*end = (const char *)start + len;
	return (const char *)start - (uintptr_t)start % LAYOUT_LINE_LEN;
}

/* persist_msync -- msync(2) of whole pages of a mapped file. The seam before the kernel: tests replace it by a page
 * cache of their own. 0, or -1 and errno. Blocks for the disk. */
int persist_msync(void *start, size_t len, int flags) FARLOG_MUST_CHECK;

/* persist_fence -- wait until this core's flushed lines and non-temporal stores are accepted. */
static inline void persist_fence(void)
{
#if defined(__x86_64__)
	__builtin_ia32_sfence();
#elif defined(__aarch64__)
	__asm__ volatile("dsb sy" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* persist_fence_loads -- as persist_fence, and it also orders later loads of this thread. sfence does not: of a BAR
 * that is mapped write-combining (resource*_wc), stores still in a buffer would reach the device after the read that
 * is meant to push them. */
static inline void persist_fence_loads(void)
{
#if defined(__x86_64__)
	__builtin_ia32_mfence();
#else
	persist_fence(); /* dsb orders loads, too */
#endif
}

#endif
