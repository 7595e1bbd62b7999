/* Threads of a shared writer that wait for one another, each no longer than its own deadline. A thread is held in the
 * middle of its record by a page of its payload that cannot be read until the test lets it go. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "far/region.h"
#include "ring/layout.h"
#include "ring/record.h"
#include "members/members.h"
#include "log/shared_handle.h"
#include "unit.h"

#define CAPACITY (256u << 10)
#define SIZE (LAYOUT_DATA_OFF + CAPACITY)
#define PAGE_LEN 4096u
#define HELD_LEN_MAX (2 * PAGE_LEN)
#define SHORT_NS 1000000u
#define LONG_NS 60000000000u
#define BOUND_NS 20000000000u /* what waits beyond its deadline would wait for ever */
#define THREAD_COUNT 4u

static uint8_t *held_page;
static uint64_t is_held;
static uint64_t is_let_go;

static void on_fault(int number, siginfo_t *info, void *context)
{
	(void)context;
	if ((uint8_t *)info->si_addr < held_page || (uint8_t *)info->si_addr >= held_page + HELD_LEN_MAX) {
		signal(number, SIG_DFL);
		return;
	}
	atomic_store_release(&is_held, 1);
	while (!atomic_load_acquire(&is_let_go))
		nanosleep(&(struct timespec){0, 100000}, NULL);
	mprotect(held_page, HELD_LEN_MAX, PROT_READ);
}

struct call {
	pthread_t thread;
	farlog_shared *shared;
	struct farlog_entry entry;
	struct farlog_position position;
	uint64_t deadline_ns;
	uint64_t lsn; /* to resolve, unless 0 */
	int result;
	uint64_t is_done;
};

static void *make_call(void *context)
{
	struct call *call = context;

	if (call->lsn != 0)
		call->result = farlog_shared_resolve(call->shared, call->lsn, call->deadline_ns, &call->position);
	else
		call->result = farlog_shared_append(call->shared, &call->entry, call->deadline_ns, &call->position);
	atomic_store_release(&call->is_done, 1);
	return NULL;
}

static void start(struct call *call)
{
	assert_int_equal(pthread_create(&call->thread, NULL, make_call, call), 0);
}

/* join_before_let_go -- it returns while the other one is held. */
static void join_before_let_go(struct call *call)
{
	uint64_t until_ns = clock_after_ns(BOUND_NS);
	bool is_done;

	while (!(is_done = atomic_load_acquire(&call->is_done)) && clock_monotonic_ns() < until_ns)
		nanosleep(&(struct timespec){0, 100000}, NULL);
	if (!is_done)
		atomic_store_release(&is_let_go, 1);
	pthread_join(call->thread, NULL);
	if (!is_done)
		fail_msg("a call with a deadline of 1 ms waited for a thread that was held");
}

static void hold(struct call *call, farlog_shared *shared, uint32_t len)
{
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};

	held_page = mmap(NULL, HELD_LEN_MAX, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(held_page != MAP_FAILED);
	assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0);
	atomic_store_release(&is_held, 0);
	atomic_store_release(&is_let_go, 0);
	*call = (struct call){.shared = shared, .entry = {.data = held_page, .len = len}, .deadline_ns = LONG_NS};
	start(call);
	while (!atomic_load_acquire(&is_held))
		nanosleep(&(struct timespec){0, 100000}, NULL);
}

static void let_go(struct call *call)
{
	atomic_store_release(&is_let_go, 1);
	pthread_join(call->thread, NULL);
	munmap(held_page, HELD_LEN_MAX);
}

/* count_records -- read as a drain does: whole, in order. */
static unsigned count_records(const char *uri)
{
	static uint8_t buffer[CAPACITY];
	farlog_reader *reader = unit_read(uri, FARLOG_START_HEAD, false);
	struct farlog_batch batch;
	unsigned count = 0;
	int result;

	while ((result = farlog_reader_read(reader, buffer, sizeof(buffer), &batch)) == FARLOG_OK)
		count += (unsigned)batch.record_count;
	assert_int_equal(result, FARLOG_NOT_YET);
	farlog_reader_close(reader);
	return count;
}

