/* blocks/reserve.c -- see blocks/reserve.h. */
#include "blocks/reserve.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "blocks/nvme.h"
#include "farlog/former.h"

#define TURN_COUNT_MAX 16u             /* others that take it at the same time */
#define ZOMBIE_PATIENCE_NS 1000000000u /* with a writer on this host that is just opening */
#define KEY_HASH_MASK 0xFFFFFFFFFFFFull

static uint64_t fnv1a(uint64_t hash, const void *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001B3ull;
	return hash;
}

uint64_t reserve_key(enum reserve_tag tag, const uint8_t ring_uuid[16], uint32_t epoch, const char *host)
{
	static const uint8_t nothing[16];
	uint64_t hash = fnv1a(0xCBF29CE484222325ull, ring_uuid != NULL ? ring_uuid : nothing, 16);

	hash = fnv1a(hash, &epoch, sizeof(epoch));
	hash = fnv1a(hash, host, strlen(host));
	return (uint64_t)tag << 48 | ((hash ^ hash >> 48) & KEY_HASH_MASK);
}

uint64_t reserve_host(const char *host)
{
	return fnv1a(0xCBF29CE484222325ull, host, strlen(host)) | 1;
}

uint64_t farlog_host_number(const char *host_nqn)
{
	return reserve_host(host_nqn);
}

uint64_t reserve_opening_key(const uint8_t ring_uuid[16], const char *host)
{
	uint64_t ring = fnv1a(0xCBF29CE484222325ull, ring_uuid, 16);

	ring ^= ring >> 32;
	return (uint64_t)RESERVE_TAG_OPENING << 48 | ((ring ^ ring >> 16) & 0xFFFF) << RESERVE_RING_SHIFT |
		(reserve_host(host) >> 32);
}

/* ---------------------------------------------------------------- steps */

static int read_reservations(struct block_device *device, struct reserve_view *view)
{
	memset(view, 0, sizeof(*view));
	return device->ops->reserve == NULL ? FARLOG_UNSUPPORTED : device->ops->reserve(device, RESERVE_REPORT, 0, 0, view);
}

static int request_reservation(struct block_device *device, enum reserve_verb verb, uint64_t key, uint64_t other)
{
	return device->ops->reserve(device, verb, key, other, NULL);
}

static int set_io_error(const char *uri, const char *what, struct farlog_error *error)
{
	return error_set(error, FARLOG_IO, errno, "%s the reservation of ring \"%s\"", what, uri);
}

static bool is_ours(uint64_t key)
{
	return key >> 48 >= RESERVE_TAG_WRITER && key >> 48 <= RESERVE_TAG_OPENING;
}

/* check_holder -- another program's reservation is not ours to take. */
static int check_holder(const char *uri, const struct reserve_view *view, struct farlog_error *error)
{
	if (view->type == 0 || (view->type == RESERVE_TYPE && (view->is_holder_us || is_ours(view->holder_key))))
		return FARLOG_OK;
	return error_set(error, FARLOG_HELD, 0,
		"ring \"%s\": its namespace is reserved by another program (type %u, key %016lx; expected type %u and a key of "
		"farlog's); to see it: nvme resv-report "
		"-e 1 DEVICE",
		uri, view->type, view->holder_key, RESERVE_TYPE);
}

/* register_host -- by this key, whatever it had. OK; HELD: others are at it; IO. */
static int register_host(struct block_device *device, uint64_t key)
{
	int result = request_reservation(device, RESERVE_REGISTER, key, 0);

	return result == FARLOG_HELD ? request_reservation(device, RESERVE_REPLACE, key, 0) : result;
}

/* acquire_once -- OK; HELD: the world has changed since it was looked at; IO. */
static int acquire_once(struct block_device *device, uint64_t key, const struct reserve_view *view)
{
	int result = register_host(device, key);

	if (result != FARLOG_OK)
		return result;
	if (view->type == 0)
		return request_reservation(device, RESERVE_ACQUIRE, key, 0);
	if (view->is_holder_us)
		return FARLOG_OK;
	return request_reservation(device, RESERVE_PREEMPT, key, view->holder_key);
}

/* ---------------------------------------------------------------- what callers ask for */

int reserve_acquire(struct block_device *device, const struct region_claim *claim, struct reserve_view *view,
	struct farlog_error *error)
{
	enum reserve_tag tag =
		claim->kind == REGION_CLAIM_EXCLUSIVE && claim->epoch != 0 ? RESERVE_TAG_WRITER : RESERVE_TAG_FORMAT;

