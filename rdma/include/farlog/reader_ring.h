/* reader_ring.h -- libfarlog: which ring a reader reads. On top of farlog.h. */
#ifndef FARLOG_READER_RING_H
#define FARLOG_READER_RING_H

#include "farlog.h"

#ifdef __cplusplus
extern "C" {
#endif

/* farlog_reader_ring -- uuid (16 bytes) and salt of the ring, as its header said when the reader looked at it last. 1;
 * 0: the stream has several rings, and nothing is reported. By the reader's thread; blocks for nothing. */
FARLOG_API int farlog_reader_ring(const farlog_reader *reader, uint8_t *ring_uuid, uint64_t *salt) FARLOG_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
