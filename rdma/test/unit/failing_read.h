/* failing_read.h -- a read of the core's own that fails: stands before farlog_reader_read. */
#ifndef FARLOG_TEST_FAILING_READ_H
#define FARLOG_TEST_FAILING_READ_H

/* The read that fails, counted from the next one; 0: none does. Of a test in which one thread reads. */
extern unsigned unit_failing_reads;

#endif