	for (unsigned turn = 0; turn < TURN_COUNT_MAX; turn++) {
		uint64_t key;
		int result = read_reservations(device, view);

		if (result == FARLOG_UNSUPPORTED || (result == FARLOG_OK && !view->is_here))
			return FARLOG_OK;
		if (result != FARLOG_OK)
			return set_io_error(claim->uri, "look at", error);
		result = check_holder(claim->uri, view, error);
		if (result != FARLOG_OK)
			return result;
		key = reserve_key(tag, claim->ring_uuid, claim->epoch, view->host);
		if (view->is_holder_us && view->is_registered && view->holder_key == key)
			return FARLOG_OK;
		result = acquire_once(device, key, view);
		if (result != FARLOG_OK && result != FARLOG_HELD)
			return set_io_error(claim->uri, "take", error);
	}
	return error_set(
		error, FARLOG_HELD, 0, "ring \"%s\": other hosts are taking it at the same time; try again", claim->uri);
}

/* has_stale_writer -- may a writer live on this host that the device has fenced? One that is opening registers the host
 * in a moment. */
static bool has_stale_writer(struct block_device *device, struct reserve_view *view)
{
	uint64_t until_ns = clock_after_ns(ZOMBIE_PATIENCE_NS);
	struct reserve_view now;

	while (device->ops->is_locked(device, REGION_ROLE_WRITER) != 0) {
		if (read_reservations(device, &now) == FARLOG_OK && now.is_registered) {
			*view = now;
			return false;
		}
		if (device->is_clockless || clock_monotonic_ns() >= until_ns)
			return true;
		nvme_sleep(ZOMBIE_PATIENCE_NS);
	}
	return false;
}

int reserve_join(struct block_device *device, const struct region_claim *claim, struct reserve_view *view,
	struct farlog_error *error)
{
	for (unsigned turn = 0; turn < TURN_COUNT_MAX; turn++) {
		int result = read_reservations(device, view);

		if (result == FARLOG_UNSUPPORTED || (result == FARLOG_OK && (!view->is_here || view->is_registered)))
			return FARLOG_OK;
		if (result != FARLOG_OK)
			return set_io_error(claim->uri, "look at", error);
		if (has_stale_writer(device, view))
			return error_set(error, FARLOG_HELD, 0,
				"ring \"%s\": a writer on another host has taken it over, and the one that it was taken from still "
				"lives on this host; end it (farlog ring show "
				"names its process), or what it does later would reach the ring",
				claim->uri);
		if (view->is_registered)
			return FARLOG_OK;
		result = request_reservation(
			device, RESERVE_REGISTER, reserve_key(RESERVE_TAG_OTHER, claim->ring_uuid, 0, view->host), 0);
		if (result == FARLOG_OK)
			return FARLOG_OK;
		if (result != FARLOG_HELD)
			return set_io_error(claim->uri, "register for", error);
	}
	return error_set(error, FARLOG_HELD, 0, "ring \"%s\": its namespace refuses to register this host", claim->uri);
}

int reserve_if_free(struct block_device *device, const struct region_claim *claim, struct reserve_view *view,
	struct farlog_error *error)
{
	int result = read_reservations(device, view);

	if (result != FARLOG_OK && result != FARLOG_UNSUPPORTED)
		return set_io_error(claim->uri, "look at", error);
	if (result == FARLOG_OK && view->is_here && view->type != 0 && !view->is_holder_us)
		return error_set(error, FARLOG_HELD, 0,
			"region \"%s\" is reserved by another host (key %016lx), where a writer may live; stop it, and add --force "
			"(is_forced) to take the reservation "
			"away",
			claim->uri, view->holder_key);
	return reserve_join(device, claim, view, error);
}

int reserve_check_free(struct block_device *device, const struct region_claim *claim, struct reserve_view *view,
	struct farlog_error *error)
{
	int result = read_reservations(device, view);

	if (result == FARLOG_UNSUPPORTED || (result == FARLOG_OK && (view->type == 0 || view->is_registered)))
		return FARLOG_OK;
	if (result != FARLOG_OK)
		return set_io_error(claim->uri, "look at", error);
	return error_set(error, FARLOG_HELD, 0,
		"ring \"%s\": its namespace is reserved (type %u, key %016lx), and this host is not registered; rings of a "
		"directory reserve nothing; to see it: nvme "
		"resv-report -e 1 DEVICE",
		claim->uri, view->type, view->holder_key);
}

void reserve_describe(struct block_device *device, bool has_directory, struct farlog_contract *contract)
{
	struct reserve_view view;
	size_t used = strlen(contract->probe);
	int result = read_reservations(device, &view);
	const char *what = result == FARLOG_UNSUPPORTED ? NULL :
		result != FARLOG_OK ? "unknown: reading the reservations failed, and no writer opens until that succeeds" :
		!view.is_here       ? "fenced at the target, by its hosts; follows closed writers" :
		has_directory       ? "fenced at the target, by its hosts, and its neighbours with it; follows closed writers" :
		view.is_kept        ? "fenced by reservation" :
							  "fenced by reservation, until the target restarts";

	if (what != NULL)
		snprintf(contract->probe + used, sizeof(contract->probe) - used, "; between hosts %s", what);
}
