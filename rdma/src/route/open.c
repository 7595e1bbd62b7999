/* route/open.c -- checks, opens and closes a route's legs. */
#include "route/route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/thread.h"
#include "base/uri.h"

#define SPILL_BYTES (64u << 20)
#define MEMORY_BYTES (4u << 20)
#define BATCH_LEN (256u << 10)
#define CLOSE_NS 1000000000u
#define FIRST_TRY_NAP_NS 100000

static int set_leg_error(
	const char *route, const struct farlog_route_leg *leg, const char *why, struct farlog_error *error)
{
	return error_set(
		error, FARLOG_INVALID, 0, "route \"%s\": leg \"%s\": %s", route, leg->name != NULL ? leg->name : "", why);
}

static int check_classes(const char *route, const struct farlog_route_leg *leg, struct farlog_error *error)
{
	if (leg->class_count != 0 && leg->classes == NULL)
		return set_leg_error(route, leg, "class_count without classes", error);
	for (uint32_t i = 0; i < leg->class_count; i++)
		if (leg->classes[i].first > leg->classes[i].last)
			return error_set(error, FARLOG_INVALID, 0,
				"route \"%s\": leg \"%s\": classes %u to %u; expected the lower one first", route, leg->name,
				leg->classes[i].first, leg->classes[i].last);
	return FARLOG_OK;
}

static int check_leg(const char *route, const struct farlog_route_leg *leg, struct farlog_error *error)
{
	bool has_spill = leg->policy == FARLOG_ROUTE_SPILL;

	if (leg->name == NULL || leg->name[0] == '\0' || strlen(leg->name) >= FARLOG_ROUTE_NAME_LEN)
		return error_set(error, FARLOG_INVALID, 0, "route \"%s\": a leg's name is \"%s\"; expected 1 to %d bytes",
			route, leg->name != NULL ? leg->name : "", FARLOG_ROUTE_NAME_LEN - 1);
	if ((leg->uri == NULL) == (leg->writer == NULL))
		return set_leg_error(route, leg, "expected either a uri or an open writer", error);
	if (leg->policy > FARLOG_ROUTE_DROP)
		return error_set(error, FARLOG_INVALID, 0, "route \"%s\": leg \"%s\": policy %u; expected fail, spill or drop",
			route, leg->name, leg->policy);
	if (leg->is_required && leg->policy == FARLOG_ROUTE_DROP)
		return set_leg_error(route, leg, "is_required with policy drop; expected policy fail or spill", error);
	if (has_spill != (leg->spill_uri != NULL))
		return set_leg_error(
			route, leg, has_spill ? "policy spill without spill_uri" : "spill_uri without policy spill", error);
	if (has_spill && strncmp(leg->spill_uri, "mem:", 4) != 0 && strncmp(leg->spill_uri, "fault:", 6) != 0)
		return error_set(error, FARLOG_INVALID, 0,
			"route \"%s\": leg \"%s\": spill \"%s\"; expected a ring in memory or a file of this host: mem:/path",
			route, leg->name, leg->spill_uri);
	if (leg->writer != NULL && (!leg->is_required || has_spill))
		return set_leg_error(route, leg,
			"an open writer needs is_required and policy fail; other legs open their ring again, by its uri", error);
	return check_classes(route, leg, error);
}

static int check_config(const struct farlog_route_config *config, const char *name, struct farlog_error *error)
{
	int result = FARLOG_OK;

	if (config->leg_count == 0 || config->leg_count > FARLOG_ROUTE_LEG_COUNT_MAX || config->legs == NULL)
		return error_set(error, FARLOG_INVALID, 0, "route \"%s\" has %u legs; expected 1 to %d", name,
			config->leg_count, FARLOG_ROUTE_LEG_COUNT_MAX);
	for (uint32_t i = 0; i < config->leg_count && result == FARLOG_OK; i++) {
		result = check_leg(name, &config->legs[i], error);
		for (uint32_t j = 0; j < i && result == FARLOG_OK; j++)
			if (strcmp(config->legs[i].name, config->legs[j].name) == 0)
				result = set_leg_error(name, &config->legs[i], "another leg has this name", error);
	}
	return result;
}

