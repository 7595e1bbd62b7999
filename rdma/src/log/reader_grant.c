/* log/reader_grant.c -- a reader's newer tokens. Whoever holds the reader says them at any time; whoever connects again
 * takes one when the target has refused the one before. */
#include "log/reader_grant.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "log/reader.h"

struct reader_grant {
	uint8_t ring_uuid[16];
	uint8_t token[FARLOG_TOKEN_LEN];
};

struct reader_grants {
	struct region_renewal renewal;

	pthread_mutex_t mutex;
	unsigned count;
	struct reader_grant newest[FARLOG_MEMBER_COUNT_MAX]; /* one a ring */
};

/* find_grant -- under the mutex; NULL: nothing was said of this ring. */
static struct reader_grant *find_grant(struct reader_grants *grants, const uint8_t *ring_uuid)
{
	for (unsigned i = 0; i < grants->count; i++)
		if (memcmp(grants->newest[i].ring_uuid, ring_uuid, sizeof(grants->newest[i].ring_uuid)) == 0)
			return &grants->newest[i];
	return NULL;
}

static bool renew_grant(struct region_renewal *renewal, const uint8_t *ring_uuid, uint8_t *token)
{
	struct reader_grants *grants = (struct reader_grants *)renewal;
	const struct reader_grant *newest;
	bool is_other;

	pthread_mutex_lock(&grants->mutex);
	newest = find_grant(grants, ring_uuid);
	is_other = newest != NULL && memcmp(newest->token, token, FARLOG_TOKEN_LEN) != 0;
	if (is_other)
		memcpy(token, newest->token, FARLOG_TOKEN_LEN);
	pthread_mutex_unlock(&grants->mutex);
	return is_other;
}

static int store_grant(struct reader_grants *grants, const uint8_t *ring_uuid, const uint8_t *token)
{
	struct reader_grant *newest;
	int result = FARLOG_OK;

	pthread_mutex_lock(&grants->mutex);
	newest = find_grant(grants, ring_uuid);
	if (newest == NULL && grants->count < FARLOG_MEMBER_COUNT_MAX) {
		newest = &grants->newest[grants->count++];
		memcpy(newest->ring_uuid, ring_uuid, sizeof(newest->ring_uuid));
	}
	if (newest != NULL)
		memcpy(newest->token, token, FARLOG_TOKEN_LEN);
	else
		result = FARLOG_INVALID;
	pthread_mutex_unlock(&grants->mutex);
	return result;
}

static void free_grants(struct region_renewal *renewal)
{
	struct reader_grants *grants = (struct reader_grants *)renewal;

	pthread_mutex_destroy(&grants->mutex);
	explicit_bzero(grants->newest, sizeof(grants->newest));
	free(grants);
}

struct reader_grants *reader_grants_new(void)
{
	struct reader_grants *grants = calloc(1, sizeof(*grants));

	if (grants == NULL)
		return NULL;
	grants->renewal = (struct region_renewal){.renew = renew_grant, .free = free_grants};
	pthread_mutex_init(&grants->mutex, NULL);
	return grants;
}

struct region_renewal *reader_grants_renewal(struct reader_grants *grants)
{
	return &grants->renewal;
}

int farlog_reader_renew(farlog_reader *reader, const uint8_t *ring_uuid, const uint8_t *grant_token)
{
	if (ring_uuid == NULL || grant_token == NULL)
		return FARLOG_INVALID;
	return reader->grants != NULL ? store_grant(reader->grants, ring_uuid, grant_token) : FARLOG_UNSUPPORTED;
}
