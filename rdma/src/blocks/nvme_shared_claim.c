/* blocks/nvme_shared_claim.c -- rings whose writers are on several hosts, between which the device does not fence: of a
 * namespace that rings share, or whose target has no reservations (docs/adr/0023). See blocks/nvme.h, blocks/reserve.h.
 *
 * A reservation would be of all rings. Instead nobody follows a writer of another host that may still live. The
 * superblock says on which host an epoch was opened, and a block of the writer's own that it was closed, when nothing
 * of it was under way any more. An opening writer announces that first, by its host's registration key: keys are set
 * one at a time and seen all at once, so that of two hosts that open the same ring at once at least one sees the other,
 * before either looks whom it follows. One ring is opened at a time on a host, because a host has one key. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "blocks/nvme.h"
#include "blocks/reserve.h"
#include "region/superblock.h"

#define TURN_COUNT_MAX 32u
#define TURN_NS 20000000u
#define LOCK_PATIENCE_NS 5000000000u /* with other rings that are being opened on this host */

static int read_reservations(struct region_nvme *nvme, struct reserve_view *view)
{
	memset(view, 0, sizeof(*view));
	return nvme->device->ops->reserve == NULL ? FARLOG_UNSUPPORTED :
												nvme->device->ops->reserve(nvme->device, RESERVE_REPORT, 0, 0, view);
}

/* lock_opening -- one name for all rings of the device. */
static int lock_opening(struct region_nvme *nvme)
{
	struct block_device *device = nvme->device;
	uint64_t ring_off = device->ring_off;
	uint64_t until_ns = clock_after_ns(LOCK_PATIENCE_NS);
	int result;

	device->ring_off = 0;
	result = device->ops->lock(device, REGION_ROLE_OPENING);
	while (result == FARLOG_HELD && !device->is_clockless && clock_monotonic_ns() < until_ns) {
		nvme_sleep(TURN_NS);
		result = device->ops->lock(device, REGION_ROLE_OPENING);
	}
	device->ring_off = ring_off;
	return result;
}

static void unlock_opening(struct region_nvme *nvme)
{
	uint64_t ring_off = nvme->device->ring_off;

	nvme->device->ring_off = 0;
	nvme->device->ops->unlock(nvme->device, REGION_ROLE_OPENING);
	nvme->device->ring_off = ring_off;
}

static int set_key(struct region_nvme *nvme, uint64_t key)
{
	int result = nvme->device->ops->reserve(nvme->device, RESERVE_REGISTER, key, 0, NULL);

	return result == FARLOG_HELD ? nvme->device->ops->reserve(nvme->device, RESERVE_REPLACE, key, 0, NULL) : result;
}

/* is_announced -- by another host, of this ring. */
static bool is_announced(const struct reserve_view *view, uint64_t key)
{
	for (unsigned i = 0; i < view->other_count; i++)
		if (view->other_keys[i] >> RESERVE_RING_SHIFT == key >> RESERVE_RING_SHIFT)
			return true;
	return false;
}

/* announce_opening -- OK: no other host opens this ring now, nor will before we are done. HELD; IO. */
static int announce_opening(
	struct region_nvme *nvme, const struct region_claim *claim, struct reserve_view *view, struct farlog_error *error)
{
	uint64_t key = reserve_opening_key(claim->ring_uuid, view->host);
	uint64_t idle_key = reserve_key(RESERVE_TAG_OTHER, NULL, 0, view->host);

	for (unsigned turn = 0; turn < TURN_COUNT_MAX; turn++) {
		int result = set_key(nvme, key);

		if (result == FARLOG_OK)
			result = read_reservations(nvme, view);
		if (result != FARLOG_OK)
			return error_set(
				error, FARLOG_IO, errno, "announce to the namespace that ring \"%s\" is being opened", claim->uri);
		if (!is_announced(view, key))
			return FARLOG_OK;
		if (nvme->device->is_former_gone && turn + 1 == TURN_COUNT_MAX)
			return FARLOG_OK; /* a host that died while it opened */
		if (set_key(nvme, idle_key) == FARLOG_OK && !nvme->device->is_clockless)
			nvme_sleep(TURN_NS / 4 + clock_monotonic_ns() % TURN_NS);
	}
	return error_set(error, FARLOG_HELD, 0,
		"ring \"%s\": another host is opening it, or died while it did (nvme resv-report -e 1 DEVICE: key fa13...); "
		"try again, or where that host is out "
		"for sure add former=gone to the URI",
		claim->uri);
}

/* check_former -- may the last writer still write, from another host? */
static int check_former(struct region_nvme *nvme, const struct reserve_view *view, const char *uri, bool is_removal,
	struct farlog_error *error)
{
	struct superblock last;
	uint64_t host;
	uint64_t by_id = reserve_host(view->host); /* as rings had it before hosts were identified by their names */
	int result;

