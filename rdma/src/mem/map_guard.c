/* mem/map_guard.c -- see mem/map_guard.h. */
#include "mem/map_guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomics.h"
#include "base/err.h"
#include "farlog/health.h"

#define PAGE_LEN 4096u

static struct {
	/* guards the list. The handler takes it, too: it runs in a thread that has just accessed a mapping, and no thread
	 * does that with the mutex held */
	pthread_mutex_t mutex;
	struct map_guard *guards;
	/* stored once, before the handler is installed: the handler reads it without the mutex */
	struct sigaction previous;
	uint64_t is_installed;
} registry = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* replace_page -- zeros in the place of the page. A mapping of huge pages cannot be split: then of all of it. */
static bool replace_page(const struct map_guard *guard, uint64_t off)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
	uint8_t *page = guard->start + off / PAGE_LEN * PAGE_LEN;

	return mmap(page, PAGE_LEN, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED ||
		mmap(guard->start, guard->len, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED;
}

/* contain -- false: the address is in no mapping that is watched. */
static bool contain(const uint8_t *address)
{
	bool is_contained = false;

	pthread_mutex_lock(&registry.mutex);
	for (struct map_guard *guard = registry.guards; guard != NULL; guard = guard->next)
		if (address >= guard->start && (uint64_t)(address - guard->start) < guard->len) {
			atomic_store_release(guard->has_lost_page, 1); /* first: nobody sees the zeros without it */
			is_contained = replace_page(guard, (uint64_t)(address - guard->start));
			break;
		}
	pthread_mutex_unlock(&registry.mutex);
	return is_contained;
}

/* is_of_access -- raised by this thread's own access. Else it has come at any place, perhaps with the mutex held:
 * another process has sent it, or the memory at si_addr was found bad before anybody accessed it (BUS_MCEERR_AO), and
 * whoever accesses it gets another one. */
static bool is_of_access(const siginfo_t *info)
{
	return info->si_code > 0 && info->si_code != BUS_MCEERR_AO;
}

static void call_previous(int number, siginfo_t *info, void *context)
{
	if (registry.previous.sa_flags & SA_SIGINFO) {
		registry.previous.sa_sigaction(number, info, context);
	} else if (registry.previous.sa_handler == SIG_DFL || registry.previous.sa_handler == SIG_IGN) {
		signal(number, SIG_DFL); /* the access is made again, and ends the process */
		if (!is_of_access(info))
			raise(number);
	} else {
		registry.previous.sa_handler(number);
	}
}

static void handle_bus_error(int number, siginfo_t *info, void *context)
{
	int saved = errno;

	if (!is_of_access(info) || !contain(info->si_addr))
		call_previous(number, info, context);
	errno = saved;
}

/* install -- 0 or errno. The mutex is held. */
static int install(void)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = handle_bus_error;
	action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
	sigemptyset(&action.sa_mask);
	if (sigaction(SIGBUS, NULL, &registry.previous) != 0 || sigaction(SIGBUS, &action, NULL) != 0)
		return errno;
	atomic_store_release(&registry.is_installed, 1);
	return 0;
}

/* is_present -- installed, and no other handler in its place. */
static bool is_present(void)
{
	struct sigaction present;

	return sigaction(SIGBUS, NULL, &present) == 0 && (present.sa_flags & SA_SIGINFO) &&
		present.sa_sigaction == handle_bus_error;
}

int farlog_guard_mappings(struct farlog_error *error)
{
	int failure = 0;
	bool is_replaced = false;

	pthread_mutex_lock(&registry.mutex);
	if (registry.is_installed)
		is_replaced = !is_present(); /* a second time behind one that calls ours, the two would call each other */
	else
		failure = install();
	pthread_mutex_unlock(&registry.mutex);
	if (is_replaced)
		return error_set(error, FARLOG_INVALID, 0,
			"guard mappings: another handler of SIGBUS was set after farlog's; set it before, and call "
			"farlog_guard_mappings once");
	return failure == 0 ? FARLOG_OK : error_set(error, FARLOG_IO, failure, "install a handler of SIGBUS");
}

void map_guard_add(struct map_guard *guard, uint8_t *start, uint64_t len, uint64_t *has_lost_page)
{
	if (!atomic_load_acquire(&registry.is_installed))
		return;
	guard->start = start;
	guard->len = len;
	guard->has_lost_page = has_lost_page;
	pthread_mutex_lock(&registry.mutex);
	guard->next = registry.guards;
	registry.guards = guard;
	pthread_mutex_unlock(&registry.mutex);
}

void map_guard_remove(struct map_guard *guard)
{
	struct map_guard **link = &registry.guards;

	if (guard->has_lost_page == NULL)
		return;
	pthread_mutex_lock(&registry.mutex);
	while (*link != guard)
		link = &(*link)->next;
	*link = guard->next;
	pthread_mutex_unlock(&registry.mutex);
	guard->has_lost_page = NULL;
}
