/* farlog.h -- the public header of libfarlog: a persistent log in remote memory. Its parts are those it includes.
 *
 * A process formats a ring in a region, opens it as its one writer, and appends records. When append returns
 * FARLOG_OK the record is at the durability level that the position names. A drain reads whole records from the
 * ring, puts them into a store, and releases their space. docs/reference/format.md holds the bytes,
 * docs/explanation/durability.md what each level means on each kind of region.
 *
 * Conventions
 *   Results   0 or a negative enum farlog_result. FULL, NOT_YET and UNKNOWN are ordinary results.
 *   Errors    Cold calls (open, format, inspect) take a struct farlog_error and write one line of text that names
 *             the thing, its value and what was expected. It may be NULL. Hot calls return the code alone.
 *   Units     _ns nanoseconds, _lsn byte positions that never wrap, _bytes and _len bytes, _count things.
 *   Threads   A handle is used by one thread at a time, except farlog_shared, whose append may be called by many.
 *   Fork      Handles stay with the parent; a child opens its own, and closes none of those.
 *   Blocking  Stated at each function. No append, wait or resolve waits beyond its deadline ("What a deadline
 *             bounds" in docs/explanation/durability.md).
 *   Memory    No function keeps a pointer that it was given beyond its return. The bytes of an entry are read once; one
 *             that changes meanwhile gives a record of mixed bytes, but a valid one. (A claim of more than 4096 bytes
 *             is used in place: it must not change during farlog_commit.) append, try_append, submit, poll,
 *             wait, claim and commit allocate nothing, take no lock and make no system call of their own (msync
 *             regions: a helper thread makes it; waiting may sleep).
 */
#ifndef FARLOG_FARLOG_H
#define FARLOG_FARLOG_H

#include "counters.h"
#include "reader.h"
#include "region.h"
#include "result.h"
#include "target.h"
#include "writer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. Before 1.0 another minor number may change structures and functions: a program that loads
 * the library at run time compares it with farlog_version, which gives that of the library. */
#define FARLOG_VERSION "0.2.0"
FARLOG_API const char *farlog_version(void);

#ifdef __cplusplus
}
#endif
#endif
