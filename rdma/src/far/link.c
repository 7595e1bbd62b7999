/* far/link.c -- what the links of all transports share: the copy of the ring, sleeping for what comes, and leaving
 * the target. */
#include <sys/mman.h>

#include "base/clock.h"
#include "far/far.h"
#include "region/staging.h"

#define LEAVE_NS 500000000u /* a close waits no longer for a target that does not answer */
#define LEAVE_STEP_NS 1000000u

static uint8_t *map_own(uint64_t len, bool is_whole)
{
	void *copy = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (copy == MAP_FAILED)
		return NULL;
	if (is_whole)
		/* a writer touches all of it when it opens, and a fault is dearer than its zeroes */
		madvise(copy, len, MADV_HUGEPAGE);
	madvise(copy, len, MADV_DONTFORK); /* a child's copy-on-write would move pages that a device has registered */
	return copy;
}

int far_copy(struct far_link *link, uint64_t size_bytes)
{
	uint64_t windowed_len = LAYOUT_DATA_OFF + link->window_len;
	uint64_t copy_len = link->window_len != 0 && windowed_len < size_bytes ? windowed_len : size_bytes;
	uint8_t *copy;

	if (link->copy != NULL)
		return link->ring_len == size_bytes ? FARLOG_OK : FARLOG_NOT_A_RING;
	copy = link->staging != NULL ? staging_map(link->staging, copy_len) : map_own(copy_len, link->window_len == 0);
	if (copy == NULL)
		return FARLOG_NO_MEMORY;
	link->copy = copy;
	link->copy_len = copy_len;
	link->ring_len = size_bytes;
	return FARLOG_OK;
}

bool far_sleep_prepare(struct far_link *link, struct far_link_sleep *nap, uint64_t timeout_ns)
{
	int found[FAR_WAIT_FD_COUNT_MAX];

	nap->nap_ns = timeout_ns;
	nap->count = link->ops->sleepers(link, found, FAR_WAIT_FD_COUNT_MAX, &nap->nap_ns);
	for (unsigned i = 0; i < nap->count; i++)
		nap->fds[i] = (struct pollfd){.fd = found[i], .events = POLLIN};
	return nap->count > 0;
}

bool far_sleep_run(struct far_link_sleep *nap)
{
	return clock_poll(nap->fds, nap->count, nap->nap_ns);
}

void far_leave(struct far_link *link)
{
	const struct far_request request = {.operation = FAR_LEAVE, .tag = FAR_LINK_TAG};
	uint64_t until_ns = clock_after_ns(LEAVE_NS);
	struct far_link_sleep nap;

	if (link->ops->poll(link) != FARLOG_OK || link->ops->send(link, &request) != FARLOG_OK)
		return;
	while (link->ops->poll(link) == FARLOG_OK && clock_monotonic_ns() < until_ns) {
		if (link->ops->sleepers != NULL && far_sleep_prepare(link, &nap, LEAVE_STEP_NS))
			(void)far_sleep_run(&nap);
		else
			cpu_relax();
	}
}
