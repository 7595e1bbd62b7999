/* result.h -- libfarlog: results, errors and durability levels. Part of farlog.h. */
#ifndef FARLOG_PUBLIC_RESULT_H
#define FARLOG_PUBLIC_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FARLOG_API __attribute__((visibility("default")))

/* A result that is not looked at is a warning of the compiler. Closing alone may go without. */
#define FARLOG_MUST_CHECK __attribute__((warn_unused_result))

/* The one table of results: C, the Go sentinels and the Java enum are made from it. name, value, text. */
#define FARLOG_RESULT_TABLE(X) \
	X(OK, 0, "done") \
	X(FULL, -1, "ring is full: the drain has not yet freed enough space") \
	X(FENCED, -2, "writer is fenced: a higher epoch has been opened or ordered") \
	X(TOO_LARGE, -3, "record is larger than the ring's record_len_max") \
	X(CLOSED, -4, "handle is closed") \
	X(UNKNOWN, -5, "record may or may not be written: the deadline passed or the region failed") \
	X(NOT_YET, -6, "nothing new yet") \
	X(NOT_FOUND, -7, "no such record or file") \
	X(INVALID, -8, "argument is out of range") \
	X(HELD, -9, "another process holds this ring") \
	X(NOT_A_RING, -10, "region holds no ring of this kind") \
	X(CORRUPT, -11, "bytes on media fail their check") \
	X(LEVEL, -12, "region cannot give the durability level that was asked for") \
	X(IO, -13, "input or output failed") \
	X(NO_MEMORY, -14, "out of memory") \
	X(EXISTS, -15, "region already holds a ring") \
	X(OVERRUN, -16, "reader was overtaken: the writer reused the bytes it was to read") \
	X(UNSUPPORTED, -17, "not supported on this machine or by this build") \
	X(NO_KEY, -18, "stream is encrypted, and its key was not given")

enum farlog_result {
#define FARLOG_RESULT_ENUM(name, value, text) FARLOG_##name = (value),
	FARLOG_RESULT_TABLE(FARLOG_RESULT_ENUM)
#undef FARLOG_RESULT_ENUM
};

/* farlog_result_name -- "FULL" for FARLOG_FULL; never NULL. farlog_result_text -- its sentence. */
FARLOG_API const char *farlog_result_name(int result);
FARLOG_API const char *farlog_result_text(int result);

struct farlog_error {
	int32_t result;   /* enum farlog_result */
	int32_t os_errno; /* errno of the call that failed, 0 = none */
	char text[504];   /* one line, no newline at the end */
};

/* Durability levels, weakest first. An acknowledgement carries the one that was reached. */
enum farlog_level {
	FARLOG_LEVEL_NONE = 0,
	FARLOG_LEVEL_POSTED = 1,     /* handed over; survives nothing yet */
	FARLOG_LEVEL_VISIBLE = 2,    /* survives this process */
	FARLOG_LEVEL_PERSISTENT = 3, /* survives a power cut; `copies` says on how many regions */
	FARLOG_LEVEL_STORED = 4,     /* in the central store, synced */
	FARLOG_LEVEL_ARCHIVED = 5,
};
FARLOG_API const char *farlog_level_name(int level);

#ifdef __cplusplus
}
#endif
#endif
