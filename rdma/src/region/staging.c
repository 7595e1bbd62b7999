/* region/staging.c -- one memory, mapped once for each region. See region/staging.h. */
#include "region/staging.h"

#include <sys/mman.h>
#include <unistd.h>

#include "ring/layout.h"

int staging_open(struct staging *staging)
{
	staging->len = 0;
	staging->fd = memfd_create("farlog-staging", MFD_CLOEXEC);
	if (staging->fd < 0)
		return FARLOG_NO_MEMORY;
	pthread_mutex_init(&staging->mutex, NULL);
	return FARLOG_OK;
}

/* grow_file -- a member's device may be larger than its ring, so that not all ask for the same length. */
static bool grow_file(struct staging *staging, uint64_t len)
{
	bool is_there;

	pthread_mutex_lock(&staging->mutex);
	if (len > staging->len && ftruncate(staging->fd, (off_t)len) == 0)
		staging->len = len;
	is_there = len <= staging->len;
	pthread_mutex_unlock(&staging->mutex);
	return is_there;
}

uint8_t *staging_map(struct staging *staging, uint64_t copy_len)
{
	uint64_t shared_len = copy_len - LAYOUT_DATA_OFF;
	uint8_t *copy;

	if (copy_len <= LAYOUT_DATA_OFF || !grow_file(staging, shared_len))
		return NULL;
	copy = mmap(NULL, copy_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (copy == MAP_FAILED)
		return NULL;
	if (mmap(copy + LAYOUT_DATA_OFF, shared_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, staging->fd, 0) ==
		MAP_FAILED) {
		munmap(copy, copy_len);
		return NULL;
	}
	madvise(copy, copy_len, MADV_DONTFORK);
	return copy;
}

void staging_close(struct staging *staging)
{
	close(staging->fd);
	pthread_mutex_destroy(&staging->mutex);
}