static char *copy_text(const char *text, bool *has_failed)
{
	char *copy = text != NULL ? strdup(text) : NULL;

	*has_failed |= text != NULL && copy == NULL;
	return copy;
}

/* copy_opening -- the arguments by which the ring is opened again. */
static int copy_opening(struct route_leg *leg, const struct farlog_route_leg *asked, struct farlog_error *error)
{
	struct route_opening *opening = &leg->opening;
	unsigned count = asked->uri != NULL && strncmp(asked->uri, "members:", 8) == 0 ? FARLOG_MEMBER_COUNT_MAX : 1;
	bool has_failed = false;

	opening->config = asked->config;
	opening->uri = copy_text(asked->uri, &has_failed);
	opening->config.writer_name = opening->writer_name = copy_text(asked->config.writer_name, &has_failed);
	opening->config.counters_dir = opening->counters_dir = copy_text(asked->config.counters_dir, &has_failed);
	opening->config.key_file = opening->key_file = copy_text(asked->config.key_file, &has_failed);
	if (has_failed)
		return error_set(error, FARLOG_NO_MEMORY, 0, "leg \"%s\": out of memory", asked->name);
	if (count > 1) { /* one element for each ring of the URI */
		count = 0;
		for (const char *c = asked->uri; (c = strchr(c, ' ')) != NULL; c++)
			count++;
		count = count > FARLOG_MEMBER_COUNT_MAX ? FARLOG_MEMBER_COUNT_MAX : count;
	}
	if (asked->config.ring_uuid != NULL)
		opening->config.ring_uuid = memcpy(opening->ring_uuid, asked->config.ring_uuid, 16 * count);
	if (asked->config.grant_token != NULL)
		opening->config.grant_token = memcpy(opening->grant_token, asked->config.grant_token, FARLOG_TOKEN_LEN * count);
	return FARLOG_OK;
}

/* make_spill -- format a new one: encrypted where the leg has a key. */
static int make_spill(const struct farlog_route_leg *asked, bool has_key, struct farlog_error *error)
{
	struct farlog_ring_config config = {.size_bytes = asked->buffer_bytes != 0 ? asked->buffer_bytes : SPILL_BYTES,
		.stream_name = asked->name,
		.encryption = has_key ? FARLOG_ENCRYPTION_AES_256_GCM : FARLOG_ENCRYPTION_NONE};

	return farlog_ring_format(asked->spill_uri, &config, error);
}

static int open_spill(
	struct route_leg *leg, const struct farlog_route_leg *asked, const char *route, struct farlog_error *error)
{
	struct farlog_writer_config config = {.level = asked->spill_level,
		.policy = FARLOG_POLICY_REJECT,
		.writer_name = route,
		.counters_dir = asked->config.counters_dir,
		.key_file = asked->config.key_file != NULL ? asked->config.key_file : keys_default_file()};
	bool has_key = config.key_file != NULL && config.key_file[0] != '\0';
	struct farlog_ring_status status;
	struct keys *keys;
	int result = farlog_shared_open(asked->spill_uri, &config, &leg->buffer, error);

