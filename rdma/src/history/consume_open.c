/* history/consume_open.c -- opening a consumer: its configuration copied, its name taken, the place found where it
 * begins. */
#include "history/consumer.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/stream_uri.h"

#define BUFFER_LEN_DEFAULT (1u << 20)
#define BUFFER_LEN_MIN 4096u

static int check(const struct farlog_consumer_config *config, struct farlog_error *error)
{
	if (config->ring_uri == NULL && config->store_dir == NULL)
		return error_set(error, FARLOG_INVALID, 0, "consumer: expected ring_uri, store_dir or both");
	if (config->ring_uri == NULL && (config->stream == NULL || config->start == FARLOG_CONSUME_END))
		return error_set(error, FARLOG_INVALID, 0,
			"consumer of store \"%s\" without a ring: expected the stream's name, and a start other than "
			"FARLOG_CONSUME_END",
			config->store_dir);
	if (config->start > FARLOG_CONSUME_PLACE)
		return error_set(error, FARLOG_INVALID, 0, "consumer: start %u, expected 0 to %d of enum farlog_consumer_start",
			config->start, FARLOG_CONSUME_PLACE);
	if (config->start == FARLOG_CONSUME_PLACE && config->place.generation == 0)
		return error_set(error, FARLOG_INVALID, 0, "consumer: place of generation 0, expected 1 or more");
	if ((config->class_count > 0 && config->classes == NULL) || (config->key_count > 0 && config->keys == NULL))
		return error_set(error, FARLOG_INVALID, 0, "consumer: %u classes and %u keys, and NULL where they are",
			config->class_count, config->key_count);
	if (config->stream != NULL && (config->stream[0] == '\0' || strlen(config->stream) > FARLOG_STREAM_NAME_LEN))
		return error_set(error, FARLOG_INVALID, 0, "consumer: stream name \"%.80s\": expected 1 to %d bytes",
			config->stream, FARLOG_STREAM_NAME_LEN);
	return FARLOG_OK;
}

static bool copy_keys(struct farlog_consumer *consumer, const struct farlog_consumer_config *config)
{
	size_t total = 0;
	uint8_t *to;

	for (uint32_t i = 0; i < config->key_count; i++)
		total += config->keys[i].len;
	consumer->keys = calloc(config->key_count + 1u, sizeof(*consumer->keys));
	consumer->key_bytes = to = malloc(total + 1);
	if (consumer->keys == NULL || to == NULL)
		return false;
	for (uint32_t i = 0; i < config->key_count; i++) {
		if (config->keys[i].len > 0)
			memcpy(to, config->keys[i].data, config->keys[i].len);
		consumer->keys[i] = (struct farlog_key){to, config->keys[i].len};
		to += config->keys[i].len;
	}
	consumer->key_count = config->key_count;
	return true;
}

static char *copy_text(const char *text)
{
	return text == NULL ? NULL : strdup(text);
}

/* copy_token -- as many as the ring has members. */
static int copy_token(
	struct farlog_consumer *consumer, const struct farlog_consumer_config *config, struct farlog_error *error)
{
	size_t count = 1;
	int result = FARLOG_OK;

	if (config->grant_token == NULL || config->ring_uri == NULL)
		return FARLOG_OK;
	if (member_uri_is(config->ring_uri)) {
		struct member_uri *parsed = malloc(sizeof(*parsed));

		if (parsed == NULL)
			return error_set(error, FARLOG_NO_MEMORY, 0, "consumer: out of memory");
		result = member_uri_parse(config->ring_uri, parsed, error);
		count = parsed->count;
		free(parsed);
	}
	if (result != FARLOG_OK)
		return result;
	memcpy(consumer->token, config->grant_token, count * FARLOG_TOKEN_LEN);
	consumer->has_token = true;
	return FARLOG_OK;
}

static int copy_config(
	struct farlog_consumer *consumer, const struct farlog_consumer_config *config, struct farlog_error *error)
{
	consumer->buf_len = config->buffer_bytes == 0 ? BUFFER_LEN_DEFAULT :
		config->buffer_bytes < BUFFER_LEN_MIN     ? BUFFER_LEN_MIN :
													config->buffer_bytes;
	consumer->buf = malloc(consumer->buf_len);
	consumer->ring_uri = copy_text(config->ring_uri);
	consumer->store_dir = copy_text(config->store_dir);
	consumer->is_control = config->is_control != 0;
	if (config->class_count > 0)
		consumer->classes = calloc(CONSUMER_CLASS_COUNT / 8, 1);
	if (consumer->buf == NULL || (config->ring_uri != NULL && consumer->ring_uri == NULL) ||
		(config->store_dir != NULL && consumer->store_dir == NULL) ||
		(config->class_count > 0 && consumer->classes == NULL) || !copy_keys(consumer, config))
		return error_set(error, FARLOG_NO_MEMORY, 0, "consumer: out of memory");
	for (uint32_t i = 0; i < config->class_count; i++)
		consumer->classes[config->classes[i] / 8] |= (uint8_t)(1u << config->classes[i] % 8);
	return copy_token(consumer, config, error);
}

