/* disk_room.h -- giving a file its blocks, without taking those that others on its disk need. */
#ifndef FARLOG_DISK_ROOM_H
#define FARLOG_DISK_ROOM_H

#include <stdint.h>

#include "farlog/farlog.h"

/* DISK_RESERVE_MAX -- of a file system, this or 5 % of it, whichever is less, is never given to a ring: the store of its records, the state of the
 * control plane and logs are often on the same disk, and a full ring must find them able to write. */
#define DISK_RESERVE_MAX (1ull << 30)

/* disk_allocate -- an open regular file that is empty has size_bytes of blocks afterwards; durable after an fsync. It is refused before anything is taken where the disk would not
 * keep its reserve: ext4 takes all that is free before it says that this was too little, and meanwhile nobody else can write.
 *
 * ERRORS  FARLOG_IO with errno; ENOSPC where the disk has too little. The file is empty again. May block for as long as the file system takes. */
int disk_allocate(const char *text, const char *path, int fd, uint64_t size_bytes, struct farlog_error *error);

#endif