	if (result == FARLOG_NOT_FOUND || result == FARLOG_NOT_A_RING) {
		result = make_spill(asked, has_key, error);
		if (result == FARLOG_OK)
			result = farlog_shared_open(asked->spill_uri, &config, &leg->buffer, error);
	}
	if (result == FARLOG_OK && has_key)
		result = keys_open(config.key_file, &keys, error);
	if (result == FARLOG_OK && has_key)
		result = decrypter_open(keys, &leg->decrypter, error);
	if (result != FARLOG_OK)
		return result;
	farlog_shared_ring(leg->buffer, &status);
	if (strncmp(status.stream_name, asked->name, sizeof(status.stream_name)) != 0)
		return error_set(error, FARLOG_NOT_A_RING, 0,
			"route \"%s\": leg \"%s\": spill \"%s\" is that of \"%.63s\"; expected one of its own", route, asked->name,
			asked->spill_uri, status.stream_name);
	if (asked->is_required &&
		shared_writer(leg->buffer)->level < (asked->config.level != 0 ? asked->config.level : FARLOG_LEVEL_PERSISTENT))
		return error_set(error, FARLOG_LEVEL, 0,
			"route \"%s\": leg \"%s\": its spill gives level %s, the leg asks for %s", route, asked->name,
			farlog_level_name(shared_writer(leg->buffer)->level),
			farlog_level_name((int)(asked->config.level != 0 ? asked->config.level : FARLOG_LEVEL_PERSISTENT)));
	return FARLOG_OK;
}

/* open_memory -- a ring in memory of this process. */
static int open_memory(
	struct route_leg *leg, const struct farlog_route_leg *asked, char uri[64], struct farlog_error *error)
{
	uint64_t size_bytes = asked->buffer_bytes != 0 ? asked->buffer_bytes : MEMORY_BYTES;
	struct farlog_ring_config ring = {.size_bytes = size_bytes, .stream_name = asked->name};
	struct farlog_writer_config config = {
		.level = FARLOG_LEVEL_VISIBLE, .policy = FARLOG_POLICY_REJECT, .counters_dir = ""};
	int result;

	leg->memory_fd = memfd_create("farlog-route", MFD_CLOEXEC);
	if (leg->memory_fd < 0 || ftruncate(leg->memory_fd, (off_t)size_bytes) != 0)
		return error_set(error, FARLOG_NO_MEMORY, 0, "leg \"%s\": %lu bytes for what waits", asked->name, size_bytes);
	snprintf(uri, 64, "mem:/proc/self/fd/%d", leg->memory_fd);
	result = farlog_ring_format(uri, &ring, error);
	return result != FARLOG_OK ? result : farlog_shared_open(uri, &config, &leg->buffer, error);
}

int route_open_buffer(
	struct route_leg *leg, const struct farlog_route_leg *asked, const char *route, struct farlog_error *error)
{
	struct farlog_reader_config reading = {.start = FARLOG_START_HEAD, .is_drain = 1};
	char memory_uri[64];
	int result = leg->has_spill ? open_spill(leg, asked, route, error) : open_memory(leg, asked, memory_uri, error);

	if (result == FARLOG_OK)
		result = reader_open_ring(leg->has_spill ? asked->spill_uri : memory_uri, &reading, NULL, &leg->reader, error);
	if (result != FARLOG_OK)
		return result;
	leg->batch_len = leg->reader->identity.record_len_max + RECORD_PAD_STORED_LEN;
	leg->batch_len = leg->batch_len > BATCH_LEN ? leg->batch_len : BATCH_LEN;
	leg->batch = malloc(leg->batch_len);
	if (leg->batch == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "leg \"%s\": out of memory", asked->name);
	if (route_init_head(leg) != FARLOG_OK)
		return error_set(
			error, FARLOG_IO, 0, "route \"%s\": leg \"%s\": its spill's head cannot be stored", route, asked->name);
	return FARLOG_OK;
}

/* open_leg -- without the ring of a leg that has a carrier. */
static int open_leg(
	struct farlog_route *route, struct route_leg *leg, const struct farlog_route_leg *asked, struct farlog_error *error)
{
	int result;

