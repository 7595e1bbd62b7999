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
	struct sigaction previous; /* set before the handler is installed */
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

static void call_previous(int number, siginfo_t *info, void *context)
{
	if (registry.previous.sa_flags & SA_SIGINFO) {
		registry.previous.sa_sigaction(number, info, context);
	} else if (registry.previous.sa_handler == SIG_DFL || registry.previous.sa_handler == SIG_IGN) {
		signal(number, SIG_DFL); /* the access is made again, and ends the process */
		if (info->si_code <= 0)
			raise(number);
	} else {
		registry.previous.sa_handler(number);
	}
}

static void handle_bus_error(int number, siginfo_t *info, void *context)
{
	int saved = errno;

	/* si_code <= 0: another process has sent it, and it may have come with the mutex held */
	if (info->si_code <= 0 || !contain(info->si_addr))
		call_previous(number, info, context);
	errno = saved;
}

int farlog_guard_mappings(struct farlog_error *error)
{
	struct sigaction action;
	struct sigaction present;
	int failure = 0;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = handle_bus_error;
	action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
	sigemptyset(&action.sa_mask);
	pthread_mutex_lock(&registry.mutex);
	if (sigaction(SIGBUS, NULL, &present) != 0) {
		failure = errno;
	} else if (!(present.sa_flags & SA_SIGINFO) || present.sa_sigaction != handle_bus_error) {
		registry.previous = present;
		failure = sigaction(SIGBUS, &action, NULL) == 0 ? 0 : errno;
	}
	atomic_store_release(&registry.is_installed, registry.is_installed || failure == 0);
	pthread_mutex_unlock(&registry.mutex);
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
