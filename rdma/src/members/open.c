/* members/open.c -- opens several rings as one: when enough are open, after a short wait for the others. See
 * members/members.h. */
#include <stdio.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/thread.h"
#include "members/members.h"
#include "region/superblock.h"
#include "ring/stream.h"

#define MOMENT_NS 200000000u /* for the other members, when enough are open */
#define STEP_NS 10000000u

/* ---------------------------------------------------------------- opening */

static void count_open(const struct region_members *whole, unsigned *open_count, unsigned *sound_count)
{
	*open_count = 0;
	*sound_count = 0;
	for (unsigned i = 0; i < whole->count; i++) {
		*open_count += member_is_open(&whole->members[i]);
		*sound_count += member_is_open(&whole->members[i]) && whole->members[i].is_sound;
	}
}

void members_describe(struct region_members *whole, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	pthread_mutex_lock(&whole->mutex);
	for (unsigned i = 0; i < whole->count && used < size; i++) {
		const struct member *member = &whole->members[i];

		if (member_is_open(member) && member->is_sound)
			continue;
		used += (size_t)snprintf(text + used, size - used, "; member %u, \"%.100s\": %.160s", i + 1, member->uri,
			member->public_error.text[0] != '\0' ? member->public_error.text :
				member->is_fresh                 ? "it is new and does not know the log" :
				member->is_damaged               ? "it has lost records that it had" :
												   "no answer yet");
	}
	pthread_mutex_unlock(&whole->mutex);
}

int members_check_count(struct region_members *whole, struct farlog_error *error)
{
	char text[440];
	unsigned open_count;
	unsigned sound_count;
	int result = FARLOG_IO;

	count_open(whole, &open_count, &sound_count);
	if (open_count >= whole->needed && open_count >= members_quorum(whole) && sound_count >= members_quorum(whole))
		return FARLOG_OK;
	pthread_mutex_lock(&whole->mutex);
	for (unsigned i = 0; i < whole->count; i++) {
		int own = whole->members[i].public_error.result;

		if (!member_is_open(&whole->members[i]) &&
			(own == FARLOG_HELD || own == FARLOG_FENCED || own == FARLOG_NOT_A_RING || own == FARLOG_INVALID))
			result = own;
	}
	pthread_mutex_unlock(&whole->mutex);
	members_describe(whole, text, sizeof(text));
	return error_set(error, result, 0,
		"%u of %u members can be used to find the log; expected %u, and %u to go on with%s", sound_count, whole->count,
		members_quorum(whole), whole->needed, text);
}

int members_check_first(struct region_members *whole, struct farlog_error *error)
{
	char text[440];
	unsigned open_count = 0;

	for (unsigned i = 0; i < whole->count; i++)
		open_count += member_state(&whole->members[i]) == MEMBER_READY;
	if (whole->epoch_last != 0 || open_count == whole->count)
		return FARLOG_OK;
	members_describe(whole, text, sizeof(text));
	return error_set(error, FARLOG_IO, 0,
		"%u of %u members are reached, and all of these are new: the others may know records of the stream; expected "
		"all %u at its first opening%s",
		open_count, whole->count, whole->count, text);
}

/* wait_for_members -- until all have tried to open, or enough are open and the others had MOMENT_NS. Enough is not
 * enough where no open member knows an epoch: the first opening needs all of them, and waits for the slowest. */
static void wait_for_members(struct region_members *whole)
{
	uint64_t moment_ns = 0;

	pthread_mutex_lock(&whole->mutex);
	for (;;) {
		unsigned tried_count = 0;
		unsigned open_count = 0;
		bool is_first = true;

		for (unsigned i = 0; i < whole->count; i++) {
			const struct member *member = &whole->members[i];

			tried_count += member->has_tried;
			open_count += member_is_open(member);
			is_first &= !member_is_open(member) || member->superblock.writer_epoch == 0;
		}
		if (!is_first && open_count >= whole->needed && open_count >= members_quorum(whole) && moment_ns == 0)
			moment_ns = clock_after_ns(MOMENT_NS);
		if (tried_count == whole->count || (moment_ns != 0 && clock_monotonic_ns() >= moment_ns))
			break;
		members_pause(whole, STEP_NS);
	}
	whole->is_gathered = true;
	pthread_mutex_unlock(&whole->mutex);
}

