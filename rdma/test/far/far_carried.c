/* far_carried.c -- bytes that come with the request to flush them: what a client of ours sends so, and what a target
 * makes of those who ask for more than their key would let in. No key is between such bytes and the ring, so every
 * bound is tried. */
#include <string.h>

#include "far_links.h"
#include "far/ofi.h"

#define SPAN_OFF (LAYOUT_DATA_OFF + 8192u)
#define MARK 0x5A5A5A5A5A5A5A5Aull

static struct far_message message; /* stays where it is until it is sent */
static uint32_t tag;

/* tell -- a message of this length, whatever it says. */
static void tell(struct far_link *link, struct far_request request, size_t carried_len)
{
	request.tag = ++tag;
	message.request = request;
	memset(message.carried, (int)(MARK & 0xFF), sizeof(message.carried));
	CHECK(fi_send(ofi_of(link)->ep, &message, sizeof(request) + carried_len, NULL, 0, NULL) == 0);
}

static uint32_t answer_to(struct far_link *link, struct far_request request, size_t carried_len)
{
	tell(link, request, carried_len);
	return link_answer(link, tag);
}

#define ONE(at, count) \
	{ \
		.operation = FAR_PERSIST, .span_count = 1, .spans = {{at, count}} \
	}
#define TWO(at, count, next_at, next_count) \
	{ \
		.operation = FAR_PERSIST, .span_count = 2, .spans = {{at, count}, {next_at, next_count}} \
	}

static const struct {
	const char *what;
	struct far_request request;
	size_t carried_len;
} refused[] = {
	{"nothing carried", ONE(SPAN_OFF, 64), 0},
	{"less carried than named", ONE(SPAN_OFF, 64), 56},
	{"more carried than named", ONE(SPAN_OFF, 64), 72},
	{"nothing named", ONE(SPAN_OFF, 0), 0},
	{"no span", {.operation = FAR_PERSIST}, 64},
	{"three spans", {.operation = FAR_PERSIST, .span_count = 3, .spans = {{SPAN_OFF, 64}, {SPAN_OFF, 64}}}, 192},
	{"a superblock", ONE(LAYOUT_SUPERBLOCK_A_OFF, 64), 64},
	{"the credit", ONE(LAYOUT_CREDIT_OFF, 8), 8},
	{"the fence", ONE(LAYOUT_FENCE_OFF, 8), 8},
	{"from the header into the data", ONE(LAYOUT_DATA_OFF - 64, 128), 128},
	{"out of the ring", ONE(RING_BYTES - 32, 64), 64},
	{"behind the ring", ONE(RING_BYTES, 64), 64},
	{"round the end of all numbers", ONE(UINT64_MAX - 63, 64), 64},
	{"a length beyond all", ONE(SPAN_OFF, UINT64_MAX - 63), 64},
	{"two lengths whose sum is right", TWO(SPAN_OFF, UINT64_MAX - 63, SPAN_OFF, 128), 64},
	{"the second one behind the ring", TWO(SPAN_OFF, 64, RING_BYTES, 64), 128},
	{"the second one in the header", TWO(SPAN_OFF, 64, LAYOUT_FENCE_OFF, 64), 128},
	{"not where a word begins", ONE(SPAN_OFF + 4, 64), 64},
	{"half a word", ONE(SPAN_OFF, 60), 60},
};

static unsigned bad_count(struct bed *bed)
{
	unsigned bad = 0;

	CHECK(host_ask(&bed->host, "counters ring") &&
		sscanf(bed->host.reply, "OK %*u %*u %*u %*u %*u %*u %*u %u", &bad) == 1);
	return bad;
}

static uint64_t words_changed(const struct bed *bed)
{
	return (word_at_target(bed, SPAN_OFF) == MARK) + (word_at_target(bed, SPAN_OFF + 8) == MARK) +
		(word_at_target(bed, LAYOUT_SUPERBLOCK_A_OFF) == MARK) + (word_at_target(bed, LAYOUT_CREDIT_OFF) == MARK) +
		(word_at_target(bed, LAYOUT_FENCE_OFF) == MARK) + (word_at_target(bed, LAYOUT_DATA_OFF - 64) == MARK) +
		(word_at_target(bed, LAYOUT_DATA_OFF) == MARK) + (word_at_target(bed, RING_BYTES - 32) == MARK);
}

