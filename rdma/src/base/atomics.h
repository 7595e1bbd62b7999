/* base/atomics.h -- every shared word of farlog is touched through these names.
 *
 * A word has one owner that stores it; the others load. Release publishes all that the owner wrote before; acquire
 * sees it. Relaxed is for hints and counters, where any recent value will do. */
#ifndef FARLOG_ATOMICS_H
#define FARLOG_ATOMICS_H

#include <stdbool.h>
#include <stdint.h>

static inline uint64_t atomic_load_acquire(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline uint64_t atomic_load_relaxed(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline void atomic_store_release(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline void atomic_store_relaxed(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* atomic_bump -- add to a counter that only this thread stores: no locked instruction is needed. */
static inline void atomic_bump(uint64_t *word, uint64_t amount)
{
	atomic_store_relaxed(word, atomic_load_relaxed(word) + amount);
}

/* atomic_add -- add to a counter that several threads store. Returns the value before. */
static inline uint64_t atomic_add(uint64_t *word, uint64_t amount)
{
	return __atomic_fetch_add(word, amount, __ATOMIC_RELAXED);
}

/* atomic_swap_if -- take a word from `expected` to `desired`; acquire and release, because it guards what follows. */
static inline bool atomic_swap_if(uint64_t *word, uint64_t expected, uint64_t desired)
{
	return __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* atomic_raise -- make a word at least `value`, whichever thread else raises it. */
static inline void atomic_raise(uint64_t *word, uint64_t value)
{
	uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);

	while (seen < value && !__atomic_compare_exchange_n(word, &seen, value, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		;
}

/* cpu_relax -- tell the core that this is a spin loop. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
