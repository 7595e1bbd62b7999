/* adversary/kinds.c -- regions of adversarial media, opened by URI like any other; and the mutant that is at work. */
#include "adversary/blocks.h"
#include "adversary/file.h"
#include "adversary/memory.h"
#include "base/mutant.h"
#include "region/kinds.h"

int farlog_mutant;

static const struct region_kind kinds[] = {
	{.scheme = "fault", .open = region_fault_open},
	{.scheme = "file-fault", .open = region_fault_file_open},
	{.scheme = "block-fault", .open = block_fault_open},
	{.scheme = NULL},
};

/* add_kinds -- of whatever program this is linked to. */
__attribute__((constructor)) static void add_kinds(void)
{
	region_kinds_more = kinds;
}

void farlog_fault_set_mutant(int mutant)
{
	farlog_mutant = mutant;
}
