/* mem/persist.h -- the processor's ways to make stores reach memory.
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

/* A way to copy whole lines towards memory. dst and src 64-byte aligned, len a multiple of 64. The bytes are durable
 * after the next persist_fence of the same thread. */
typedef void (*persist_copy_fn)(void *dst, const void *src, size_t len);

/* As persist_copy_fn, of a record that lies in several places; its CRC is made on the way, over the very bytes that are
 * copied. dst 64-byte aligned. */
typedef void (*persist_gather_fn)(uint8_t *dst, struct gather *gather);

/* persist_is_supported -- does this processor have the instruction? */
bool persist_is_supported(enum farlog_flush_method method);

/* persist_copy -- the copy of a method; NULL when it is not supported. NONE and MSYNC give a plain copy. */
persist_copy_fn persist_copy(enum farlog_flush_method method);

/* persist_gather -- the gathering copy of a method that persist_copy gives one for. */
persist_gather_fn persist_gather(enum farlog_flush_method method);

/* persist_fastest -- which supported method is the fastest here for 256-byte records: measured once a process (about 2
 * ms) on memory that is not in the cache, because the order differs by processor. */
enum farlog_flush_method persist_fastest(void);

/* persist_method_named -- "clwb", "clflushopt", "nt", "cvap", "msync", "none" or "auto". False: no such name. */
bool persist_method_named(const char *name, enum farlog_flush_method *method);
const char *persist_method_name(enum farlog_flush_method method);

/* persist_range -- write back whatever lines of a mapped range are in any cache, whoever stored them, and wait. Slow;
 * for recovery. */
void persist_range(const void *start, size_t len);

/* persist_lines -- the lines that a range touches, from the first byte of the first one on. */
static inline const char *persist_lines(const void *start, size_t len, const char **end)
{
	*end = (const char *)start + len;
	return (const char *)start - (uintptr_t)start % LAYOUT_LINE_LEN;
}

/* persist_msync -- msync(2): whole pages of a mapped file, which no instruction takes to its medium. The seam before
 * the kernel, where a test has a page cache of its own. 0, or -1 and errno. */
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

/* persist_fence_loads -- as persist_fence, and no load of this thread behind it is made before: sfence holds back no
 * load, and what a write-combining buffer still has, of a BAR that is mapped so (resource*_wc), would come to the
 * device behind the read that is to push it. */
static inline void persist_fence_loads(void)
{
#if defined(__x86_64__)
	__builtin_ia32_mfence();
#else
	persist_fence(); /* dsb holds back loads, too */
#endif
}

#endif
