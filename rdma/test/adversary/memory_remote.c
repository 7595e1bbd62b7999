/* adversary/memory_remote.c -- adversarial memory across a network: records that land late, hosts that are away, media
 * that are slow. See adversary/memory.h. */
#include "adversary/memory_inside.h"

#include <stdlib.h>
#include <string.h>

#define LANDS_OF_4096 5u /* at each operation: one of those that were left behind */
#define CUTS_OF_256 96u

void fault_queue(struct region_fault *fault, uint64_t off, const void *src, uint64_t len)
{
	struct fault_parcel **last = &fault->queue;
	struct fault_parcel *parcel = malloc(sizeof(*parcel) + len);

	if (parcel == NULL)
		abort();
	*parcel = (struct fault_parcel){.off = off, .len = len, .client_id = fault->client_id};
	memcpy(parcel->bytes, src, len);
	while (*last != NULL)
		last = &(*last)->next;
	*last = parcel;
}

/* land_first -- of a chain; what is cut off by a death is not this file's. */
static void land_first(struct fault_memory *memory, struct fault_parcel **chain)
{
	struct fault_parcel *parcel = *chain;

	/* a flush by its host takes them */
	fault_put_words(memory, FAULT_NO_WRITER, parcel->off, parcel->bytes, parcel->len / 8);
	*chain = parcel->next;
	free(parcel);
}

void fault_land(struct region_fault *fault)
{
	while (fault->queue != NULL)
		land_first(fault->memory, &fault->queue);
}

void fault_haunt(struct fault_memory *memory)
{
	if (memory->ghosts != NULL && !memory->is_away && fault_draw(memory) % 4096 < LANDS_OF_4096)
		land_first(memory, &memory->ghosts);
}

static void drop_first(struct fault_parcel **chain)
{
	struct fault_parcel *parcel = *chain;

	*chain = parcel->next;
	free(parcel);
}

static void drop(struct fault_parcel **chain)
{
	while (*chain != NULL)
		drop_first(chain);
}

void fault_leave_behind(struct region_fault *fault)
{
	struct fault_parcel **last = &fault->memory->ghosts;

	if (fault->generation < fault->memory->torn_generation)
		drop(&fault->queue);
	while (*last != NULL)
		last = &(*last)->next;
	*last = fault->queue;
	fault->queue = NULL;
}

void fault_forget_ghosts(struct fault_memory *memory)
{
	drop(&memory->ghosts);
}

/* fault_abort_persist -- the connection is torn down, which takes a while; what has not landed then never does. */
int fault_abort_persist(struct region *region)
{
	struct region_fault *fault = (struct region_fault *)region;
	int result = FARLOG_OK;

	pthread_mutex_lock(&fault_mutex);
	if (fault->queue != NULL && fault_draw(fault->memory) % 256 >= CUTS_OF_256)
		result = FARLOG_NOT_YET;
	else
		drop(&fault->queue);
	pthread_mutex_unlock(&fault_mutex);
	return result;
}

void farlog_fault_set_remote(const char *name, int is_remote)
{
	pthread_mutex_lock(&fault_mutex);
	fault_find(name)->is_remote = is_remote != 0;
	pthread_mutex_unlock(&fault_mutex);
}

void farlog_fault_set_away(const char *name, int is_away)
{
	struct fault_memory *memory;

	pthread_mutex_lock(&fault_mutex);
	memory = fault_find(name);
	memory->is_away = is_away != 0;
	memory->generation++;
	memory->drain_generation++;
	memset(memory->locks, 0, sizeof(memory->locks));
	pthread_mutex_unlock(&fault_mutex);
}

void farlog_fault_set_slowness(const char *name, unsigned of_256)
{
	pthread_mutex_lock(&fault_mutex);
	fault_find(name)->slowness = of_256;
	pthread_mutex_unlock(&fault_mutex);
}

/* end_ghosts -- they land now or never, but for those of one client; UINT64_MAX: all. */
static void end_ghosts(struct fault_memory *memory, uint64_t kept_client_id)
{
	struct fault_parcel **link = &memory->ghosts;
	bool is_landing = true;

	while (*link != NULL) {
		if ((*link)->client_id == kept_client_id) {
			link = &(*link)->next;
			continue;
		}
		is_landing = is_landing && fault_draw(memory) % 2 == 0;
		if (is_landing)
			land_first(memory, link);
		else
			drop_first(link);
	}
}

void fault_admit(struct region_fault *fault)
{
	end_ghosts(fault->memory, fault->client_id);
	fault->memory->torn_generation = fault->memory->generation;
}

void farlog_fault_exorcise(const char *name)
{
	pthread_mutex_lock(&fault_mutex);
	end_ghosts(fault_find(name), UINT64_MAX);
	pthread_mutex_unlock(&fault_mutex);
}

void farlog_fault_media(const char *name, uint64_t off, void *dst, uint64_t len)
{
	pthread_mutex_lock(&fault_mutex);
	memcpy(dst, (const uint8_t *)fault_find(name)->durable + off, len);
	pthread_mutex_unlock(&fault_mutex);
}
