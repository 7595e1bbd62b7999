/* members_replace.c -- rings that are put in the place of a member's for good, in members.c: as the control plane does,
 * and what may come of it. */
#include "farlog/replace.h"
#include "base/err.h"
#include "members_world.h"
#include "adversary/memory.h"
#include "region/superblock.h"
#include "log/writer.h"

/* put_ring -- a new one in the place of the member's. */
static void put_ring(unsigned i)
{
	if (world.is_away[i] && below(2))
		farlog_fault_set_away(world.names[i], 0); /* it comes back, for those who know it */
	world.is_away[i] = false;
	world.swapped = i;
	snprintf(world.names[i], sizeof(world.names[i]), "swap-%u", ++world.swap_count);
	snprintf(world.uris[i], sizeof(world.uris[i]), "fault:swap-%u", world.swap_count);
	make_ring(world.uris[i], world.names[i], world.is_remote[i]);
	may_fail(farlog_ring_fence(world.uris[i], world.granted, NULL));
	name_all();
	world.swaps++;
	TRACE("member %u is %s\n", i + 1, world.uris[i]);
}

/* swap -- the former ring lives on, where nobody asks for it by a later grant; R4. */
static void swap(unsigned i)
{
	if (world.is_replaced || world.epoch_count == 0 || !do_others_know(i))
		return;
	if (below(4) == 0) {
		world.late = (struct grant){.epoch = ++world.granted};
		strcpy(world.late.uri, world.uri);
		world.now.is_fenced |= fence(world.granted);
	}
	put_ring(i);
}

static void tell(unsigned i, const char *uri)
{
	struct farlog_ring_status status;

	if (farlog_ring_inspect(uri, &status, NULL) != FARLOG_OK)
		return;
	TRACE("the writer of epoch %u is told that member %u is %s\n", world.now.writer->epoch, i + 1, uri);
	if (farlog_writer_replace_member(world.now.writer, i,
			&(struct farlog_member_ring){.uri = uri, .ring_uuid = status.ring_uuid}, NULL) != FARLOG_OK)
		FAIL("tell of %s", uri);
}

/* tell_wrong -- of a ring that has been written. */
static void tell_wrong(void)
{
	farlog_writer *writer;

	make_ring("fault:" USED_NAME, USED_NAME, false);
	if (farlog_writer_open("fault:" USED_NAME, &(struct farlog_writer_config){.counters_dir = ""}, &writer, NULL) ==
		FARLOG_OK)
		farlog_writer_close(writer);
	tell((unsigned)below(world.count), "fault:" USED_NAME);
}

/* change -- rings are changed, openings by old grants come late, and the writer is told: R1. */
void change(void)
{
	if (below(3) == 0)
		swap((unsigned)below(world.count));
	if (world.late.epoch != 0 && below(3) == 0) {
		bury(&world.former);
		world.former = world.now;
		(void)open_side(&world.now, world.late.uri, world.late.epoch);
		world.late.epoch = 0;
	}
	if (world.now.writer == NULL || world.now.writer->epoch != world.granted)
		return;
	if (below(16) == 0)
		tell_wrong();
	else if (world.swap_count > 0 &&
		strcmp(name_known(world.now.writer, world.swapped), world.names[world.swapped]) != 0)
		tell(world.swapped, world.uris[world.swapped]);
}

/* ---------------------------------------------------------------- a run of nothing else */

static uint8_t former[LAYOUT_DATA_OFF + 2 * LAYOUT_BLOCK_LEN]; /* a ring as it was */

/* forget -- a ring that was replaced comes back as it once was. */
static void forget(const char *name, const char *uri)
{
	struct region_options options = {.access = REGION_WRITE, .role = REGION_ROLE_DRAIN};
	struct region_span span = {0, world.config.size_bytes};
	struct region *region;

	farlog_fault_kill(name);
	farlog_fault_exorcise(name);
	farlog_fault_set_remote(name, 0);
	farlog_fault_set_slowness(name, 128);
	farlog_fault_set_away(name, 0);
	if (region_open(uri, &options, &region, NULL) != FARLOG_OK)
		return;
	region->ops->data.write(region, 0, former, world.config.size_bytes);
	may_fail(region_persist_wait(region, &span, 1));
	region->ops->close(region);
	TRACE("%s is as it was\n", uri);
}

/* go_on -- the writer appends, its members are tended, and some of it is drained. */
static void go_on(uint64_t steps)
{
	for (; steps > 0 && world.now.writer != NULL && world.failure[0] == '\0'; steps--)
		switch (below(8)) {
		case 0:
		case 1:
			drain();
			break;
		case 2:
		case 3:
			tend(&world.now);
			break;
		default:
			append(&world.now);
			break;
		}
}

/* succeed -- a grant that is not opened; and a later one, whose epoch one of the members does not hear of. */
static void succeed(unsigned away)
{
	world.late = (struct grant){.epoch = ++world.granted};
	strcpy(world.late.uri, world.uri);
	(void)fence(world.granted);
	bury(&world.now);
	take_away(away);
	(void)open_side(&world.now, world.uri, ++world.granted);
}

static void give_back(unsigned i)
{
	if (world.is_away[i])
		bring_back(i);
}

/* end_late -- the grant of before the change is opened after all, by the former ring as it was: with all the others but
 * one. */
static void end_late(const char *name, const char *uri, unsigned away)
{
	forget(name, uri);
	take_away(away);
	world.former = world.now;
	(void)open_side(&world.now, world.late.uri, world.late.epoch);
	world.late.epoch = 0;
}

/* play_replacement -- a writer is told of the ring in the place of a member's, and ends at some time behind that: while
 * it is brought what it lacks, when it counts, or later. The next one finds what was acknowledged without one of the
 * others. A former ring may have lost its memory from the moment that the new one counts. */
void play_replacement(void)
{
	unsigned i = (unsigned)below(world.count);
	unsigned other = (i + 1 + (unsigned)below(world.count - 1)) % world.count;
	unsigned third = (i + 1 + (unsigned)below(world.count - 1)) % world.count;
	char name[sizeof(world.names[i])];
	char uri[sizeof(world.uris[i])];
	struct farlog_ring_status status;

	(void)open_side(&world.now, world.uri, 0);
	go_on(below(64));
	memcpy(name, world.names[i], sizeof(name));
	memcpy(uri, world.uris[i], sizeof(uri));
	farlog_fault_media(name, 0, former, world.config.size_bytes);
	if (below(2))
		succeed(other);
	else if (below(2))
		take_away(other);
	go_on(below(32));
	if (world.now.writer == NULL || !do_others_know(i))
		return;
	put_ring(i);
	tell(i, world.uris[i]);
	for (uint64_t left = below(8); left > 0; left--)
		tend(&world.now);
	go_on(below(16));
	give_back(other);
	if (below(2))
		go_on(below(16));
	if (world.late.epoch != 0 && farlog_ring_inspect(world.uris[i], &status, NULL) == FARLOG_OK &&
		status.writer_epoch != 0 && below(2)) {
		end_late(name, uri, third);
		return;
	}
	world.late.epoch = 0;
	bury(&world.now);
	take_away(third);
	(void)open_side(&world.now, world.uri, ++world.granted);
	go_on(below(8));
}
