/* far/wait.c -- waiting for what comes back by a link, and sleeping without the link: no thread with a deadline stands
 * before a link that another one sleeps with. */
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "far/region.h"

__attribute__((noinline, cold)) void far_break_link_if_silent(struct region_far *far)
{
	uint64_t now_ns = clock_monotonic_ns();

	if (atomic_load_relaxed(&far->state) != FAR_UP || far->tag_watched != far->tag_asked) {
		far->tag_watched = far->tag_asked;
		far->watched_ns = now_ns;
	} else if (now_ns - far->watched_ns >= PATIENCE_NS) {
		far->watched_ns = now_ns;
		far_break_link(far);
	}
}

/* One wait for a persist. */
struct far_sleep {
	struct far_link_sleep nap;
	uint64_t timeout_ns;
	struct far_snapshot snapshot; /* what had come when it began */
	bool has_snapshot;
};

/* is_persist_outstanding -- the link is up, and the persist that was asked for has not come back by it. */
static bool is_persist_outstanding(const struct region_far *far)
{
	return atomic_load_acquire(&far->state) == FAR_UP && far->tag_asked != far->link->done.persist_tag;
}

static bool is_unchanged(const struct region_far *far, const struct far_snapshot *snapshot)
{
	struct far_snapshot now = far_snapshot(far->link);

	return far_snapshot_is_same(&now, snapshot);
}

void far_wake_sleeper(struct region_far *far)
{
	const uint64_t one = 1;

	if (atomic_load_acquire(&far->state) == FAR_UP && is_unchanged(far, &far->asleep_snapshot))
		return;
	/* Where it fails, who has the link next tries again. */
	if (write(far->wakeup_fd, &one, sizeof(one)) == sizeof(one))
		atomic_store_relaxed(&far->is_asleep, 0);
}

void far_close_wakeup(struct region_far *far)
{
	if (far->wakeup_fd >= 0)
		close(far->wakeup_fd);
}

/* What a step of far_wait has found. */
enum wait_step {
	WAIT_TAKEN,  /* another thread has the link, for a moment */
	WAIT_NOT_UP, /* it is not up */
	WAIT_OVER,   /* something has come back, or nothing was under way */
	WAIT_ON,
	WAIT_READY, /* to sleep */
};

/* check_arrival -- the link is taken: look for what comes, or get ready for a sleep. */
static enum wait_step check_arrival(struct region_far *far, struct far_sleep *sleep, bool is_spinning)
{
	if (atomic_load_acquire(&far->state) != FAR_UP)
		return WAIT_NOT_UP; /* another thread may just have broken it off */
	if (!is_persist_outstanding(far))
		return WAIT_OVER;
	if (!sleep->has_snapshot) {
		far->region.waits.count++;
		sleep->snapshot = far_snapshot(far->link);
		sleep->has_snapshot = true;
	}
	if (is_spinning)
		far_advance(far);
	if (!is_persist_outstanding(far) || !is_unchanged(far, &sleep->snapshot))
		return WAIT_OVER;
	if (is_spinning)
		return WAIT_ON;
	if (!far_sleep_prepare(far->link, &sleep->nap, sleep->timeout_ns))
		return WAIT_OVER; /* a turn of another thread may have brought it since an earlier check */
	sleep->nap.fds[sleep->nap.count++] = (struct pollfd){.fd = far->wakeup_fd, .events = POLLIN};
	far->asleep_snapshot = sleep->snapshot;
	atomic_store_relaxed(&far->is_asleep, 1);
	return WAIT_READY;
}

/* end_sleep -- what no event announced has been slept over: where a nap is shorter than the caller's time because not
 * all that comes makes an event, it is looked for. */