	leg->memory_fd = -1;
	leg->is_required = asked->is_required != 0;
	leg->has_spill = asked->policy == FARLOG_ROUTE_SPILL;
	leg->criticality_min = asked->criticality_min;
	leg->deadline_ns = asked->config.deadline_ns;
	strcpy(leg->name, asked->name);
	pthread_mutex_init(&leg->writer_lock, NULL);
	pthread_mutex_init(&leg->text_lock, NULL);
	result = copy_opening(leg, asked, error);
	if (result != FARLOG_OK)
		return result;
	if (leg->is_required && !leg->has_spill) {
		leg->state = FARLOG_LEG_DIRECT;
		result = asked->writer != NULL ?
			FARLOG_OK :
			farlog_writer_open(leg->opening.uri, &leg->opening.config, &leg->writer, error);
		if (leg->writer != NULL)
			leg->deadline_ns = leg->writer->deadline_ns;
		return result;
	}
	leg->state = FARLOG_LEG_AWAY;
	leg->owner = ROUTE_OWNER_CARRIER;
	return route_open_buffer(leg, asked, route->name, error);
}

static void fill_classes(struct farlog_route *route, const struct farlog_route_config *config)
{
	static const struct farlog_class_range all = {0, UINT16_MAX};

	for (uint32_t i = 0; i < config->leg_count; i++) {
		const struct farlog_route_leg *leg = &config->legs[i];
		const struct farlog_class_range *ranges = leg->class_count != 0 ? leg->classes : &all;
		uint32_t count = leg->class_count != 0 ? leg->class_count : 1;

		for (uint32_t j = 0; j < count; j++)
			for (uint32_t class_id = ranges[j].first; class_id <= ranges[j].last; class_id++)
				route->class_legs[class_id] |= (uint16_t)(1u << i);
	}
}

/* wait_first_open -- until required legs with a spill have tried to open their ring and carried what is left, so that
 * the first records are appended directly. */
static void wait_first_open(struct farlog_route *route)
{
	for (uint32_t i = 0; i < route->leg_count; i++) {
		struct route_leg *leg = &route->legs[i];

		if (!leg->is_required || leg->buffer == NULL)
			continue;
		while (!atomic_load_acquire(&leg->has_tried_open))
			nanosleep(&(struct timespec){0, FIRST_TRY_NAP_NS}, NULL);
		while (atomic_load_acquire(&leg->state) == FARLOG_LEG_CARRYING &&
			atomic_load_acquire(&leg->owner) == ROUTE_OWNER_CARRIER &&
			shared_published_lsn(leg->buffer) - atomic_load_acquire(&leg->carried_lsn) < RECORD_PAD_STORED_LEN * 4)
			nanosleep(&(struct timespec){0, FIRST_TRY_NAP_NS}, NULL);
	}
}

static int start_carriers(struct farlog_route *route, struct farlog_error *error)
{
	for (uint32_t i = 0; i < route->leg_count && route->is_threaded; i++) {
		struct route_leg *leg = &route->legs[i];
		int failure = leg->buffer != NULL ? thread_start(&leg->thread, route_carrier, leg) : 0;

		if (failure != 0)
			return error_set(
				error, FARLOG_IO, failure, "route \"%s\": leg \"%s\": start its thread", route->name, leg->name);
		leg->has_thread = leg->buffer != NULL;
	}
	if (route->is_threaded)
		wait_first_open(route);
	return FARLOG_OK;
}

static bool has_undelivered(const struct route_leg *leg)
{
	return leg->has_dropped ||
		(leg->buffer != NULL && (leg->gap.count != 0 || leg->carried_lsn != shared_published_lsn(leg->buffer)));
}

static int close_leg(struct route_leg *leg)
{
	int result = FARLOG_OK;
	bool has_backlog = has_undelivered(leg);

	if (leg->writer != NULL && has_backlog)
		writer_stop_follower(
			leg->writer, false); /* the route has undelivered records: the agent does not learn that it ended */
	if (leg->writer != NULL)
		result = farlog_writer_close(leg->writer);
	if (leg->buffer != NULL && farlog_shared_close(leg->buffer) != FARLOG_OK)
		result = FARLOG_UNKNOWN;
	farlog_reader_close(leg->reader);
	if (leg->memory_fd >= 0)
		close(leg->memory_fd);
	free(leg->batch);
	free(leg->opening.uri);
	free(leg->opening.writer_name);
	free(leg->opening.counters_dir);
	free(leg->opening.key_file);
	decrypter_close(leg->decrypter);
	pthread_mutex_destroy(&leg->writer_lock);
	pthread_mutex_destroy(&leg->text_lock);
	explicit_bzero(leg->opening.grant_token, sizeof(leg->opening.grant_token));
	return has_backlog ? FARLOG_UNKNOWN : result;
}

