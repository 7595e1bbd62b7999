/* device.h -- adversarial blocks with a ring, and a file that stands for a device. */
#ifndef FARLOG_TEST_DEVICE_H
#define FARLOG_TEST_DEVICE_H

#include "ring/layout.h"
#include "unit.h"

#define NAME "unit-blocks"
#define URI "block-fault:" NAME
#define SIZE (LAYOUT_DATA_OFF + (64u << 10))

void device_make(uint32_t lba_len);

const char *device_file_uri(const char *name);

#endif