static void end_sleep(struct region_far *far, struct far_sleep *sleep)
{
	bool was_still = far_sleep_run(&sleep->nap);
	bool has_expired = was_still && sleep->nap.nap_ns == sleep->timeout_ns;
	uint64_t roused_count;

	atomic_store_relaxed(&far->is_asleep, 0);
	if (sleep->nap.fds[sleep->nap.count - 1].revents != 0)
		(void)!read(far->wakeup_fd, &roused_count, sizeof(roused_count)); /* left there, it ends the next sleep */
	if (far_try_lock_link(far)) {
		if (was_still && !has_expired && is_persist_outstanding(far)) {
			far_advance(far);
			has_expired = !is_unchanged(far, &sleep->snapshot);
		}
		if (is_persist_outstanding(far))
			far_break_link_if_silent(far);
		far_unlock_link(far);
	}
	atomic_add(&far->region.waits.expired_count, has_expired);
}

void far_wait(struct region *region, uint64_t timeout_ns)
{
	struct region_far *far = far_of(region);
	uint64_t spin_ns = far->link->ops->spin_ns;
	uint64_t spin_until_ns = clock_after_ns(timeout_ns < spin_ns ? timeout_ns : spin_ns);
	struct far_sleep sleep = {.timeout_ns = timeout_ns < PATIENCE_NS ? timeout_ns : PATIENCE_NS};
	enum wait_step step;
	bool is_spinning;

	do {
		is_spinning = clock_monotonic_ns() < spin_until_ns;
		step = WAIT_TAKEN;
		if (far_try_lock_link(far)) {
			step = check_arrival(far, &sleep, is_spinning);
			far_unlock_link(far);
		}
		cpu_relax();
	} while (step == WAIT_ON || (step == WAIT_TAKEN && is_spinning));
	if (step == WAIT_READY)
		end_sleep(far, &sleep);
	else if (step == WAIT_TAKEN)
		nanosleep(&(struct timespec){0, CLOCK_NAP_NS}, NULL);
	else if (step == WAIT_NOT_UP)
		nanosleep(&(struct timespec){0, (long)(timeout_ns < RETRY_FIRST_NS ? timeout_ns : RETRY_FIRST_NS)}, NULL);
}

/* step_await -- OK, IO; NOT_YET, and nap->count says whether to sleep. */
static int step_await(struct region_far *far, const struct far_await *wait, struct far_link_sleep *nap)
{
	uint64_t now_ns;
	int result = FARLOG_NOT_YET;

	far_lock_link(far);
	far_advance(far);
	now_ns = clock_monotonic_ns();
	nap->count = 0;
	if (wait->is_done(far, wait->tag))
		result = FARLOG_OK;
	else if (atomic_load_acquire(&far->state) != FAR_UP || now_ns >= wait->until_ns ||
		far_is_connect_cancelled(far->link))
		result = FARLOG_IO;
	if (result == FARLOG_NOT_YET && is_persist_outstanding(far))
		far_break_link_if_silent(far);
	if (result == FARLOG_NOT_YET && far->link->ops->sleepers != NULL && now_ns >= wait->spin_until_ns &&
		atomic_load_acquire(&far->state) == FAR_UP) {
		uint64_t left_ns = wait->until_ns - now_ns;

		(void)far_sleep_prepare(far->link, nap, left_ns < RETRY_FIRST_NS ? left_ns : RETRY_FIRST_NS);
	}
	far_unlock_link(far);
	return result;
}

int far_await(struct region_far *far, struct far_await wait, uint64_t limit_ns)
{
	struct far_link_sleep nap = {0};
	int result;

	wait.until_ns = clock_after_ns(far->region.persist_timeout_ns);
	if (limit_ns != 0 && limit_ns < wait.until_ns)
		wait.until_ns = limit_ns;
	wait.spin_until_ns = clock_after_ns(far->link->ops->spin_ns);
	while ((result = step_await(far, &wait, &nap)) == FARLOG_NOT_YET) {
		if (nap.count > 0) {
			(void)far_sleep_run(&nap);
			wait.spin_until_ns = clock_after_ns(far->link->ops->spin_ns);
		}
		cpu_relax();
	}
	return result;
}
