/* region/defaults.c -- operations for kinds of regions without one of their own. See region/ops.h. */
#include "region/region.h"

#include <stdlib.h>
#include <string.h>

#define ZERO_CHUNK_LEN (64u << 10)

void region_default_wait(struct region *region, uint64_t timeout_ns)
{
	(void)region, (void)timeout_ns;
	cpu_relax();
}

unsigned region_default_list_wait_fds(struct region *region, int *fds, unsigned count_max)
{
	(void)region, (void)fds, (void)count_max;
	return 0;
}

void region_default_push(struct region *region)
{
	(void)region;
}

int region_default_fetch(struct region *region, uint64_t off, uint64_t len)
{
	(void)region, (void)off, (void)len;
	return FARLOG_OK;
}

void region_default_prefetch(struct region *region, uint64_t at, const struct region_span *spans, unsigned span_count)
{
	(void)region, (void)at, (void)spans, (void)span_count;
}

void region_default_refresh_words(struct region *region, bool is_urgent)
{
	(void)region, (void)is_urgent;
}

bool region_default_store_hints(struct region *region, uint64_t tail_lsn, uint64_t durable_lsn)
{
	(void)region, (void)tail_lsn, (void)durable_lsn;
	return true;
}

void region_default_populate(struct region *region)
{
	(void)region;
}

void region_default_drop_pages(struct region *region, uint64_t off, uint64_t len)
{
	(void)region, (void)off, (void)len;
}

int region_default_claim(struct region *region, const struct region_claim *claim, struct farlog_error *error)
{
	(void)region, (void)claim, (void)error;
	return FARLOG_OK;
}

int region_default_store_superblock(struct region *region, uint64_t off, const void *src, size_t len, bool is_persisted)
{
	struct region_span span = {off, len};

	region->ops->data.write(region, off, src, len);
	return is_persisted ? region_persist_wait(region, &span, 1) : FARLOG_OK;
}

int region_default_abort_persist(struct region *region)
{
	(void)region;
	return FARLOG_UNSUPPORTED;
}

int region_default_narrow(struct region *region, uint64_t off, uint64_t len)
{
	(void)region, (void)off, (void)len;
	return FARLOG_UNSUPPORTED;
}

int region_default_fetch_directory(struct region *region)
{
	region->directory_copy = region->directory != NULL ? region->directory : region->base;
	return FARLOG_OK;
}

int region_default_store_directory(struct region *region, uint64_t off, const void *src, size_t len)
{
	struct region_span span = {off, len};

	region->ops->data.write(region, off, src, len);
	return region_persist_wait(region, &span, 1);
}

int region_default_zero(struct region *region)
{
	uint8_t *zeros = aligned_alloc(LAYOUT_BLOCK_LEN, ZERO_CHUNK_LEN);
	struct region_span header = {0, LAYOUT_DATA_OFF};
	struct region_span data = {LAYOUT_DATA_OFF, region->contract.size_bytes - LAYOUT_DATA_OFF};
	int result;

	if (zeros == NULL)
		return FARLOG_NO_MEMORY;
	memset(zeros, 0, ZERO_CHUNK_LEN);
	region->ops->data.write(region, 0, zeros, LAYOUT_DATA_OFF);
	result = region_persist_wait(region, &header, 1);
	for (uint64_t done = 0; done < data.len; done += ZERO_CHUNK_LEN) {
		uint64_t left = data.len - done;

		region->ops->data.write(region, data.off + done, zeros, left < ZERO_CHUNK_LEN ? left : ZERO_CHUNK_LEN);
	}
	if (result == FARLOG_OK)
		result = region_persist_wait(region, &data, 1);
	free(zeros);
	return result;
}

int region_default_name_foreign(struct region *region, char *text, size_t size)
{
	(void)region, (void)size;
	text[0] = '\0';
	return FARLOG_OK;
}

int region_default_unlink(const struct region *region, const char *path)
{
	(void)region, (void)path;
	return FARLOG_INVALID;
}