/* Whoever names what is not his is answered INVALID and counted, and not a word of it is stored; what is right is, and
 * both ends of a ring at once. */
static void bounds(struct bed *bed)
{
	const struct far_request good = TWO(RING_BYTES - 64, 64, LAYOUT_DATA_OFF, 128);
	struct far_link_bed writer;
	unsigned bad;

	link_connect(&writer, bed->uri, "ring", 'a', REGION_ROLE_WRITER, 2);
	CHECK(writer.link->welcome.flush_methods & FAR_CARRIES);
	bad = bad_count(bed);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		snprintf(now_testing, sizeof(now_testing), "carried: %s", refused[i].what);
		CHECK(answer_to(writer.link, refused[i].request, refused[i].carried_len) == (uint32_t)-FARLOG_INVALID);
		CHECK(words_changed(bed) == 0);
		CHECK(bad_count(bed) == ++bad);
	}
	snprintf(now_testing, sizeof(now_testing), "carried: what is right");
	CHECK(answer_to(writer.link, good, 192) == 0 && bad_count(bed) == bad);
	CHECK(word_at_target(bed, RING_BYTES - 64) == MARK && word_at_target(bed, RING_BYTES - 8) == MARK);
	CHECK(word_at_target(bed, LAYOUT_DATA_OFF) == MARK && word_at_target(bed, LAYOUT_DATA_OFF + 120) == MARK);
	CHECK(word_at_target(bed, LAYOUT_DATA_OFF + 128) == 0 && word_at_target(bed, RING_BYTES - 72) == 0);
	CHECK(answer_to(writer.link, (struct far_request)ONE(SPAN_OFF, FAR_CARRIED_LEN_MAX), FAR_CARRIED_LEN_MAX) == 0);
	CHECK(word_at_target(bed, SPAN_OFF + FAR_CARRIED_LEN_MAX - 8) == MARK &&
		word_at_target(bed, SPAN_OFF + FAR_CARRIED_LEN_MAX) == 0);
	link_free(&writer);
	await_no_writer(bed);
}

/* Only who may store records brings them. */
static void roles(struct bed *bed)
{
	static const struct {
		char letter;
		uint8_t role;
	} others[] = {{'d', REGION_ROLE_DRAIN}, {'r', REGION_ROLE_READER}};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct far_link_bed other;
		uint64_t before = word_at_target(bed, SPAN_OFF + 16384);

		snprintf(now_testing, sizeof(now_testing), "carried: role %u", others[i].role);
		link_connect(&other, bed->uri, "ring", others[i].letter, others[i].role, 0);
		CHECK(answer_to(other.link, (struct far_request)ONE(SPAN_OFF + 16384, 64), 64) == (uint32_t)-FARLOG_INVALID);
		CHECK(word_at_target(bed, SPAN_OFF + 16384) == before && before != MARK);
		link_free(&other);
	}
}

/* What no request of ours looks like ends its connection, and no other one. */
static void ended(struct bed *bed, const char *what, struct far_request request, size_t carried_len)
{
	static uint8_t bytes[sizeof(message) + 64];
	struct far_link_bed other;
	struct far_link_bed made;

	snprintf(now_testing, sizeof(now_testing), "carried: %s", what);
	link_connect(&other, bed->uri, "ring", 's', REGION_ROLE_READER, 0);
	link_connect(&made, bed->uri, "ring", 'a', REGION_ROLE_WRITER, 2);
	request.tag = ++tag;
	memcpy(bytes, &request, sizeof(request));
	CHECK(fi_send(ofi_of(made.link)->ep, bytes, sizeof(request) + carried_len, NULL, 0, NULL) == 0);
	CHECK(link_settle(made.link, ++tag, 0) == FARLOG_IO);
	link_free(&made);
	CHECK(answer_to(other.link, (struct far_request){.operation = FAR_LOCKED}, 0) <= 3);
	link_free(&other);
	await_no_writer(bed);
}

