/* region/disk_room.h -- giving a file its blocks, without taking those that others on its disk need. */
#ifndef FARLOG_DISK_ROOM_H
#define FARLOG_DISK_ROOM_H

#include <stdint.h>

#include "farlog/farlog.h"

/* DISK_RESERVE_MAX -- of a file system, this or 5 % of it, whichever is less, is never given to a ring: the store of
 * its records, the state of the control plane and logs are often on the same disk, and a full ring must find them able
 * to write. */
#define DISK_RESERVE_MAX (1ull << 30)

/* disk_allocate -- an open regular file that is empty, and that nobody else makes, has size_bytes of blocks afterwards;
 * durable after an fsync. It is refused before anything is taken where the disk would not keep its reserve: ext4 takes
 * all that is free before it says that this was too little, and meanwhile nobody else can write.
 *
 * ERRORS  FARLOG_IO with errno; ENOSPC where the disk has too little. The file is empty again. May block for as long as
 *         the file system takes. */
int disk_allocate(
	const char *text, const char *path, int fd, uint64_t size_bytes, struct farlog_error *error) FARLOG_MUST_CHECK;

/* disk_make -- opens the file for reading and writing, and makes it size_bytes long, durably, when it is missing or is
 * a regular file that is empty. Of several processes that do so at once one makes it: the others wait for that and open
 * what it made, or make it when that went wrong. So none empties again what another one has made.
 *
 * ERRORS  FARLOG_IO with errno, FARLOG_NOT_FOUND where its directory is missing; what was made is gone again. May block
 *         as disk_allocate, for each that is before it. */
int disk_make(
	const char *text, const char *path, uint64_t size_bytes, int *fd, struct farlog_error *error) FARLOG_MUST_CHECK;

/* disk_sync_directory -- the one of this file: 0, or -1 and errno. */
int disk_sync_directory(const char *path) FARLOG_MUST_CHECK;

#endif