/* give_up -- several append behind the one that is held: each gets a place or none, and none an acknowledgement. */
static unsigned give_up(farlog_shared *shared, struct call *calls, uint32_t len)
{
	static uint8_t bytes[HELD_LEN_MAX];
	unsigned placed_count = 0;

	for (unsigned i = 0; i < THREAD_COUNT; i++) {
		calls[i] = (struct call){.shared = shared, .entry = {.data = bytes, .len = len}, .deadline_ns = SHORT_NS};
		start(&calls[i]);
	}
	for (unsigned i = 0; i < THREAD_COUNT; i++) {
		join_before_let_go(&calls[i]);
		assert_true(calls[i].result == FARLOG_UNKNOWN || calls[i].result == FARLOG_FULL);
		placed_count += calls[i].result == FARLOG_UNKNOWN;
	}
	return placed_count;
}

static void run(const char *uri, uint32_t level, uint32_t held_len)
{
	struct farlog_writer_config config = {.level = level, .counters_dir = ""};
	struct farlog_entry entry = {.data = "12345678", .len = 8};
	struct farlog_position first;
	struct farlog_position last;
	struct call held;
	struct call calls[THREAD_COUNT];
	struct call resolve;
	farlog_shared *shared;
	unsigned first_count;
	unsigned large_count;
	unsigned small_count;

	assert_int_equal(farlog_shared_open(uri, &config, &shared, NULL), FARLOG_OK);
	first_count = count_records(uri);
	/* Published and perhaps not durable: on blocks its commit ends behind the one that is held. */
	assert_int_equal(shared_submit(shared, &entry, 0, &first), FARLOG_OK);
	hold(&held, shared, held_len);
	resolve = (struct call){.shared = shared, .lsn = first.lsn, .deadline_ns = SHORT_NS};
	start(&resolve);
	join_before_let_go(&resolve);
	large_count = give_up(shared, calls, PAGE_LEN + 1);
	small_count = give_up(shared, calls, 100);
	if (held_len > PAGE_LEN)
		assert_int_equal(large_count, 0); /* it has the one buffer for such */
	resolve = (struct call){.shared = shared, .lsn = shared_published_lsn(shared), .deadline_ns = SHORT_NS};
	start(&resolve);
	join_before_let_go(&resolve);
	assert_true(resolve.result == FARLOG_UNKNOWN || resolve.result == FARLOG_NOT_FOUND);
	let_go(&held);
	assert_int_equal(held.result, FARLOG_OK);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(farlog_shared_append(shared, &entry, LONG_NS, &last), FARLOG_OK);
	assert_int_equal(farlog_shared_resolve(shared, held.position.lsn, LONG_NS, &last), FARLOG_OK);
	assert_int_equal(shared_published_lsn(shared), shared_durable_lsn(shared));
	assert_int_equal(farlog_shared_close(shared), FARLOG_OK);
	assert_int_equal(count_records(uri) - first_count, 1 + 1 + large_count + small_count + 3);
}

static void turns__left_on_memory(void **state)
{
	const char *uri = unit_tmpfs_uri("turns");

	(void)state;
	unit_format(uri, SIZE, HELD_LEN_MAX + 1024);
	run(uri, FARLOG_LEVEL_VISIBLE, 1000);
	run(uri, FARLOG_LEVEL_VISIBLE, HELD_LEN_MAX - 1000);
}

static void turns__left_with_group_commit(void **state)
{
	(void)state;
	unit_fault(SIZE, HELD_LEN_MAX + 1024);
	run(FAULT_URI, FARLOG_LEVEL_PERSISTENT, 1000);
	run(FAULT_URI, FARLOG_LEVEL_PERSISTENT, HELD_LEN_MAX - 1000);
}

/* turns__left_on_blocks -- the leader, too: it has put a PAD behind what is not whole. */
static void turns__left_on_blocks(void **state)
{
	(void)state;
	unit_format("block-fault:turns", SIZE, HELD_LEN_MAX + 1024);
	run("block-fault:turns", FARLOG_LEVEL_PERSISTENT, 1000);
	run("block-fault:turns", FARLOG_LEVEL_PERSISTENT, HELD_LEN_MAX - 1000);
}

/* turns__left_for_good -- all leave theirs, and the writer is closed at once: nothing of it is missing. */
static void turns__left_for_good(void **state)
{
	struct farlog_writer_config config = {.counters_dir = ""};
	struct call held;
	struct call calls[THREAD_COUNT];
	farlog_shared *shared;
	unsigned first_count;
	unsigned placed_count;

	(void)state;
	unit_fault(SIZE, HELD_LEN_MAX + 1024);
	assert_int_equal(farlog_shared_open(FAULT_URI, &config, &shared, NULL), FARLOG_OK);
	first_count = count_records(FAULT_URI);
	hold(&held, shared, 1000);
	placed_count = give_up(shared, calls, 100);
	let_go(&held);
	assert_int_equal(held.result, FARLOG_OK);
	assert_int_equal(farlog_shared_close(shared), FARLOG_OK);
	assert_int_equal(count_records(FAULT_URI) - first_count, 1 + placed_count);
}

