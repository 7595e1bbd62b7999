/* open/kinds.c -- every kind of region, and every way to open a log: the one place that knows them all. */
#include "agent/agent.h"
#include "blocks/nvme.h"
#include "far/open.h"
#include "log/openers.h"
#include "mem/mem.h"
#include "members/members.h"
#include "members/reader.h"
#include "region/kinds.h"

const struct region_kind region_kinds[] = {
	{.scheme = "mem", .open = region_mem_open, .probe = region_mem_probe},
	{.scheme = "nvme", .open = region_nvme_open, .probe = region_nvme_probe},
	{.scheme = "members", .open = region_members_open},
	{.scheme = "verbs", .open = region_far_open},
	{.scheme = "ofi", .open = region_far_open},
	{.scheme = NULL},
};

int (*const region_open_device)(
	const char *path, bool is_writing, int *fd, struct farlog_error *error) = agent_device_open;

const struct log_openers log_openers = {
	.writer_by_name = agent_writer_open,
	.reader_by_name = agent_reader_open,
	.reader_of_members = reader_members_open,
};
