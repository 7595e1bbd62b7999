/* fault/tended.h -- streams with several members without threads of their own, so that a run can be repeated.
 *
 * The functions that start the threads are stood before: they open the members where they are called. What a thread
 * would do next to a writer's members, members_tend does; a reader's members are opened when it adopts them. */
#ifndef FARLOG_FAULT_TENDED_H
#define FARLOG_FAULT_TENDED_H

#include <stdbool.h>

#include "region/region.h"

/* For streams that are opened from now on. A writer that closes does not wait for members that are behind: nobody else
 * would bring them forward. */
extern bool members_are_tended;

/* members_tend -- one step of what the threads of a writer's members would do. */
void members_tend(struct region *region);

#endif