/* find_stream -- its name: as given, as in farlog://, or as the ring bears it. */
static int find_stream(
	struct farlog_consumer *consumer, const struct farlog_consumer_config *config, struct farlog_error *error)
{
	struct farlog_ring_status status;
	struct stream_uri place;
	const char *stream = config->stream;
	int result = FARLOG_OK;

	if (stream == NULL && stream_uri_is(config->ring_uri)) {
		result = stream_uri_parse(config->ring_uri, &place, error);
		stream = place.stream;
	}
	if (result == FARLOG_OK && stream == NULL) {
		result = consumer_open_ring(consumer, false, &status);
		if (result != FARLOG_OK)
			return result;
		farlog_reader_close(consumer->reader);
		consumer->reader = NULL;
		status.stream_name[FARLOG_STREAM_NAME_LEN - 1] = '\0';
		stream = status.stream_name;
	}
	if (result == FARLOG_OK && stream[0] == '\0' && (consumer->store_dir != NULL || config->name != NULL))
		result = error_set(error, FARLOG_INVALID, 0, "ring \"%s\" bears no stream's name: give it in the configuration",
			config->ring_uri);
	if (result == FARLOG_OK)
		memcpy(consumer->stream, stream, strlen(stream) + 1);
	return result;
}

/* before -- a place before the given one with no record between. */
static struct farlog_place before(struct farlog_place place)
{
	if (place.lsn > 0) {
		place.lsn--;
	} else if (place.epoch > 0) {
		place.epoch--;
		place.lsn = UINT64_MAX;
	}
	return place;
}

/* stand -- where the position, or else the start, says. */
static int stand(struct farlog_consumer *consumer, const struct farlog_consumer_config *config)
{
	struct farlog_place from = {0};
	struct farlog_ring_status status;
	int result;

	if (consumer->name[0] != '\0' && consumer->position.is_there) {
		consumer->place = consumer->position.place;
		consumer->next_lsn = consumer->position.next_lsn;
		consumer->is_place = consumer->is_next = true;
		from = consumer_behind(consumer);
		return consumer_open_history(consumer, &from);
	}
	if (config->start == FARLOG_CONSUME_PLACE) {
		consumer->place = before(config->place);
		consumer->next_lsn = config->place.lsn;
		consumer->is_place = consumer->is_next = true;
		return consumer_open_history(consumer, &config->place);
	}
	if (config->start == FARLOG_CONSUME_OLDEST || consumer->ring_uri == NULL)
		return consumer_open_history(consumer, &from);
	result = consumer_open_ring(consumer, config->start == FARLOG_CONSUME_END, &status);
	return result == FARLOG_OK ? consumer_find_place(consumer, &status, config->start == FARLOG_CONSUME_END) : result;
}

static int open_decrypter(struct farlog_consumer *consumer, const struct farlog_consumer_config *config)
{
	const char *path = config->key_file != NULL ? config->key_file : keys_default_file();
	struct keys *keys;
	int result;

	if (path == NULL)
		return FARLOG_OK;
	consumer->is_clear_refused = config->key_file != NULL;
	result = keys_open(path, &keys, &consumer->trouble);
	return result == FARLOG_OK ? decrypter_open(keys, &consumer->decrypter, &consumer->trouble) : result;
}

int farlog_consumer_open(
	const struct farlog_consumer_config *config, farlog_consumer **opened, struct farlog_error *error)
{
	struct farlog_consumer *consumer = calloc(1, sizeof(*consumer));
	int result;

	*opened = NULL;
	if (consumer == NULL)
		return error_set(error, FARLOG_NO_MEMORY, 0, "consumer: out of memory");
	consumer->position.lock_fd = -1;
	result = check(config, &consumer->trouble);
	if (result == FARLOG_OK)
		result = copy_config(consumer, config, &consumer->trouble);
	if (result == FARLOG_OK)
		result = find_stream(consumer, config, &consumer->trouble);
	if (result == FARLOG_OK && config->name != NULL)
		result =
			position_open(&consumer->position, config->state_dir, config->name, consumer->stream, &consumer->trouble);
	if (result == FARLOG_OK && config->name != NULL)
		memcpy(consumer->name, config->name, strlen(config->name) + 1);
	if (result == FARLOG_OK)
		result = open_decrypter(consumer, config);
	if (result == FARLOG_OK)
		result = stand(consumer, config);
	if (result != FARLOG_OK) {
		if (error != NULL)
			*error = consumer->trouble;
		farlog_consumer_close(consumer);
		return result;
	}
	*opened = consumer;
	return FARLOG_OK;
}

void farlog_consumer_close(farlog_consumer *consumer)
{
	if (consumer == NULL)
		return;
	farlog_reader_close(consumer->reader);
	store_reader_close(consumer->history);
	position_close(&consumer->position);
	decrypter_close(consumer->decrypter);
	explicit_bzero(consumer->token, sizeof(consumer->token));
	free(consumer->ring_uri);
	free(consumer->store_dir);
	free(consumer->classes);
	free(consumer->keys);
	free(consumer->key_bytes);
	free(consumer->buf);
	free(consumer);
}