/* check_rings -- all open members are of one stream, and no two are the same ring. */
static int check_rings(struct region_members *whole, struct farlog_error *error)
{
	const struct member *first = NULL;
	uint32_t block_len = 0;
	int result = FARLOG_OK;

	for (unsigned i = 0; i < whole->count; i++) {
		const struct member *member = &whole->members[i];

		if (member_state(member) != MEMBER_READY)
			continue;
		if (first == NULL)
			first = member;
		if (member->superblock.block_len > block_len)
			block_len = member->superblock.block_len;
	}
	if (first == NULL)
		return FARLOG_OK;
	whole->superblock = first->superblock;
	whole->superblock.block_len = block_len;
	for (unsigned i = 0; i < whole->count && result == FARLOG_OK; i++)
		if (member_state(&whole->members[i]) == MEMBER_READY) {
			result = members_check_ring(whole, &whole->members[i], error);
			if (result == FARLOG_OK)
				result = members_check_twin(whole, &whole->members[i], error);
		}
	return result;
}

/* fill_contract -- the level that enough members give; of all else the weakest value. */
static void fill_contract(struct region_members *whole)
{
	struct farlog_contract *contract = &whole->region.contract;
	unsigned level;
	size_t used = 0;

	for (level = FARLOG_LEVEL_ARCHIVED; level > FARLOG_LEVEL_POSTED; level--) {
		unsigned count = 0;

		for (unsigned i = 0; i < whole->count; i++)
			count += member_is_open(&whole->members[i]) && whole->members[i].region->contract.level >= level;
		if (count >= whole->needed)
			break;
	}
	*contract = (struct farlog_contract){.kind = FARLOG_REGION_MEMBERS,
		.level = level,
		.size_bytes = LAYOUT_DATA_OFF + whole->superblock.capacity,
		.granularity = LAYOUT_LINE_LEN,
		.atomic_unit = whole->superblock.block_len != 0 ? whole->superblock.block_len : 8,
		.kind_name = "members"};
	snprintf(contract->flush_name, sizeof(contract->flush_name), "%u of %u", whole->needed, whole->count);
	for (unsigned i = 0; i < whole->count; i++) {
		const struct member *member = &whole->members[i];
		const struct farlog_contract *own = member_is_open(member) ? &member->region->contract : NULL;

		if (used < sizeof(contract->probe))
			used += (size_t)snprintf(contract->probe + used, sizeof(contract->probe) - used, "%s%u: %s",
				i > 0 ? "; " : "", i + 1, own == NULL ? "away" : own->kind_name);
		if (own != NULL && used < sizeof(contract->probe))
			used += (size_t)snprintf(contract->probe + used, sizeof(contract->probe) - used, ", %s, %s",
				own->flush_name, farlog_level_name((int)own->level));
		if (own != NULL && own->granularity > contract->granularity)
			contract->granularity = own->granularity;
		if (own != NULL && own->deadline_default_ns > contract->deadline_default_ns)
			contract->deadline_default_ns = own->deadline_default_ns;
	}
}

/* set_caps -- from the open members. With one on blocks all commits are whole LBAs, and a fence does not return where
 * the log of the fenced writer ended. */
static void set_caps(struct region_members *whole)
{
	struct region_caps *caps = &whole->region.caps;

	for (unsigned i = 0; i < whole->count; i++)
		if (member_is_open(&whole->members[i]))
			caps->is_claimable |= whole->members[i].region->caps.is_claimable;
	caps->commit_len = whole->superblock.block_len;
	caps->is_remote = caps->commit_len == 0;
	caps->reports_log_end = caps->commit_len == 0;
}

/* make_copy -- memory as large as the ring, with the header of the members. */
static int make_copy(struct region_members *whole, struct farlog_error *error)
{
	struct region *region = &whole->region;

	whole->capacity = whole->superblock.capacity;
	whole->copy_len = LAYOUT_DATA_OFF + whole->capacity;
	whole->copy = staging_map(&whole->staging, whole->copy_len);
	if (whole->copy == NULL)
		return error_set(error, FARLOG_NO_MEMORY, errno, "members \"%s\": out of memory for a copy of %lu bytes",
			whole->text, whole->copy_len);
	region->base = whole->copy;
	region->built = whole->copy;
	if (stream_is_supported())
		region->streamed = whole->copy;
	set_caps(whole);
	members_build_header(whole);
	return FARLOG_OK;
}

