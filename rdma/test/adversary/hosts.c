/* adversary/hosts.c -- see adversary/hosts.h. As the kernel's target does it (drivers/nvme/target/pr.c). */
#include "adversary/hosts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adversary/blocks.h"

bool fault_hosts_next_has_reservations;
int fault_hosts_next;
uint64_t fault_hosts_next_rest_ns;
static unsigned failing_reservation; /* this one of the coming calls fails; 0 = none does */

void farlog_block_hosts(int has_reservations)
{
	fault_hosts_next_has_reservations = has_reservations != 0;
}

void farlog_block_rest(uint64_t reopen_delay_ns)
{
	fault_hosts_next_rest_ns = reopen_delay_ns;
}

void farlog_block_fail_reservation(unsigned call_number)
{
	failing_reservation = call_number;
}

int farlog_block_has_failed_reservation(void)
{
	return failing_reservation == 0;
}

void farlog_block_host(int host)
{
	fault_hosts_next = host;
}

void fault_hosts_forget(struct fault_hosts *hosts)
{
	memset(hosts->keys, 0, sizeof(hosts->keys));
	hosts->holder = 0;
}

static void look(const struct fault_hosts *hosts, int host, struct reserve_view *view)
{
	*view = (struct reserve_view){.is_here = hosts->has_reservations,
		.is_registered = hosts->keys[host] != 0,
		.type = hosts->holder != 0 ? 3 : 0};
	if (hosts->holder != 0) {
		view->holder_key = hosts->keys[hosts->holder - 1];
		view->is_holder_us = hosts->holder - 1 == host;
	}
	for (int other = 0; other < FAULT_HOST_COUNT; other++)
		if (other != host && hosts->keys[other] != 0)
			view->other_keys[view->other_count++] = hosts->keys[other];
	snprintf(view->host, sizeof(view->host), "host %d", host);
	snprintf(view->name, sizeof(view->name), "nqn.host-%d", host);
}

/* preempt -- only the holder, by its key: it is all that we ask for. */
static int preempt(struct fault_hosts *hosts, int host, uint64_t key, uint64_t other, int *preempted)
{
	if (hosts->keys[host] != key || hosts->holder == 0 || hosts->keys[hosts->holder - 1] != other)
		return FARLOG_HELD;
	if (hosts->holder - 1 == host)
		return FARLOG_OK;
	*preempted = hosts->holder - 1;
	hosts->keys[*preempted] = 0;
	hosts->holder = host + 1;
	return FARLOG_OK;
}

int fault_hosts_reserve(struct fault_hosts *hosts, int host, enum reserve_verb verb, uint64_t key, uint64_t other,
	struct reserve_view *view, int *preempted)
{
	*preempted = -1;
	if (failing_reservation > 0 && --failing_reservation == 0)
		return FARLOG_IO;
	if (!hosts->has_reservations && verb != RESERVE_REPORT)
		return FARLOG_UNSUPPORTED;
	switch (verb) {
	case RESERVE_REPORT:
		look(hosts, host, view);
		return FARLOG_OK;
	case RESERVE_REGISTER:
		if (hosts->keys[host] != 0 && hosts->keys[host] != key)
			return FARLOG_HELD;
		hosts->keys[host] = key;
		return FARLOG_OK;
	case RESERVE_REPLACE:
		if (hosts->keys[host] == 0)
			return FARLOG_HELD;
		hosts->keys[host] = key;
		return FARLOG_OK;
	case RESERVE_ACQUIRE:
		if (hosts->keys[host] != key || (hosts->holder != 0 && hosts->holder - 1 != host))
			return FARLOG_HELD;
		hosts->holder = host + 1;
		return FARLOG_OK;
	default:
		return preempt(hosts, host, key, other, preempted);
	}
}

bool fault_locks_is_taken(const struct fault_locks *locks, int host, uint64_t ring_off, enum region_role role)
{
	bool is_taken = false;

	for (unsigned i = 0; i < FAULT_LOCK_COUNT; i++)
		is_taken |= locks->taken[i].holder != NULL && locks->taken[i].host == host &&
			locks->taken[i].ring_off == ring_off && locks->taken[i].role == role;
	return is_taken;
}

int fault_locks_take(struct fault_locks *locks, const void *holder, int host, uint64_t ring_off, enum region_role role)
{
	unsigned i = 0;

	if (fault_locks_is_taken(locks, host, ring_off, role))
		return FARLOG_HELD;
	while (locks->taken[i].holder != NULL)
		if (++i == FAULT_LOCK_COUNT)
			abort();
	locks->taken[i].holder = holder;
	locks->taken[i].host = host;
	locks->taken[i].role = role;
	locks->taken[i].ring_off = ring_off;
	return FARLOG_OK;
}

bool fault_locks_has_parts(const struct fault_locks *locks, int host)
{
	bool has_parts = false;

	for (unsigned i = 0; i < FAULT_LOCK_COUNT; i++)
		has_parts |= locks->taken[i].holder != NULL && locks->taken[i].host == host && locks->taken[i].ring_off != 0;
	return has_parts;
}

void fault_locks_give(struct fault_locks *locks, const void *holder, enum region_role role)
{
	for (unsigned i = 0; i < FAULT_LOCK_COUNT; i++)
		if (locks->taken[i].holder == holder && (role == REGION_ROLE_READER || locks->taken[i].role == role))
			locks->taken[i].holder = NULL;
}
