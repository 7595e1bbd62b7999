package farlog

/*
#include <stdlib.h>
#include "farlog/farlog.h"
*/
import "C"

import (
	"time"
	"unsafe"
)

// Bucket is one bucket of a latency histogram.
type Bucket struct {
	UpperBound time.Duration
	Count      uint64
}

// Counters are what a ring's present or last writer exported in shared memory.
type Counters struct {
	raw C.struct_farlog_counters
}

// ReadCounters copies the counters of a ring; readable also after the writer's death. dir as WriterOptions.CountersDir.
// ErrNotFound: none were exported on this machine.
//
// Implements: int farlog_counters_read(const char *, const uint8_t[16], struct farlog_counters *, struct farlog_error
// *)
func ReadCounters(dir string, ringUUID [16]byte) (*Counters, error) {
	counters := new(Counters)
	uuid := uuidPointer(&ringUUID)
	defer C.free(unsafe.Pointer(uuid))
	c := countersDir(dir)
	defer C.free(unsafe.Pointer(c))
	var failure C.struct_farlog_error
	if result := C.farlog_counters_read(c, uuid, &counters.raw, &failure); result != 0 {
		return nil, &Error{Result: Result(result), Errno: int(failure.os_errno), Text: C.GoString(&failure.text[0])}
	}
	return counters, nil
}

// Quantile gives the append latency below which a share q of the appends stayed; 1 is the maximum.
//
// Implements: uint64_t farlog_histogram_quantile_ns(const struct farlog_counters *, double)
func (c *Counters) Quantile(q float64) time.Duration {
	return time.Duration(C.farlog_histogram_quantile_ns(&c.raw, C.double(q)))
}

// LatencyCount is the number of latencies recorded; LatencySum their sum.
func (c *Counters) LatencyCount() uint64 { return uint64(c.raw.latency_count) }

// LatencySum is the sum of all latencies recorded.
func (c *Counters) LatencySum() time.Duration { return time.Duration(c.raw.latency_sum_ns) }

// Buckets gives the buckets that hold something, in order.
//
// Implements: uint64_t farlog_histogram_bucket_ns(unsigned)
func (c *Counters) Buckets() []Bucket {
	var buckets []Bucket
	for i, count := range c.raw.latency_bucket {
		if count > 0 {
			upper := time.Duration(C.farlog_histogram_bucket_ns(C.uint(i)))
			buckets = append(buckets, Bucket{UpperBound: upper, Count: uint64(count)})
		}
	}
	return buckets
}