	if (nvme_load(nvme) != FARLOG_OK)
		return error_set(error, FARLOG_IO, 0, "read the header of ring \"%s\": %s", uri, nvme->trouble);
	result = superblock_load(&nvme->region, uri, &last, is_removal ? NULL : error);
	if (result != FARLOG_OK)
		return is_removal ? FARLOG_OK : result; /* a removal checks afterwards what is there */
	if (last.writer_epoch == 0 || nvme->region.closed_epoch == last.writer_epoch)
		return FARLOG_OK;
	memcpy(&host, last.writer_host, sizeof(host));
	if (host == nvme->region.host || host == by_id || nvme->device->is_former_gone)
		return FARLOG_OK;
	return error_set(error, FARLOG_HELD, 0,
		"ring \"%s\": its last writer (epoch %u, %.*s) was opened on another host, was not closed, and may still "
		"write: between hosts the target alone "
		"fences here (farlog ring show URI); close it there, or have the target take that host out (farlog target "
		"nvmet evict HOST-NQN); of a target of "
		"another kind, when that host is out for sure, add former=gone to the URI",
		uri, last.writer_epoch, FARLOG_WRITER_ID_LEN, last.writer_id);
}

int nvme_mark_closed(struct region_nvme *nvme, const char *uri, uint32_t epoch, struct farlog_error *error)
{
	uint8_t *block = nvme_block_of(nvme->called, NVME_HINTS);
	int result;

	if (nvme->region.closed_epoch == epoch)
		return FARLOG_OK;
	nvme_lock_queue(&nvme->are_calls_busy);
	nvme_build_hints(nvme, block, epoch);
	result = nvme->is_call_flying ? FARLOG_IO :
									nvme_call(nvme, BLOCK_WRITE_DURABLE, nvme_control_at(nvme, NVME_HINTS), block,
										nvme->device->lba_len, NVME_PATIENCE_NS);
	nvme_unlock_queue(&nvme->are_calls_busy);
	return result == FARLOG_OK ?
		FARLOG_OK :
		error_set(error, FARLOG_IO, 0, "write the header of ring \"%s\": %s", uri, nvme->trouble);
}

/* mark_last_writer_closed -- the operator has attested that it is gone. */
static int mark_last_writer_closed(struct region_nvme *nvme, const char *uri, struct farlog_error *error)
{
	struct superblock last;
	int result = superblock_load(&nvme->region, uri, &last, error);

	return result == FARLOG_OK ? nvme_mark_closed(nvme, uri, last.writer_epoch, error) : result;
}

int nvme_shared_claim(struct region_nvme *nvme, const struct region_claim *claim, struct farlog_error *error)
{
	struct reserve_view view;
	int result = reserve_check_free(nvme->device, claim, &view, error);

	if (claim->kind == REGION_CLAIM_EXCLUSIVE)
		nvme->epoch = claim->epoch;
	if (result != FARLOG_OK || view.host[0] == '\0')
		return result; /* OK: only one host has it */
	nvme->region.host = reserve_host(view.name[0] != '\0' ? view.name : view.host);
	if (claim->kind == REGION_CLAIM_CHECK_FORMER)
		return check_former(nvme, &view, claim->uri, true, error);
	if (claim->kind == REGION_CLAIM_SHARED && claim->is_fence && nvme->device->is_former_gone)
		return mark_last_writer_closed(nvme, claim->uri, error);
	if (claim->kind != REGION_CLAIM_EXCLUSIVE || claim->epoch == 0)
		return FARLOG_OK;
	if (!nvme->is_opening) {
		result = lock_opening(nvme);
		if (result != FARLOG_OK && result != FARLOG_HELD)
			return error_set(error, result, errno, "lock the namespace of ring \"%s\" to open it", claim->uri);
		if (result != FARLOG_OK)
			return error_set(error, result, 0,
				"ring \"%s\": other rings of its namespace are being opened on this host; try again", claim->uri);
		nvme->is_opening = true;
		if (view.is_here)
			result = announce_opening(nvme, claim, &view, error);
	}
	return result == FARLOG_OK ? check_former(nvme, &view, claim->uri, false, error) : result;
}

void nvme_shared_claim_end(struct region_nvme *nvme)
{
	struct reserve_view view;

	if (!nvme->is_opening)
		return;
	nvme->is_opening = false;
	if (read_reservations(nvme, &view) == FARLOG_OK && view.is_here)
		/* the next who opens here replaces it */
		may_fail(set_key(nvme, reserve_key(RESERVE_TAG_OTHER, NULL, 0, view.host)));
	unlock_opening(nvme);
}

bool nvme_is_closable(const struct region_nvme *nvme)
{
	struct superblock own;

	return (nvme->region.directory != NULL || nvme->region.host != 0) && nvme->role == REGION_ROLE_WRITER &&
		nvme->epoch != 0 && !nvme->region.is_write_fenced && nvme->failure == 0 &&
		superblock_load(&nvme->region, "", &own, NULL) == FARLOG_OK && own.writer_epoch == nvme->epoch &&
		nvme->region.closed_epoch != nvme->epoch;
}