/* A lock whose holder shares its core with a thread of a real-time priority that wants it. */
struct contest {
	void (*take)(struct contest *contest);
	void (*give)(struct contest *contest);
	struct region_members *whole;
	struct region_far *far;
	uint64_t word;
	uint64_t is_taken;
	uint64_t is_asked;
	long sleep_count;
};

static void take_members(struct contest *contest)
{
	members_acquire(contest->whole);
}

static void give_members(struct contest *contest)
{
	members_release(contest->whole);
}

static void take_far(struct contest *contest)
{
	far_lock_link(contest->far);
}

static void give_far(struct contest *contest)
{
	far_unlock_link(contest->far);
}

static void take_shared(struct contest *contest)
{
	while (!shared_lock(&contest->word, &(struct deadline){.at_ns = UINT64_MAX}))
		;
}

static void give_shared(struct contest *contest)
{
	shared_unlock(&contest->word);
}

static void *hold_lock(void *context)
{
	struct contest *contest = context;

	contest->take(contest);
	atomic_store_release(&contest->is_taken, 1);
	while (!atomic_load_acquire(&contest->is_asked))
		sched_yield();
	contest->give(contest);
	return NULL;
}

static void *ask_lock(void *context)
{
	struct contest *contest = context;
	struct rusage before;
	struct rusage after;

	getrusage(RUSAGE_THREAD, &before);
	atomic_store_release(&contest->is_asked, 1);
	contest->take(contest);
	getrusage(RUSAGE_THREAD, &after);
	contest->give(contest);
	contest->sleep_count = after.ru_nvcsw - before.ru_nvcsw;
	return NULL;
}

/* contend -- the holder runs only when who asks sleeps, or when the kernel throttles real-time threads, after 950
 * ms. */
static void contend(struct contest *contest)
{
	struct sched_param priority = {.sched_priority = 1};
	pthread_attr_t attr;
	cpu_set_t allowed;
	cpu_set_t core;
	pthread_t holder;
	pthread_t asker;
	int failure;
	int first = 0;

	assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
	while (!CPU_ISSET(first, &allowed))
		first++;
	CPU_ZERO(&core);
	CPU_SET(first, &core);
	assert_int_equal(pthread_attr_init(&attr), 0);
	assert_int_equal(pthread_attr_setaffinity_np(&attr, sizeof(core), &core), 0);
	assert_int_equal(pthread_create(&holder, &attr, hold_lock, contest), 0);
	while (!atomic_load_acquire(&contest->is_taken))
		sched_yield();
	assert_int_equal(pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED), 0);
	assert_int_equal(pthread_attr_setschedpolicy(&attr, SCHED_FIFO), 0);
	assert_int_equal(pthread_attr_setschedparam(&attr, &priority), 0);
	failure = pthread_create(&asker, &attr, ask_lock, contest);
	if (failure == 0)
		pthread_join(asker, NULL);
	atomic_store_release(&contest->is_asked, 1);
	pthread_join(holder, NULL);
	pthread_attr_destroy(&attr);
	if (failure == EPERM) {
		print_message("skipped: SCHED_FIFO is not permitted (CAP_SYS_NICE, or a limit RLIMIT_RTPRIO of 1)\n");
		skip();
	}
	assert_int_equal(failure, 0);
	assert_true(contest->sleep_count > 0);
}

static void turns__lock_asked_for_at_a_real_time_priority(void **state)
{
	static struct region_members whole;
	static struct region_far link;
	struct contest far = {.take = take_far, .give = give_far, .far = &link};
	struct contest members = {.take = take_members, .give = give_members, .whole = &whole};
	struct contest shared = {.take = take_shared, .give = give_shared};

	(void)state;
	contend(&far);
	contend(&members);
	contend(&shared);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(turns__left_on_memory),
	cmocka_unit_test(turns__left_with_group_commit),
	cmocka_unit_test(turns__left_on_blocks),
	cmocka_unit_test(turns__left_for_good),
	cmocka_unit_test(turns__lock_asked_for_at_a_real_time_priority),
};
RUN_GROUP(turns, tests)
