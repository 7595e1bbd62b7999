/* fault/tended.c -- see fault/tended.h. */
#include "fault/tended.h"

#include "members/members.h"
#include "members/reader.h"

int __real_members_start_threads(struct region_members *whole, struct farlog_error *error) FARLOG_MUST_CHECK;
int __wrap_members_start_threads(struct region_members *whole, struct farlog_error *error) FARLOG_MUST_CHECK;
void __real_members_start_populator(struct region_members *whole);
void __wrap_members_start_populator(struct region_members *whole);
int __real_reader_member_start(struct reader_member *member, struct farlog_error *error) FARLOG_MUST_CHECK;
int __wrap_reader_member_start(struct reader_member *member, struct farlog_error *error) FARLOG_MUST_CHECK;
void __real_reader_members_adopt(struct reader_members *members);
void __wrap_reader_members_adopt(struct reader_members *members);

bool members_are_tended;

/* finish_tended -- one look at all members instead of a wait for those that are behind. */
static void finish_tended(struct region *region, uint64_t timeout_ns)
{
	members_ops.members.finish_copies(region, members_are_tended ? 1 : timeout_ns);
}

int __wrap_members_start_threads(struct region_members *whole, struct farlog_error *error)
{
	static struct region_ops tended_ops;

	if (!members_are_tended)
		return __real_members_start_threads(whole, error);
	tended_ops = members_ops;
	tended_ops.members.finish_copies = finish_tended;
	whole->region.ops = &tended_ops;
	for (unsigned i = 0; i < whole->count; i++)
		member_try_open(&whole->members[i]);
	return FARLOG_OK;
}

void __wrap_members_start_populator(struct region_members *whole)
{
	if (!members_are_tended)
		__real_members_start_populator(whole);
}

void members_tend(struct region *region)
{
	struct region_members *whole = members_of(region);

	for (unsigned i = 0; i < whole->count; i++) {
		struct member *member = &whole->members[i];

		pthread_mutex_lock(&whole->mutex);
		(void)member_adopt_ring(member);
		pthread_mutex_unlock(&whole->mutex);
		if (member_state(member) == MEMBER_LEAVING)
			(void)member_try_close(member);
		else if (member_state(member) == MEMBER_INSTALLING_EPOCH)
			member_install_epoch(member);
		else if (member_state(member) == MEMBER_AWAY)
			member_try_open(member);
	}
}

int __wrap_reader_member_start(struct reader_member *member, struct farlog_error *error)
{
	if (!members_are_tended)
		return __real_reader_member_start(member, error);
	(void)reader_member_try_open(member);
	return FARLOG_OK;
}

void __wrap_reader_members_adopt(struct reader_members *members)
{
	for (unsigned i = 0; members_are_tended && i < members->count; i++)
		if (members->member[i].reader == NULL && members->member[i].is_wanted)
			(void)reader_member_try_open(&members->member[i]);
	__real_reader_members_adopt(members);
}
