/* device.c -- see device.h. */
#include "device.h"

#include <stdio.h>

#include "adversary/blocks.h"

void device_make(uint32_t lba_len)
{
	farlog_block_drop(NAME);
	farlog_block_shape(lba_len, 1);
	unit_format(URI, SIZE, 8192);
	farlog_block_reseed(NAME, unit_random() | 1);
}

const char *device_file_uri(const char *name)
{
	static char uri[300];

	snprintf(uri, sizeof(uri), "nvme:%s", unit_path(unit_file_uri(name)));
	return uri;
}
