/* route/open.c -- a route's legs: checked, opened, and closed. */
#include "route/route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/uri.h"

#define SPILL_BYTES (64u << 20)
#define MEMORY_BYTES (4u << 20)
#define BATCH_LEN (256u << 10)
#define CLOSE_NS 1000000000u
#define FIRST_TRY_NAP_NS 100000

static int refuse(const char *route, const struct farlog_route_leg *leg, const char *why, struct farlog_error *error)
{
	return error_set(
		error, FARLOG_INVALID, 0, "route \"%s\": leg \"%s\": %s", route, leg->name != NULL ? leg->name : "", why);
}

static int check_classes(const char *route, const struct farlog_route_leg *leg, struct farlog_error *error)
{
	if (leg->class_count != 0 && leg->classes == NULL)
		return refuse(route, leg, "class_count without classes", error);
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
		return refuse(route, leg, "expected either a uri or an open writer", error);
	if (leg->policy > FARLOG_ROUTE_DROP)
		return error_set(error, FARLOG_INVALID, 0, "route \"%s\": leg \"%s\": policy %u; expected fail, spill or drop",
			route, leg->name, leg->policy);
	if (leg->is_required && leg->policy == FARLOG_ROUTE_DROP)
		return refuse(route, leg, "it is required, and drops: expected policy fail or spill", error);
	if (has_spill != (leg->spill_uri != NULL))
		return refuse(
			route, leg, has_spill ? "policy spill without the uri of a spill" : "a spill is for policy spill", error);
	if (has_spill && strncmp(leg->spill_uri, "mem:", 4) != 0 && strncmp(leg->spill_uri, "fault:", 6) != 0)
		return error_set(error, FARLOG_INVALID, 0,
			"route \"%s\": leg \"%s\": spill \"%s\"; expected a ring in memory or a file of this host: mem:/path",
			route, leg->name, leg->spill_uri);
	if (leg->writer != NULL && (!leg->is_required || has_spill))
		return refuse(route, leg,
			"an open writer is for a required leg that fails: others open their ring again, by its uri", error);
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
				result = refuse(name, &config->legs[i], "another leg has this name", error);
	}
	return result;
}

static char *copy_text(const char *text, bool *is_short)
{
	char *copy = text != NULL ? strdup(text) : NULL;

	*is_short |= text != NULL && copy == NULL;
	return copy;
}

/* copy_place -- what opening the ring again will need. */
static int copy_place(struct route_leg *leg, const struct farlog_route_leg *asked, struct farlog_error *error)
{
	struct route_place *place = &leg->place;
	unsigned count = asked->uri != NULL && strncmp(asked->uri, "members:", 8) == 0 ? FARLOG_MEMBER_COUNT_MAX : 1;
	bool is_short = false;

	place->config = asked->config;
	place->uri = copy_text(asked->uri, &is_short);
	place->config.writer_name = place->writer_name = copy_text(asked->config.writer_name, &is_short);
	place->config.counters_dir = place->counters_dir = copy_text(asked->config.counters_dir, &is_short);
	if (is_short)
		return error_set(error, FARLOG_NO_MEMORY, 0, "leg \"%s\": out of memory", asked->name);
	if (count > 1) { /* the array is as long as the uri has rings */
		count = 0;
		for (const char *c = asked->uri; (c = strchr(c, ' ')) != NULL; c++)
			count++;
		count = count > FARLOG_MEMBER_COUNT_MAX ? FARLOG_MEMBER_COUNT_MAX : count;
	}
	if (asked->config.ring_uuid != NULL)
		place->config.ring_uuid = memcpy(place->ring_uuid, asked->config.ring_uuid, 16 * count);
	if (asked->config.grant_token != NULL)
		place->config.grant_token = memcpy(place->grant_token, asked->config.grant_token, FARLOG_TOKEN_LEN * count);
	return FARLOG_OK;
}

/* make_spill -- where there is none yet. */
static int make_spill(const struct farlog_route_leg *asked, struct farlog_error *error)
{
	struct farlog_ring_config config = {
		.size_bytes = asked->buffer_bytes != 0 ? asked->buffer_bytes : SPILL_BYTES, .stream_name = asked->name};

	return farlog_ring_format(asked->spill_uri, &config, error);
}

static int open_spill(
	struct route_leg *leg, const struct farlog_route_leg *asked, const char *route, struct farlog_error *error)
{
	struct farlog_writer_config config = {.level = asked->spill_level,
		.policy = FARLOG_POLICY_REJECT,
		.writer_name = route,
		.counters_dir = asked->config.counters_dir};
	struct farlog_ring_status status;
	int result = farlog_shared_open(asked->spill_uri, &config, &leg->buffer, error);

	if (result == FARLOG_NOT_FOUND || result == FARLOG_NOT_A_RING) {
		result = make_spill(asked, error);
		if (result == FARLOG_OK)
			result = farlog_shared_open(asked->spill_uri, &config, &leg->buffer, error);
	}
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

/* open_memory -- a ring that nobody else sees, and that goes with this process. */
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
	if (route_begin_buffer(leg) != FARLOG_OK)
		return error_set(
			error, FARLOG_IO, 0, "route \"%s\": leg \"%s\": its spill's head cannot be stored", route, asked->name);
	return FARLOG_OK;
}

