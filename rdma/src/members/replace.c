/* members/replace.c -- replaces a member's ring while the writer runs: farlog/replace.h. */
#include "farlog/replace.h"

#include <string.h>

#include "base/err.h"
#include "base/stats.h"
#include "log/shared.h"
#include "log/writer.h"
#include "members/members.h"

static int check_ring(const struct farlog_member_ring *given, struct farlog_error *error)
{
	static const uint8_t none[16];

	if (given->uri == NULL || given->uri[0] == '\0' || strlen(given->uri) >= URI_PATH_LEN_MAX ||
		strpbrk(given->uri, " \n\r") != NULL || member_uri_is(given->uri))
		return error_set(error, FARLOG_INVALID, 0,
			"replacement uri \"%.60s\": expected the URI of one ring, of less than %zu bytes",
			given->uri != NULL ? given->uri : "", (size_t)URI_PATH_LEN_MAX);
	if (given->ring_uuid == NULL || memcmp(given->ring_uuid, none, sizeof(none)) == 0)
		return error_set(error, FARLOG_INVALID, 0,
			"replacement ring \"%.100s\" has no uuid; give the uuid that it was bound by", given->uri);
	return FARLOG_OK;
}

int farlog_writer_replace_member(
	farlog_writer *writer, unsigned member, const struct farlog_member_ring *ring, struct farlog_error *error)
{
	int result = check_ring(ring, error);

	if (result == FARLOG_OK)
		result = writer->region->ops->members.replace_member(writer->region, member, ring, error);
	if (result == FARLOG_OK && member == 0) /* counters are found by its uuid */
		stats_link(writer->counters_dir, writer->superblock.ring_uuid, ring->ring_uuid);
	return result;
}

int farlog_shared_replace_member(
	farlog_shared *shared, unsigned member, const struct farlog_member_ring *ring, struct farlog_error *error)
{
	return farlog_writer_replace_member(shared_writer(shared), member, ring, error);
}

unsigned farlog_writer_members(farlog_writer *writer, struct farlog_writer_member *members, unsigned count_max)
{
	return writer->region->ops->members.list_members(writer->region, members, count_max);
}

unsigned farlog_shared_members(farlog_shared *shared, struct farlog_writer_member *members, unsigned count_max)
{
	return farlog_writer_members(shared_writer(shared), members, count_max);
}
