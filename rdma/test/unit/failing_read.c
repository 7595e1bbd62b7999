/* failing_read.c -- see failing_read.h. */
#include "failing_read.h"

#include "farlog/farlog.h"

unsigned unit_failing_reads;

int __real_farlog_reader_read(farlog_reader *reader, void *buf, size_t buf_len, struct farlog_batch *batch);
int __wrap_farlog_reader_read(farlog_reader *reader, void *buf, size_t buf_len, struct farlog_batch *batch);

int __wrap_farlog_reader_read(farlog_reader *reader, void *buf, size_t buf_len, struct farlog_batch *batch)
{
	if (unit_failing_reads != 0 && --unit_failing_reads == 0)
		return FARLOG_IO;
	return __real_farlog_reader_read(reader, buf, buf_len, batch);
}
