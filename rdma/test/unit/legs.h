/* legs.h -- the legs of a route under test, and what their rings hold. */
#ifndef FARLOG_TEST_LEGS_H
#define FARLOG_TEST_LEGS_H

#include "farlog/route.h"
#include "ring/layout.h"
#include "unit.h"

#define SIZE (LAYOUT_DATA_OFF + (64u << 10))
#define SECOND_NS 1000000000ull

struct farlog_route_leg legs_leg_of(const char *name, const char *uri);

farlog_route *legs_open_legs(const struct farlog_route_leg *legs, uint32_t count, bool is_threaded);

int legs_append(farlog_route *route, uint16_t class_id, uint32_t criticality, uint64_t number,
	struct farlog_route_position *position);

const char *legs_fault_ring(const char *uri, uint64_t seed);

/* legs_numbers_in -- of the plain records in a ring, from its head on; GAPs are told by *gap. */
unsigned legs_numbers_in(const char *uri, uint64_t *numbers, unsigned room, struct farlog_gap *gap);

void legs_assert_numbers(const char *uri, uint64_t first, uint64_t last);

void legs_drain_all(const char *uri);

#endif
