/* adversary/revocation.c -- see adversary/revocation.h. */
#include "adversary/revocation.h"

#include "base/atomics.h"
#include "base/clock.h"
#include "target/verbs.h"

static uint64_t revocation_pause_ns;
static uint64_t keys_are_kept;

void __real_verbs_keys_invalidate(struct verbs_conn *conn);
void __wrap_verbs_keys_invalidate(struct verbs_conn *conn);

void __wrap_verbs_keys_invalidate(struct verbs_conn *conn)
{
	uint64_t until_ns;

	if (!atomic_load_relaxed(&keys_are_kept))
		__real_verbs_keys_invalidate(conn);
	until_ns = clock_after_ns(atomic_load_relaxed(&revocation_pause_ns));
	while (clock_monotonic_ns() < until_ns)
		cpu_relax();
}

void farlog_fault_pause_revocations(uint64_t pause_ns)
{
	atomic_store_relaxed(&revocation_pause_ns, pause_ns);
}

void farlog_fault_keep_keys(int is_kept)
{
	atomic_store_relaxed(&keys_are_kept, is_kept != 0);
}
