/* image.h -- libfarlog for who looks at a ring's bytes as they lie, also on another host: to verify or print them
 * without the ring's own code. On top of farlog.h.
 *
 * Nobody is fenced, locked out or waited for. Beside a writer the bytes of two reads are those of two moments. All of
 * it is cold. One thread at a time. */
#ifndef FARLOG_IMAGE_H
#define FARLOG_IMAGE_H

#include "farlog.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct farlog_image farlog_image;

/* farlog_image_open -- ring_uuid, 16 bytes: refuse any other ring; NULL: take what is there. token, FARLOG_TOKEN_LEN
 * bytes: of a reader's grant, for a ring on another host; NULL: none. Both are copied. Errors: NOT_FOUND, NOT_A_RING,
 * INVALID (no such grant), UNSUPPORTED, CORRUPT, IO. Blocks for the network. */
FARLOG_API int farlog_image_open(const char *uri, const uint8_t *ring_uuid, const uint8_t *token, farlog_image **image,
	struct farlog_error *error) FARLOG_MUST_CHECK;
FARLOG_API void farlog_image_close(farlog_image *image);

/* farlog_image_size_bytes -- of the ring, its header included. */
FARLOG_API uint64_t farlog_image_size_bytes(const farlog_image *image);

/* farlog_image_read -- len bytes from off on, both within the image: else INVALID. IO: it could not be reached. Blocks
 * for the network. */
FARLOG_API int farlog_image_read(farlog_image *image, uint64_t off, void *dst, uint64_t len) FARLOG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
