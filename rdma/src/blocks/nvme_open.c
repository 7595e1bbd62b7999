/* blocks/nvme_open.c -- opening a ring on raw blocks. See blocks/nvme.h. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "blocks/name.h"
#include "blocks/nvme.h"
#include "blocks/uring.h"

void *nvme_map_own(uint64_t len)
{
	void *bytes = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (bytes == MAP_FAILED)
		return NULL;
	madvise(bytes, len, MADV_DONTFORK); /* a child's copy-on-write must not part commands from the pages they use */
	return bytes;
}

static int check_size(const char *text, const struct block_device *device, struct farlog_error *error)
{
	if (device->lba_len > LAYOUT_BLOCK_LEN || device->lba_len < 512)
		return error_set(error, FARLOG_UNSUPPORTED, 0, "region \"%s\" has LBAs of %u bytes; expected 512 to %u", text,
			device->lba_len, LAYOUT_BLOCK_LEN);
	if (device->size_bytes < NVME_DATA_OFF + LAYOUT_BLOCK_LEN)
		return error_set(error, FARLOG_INVALID, 0, "region \"%s\" has %lu bytes; expected at least %u", text,
			device->size_bytes, NVME_DATA_OFF + LAYOUT_BLOCK_LEN);
	return FARLOG_OK;
}

static int prepare_buffers(const char *text, struct region_nvme *nvme, bool has_directory, struct farlog_error *error)
{
	int result = check_size(text, nvme->device, error);

	if (result == FARLOG_OK)
		result = nvme_prepare_copy(text, nvme, has_directory, error);
	if (result != FARLOG_OK)
		return result;
	nvme->own = nvme_map_own(3 * NVME_CONTROL_LEN + NVME_WINDOW_LEN);
	if (nvme->own == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "region \"%s\": out of memory for buffers of %u bytes", text,
			3 * NVME_CONTROL_LEN + NVME_WINDOW_LEN);
	nvme->controls = nvme->own;
	nvme->looked = nvme->controls + NVME_CONTROL_LEN;
	nvme->called = nvme->looked + NVME_CONTROL_LEN;
	nvme->window = nvme->called + NVME_CONTROL_LEN;
	if (nvme_load(nvme) != FARLOG_OK)
		return error_set(error, FARLOG_IO, 0, "read the header of region \"%s\": %s", text, nvme->trouble);
	return FARLOG_OK;
}

int nvme_make(const char *text, struct block_device *device, const struct farlog_contract *contract,
	const struct region_options *options, struct region **region, struct farlog_error *error)
{
	struct region_nvme *nvme = calloc(1, sizeof(*nvme));
	int result;

	if (nvme == NULL) {
		device->ops->close(device);
		return error_set(error, FARLOG_NO_MEMORY, 0, "open region \"%s\": out of memory", text);
	}
	nvme->device = device;
	nvme->role = options->role;
	nvme->staging = options->staging;
	nvme->persist_timeout_ns = NVME_PATIENCE_NS;
	nvme->region.ops = &nvme_ops;
	nvme->region.contract = *contract;
	nvme->region.caps = (struct region_caps){.has_copy = true,
		.needs_fetch = true,
		.is_claimable = true,
		.can_store_hints = true,
		.can_prefetch = true,
		.may_land_late = true,
		.commit_len = contract->atomic_unit,
		.hint_interval_ns = REGION_HINT_REQUEST_NS,
		.reopen_delay_ns = device->reopen_delay_ns,
		.extra_len = NVME_EXTRA_LEN};
	nvme->region.fence_lsn = UINT64_MAX;
	nvme->region.last_error = nvme->trouble;
	nvme->region.persist_timeout_ns = NVME_PATIENCE_NS;
	result = prepare_buffers(text, nvme, options->has_directory, error);
	if (result != FARLOG_OK) {
		nvme_close(&nvme->region);
		return result;
	}
	*region = &nvme->region;
	return FARLOG_OK;
}

/* find_device -- refuse what other schemes know and this one does not; *found is *uri with the device's path. */
static int find_device(const char *text, const struct uri *uri, struct uri *found, struct farlog_error *error)
{
	*found = *uri;
	if (block_is_nqn(uri->path))
		return block_find_namespace(text, uri->path, "/sys", found->path, sizeof(found->path), error);
	if (uri->path[0] != '/')
		return error_set(error, FARLOG_INVALID, 0,
			"uri \"%s\": expected the path of a block device, for example nvme:/dev/nvme2n1, or nvme:NQN/NAMESPACE",
			text);
	return FARLOG_OK;
}

/* show_size -- the header is spread on the device; the region is as large as it would be with an ordinary one. */
static void show_size(struct farlog_contract *contract)
{
	if (contract->size_bytes != 0)
		contract->size_bytes = contract->size_bytes < NVME_DATA_OFF ?
			0 :
			(contract->size_bytes - NVME_EXTRA_LEN) / LAYOUT_BLOCK_LEN * LAYOUT_BLOCK_LEN;
}

int region_nvme_probe(
	const char *text, const struct uri *uri, struct farlog_contract *contract, struct farlog_error *error)
{
	struct uri found;
	int result = find_device(text, uri, &found, error);

	if (result == FARLOG_OK)
		result = block_uring_probe(text, &found, contract, error);
	if (result == FARLOG_OK)
		show_size(contract);
	return result;
}

int region_nvme_open(const char *text, const struct uri *uri, const struct region_options *options,
	struct region **region, struct farlog_error *error)
{
	struct region_options whole = *options;
	struct farlog_contract contract;
	struct block_device *device;
	struct uri found;
	int result = find_device(text, uri, &found, error);

	if (options->size_bytes != 0 && !options->has_directory)
		whole.size_bytes += NVME_EXTRA_LEN;
	if (result == FARLOG_OK)
		result = block_uring_open(text, &found, &whole, &contract, &device, error);
	if (result != FARLOG_OK)
		return result;
	show_size(&contract);
	return nvme_make(text, device, &contract, options, region, error);
}
