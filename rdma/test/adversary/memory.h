/* adversary/memory.h -- adversarial memory, for the crash tests.
 *
 * Every store stays pending until a flush covers it, or a persist by the handle that wrote it; a single word until a
 * flush does. At a crash an arbitrary subset of the pending 8-byte words is kept (of several stores to one word, any
 * prefix), all else is forgotten, and every handle that was open is dead. */
#ifndef FARLOG_REGION_FAULT_H
#define FARLOG_REGION_FAULT_H

#include "base/clock.h"
#include "base/uri.h"
#include "region/region.h"

int region_fault_open(const char *text, const struct uri *uri, const struct region_options *how, struct region **region,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* fault_reseed -- seed of the choices of the named memory; creates nothing. fault_drop forgets the memory. */
FARLOG_API void farlog_fault_reseed(const char *name, uint64_t seed);
FARLOG_API void farlog_fault_drop(const char *name);

/* farlog_fault_arm -- die in the middle of the operation that comes after `operation_count` more: its write is cut at a
 * random word, and nothing after it has any effect. 0 = now. UINT64_MAX = never. */
FARLOG_API void farlog_fault_arm(const char *name, uint64_t operation_count);
FARLOG_API int farlog_fault_is_dead(const char *name) FARLOG_MUST_CHECK;

/* farlog_fault_call -- run `call` once, right after the operation that comes after operation_count more: what another
 * process does at that moment. */
FARLOG_API void farlog_fault_call(
	const char *name, uint64_t operation_count, void (*call)(void *context), void *context);

/* farlog_fault_call_at_lock -- run `call` once, before the lock that is asked for after lock_count more. */
FARLOG_API void farlog_fault_call_at_lock(
	const char *name, uint64_t lock_count, void (*call)(void *context), void *context);

/* farlog_fault_crash -- the power cut: choose what survives, kill all handles, make the memory usable again. */
FARLOG_API void farlog_fault_crash(const char *name);

/* farlog_fault_kill -- the death of the processes alone: handles die and locks are freed, stores stay visible and
 * pending. */
FARLOG_API void farlog_fault_kill(const char *name);

/* farlog_fault_kill_writer -- of a writer's process alone, or of its connection: a drain goes on.
 * farlog_fault_kill_drain -- the other way round. */
FARLOG_API void farlog_fault_kill_writer(const char *name);
FARLOG_API void farlog_fault_kill_drain(const char *name);

/* farlog_fault_expose -- bytes of this memory are stored by a device, past region_ops: what differs from the media is
 * then pending, too. Each flush and crash looks at all of it, so that it is for small memories. */
FARLOG_API void farlog_fault_expose(const char *name);

/* farlog_fault_set_remote -- records are sent to this memory across a network: they land when their persist is
 * complete; those of a handle that has died land later, or never, but none behind the lock that another client gets as
 * a writer: a target tears the former connection down before it admits another. farlog_fault_exorcise -- they have
 * landed or never will: what a target knows then. */
FARLOG_API void farlog_fault_set_remote(const char *name, int is_remote);
FARLOG_API void farlog_fault_exorcise(const char *name);

/* farlog_fault_set_away -- nobody reaches it, and all handles die; or it is back, as it was. */
FARLOG_API void farlog_fault_set_away(const char *name, int is_away);

/* farlog_fault_set_slowness -- of 256 polls so many find a persist not complete. 128 unless set, 256: it never is,
 * which only who asks remote memory bears; a drain, whose connection would break in place of that, does not come to
 * know it. */
FARLOG_API void farlog_fault_set_slowness(const char *name, unsigned of_256);

/* farlog_fault_media -- what a power cut now could not take. */
FARLOG_API void farlog_fault_media(const char *name, uint64_t off, void *dst, uint64_t len);

#endif
