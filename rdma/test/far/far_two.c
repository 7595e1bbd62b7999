/* far_two.c -- two threads with one link. One sleeps until its persist has come back; what the other one asks for does
 * not wait for that, and what the other one finds in its place ends the sleep. Judged by the order of events: the wire
 * holds what is sent until the test lets it go. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>

#include "base/clock.h"
#include "far_links.h"
#include "far/region.h"
#include "held_wire.h"
#include "log/writer.h"

#define SHORT_NS 1000000u
#define STEP_NS 100000

/* A ring behind a wire, its writer, and the thread that waits for a persist. */
struct two {
	struct bed bed;
	struct wire wire;
	farlog_writer *writer;
	struct region *region;
	pthread_t sleeper;
	bool has_sleeper;
	uint64_t is_over; /* its wait has ended */
};

static void *wait_for_persist(void *context)
{
	struct two *two = context;

	two->region->ops->data.wait(two->region, LONG_NS);
	atomic_store_release(&two->is_over, 1);
	return NULL;
}

static void step(void)
{
	nanosleep(&(struct timespec){0, STEP_NS}, NULL);
}

/* await_asleep -- the wait has come to its sleep, or has ended. */
static bool await_asleep(struct two *two)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);

	while (!atomic_load_acquire(&far_of(two->region)->is_asleep) && !atomic_load_acquire(&two->is_over) &&
		clock_monotonic_ns() < until_ns)
		step();
	return atomic_load_acquire(&far_of(two->region)->is_asleep) && !atomic_load_acquire(&two->is_over);
}

/* What stands before a link: its descriptors tell of nothing, as when another thread has taken what they told of. */
static struct far_link_ops deaf;
static unsigned (*real_sleepers)(struct far_link *link, int *fds, unsigned room, uint64_t *nap_ns);
static int deaf_fd = -1;

static unsigned deaf_sleepers(struct far_link *link, int *fds, unsigned room, uint64_t *nap_ns)
{
	unsigned count = real_sleepers(link, fds, room, nap_ns);

	for (unsigned i = 0; i < count; i++)
		fds[i] = deaf_fd;
	return count;
}

static void stand_before(struct far_link *link)
{
	if (deaf_fd < 0)
		deaf_fd = eventfd(0, EFD_CLOEXEC);
	CHECK(deaf_fd >= 0);
	real_sleepers = link->ops->sleepers;
	deaf = *link->ops;
	deaf.sleepers = deaf_sleepers;
	link->ops = &deaf;
}

/* make -- a persist is under way that the wire holds, and a thread sleeps for it. */
static bool make(struct two *two)
{
	struct region_span span = {LAYOUT_DATA_OFF, 64}; /* as it was */
	struct farlog_error error = {0};
	struct bed by_wire;

	*two = (struct two){0};
	if (!bed_make(&two->bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") || !CHECK_ASK(&two->bed.host, "grant ring 0 2 a") ||
		!wire_open(&two->wire, (uint16_t)atoi(strrchr(two->bed.host.uri, ':') + 1)))
		return false;
	by_wire = two->bed;
	snprintf(by_wire.uri, sizeof(by_wire.uri), "ofi:tcp://127.0.0.1:%u/ring", two->wire.port);
	two->writer = open_far_writer(&by_wire, "?flush=target-cpu", 2, 'a', &error);
	if (!CHECK_OK(error.result) || two->writer == NULL)
		return false;
	two->region = two->writer->region;
	wire_hold(&two->wire);
	stand_before(far_of(two->region)->link);
	CHECK(two->region->ops->data.persist(two->region, &span, 1, ++two->region->tag) == FARLOG_OK);
	two->has_sleeper = pthread_create(&two->sleeper, NULL, wait_for_persist, two) == 0;
	return two->has_sleeper && await_asleep(two);
}

static bool make_checked(struct two *two)
{
	bool is_made = make(two);

	CHECK(is_made);
	return is_made;
}

static void end_sleeper(struct two *two)
{
	if (two->has_sleeper)
		pthread_join(two->sleeper, NULL);
	two->has_sleeper = false;
}

static void unmake(struct two *two)
{
	wire_let_go(&two->wire);
	end_sleeper(two);
	farlog_writer_close(two->writer);
	wire_close(&two->wire);
	bed_free(&two->bed);
}

/* A READ gives up at its deadline, also when a connection in place of the one it gave up on would bring it. That ends
 * the sleep of the other one: nothing of its persist comes by this connection any more. */
void test_two_deadlines(void)
{
	struct two two;

	if (make_checked(&two)) {
		two.region->until_ns = clock_after_ns(SHORT_NS);
		CHECK(two.region->ops->data.fetch(two.region, 0, LAYOUT_DATA_OFF) == FARLOG_IO);
		two.region->until_ns = 0;
		end_sleeper(&two);
		CHECK(two.region->waits.expired_count == 0);
	}
	unmake(&two);
}

/* Words that nobody waits for, and a look, are through while the other thread sleeps. Then its answer is taken by such
 * a look: no event is left that would end the sleep. */
void test_two_taken(void)
{
	uint64_t until_ns = clock_after_ns(LONG_NS);
	struct two two;

	if (make_checked(&two)) {
		two.region->ops->data.store_word(two.region, LAYOUT_TAIL_HINT_OFF, 0);
		CHECK(two.region->ops->data.poll(two.region) == FARLOG_OK);
		CHECK(!atomic_load_acquire(&two.is_over)); /* or we have waited for it */
		wire_let_go(&two.wire);
		while (!region_is_done(two.region, two.region->tag) && clock_monotonic_ns() < until_ns) {
			CHECK(two.region->ops->data.poll(two.region) == FARLOG_OK);
			step();
		}
		CHECK(region_is_done(two.region, two.region->tag));
		end_sleeper(&two);
		CHECK(two.region->waits.expired_count == 0);
	}
	unmake(&two);
}
