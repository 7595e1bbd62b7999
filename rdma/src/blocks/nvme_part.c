/* blocks/nvme_part.c -- one ring of many on a device: its directory, and how a region becomes that ring. See
 * blocks/nvme.h, region/directory.h.
 *
 * A ring in a directory lies on its blocks as a ring lies on a device, header and all, from where its entry says. So
 * the one thing that knows of it is where the device's commands begin. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "blocks/nvme.h"
#include "region/directory.h"
#include "region/staging.h"
#include "ring/stream.h"

/* check_memory -- a writer's copy is fetched as a whole: refused here rather than by the kernel's killer of
 * processes. */
static int check_memory(const char *text, const struct region_nvme *nvme, struct farlog_error *error)
{
	uint64_t memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4 * 3;

	if (nvme->role != REGION_ROLE_WRITER || nvme->region.contract.size_bytes <= memory_bytes)
		return FARLOG_OK;
	return error_set(error, FARLOG_NO_MEMORY, 0,
		"region \"%s\": its writer keeps a copy of all of its %lu bytes in memory, and three quarters of this host's "
		"are %lu; make a ring on a partition, "
		"or a smaller one of "
		"many (ring=)",
		text, nvme->region.contract.size_bytes, memory_bytes);
}

int nvme_prepare_copy(const char *text, struct region_nvme *nvme, bool is_whole, struct farlog_error *error)
{
	int result = is_whole ? FARLOG_OK : check_memory(text, nvme, error);

	if (result != FARLOG_OK)
		return result;
	if (nvme->copy != NULL)
		munmap(nvme->copy, nvme->copy_len);
	/* of all of a device nobody looks at more than whose it is */
	nvme->copy_len = is_whole ? LAYOUT_DATA_OFF : nvme->region.contract.size_bytes;
	nvme->copy =
		nvme->staging != NULL && !is_whole ? staging_map(nvme->staging, nvme->copy_len) : nvme_map_own(nvme->copy_len);
	if (nvme->copy == NULL)
		return error_set(error, FARLOG_NO_MEMORY, errno, "region \"%s\": out of memory for a copy of %lu bytes", text,
			nvme->copy_len);
	nvme->region.base = nvme->copy;
	if (nvme->role == REGION_ROLE_WRITER && stream_is_supported())
		nvme->region.streamed = nvme->copy;
	return FARLOG_OK;
}

int nvme_narrow(struct region *region, uint64_t off, uint64_t len)
{
	struct region_nvme *nvme = nvme_of(region);
	int result;

	if (nvme->is_call_flying)
		return FARLOG_IO; /* its bytes may come to where the new copy is going to be */
	nvme->device->ring_off = off;
	region->contract.size_bytes = len - NVME_EXTRA_LEN;
	nvme->fence_slot = 0;
	nvme->is_fence_due = false;
	result = nvme_prepare_copy("", nvme, off == 0, NULL);
	return result == FARLOG_OK ? nvme_load(nvme) : result;
}

static int read_directory(struct region_nvme *nvme)
{
	uint64_t step = nvme_window_len(nvme);
	uint64_t end = nvme->device->size_bytes < DIRECTORY_TAILS_OFF ?
		nvme->device->size_bytes / LAYOUT_BLOCK_LEN * LAYOUT_BLOCK_LEN :
		DIRECTORY_TAILS_OFF;
	int result = FARLOG_OK;

	for (uint64_t off = 0; off < end && result == FARLOG_OK; off += step)
		result = nvme_call(
			nvme, BLOCK_READ, off, nvme->directory + off, end - off < step ? end - off : step, NVME_PATIENCE_NS);
	return result;
}

int nvme_fetch_directory(struct region *region)
{
	struct region_nvme *nvme = nvme_of(region);
	int result;

	if (nvme->directory == NULL) {
		nvme->directory = aligned_alloc(LAYOUT_BLOCK_LEN, DIRECTORY_TAILS_OFF);
		if (nvme->directory == NULL)
			return FARLOG_NO_MEMORY;
		memset(nvme->directory, 0, DIRECTORY_TAILS_OFF);
		region->directory_copy = nvme->directory;
	}
	nvme_lock_queue(&nvme->are_calls_busy);
	result = read_directory(nvme);
	nvme_unlock_queue(&nvme->are_calls_busy);
	return result;
}

int nvme_store_directory(struct region *region, uint64_t off, const void *src, size_t len)
{
	struct region_nvme *nvme = nvme_of(region);
	uint64_t step = nvme->device->command_len_max < NVME_WINDOW_LEN ? nvme->device->command_len_max : NVME_WINDOW_LEN;
	int result = FARLOG_OK;

	nvme_lock_queue(&nvme->are_calls_busy);
	for (size_t done = 0; done < len && result == FARLOG_OK; done += step) {
		uint64_t piece_len = len - done < step ? len - done : step;

		if (nvme->is_call_flying)
			result = FARLOG_IO; /* the window is not ours yet */
		else
			memcpy(nvme->window, (const uint8_t *)src + done, piece_len);
		if (result == FARLOG_OK)
			result = nvme_call(nvme, BLOCK_WRITE_DURABLE, off + done, nvme->window, piece_len, NVME_PATIENCE_NS);
	}
	nvme_unlock_queue(&nvme->are_calls_busy);
	return result;
}