/* stop_carriers -- and count what is left in memory. */
static void stop_carriers(struct farlog_route *route)
{
	for (uint32_t i = 0; i < route->leg_count; i++)
		atomic_store_release(&route->legs[i].is_stopping, 1);
	for (uint32_t i = 0; i < route->leg_count; i++) {
		struct route_leg *leg = &route->legs[i];

		if (leg->has_thread)
			pthread_join(leg->thread, NULL);
		leg->has_thread = false;
		if (leg->memory_fd >= 0 && leg->reader != NULL)
			route_drop_memory(leg);
	}
	route->is_ended = true;
}

/* close_route -- and free it. */
static int close_route(struct farlog_route *route)
{
	int result = FARLOG_OK;

	if (!route->is_ended)
		stop_carriers(route);
	for (uint32_t i = 0; i < route->leg_count; i++)
		if (close_leg(&route->legs[i]) != FARLOG_OK)
			result = FARLOG_UNKNOWN;
	if (route->has_clock)
		clock_stop();
	free(route);
	return result;
}

int route_open(
	const struct farlog_route_config *config, bool is_threaded, farlog_route **opened, struct farlog_error *error)
{
	const char *name = config->name != NULL ? config->name : "";
	int result = check_config(config, name, error);
	struct farlog_route *route;

	*opened = NULL;
	if (result != FARLOG_OK)
		return result;
	route = calloc(1, sizeof(*route));
	if (route == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "route \"%s\": out of memory", name);
	snprintf(route->name, sizeof(route->name), "%s", name);
	route->is_threaded = is_threaded;
	route->has_clock = clock_start() == 0;
	fill_classes(route, config);
	while (route->leg_count < config->leg_count && result == FARLOG_OK) {
		uint32_t i = route->leg_count++;

		result = open_leg(route, &route->legs[i], &config->legs[i], error);
	}
	if (result == FARLOG_OK)
		result = start_carriers(route, error);
	if (result != FARLOG_OK) {
		may_fail(close_route(route)); /* nothing was appended yet */
		return result;
	}
	for (uint32_t i = 0; i < route->leg_count; i++)
		if (config->legs[i].writer != NULL) {
			route->legs[i].writer = config->legs[i].writer;
			route->legs[i].deadline_ns = route->legs[i].writer->deadline_ns;
		}
	*opened = route;
	return FARLOG_OK;
}

int farlog_route_open(const struct farlog_route_config *config, farlog_route **route, struct farlog_error *error)
{
	return route_open(config, true, route, error);
}

int farlog_route_end(farlog_route *route, uint64_t deadline_ns)
{
	if (route->is_ended)
		return FARLOG_CLOSED;
	route->is_closed = true;
	/* Records that are not carried by then stay in the spill; the counters report them. */
	may_fail(farlog_route_catch_up(route, deadline_ns != 0 ? deadline_ns : CLOSE_NS));
	stop_carriers(route);
	for (uint32_t i = 0; i < route->leg_count; i++)
		if (has_undelivered(&route->legs[i]))
			return FARLOG_UNKNOWN;
	return FARLOG_OK;
}

int farlog_route_close(farlog_route *route, uint64_t deadline_ns)
{
	if (route == NULL)
		return FARLOG_OK;
	/* As in farlog_route_end: closing continues. */
	may_fail(farlog_route_end(route, deadline_ns));
	return close_route(route);
}
