/* adversary/memory_control.c -- what tests do to adversarial memory: power cuts, deaths, calls at an operation. */
#include "adversary/memory_inside.h"

#include <string.h>

/* lock_memory -- with the mutex, which the caller gives back. NULL: there is none of that name. */
static struct fault_memory *lock_memory(const char *name)
{
	pthread_mutex_lock(&fault_mutex);
	return fault_find(name);
}

void farlog_fault_reseed(const char *name, uint64_t seed)
{
	struct fault_memory *memory = lock_memory(name);

	if (memory != NULL)
		memory->random = seed != 0 ? seed : 1;
	pthread_mutex_unlock(&fault_mutex);
}

void farlog_fault_arm(const char *name, uint64_t operation_count)
{
	struct fault_memory *memory = lock_memory(name);

	if (memory != NULL && operation_count == 0)
		memory->is_dead = true;
	if (memory != NULL)
		memory->armed = operation_count == 0 ? UINT64_MAX : operation_count;
	pthread_mutex_unlock(&fault_mutex);
}

void farlog_fault_call(const char *name, uint64_t operation_count, void (*call)(void *context), void *context)
{
	struct fault_memory *memory = lock_memory(name);

	if (memory != NULL) {
		memory->call_in = operation_count;
		memory->call = call;
		memory->call_context = context;
	}
	pthread_mutex_unlock(&fault_mutex);
}

void farlog_fault_call_at_lock(const char *name, uint64_t lock_count, void (*call)(void *context), void *context)
{
	struct fault_memory *memory = lock_memory(name);

	if (memory != NULL) {
		memory->lock_call_in = lock_count;
		memory->lock_call = call;
		memory->lock_call_context = context;
	}
	pthread_mutex_unlock(&fault_mutex);
}

int farlog_fault_is_dead(const char *name)
{
	struct fault_memory *memory = lock_memory(name);
	int is_dead = memory != NULL && memory->is_dead;

	pthread_mutex_unlock(&fault_mutex);
	return is_dead;
}

static void revive(struct fault_memory *memory)
{
	memory->generation++;
	memory->drain_generation++;
	memory->torn_generation = memory->generation;
	memory->is_dead = false;
	memory->armed = UINT64_MAX;
	memset(memory->locks, 0, sizeof(memory->locks));
}

/* lose -- keep, of the stores to each word, a prefix of random length. How much survives in all differs from crash to
 * crash, from nearly nothing to nearly everything. */
static void lose(struct fault_memory *memory)
{
	uint64_t keep_of_256 = fault_draw(memory) % 257;

	for (uint64_t i = 0; i < memory->pending_count; i++) {
		struct pending_store *store = &memory->pending[i];

		if (!memory->is_stopped[store->word] && fault_draw(memory) % 256 < keep_of_256)
			memory->durable[store->word] = store->value;
		else
			memory->is_stopped[store->word] = 1;
	}
	for (uint64_t i = 0; i < memory->pending_count; i++)
		memory->is_stopped[memory->pending[i].word] = 0;
	/* A word that a device has stored since, or instead: its last value, or none. */
	for (uint64_t word = 0; memory->is_exposed && word < memory->size_bytes / 8; word++)
		if (memory->visible[word] != memory->durable[word] && fault_draw(memory) % 256 < keep_of_256)
			memory->durable[word] = memory->visible[word];
	memory->pending_count = 0;
	memcpy(memory->visible, memory->durable, memory->size_bytes);
}

void farlog_fault_crash(const char *name)
{
	struct fault_memory *memory = lock_memory(name);

	if (memory != NULL) {
		lose(memory);
		revive(memory);
	}
	pthread_mutex_unlock(&fault_mutex);
}

void farlog_fault_kill(const char *name)
{
	struct fault_memory *memory = lock_memory(name);

	if (memory != NULL)
		revive(memory);
	pthread_mutex_unlock(&fault_mutex);
}

static void free_locks(struct fault_memory *memory, bool of_drain)
{
	for (unsigned i = 0; i < FAULT_LOCK_COUNT_MAX; i++)
		if ((memory->locks[i].role == REGION_ROLE_DRAIN) == of_drain)
			memory->locks[i].holder = NULL;
}

void farlog_fault_kill_writer(const char *name)
{
	struct fault_memory *memory = lock_memory(name);

	memory->generation++;
	memory->torn_generation = memory->generation;
	free_locks(memory, false);
	pthread_mutex_unlock(&fault_mutex);
}

void farlog_fault_kill_drain(const char *name)
{
	struct fault_memory *memory = lock_memory(name);

	memory->drain_generation++;
	free_locks(memory, true);
	pthread_mutex_unlock(&fault_mutex);
}

void farlog_fault_expose(const char *name)
{
	struct fault_memory *memory = lock_memory(name);

	if (memory != NULL)
		memory->is_exposed = true;
	pthread_mutex_unlock(&fault_mutex);
}
