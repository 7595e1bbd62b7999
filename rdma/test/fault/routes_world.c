/* routes_world.c -- see routes_world.h. */
#include "routes_world.h"

#include <string.h>

#include "adversary/clock.h"
#include "adversary/memory.h"
#include "ring/record.h"

#define SPILL_BYTES_SMALL (LAYOUT_DATA_OFF + (16u << 10)) /* less than a batch may want */
#define RING_BYTES (LAYOUT_DATA_OFF + (16u << 10))
#define RING_BYTES_LARGE (LAYOUT_DATA_OFF + (48u << 10))

struct routes_world world;

uint64_t routes_below(uint64_t bound)
{
	uint64_t value = world.random += 0x9E3779B97F4A7C15ull;

	value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
	value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
	return (value ^ (value >> 31)) % bound;
}

static void make_ring(const char *uri, uint64_t size_bytes, const char *name)
{
	struct farlog_ring_config config = {.size_bytes = size_bytes,
		.record_len_max = 1024,
		.is_forced = 1,
		.salt = routes_below(UINT64_MAX) | 1,
		.stream_name = name};
	struct farlog_error error;

	if (farlog_ring_format(uri, &config, &error) != FARLOG_OK)
		FAIL("format: %.300s", error.text);
}

void routes_make_world(void)
{
	static const char *const names[LEG_COUNT] = {"required", "optional"};
	uint64_t spill_bytes = routes_below(2) ? SPILL_BYTES : SPILL_BYTES_SMALL;

	for (unsigned i = 0; i < LEG_COUNT; i++) {
		struct leg *leg = &world.legs[i];

		memset(leg, 0, sizeof(*leg));
		leg->slowness = 128;
		snprintf(leg->far_name, sizeof(leg->far_name), "route-far-%u", i);
		snprintf(leg->spill_name, sizeof(leg->spill_name), "route-spill-%u", i);
		snprintf(leg->far_uri, sizeof(leg->far_uri), "fault:%s", leg->far_name);
		snprintf(leg->spill_uri, sizeof(leg->spill_uri), "fault:%s", leg->spill_name);
		farlog_fault_drop(leg->far_name);
		farlog_fault_drop(leg->spill_name);
		make_ring(leg->far_uri, spill_bytes == SPILL_BYTES ? RING_BYTES : RING_BYTES_LARGE, names[i]);
		make_ring(leg->spill_uri, spill_bytes, names[i]);
		farlog_fault_set_remote(leg->far_name, 1);
		farlog_fault_reseed(leg->far_name, routes_below(UINT64_MAX) | 1);
		farlog_fault_reseed(leg->spill_name, routes_below(UINT64_MAX) | 1);
	}
	world.next_number = 1;
}

void routes_die(void *context)
{
	(void)context;
	for (unsigned i = 0; i < LEG_COUNT; i++) {
		farlog_fault_arm(world.legs[i].far_name, 0);
		farlog_fault_arm(world.legs[i].spill_name, 0);
	}
}

bool routes_is_dead(void)
{
	for (unsigned i = 0; i < LEG_COUNT; i++)
		if (farlog_fault_is_dead(world.legs[i].far_name) || farlog_fault_is_dead(world.legs[i].spill_name))
			return true;
	return false;
}

void routes_arm(uint64_t operations)
{
	const struct leg *leg = &world.legs[routes_below(LEG_COUNT)];
	const char *name = routes_below(2) ? leg->far_name : leg->spill_name;

	farlog_fault_arm(name, operations);
	farlog_fault_call(name, operations, routes_die, NULL);
}

void routes_disarm(void)
{
	for (unsigned i = 0; i < LEG_COUNT; i++) {
		farlog_fault_arm(world.legs[i].far_name, UINT64_MAX);
		farlog_fault_arm(world.legs[i].spill_name, UINT64_MAX);
		farlog_fault_call(world.legs[i].far_name, UINT64_MAX, routes_die, NULL);
		farlog_fault_call(world.legs[i].spill_name, UINT64_MAX, routes_die, NULL);
	}
}

void routes_advance(uint64_t ns)
{
	uint64_t now_ns = clock_monotonic_ns();

	world.clock_ns = (now_ns > world.clock_ns ? now_ns : world.clock_ns) + ns;
	farlog_fault_set_clock(world.clock_ns);
}

void routes_end_or_cut(const char *name, bool is_cut)
{
	if (is_cut)
		farlog_fault_crash(name);
	else
		farlog_fault_kill(name);
}

void routes_set_slowness(unsigned i, unsigned of_256)
{
	world.legs[i].slowness = of_256;
	farlog_fault_set_slowness(world.legs[i].far_name, of_256);
}

void routes_set_away(unsigned i, bool is_away)
{
	if (world.legs[i].is_away == is_away)
		return;
	TRACE("leg %u %s\n", i, is_away ? "away" : "back");
	world.legs[i].is_away = is_away;
	if (!is_away)
		/* as a target does, which tears a connection down before it lets the next one in */
		farlog_fault_exorcise(world.legs[i].far_name);
	farlog_fault_set_away(world.legs[i].far_name, is_away);
}

/* store -- what a batch holds; what was stored of a log that went back is replaced. */
static void store(struct leg *leg, const uint8_t *buf, const struct farlog_batch *batch)
{
	while (leg->stored_count > 0 && leg->stored[leg->stored_count - 1].lsn >= batch->first_lsn)
		leg->stored_count--;
	for (size_t at = 0; at < batch->len;) {
		struct record_header header;
		struct stored *next = &leg->stored[leg->stored_count];

		memcpy(&header, buf + at, sizeof(header));
		if (header.flags == 0 && leg->stored_count < NUMBER_MAX) {
			next->lsn = header.lsn;
			memcpy(&next->number, buf + at + RECORD_HEADER_LEN, sizeof(next->number));
			leg->stored_count++;
		}
		at += header.flags & RECORD_FLAG_PAD ? RECORD_PAD_STORED_LEN :
											   record_extent(64, header.key_len, header.payload_len);
	}
}

void routes_drain(unsigned i)
{
	static uint8_t buf[64 << 10];
	struct leg *leg = &world.legs[i];
	struct farlog_reader_config config = {.is_drain = 1};
	struct farlog_batch batch;
	farlog_reader *reader;
	int result;

	if (leg->is_away || routes_is_dead())
		return;
	routes_disarm();
	if (farlog_reader_open(leg->far_uri, &config, &reader, NULL) != FARLOG_OK)
		return;
	farlog_fault_set_slowness(leg->far_name, 128);
	while (farlog_reader_read(reader, buf, sizeof(buf), &batch) == FARLOG_OK) {
		unsigned turns = 0;

		store(leg, buf, &batch);
		while (
			(result = farlog_reader_release(reader, batch.next_lsn, batch.next_seq, batch.last_epoch)) != FARLOG_OK &&
			++turns < 50)
			;
		if (result != FARLOG_OK)
			FAIL("leg %u: a routes_drain cannot release: %s", i, farlog_result_name(result));
	}
	farlog_fault_set_slowness(leg->far_name, leg->slowness);
	farlog_reader_close(reader);
}