/* Whose role has been given back stores nothing more, not even what came with the goodbye. */
static void after_leaving(struct bed *bed)
{
	struct far_request leave = {.operation = FAR_LEAVE, .tag = 1};
	struct far_link_bed made;

	snprintf(now_testing, sizeof(now_testing), "carried: after leaving");
	link_connect(&made, bed->uri, "ring", 'a', REGION_ROLE_WRITER, 2);
	CHECK(made.link->ops->send(made.link, &leave) == FARLOG_OK);
	tell(made.link, (struct far_request)ONE(SPAN_OFF + 32768, 64), 64);
	CHECK(link_settle(made.link, ++tag, 0) == FARLOG_IO); /* the connection's end is the answer */
	await_no_writer(bed);
	CHECK(word_at_target(bed, SPAN_OFF + 32768) == 0);
	link_free(&made);
}

/* persisted_by -- what of a link of ours went with its request, by the request that it keeps in its copy: FAR_PERSIST,
 * or 0 = nothing. */
static uint32_t persisted_by(struct far_link *link, uint64_t off, uint64_t len)
{
	struct far_request *kept = (struct far_request *)(link->copy + FAR_REQUEST_OFF);

	memset(kept, 0, sizeof(*kept));
	CHECK(link->ops->persist(link, &(struct region_span){off, len}, 1, ++tag) == FARLOG_OK);
	CHECK(link_settle(link, tag, 0) == FARLOG_OK);
	return kept->operation;
}

/* A few records go with their request; much, and what is no record, by a write before it, and everything to a target
 * that does not say that it takes them. */
static void sent_by_a_link(struct bed *bed)
{
	struct far_link_bed writer;

	snprintf(now_testing, sizeof(now_testing), "carried: by a link");
	link_connect(&writer, bed->uri, "ring", 'a', REGION_ROLE_WRITER, 2);
	writer.link->method = FARLOG_FLUSH_TARGET_CPU;
	for (uint64_t off = LAYOUT_DATA_OFF; off < LAYOUT_DATA_OFF + 32768; off += 8)
		*(uint64_t *)(writer.link->copy + off) = off;
	CHECK(
		persisted_by(writer.link, SPAN_OFF, 64) == FAR_PERSIST && word_at_target(bed, SPAN_OFF + 56) == SPAN_OFF + 56);
	CHECK(persisted_by(writer.link, SPAN_OFF, FAR_CARRIED_LEN_MAX) == FAR_PERSIST);
	CHECK(persisted_by(writer.link, SPAN_OFF, FAR_CARRIED_LEN_MAX + 64) == 0);
	CHECK(word_at_target(bed, SPAN_OFF + FAR_CARRIED_LEN_MAX + 56) == SPAN_OFF + FAR_CARRIED_LEN_MAX + 56);
	CHECK(persisted_by(writer.link, LAYOUT_TAIL_HINT_OFF, 64) == 0);
	writer.link->welcome.flush_methods &= ~FAR_CARRIES;
	CHECK(persisted_by(writer.link, SPAN_OFF + 16384, 64) == 0 &&
		word_at_target(bed, SPAN_OFF + 16384) == SPAN_OFF + 16384);
	link_free(&writer);
	await_no_writer(bed);
}

void test_carried(void)
{
	struct bed bed;

	if (bed_make(&bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") && CHECK_ASK(&bed.host, "grant ring 0 2 a") &&
		CHECK_ASK(&bed.host, "grant ring 1 0 d") && CHECK_ASK(&bed.host, "grant ring 3 0 r") &&
		CHECK_ASK(&bed.host, "grant ring 3 0 s")) {
		bounds(&bed);
		roles(&bed);
		ended(&bed, "bytes behind another request", (struct far_request){.operation = FAR_LOCKED}, 8);
		ended(&bed, "more than a message", (struct far_request)ONE(SPAN_OFF, FAR_CARRIED_LEN_MAX + 8),
			FAR_CARRIED_LEN_MAX + 8);
		after_leaving(&bed);
		sent_by_a_link(&bed);
	}
	bed_free(&bed);
}
