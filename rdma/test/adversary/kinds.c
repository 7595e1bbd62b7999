/* adversary/kinds.c -- regions of adversarial media, opened by URI like any other. */
#include "adversary/blocks.h"
#include "adversary/file.h"
#include "adversary/memory.h"
#include "region/kinds.h"

static const struct region_kind kinds[] = {
	{.scheme = "fault", .open = region_fault_open},
	{.scheme = "file-fault", .open = region_fault_file_open},
	{.scheme = "block-fault", .open = block_fault_open},
	{.scheme = NULL},
};

/* add_kinds -- of whatever program this is linked to. */
__attribute__((constructor)) static void add_kinds(void)
{
	region_extra_kinds = kinds;
}
