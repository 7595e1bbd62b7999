/* carved.h -- rings that are carved from a region by its directory. */
#ifndef FARLOG_TEST_CARVED_H
#define FARLOG_TEST_CARVED_H

#include "region/directory.h"
#include "unit.h"

#define RING_LEN (LAYOUT_DATA_OFF + (16u << 10))
#define REGION_LEN (DIRECTORY_LEN + 4 * RING_LEN)
#define LIST_MAX 8

/* carved_at -- the URI of a ring of that region. */
const char *carved_at(const char *uri, const char *ring);

int carved_format_sized(
	const char *uri, const char *ring, uint64_t size_bytes, bool is_forced, struct farlog_error *error);

void carved_make(const char *uri, const char *ring);

/* carved_list -- how many rings there are; -1: there is no directory. */
int carved_list(const char *uri, struct farlog_region_ring rings[LIST_MAX], struct farlog_region_status *status);

void carved_append(const char *uri, const char *ring, unsigned count, uint8_t fill);

/* carved_count_records -- undrained, without EPOCH records: all of them must be of `fill`. */
unsigned carved_count_records(const char *uri, const char *ring, uint8_t fill);

#endif