/* open_leg -- all of it but the ring of one that has a carrier. */
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
	pthread_mutex_init(&leg->far_lock, NULL);
	pthread_mutex_init(&leg->text_lock, NULL);
	result = copy_place(leg, asked, error);
	if (result != FARLOG_OK)
		return result;
	if (leg->is_required && !leg->has_spill) {
		leg->state = FARLOG_LEG_DIRECT;
		result = asked->writer != NULL ? FARLOG_OK :
										 farlog_writer_open(leg->place.uri, &leg->place.config, &leg->far, error);
		if (leg->far != NULL)
			leg->deadline_ns = leg->far->deadline_ns;
		return result;
	}
	leg->state = FARLOG_LEG_AWAY;
	leg->turn = ROUTE_TURN_CARRIER;
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

/* first_try -- of required legs that spill: the caller would rather begin with records that go straight on. */
static void first_try(struct farlog_route *route)
{
	for (uint32_t i = 0; i < route->leg_count; i++) {
		struct route_leg *leg = &route->legs[i];

		if (!leg->is_required || leg->buffer == NULL)
			continue;
		while (!atomic_load_acquire(&leg->is_tried))
			nanosleep(&(struct timespec){0, FIRST_TRY_NAP_NS}, NULL);
		while (atomic_load_acquire(&leg->state) == FARLOG_LEG_CARRYING &&
			atomic_load_acquire(&leg->turn) == ROUTE_TURN_CARRIER &&
			shared_published_lsn(leg->buffer) - atomic_load_acquire(&leg->carried_lsn) < RECORD_PAD_STORED_LEN * 4)
			nanosleep(&(struct timespec){0, FIRST_TRY_NAP_NS}, NULL);
	}
}

static int start_carriers(struct farlog_route *route, struct farlog_error *error)
{
	for (uint32_t i = 0; i < route->leg_count && route->is_threaded; i++) {
		struct route_leg *leg = &route->legs[i];
		int failure = leg->buffer != NULL ? pthread_create(&leg->thread, NULL, route_carrier, leg) : 0;

		if (failure != 0)
			return error_set(
				error, FARLOG_IO, failure, "route \"%s\": leg \"%s\": start its thread", route->name, leg->name);
		leg->has_thread = leg->buffer != NULL;
	}
	if (route->is_threaded)
		first_try(route);
	return FARLOG_OK;
}

static bool is_left_behind(const struct route_leg *leg)
{
	return leg->has_lost ||
		(leg->buffer != NULL && (leg->gap.count != 0 || leg->carried_lsn != shared_published_lsn(leg->buffer)));
}

static int close_leg(struct route_leg *leg)
{
	int result = FARLOG_OK;
	bool is_behind = is_left_behind(leg);

	if (leg->far != NULL && is_behind)
		writer_unfollow(leg->far, false); /* something is left to be appended: that is no end to be silent about */
	if (leg->far != NULL)
		result = farlog_writer_close(leg->far);
	if (leg->buffer != NULL && farlog_shared_close(leg->buffer) != FARLOG_OK)
		result = FARLOG_UNKNOWN;
	farlog_reader_close(leg->reader);
	if (leg->memory_fd >= 0)
		close(leg->memory_fd);
	free(leg->batch);
	free(leg->place.uri);
	free(leg->place.writer_name);
	free(leg->place.counters_dir);
	pthread_mutex_destroy(&leg->far_lock);
	pthread_mutex_destroy(&leg->text_lock);
	explicit_bzero(leg->place.grant_token, sizeof(leg->place.grant_token));
	return is_behind ? FARLOG_UNKNOWN : result;
}

/* end_all -- stop the carriers, and count what is in memory alone. */
static void end_all(struct farlog_route *route)
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

/* close_all -- and free. */
static int close_all(struct farlog_route *route)
{
	int result = FARLOG_OK;

	if (!route->is_ended)
		end_all(route);
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
		may_fail(close_all(route)); /* nothing was appended yet */
		return result;
	}
	for (uint32_t i = 0; i < route->leg_count; i++)
		if (config->legs[i].writer != NULL) {
			route->legs[i].far = config->legs[i].writer;
			route->legs[i].deadline_ns = route->legs[i].far->deadline_ns;
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
	/* What is not carried by then stays in the spill, and is said by the counters. */
	may_fail(farlog_route_catch_up(route, deadline_ns != 0 ? deadline_ns : CLOSE_NS));
	end_all(route);
	for (uint32_t i = 0; i < route->leg_count; i++)
		if (is_left_behind(&route->legs[i]))
			return FARLOG_UNKNOWN;
	return FARLOG_OK;
}

int farlog_route_close(farlog_route *route, uint64_t deadline_ns)
{
	if (route == NULL)
		return FARLOG_OK;
	/* As above: closing goes on. */
	may_fail(farlog_route_end(route, deadline_ns));
	return close_all(route);
}
