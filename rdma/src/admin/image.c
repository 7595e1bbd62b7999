/* admin/image.c -- see farlog/image.h. */
#include "farlog/image.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "region/region.h"
#include "region/superblock.h"

struct farlog_image {
	struct region *region;
	uint64_t size_bytes;
};

static int open_steps(struct farlog_image *image, const char *uri, const uint8_t *ring_uuid,
	const struct region_options *options, struct farlog_error *error)
{
	struct superblock superblock;
	int result = region_open(uri, options, &image->region, error);

	if (result == FARLOG_OK)
		result = superblock_load(image->region, uri, &superblock, error);
	if (result == FARLOG_OK && ring_uuid != NULL &&
		memcmp(ring_uuid, superblock.ring_uuid, sizeof(superblock.ring_uuid)) != 0)
		result = error_set(error, FARLOG_NOT_A_RING, 0, "region \"%s\" holds another ring than the one asked for", uri);
	if (result == FARLOG_OK && superblock.block_len != 0)
		result = error_set(error, FARLOG_UNSUPPORTED, 0,
			"ring \"%s\" is on blocks: read it where its device is, by the device's path", uri);
	if (result == FARLOG_OK)
		image->size_bytes = LAYOUT_DATA_OFF + superblock.capacity;
	return result;
}

int farlog_image_open(
	const char *uri, const uint8_t *ring_uuid, const uint8_t *token, farlog_image **opened, struct farlog_error *error)
{
	struct region_options options = {.access = REGION_READ, .role = REGION_ROLE_READER, .token = token};
	struct farlog_image *image = calloc(1, sizeof(*image));
	int result;

	*opened = NULL;
	if (image == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "read ring \"%s\": out of memory", uri);
	result = open_steps(image, uri, ring_uuid, &options, error);
	if (result != FARLOG_OK) {
		farlog_image_close(image);
		return result;
	}
	*opened = image;
	return FARLOG_OK;
}

void farlog_image_close(farlog_image *image)
{
	if (image != NULL && image->region != NULL)
		image->region->ops->close(image->region);
	free(image);
}

uint64_t farlog_image_size_bytes(const farlog_image *image)
{
	return image->size_bytes;
}

/* read_part -- within the header, or within the data: far regions keep them apart. */
static int read_part(struct region *region, uint64_t off, void *dst, uint64_t len)
{
	int result = off < LAYOUT_DATA_OFF ? region_fetch(region, off, len) : FARLOG_OK;

	return result == FARLOG_OK ? region->ops->data.read(region, off, dst, len) : result;
}

int farlog_image_read(farlog_image *image, uint64_t off, void *dst, uint64_t len)
{
	uint64_t header_len = off < LAYOUT_DATA_OFF ? LAYOUT_DATA_OFF - off : 0;
	int result = FARLOG_OK;

	if (off > image->size_bytes || len > image->size_bytes - off)
		return FARLOG_INVALID;
	if (header_len > len)
		header_len = len;
	if (header_len > 0)
		result = read_part(image->region, off, dst, header_len);
	if (result == FARLOG_OK && len > header_len)
		result = read_part(image->region, off + header_len, (uint8_t *)dst + header_len, len - header_len);
	return result;
}
