/* verbs_pair.c -- see verbs_pair.h. */
#include "verbs_pair.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/crc32c.h"

farlog_target *pair_target;
char pair_directory[] = "/dev/shm/farlog-verbs-XXXXXX";
const char *pair_condition;
unsigned pair_passed;
unsigned pair_failed;
bool pair_has_flush = true;
uint32_t pair_level = FARLOG_LEVEL_VISIBLE;

static const char *device;

bool pair_use_device(void)
{
	static const struct farlog_attestation said = {
		.read_flush = FARLOG_READ_FLUSH_DDIO_OFF, .by = "verbs_test", .date = "2026-11-21"};
	struct farlog_error error = {0};
	char uri[256];

	device = getenv("FARLOG_TEST_DEVDAX");
	if (device == NULL)
		return true;
	pair_level = FARLOG_LEVEL_PERSISTENT;
	snprintf(uri, sizeof(uri), "mem:%s", device);
	if (farlog_target_attest(pair_target, uri, &said, &error) == FARLOG_OK)
		return true;
	printf("verbs: %s\n", error.text);
	return false;
}

void pair_region_uri(const char *name, char *text, size_t room)
{
	if (device != NULL)
		snprintf(text, room, "mem:%s?ring=%s", device, name);
	else
		snprintf(text, room, "mem:%s/%s.ring", pair_directory, name);
}

void pair_far_uri(const char *name, const char *options, char *text, size_t room)
{
	snprintf(text, room, "%s/%s%s%s", farlog_target_uri(pair_target), name, options[0] != '\0' ? "?" : "", options);
}

void pair_serve(const char *name, const char *tenant)
{
	struct farlog_ring_config config = {
		.size_bytes = SIZE, .record_len_max = 65536, .is_forced = 1, .stream_name = name};
	char uri[256];

	pair_region_uri(name, uri, sizeof(uri));
	CHECK_OK(farlog_ring_format(uri, &config, &error));
	CHECK_OK(farlog_target_serve(pair_target, name, uri, tenant, &error));
}

struct farlog_grant pair_grant(const char *name, uint32_t role, uint32_t epoch)
{
	struct farlog_grant granted = {.role = role, .epoch = epoch};

	CHECK(getrandom(granted.token, sizeof(granted.token), 0) == sizeof(granted.token));
	CHECK_OK(farlog_target_grant(pair_target, name, &granted, &error));
	return granted;
}

void pair_token_text(const struct farlog_grant *granted, char *text)
{
	for (unsigned i = 0; i < FARLOG_TOKEN_LEN; i++)
		snprintf(text + 2 * i, 3, "%02x", granted->token[i]);
}

void pair_parse_token(const char *text, uint8_t *token)
{
	for (unsigned i = 0; i < FARLOG_TOKEN_LEN; i++)
		token[i] = (uint8_t)strtoul((char[]){text[2 * i], text[2 * i + 1], '\0'}, NULL, 16);
}

struct farlog_target_counters pair_counters(const char *name)
{
	struct farlog_target_counters now = {0};

	CHECK(farlog_target_counters_read(pair_target, name, &now) == FARLOG_OK);
	return now;
}

uint64_t pair_drain(farlog_reader *reader)
{
	static uint8_t buffer[1 << 20];
	struct farlog_batch batch;
	uint64_t count = 0;

	while (farlog_reader_read(reader, buffer, sizeof(buffer), &batch) == FARLOG_OK) {
		count += batch.record_count;
		CHECK(farlog_reader_release(reader, batch.next_lsn, batch.next_seq, batch.last_epoch) == FARLOG_OK);
	}
	return count;
}

struct far_hello pair_hello(const char *name, const struct farlog_grant *granted)
{
	struct far_hello hello = {.magic = FAR_HELLO_MAGIC,
		.version = FAR_VERSION,
		.role = (uint8_t)granted->role,
		.epoch = granted->epoch,
		.ring_hash = crc32c_update(0, name, strlen(name)),
		.client_id = 7};

	memcpy(hello.token, granted->token, sizeof(hello.token));
	return hello;
}

struct far_link *pair_open_link(const char *name, const struct farlog_grant *granted, enum farlog_flush_method method)
{
	struct far_hello hello = pair_hello(name, granted);
	struct far_refusal refusal;
	struct far_link *link = NULL;
	struct uri uri;
	char text[256];

	pair_far_uri(name, "", text, sizeof(text));
	CHECK_OK(uri_parse(text, &uri, &error));
	CHECK_OK(far_verbs.open(text, &uri, &link, &error));
	CHECK_OK(link->ops->connect(link, &hello, &refusal, 5000000000u, &error));
	link->method = link->welcome.flush_methods & 1u << method ? method : FARLOG_FLUSH_NONE;
	return link;
}

struct far_link *pair_open_to_write(const char *name, const struct farlog_grant *granted)
{
	struct far_link *link = pair_open_link(name, granted, FARLOG_FLUSH_RDMA_FLUSH);

	if (link->method == FARLOG_FLUSH_NONE)
		link->method = FARLOG_FLUSH_RDMA_READ;
	CHECK(link->welcome.flush_methods & 1u << link->method);
	return link;
}

void pair_close_link(struct far_link *link)
{
	uint8_t *copy = link->copy;

	link->ops->disconnect(link);
	link->ops->close(link);
	munmap(copy, SIZE);
}

int pair_await(struct far_link *link, uint64_t tag)
{
	uint64_t until_ns = clock_after_ns(WAIT_NS);

	while (clock_monotonic_ns() < until_ns) {
		if (link->ops->poll(link) != FARLOG_OK)
			return FARLOG_IO;
		if (link->done.persist_tag == tag || link->done.read_tag == tag)
			return FARLOG_OK;
	}
	return FARLOG_UNKNOWN;
}

int pair_persist(struct far_link *link, const struct region_span *spans, unsigned count, uint64_t tag)
{
	return link->ops->persist(link, spans, count, tag) == FARLOG_OK ? pair_await(link, tag) : FARLOG_IO;
}

const uint8_t *pair_ring_bytes(const char *name)
{
	struct target_ring *ring = pair_target->rings;

	while (strcmp(ring->name, name) != 0)
		ring = ring->next;
	return ring->bytes;
}