static int open_all(struct region_members *whole, struct farlog_error *error)
{
	int result = members_start_threads(whole, error);

	if (result != FARLOG_OK)
		return result;
	wait_for_members(whole);
	for (unsigned i = 0; i < whole->count; i++)
		whole->members[i].is_sound = true; /* until its log is scanned */
	result = check_rings(whole, error);
	if (result == FARLOG_OK)
		result = members_check_count(whole, error);
	if (result == FARLOG_OK)
		result = make_copy(whole, error);
	if (result == FARLOG_OK)
		fill_contract(whole);
	return result;
}

static void copy_grants(struct region_members *whole, const struct region_options *options)
{
	for (unsigned i = 0; i < whole->count; i++) {
		struct member_ring *ring = &whole->members[i].ring;

		ring->has_token = options->token != NULL;
		ring->has_uuid = options->ring_uuid != NULL;
		if (ring->has_token)
			memcpy(ring->token, options->token + FARLOG_TOKEN_LEN * i, FARLOG_TOKEN_LEN);
		if (ring->has_uuid)
			memcpy(ring->uuid, options->ring_uuid + 16 * i, 16);
	}
	memcpy(whole->first_uuid, whole->members[0].ring.uuid, sizeof(whole->first_uuid));
}

static int parse_uri(struct region_members *whole, struct farlog_error *error)
{
	int result = member_uri_parse(whole->text, &whole->uri, error);

	whole->count = result == FARLOG_OK ? whole->uri.count : 0;
	whole->needed = whole->uri.needed;
	for (unsigned i = 0; i < whole->count; i++)
		whole->members[i].uri = strcpy(whole->members[i].ring.uri, whole->uri.uris[i]);
	return result;
}

int region_members_open(const char *text, const struct uri *uri, const struct region_options *options,
	struct region **region, struct farlog_error *error)
{
	struct region_members *whole = calloc(1, sizeof(*whole));
	int result;

	(void)uri; /* several */
	if (whole == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "open members \"%s\": out of memory", text);
	whole->region = (struct region){.ops = &members_ops,
		.fence_lsn = UINT64_MAX,
		.tag_lost = UINT64_MAX,
		.last_error = whole->trouble,
		.caps = {.has_copy = true,
			.needs_fetch = true,
			.has_checked_rings = true,
			.needs_epoch_room = true,
			.may_land_late = true,
			.hint_interval_ns = REGION_HINT_REQUEST_NS}};
	whole->level = options->level;
	whole->requested_epoch = options->epoch;
	pthread_mutex_init(&whole->mutex, NULL);
	condition_init(&whole->changed);
	if ((size_t)snprintf(whole->text, sizeof(whole->text), "%s", text) >= sizeof(whole->text))
		result = error_set(
			error, FARLOG_INVALID, 0, "uri \"%.60s...\" is longer than %zu bytes", text, sizeof(whole->text) - 1);
	else if (options->role != REGION_ROLE_WRITER && member_uri_parse(text, &whole->uri, error) != FARLOG_OK)
		result = FARLOG_INVALID;
	else if (options->role != REGION_ROLE_WRITER)
		result = error_set(error, FARLOG_UNSUPPORTED, 0,
			"uri \"%s\" names members; only writers and readers take them together: name one of them", text);
	else
		result = parse_uri(whole, error);
	if (result == FARLOG_OK && staging_open(&whole->staging) != FARLOG_OK)
		result = error_set(error, FARLOG_NO_MEMORY, 0, "members \"%s\": no memory for what they share", text);
	else
		whole->has_staging = result == FARLOG_OK;
	for (unsigned i = 0; i < MEMBER_COUNT_MAX; i++) {
		whole->members[i].whole = whole;
		/* 0 on failure: each connection draws its own */
		(void)!getrandom(&whole->members[i].client_id, sizeof(whole->members[i].client_id), 0);
	}
	if (result == FARLOG_OK) {
		copy_grants(whole, options);
		result = open_all(whole, error);
	}
	if (result != FARLOG_OK) {
		members_close(&whole->region);
		return result;
	}
	*region = &whole->region;
	return FARLOG_OK;
}

void members_close(struct region *region)
{
	struct region_members *whole = members_of(region);

	members_request_stop(whole);
	members_stop_threads(whole);
	members_publish_counters(whole);
	for (unsigned i = 0; i < whole->count; i++)
		member_close(&whole->members[i]);
	if (whole->copy != NULL)
		munmap(whole->copy, whole->copy_len);
	if (whole->has_staging)
		staging_close(&whole->staging);
	pthread_cond_destroy(&whole->changed);
	pthread_mutex_destroy(&whole->mutex);
	explicit_bzero(whole->members, sizeof(whole->members)); /* with their tokens */
	free(whole);
}
