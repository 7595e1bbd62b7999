/* mem/map_guard.h -- a page that the media of a mapped region no longer gives becomes an error of the region.
 *
 * The kernel answers an access to such a page with SIGBUS: the disk failed the read, the file was cut off, the memory
 * was found bad. After farlog_guard_mappings the handler puts a page of zeros in its place, stores to
 * region.has_lost_page before the access goes on, and every operation of the region fails from then on: the zeros are
 * never taken for what the page held, and what is written to them is never acknowledged. No network library may have
 * such a mapping: region_mem_serve. SIGBUS at any other address goes to the handler that was there before. */
#ifndef FARLOG_MAP_GUARD_H
#define FARLOG_MAP_GUARD_H

#include <stdint.h>

struct map_guard {
	struct map_guard *next; /* guarded, as all of this, by the mutex of mem/map_guard.c */
	uint8_t *start;
	uint64_t len;
	uint64_t *has_lost_page; /* where the handler stores 1 */
};

/* map_guard_add -- watch a mapping; does nothing before farlog_guard_mappings. map_guard_remove -- before it is
 * unmapped; also of one that was never added. Neither fails. */
void map_guard_add(struct map_guard *guard, uint8_t *start, uint64_t len, uint64_t *has_lost_page);
void map_guard_remove(struct map_guard *guard);

#endif
