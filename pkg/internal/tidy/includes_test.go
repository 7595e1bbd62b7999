package tidy

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// plainHeaders do no input or output of their own (stdio.h serves snprintf here; printing is forbidden by another test).
var plainHeaders = []string{"errno.h", "limits.h", "sched.h", "stdarg.h", "stdbool.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h",
	"string.h", "time.h"}

// extraHeaders lists every other header that a file of the C core may include, and why. Files named region_* are the seam to
// devices: they may include what they need.
var extraHeaders = []struct {
	file    string
	headers []string
	reason  string
}{
	{"agent.c", []string{"poll.h", "sys/socket.h", "sys/un.h", "unistd.h"}, "the host agent's Unix socket"},
	{"agent_device.c", []string{"sys/stat.h", "unistd.h"}, "a descriptor that came over the socket"},
	{"agent_route.c", []string{"sys/stat.h"}, "the directory of a route's spills"},
	{"agent_follow.c", []string{"poll.h", "pthread.h", "signal.h", "sys/eventfd.h", "unistd.h"}, "the thread that asks while a writer runs, and the bell that ends it"},
	{"agent_renew.c", []string{"pthread.h", "signal.h", "sys/eventfd.h", "unistd.h"}, "the thread that asks for another grant while nobody waits for it, and the bell that ends it"},
	{"reader_grant.c", []string{"pthread.h"}, "the owner of a reader gives another token while who connects again asks for it"},
	{"terms.h", []string{"pthread.h"}, "what others set while a writer runs"},
	{"block_fault.c", []string{"pthread.h"}, "readers, writers and the crash come from several threads"},
	{"block_foreign.c", []string{"blkid/blkid.h", "dlfcn.h", "fcntl.h", "unistd.h"}, "libblkid, loaded when a device is formatted, tells what it holds"},
	{"block_health.c", []string{"fcntl.h", "linux/nvme_ioctl.h", "sys/ioctl.h", "unistd.h"}, "the health page of a device, which no ring is needed for"},
	{"block_host.c", []string{"dirent.h"}, "by which id the target of a device knows this host, as sysfs tells it"},
	{"block_name.c", []string{"dirent.h"}, "namespaces that sysfs tells of"},
	{"block_passthrough.c", []string{"fcntl.h", "linux/nvme_ioctl.h", "sys/ioctl.h"}, "NVMe commands as the device takes them"},
	{"block_probe.c", []string{"fcntl.h", "libgen.h", "linux/magic.h", "sys/stat.h", "sys/sysmacros.h", "sys/vfs.h", "unistd.h"},
		"what sysfs says of a block device"},
	{"block_reserve_ioctl.c", []string{"linux/nvme_ioctl.h", "linux/pr.h", "sys/ioctl.h", "sys/stat.h", "sys/sysmacros.h", "unistd.h"},
		"reservations of a namespace"},
	{"block_uring.c", []string{"linux/fs.h", "sys/ioctl.h", "unistd.h"}, "block devices"},
	{"block_uring_open.c", []string{"fcntl.h", "unistd.h"}, "block devices"},
	{"clock.c", []string{"pthread.h", "sys/timex.h"}, "the sampler thread asks the kernel's clock discipline"},
	{"crc32c.c", []string{"arm_acle.h", "nmmintrin.h", "immintrin.h", "wmmintrin.h"}, "CRC and carry-less instructions"},
	{"directory_admin.c", []string{"sys/random.h"}, "identity of a new region"},
	{"disk_room.c", []string{"fcntl.h", "libgen.h", "sys/file.h", "sys/stat.h", "sys/statvfs.h", "unistd.h"}, "how much room a file system has, and making a file there, one process at a time"},
	{"far_knock.c", []string{"poll.h", "sys/socket.h", "unistd.h"}, "whether anything listens at an address"},
	{"uri.c", []string{"arpa/inet.h", "netinet/in.h"}, "the address of this host that a far ring is reached by"},
	{"far_link.c", []string{"sys/mman.h"}, "the copy of a ring, which no child inherits"},
	{"far_ofi.c", []string{"poll.h"}, "waiting for libfabric's descriptors"},
	{"far_region.h", []string{"pthread.h"}, "the thread that connects again"},
	{"far_verbs.c", []string{"netdb.h", "poll.h"}, "resolving the target and waiting for the device's events"},
	{"far_verbs.h", []string{"sys/socket.h"}, "the target's address"},
	{"far_verbs_connect.c", []string{"fcntl.h"}, "an event channel that does not block"},
	{"lib_ofi.c", []string{"dlfcn.h", "pthread.h", "signal.h", "sys/random.h", "sys/socket.h"},
		"libfabric is loaded at run time, and must leave signals alone; its keys are random"},
	{"lib_ofi.h", []string{"rdma/fabric.h", "rdma/fi_cm.h", "rdma/fi_domain.h", "rdma/fi_endpoint.h", "rdma/fi_eq.h", "rdma/fi_errno.h",
		"rdma/fi_rma.h"}, "libfabric"},
	{"lib_uring.c", []string{"dlfcn.h", "pthread.h"}, "liburing is loaded at run time"},
	{"lib_uring.h", []string{"liburing.h"}, "liburing"},
	{"lib_verbs.c", []string{"dlfcn.h", "pthread.h"}, "libibverbs and librdmacm are loaded at run time"},
	{"lib_verbs.h", []string{"infiniband/verbs.h", "rdma/rdma_cma.h"}, "rdma-core"},
	{"persist.c", []string{"cpuid.h", "immintrin.h", "pthread.h", "sys/mman.h"},
		"flush instructions, chosen once by measuring over scratch memory"},
	{"phc.c", []string{"dirent.h", "fcntl.h", "linux/ptp_clock.h", "sys/ioctl.h", "sys/timex.h", "unistd.h"},
		"the sampler thread asks PTP devices"},
	{"position.c", []string{"fcntl.h", "inttypes.h", "libgen.h", "sys/file.h", "sys/stat.h", "unistd.h"}, "the file of a named consumer, and its lock"},
	{"reader_members.h", []string{"pthread.h"}, "each member is opened by a thread of its own: one that does not answer holds up nobody"},
	{"role_lock.c", []string{"fcntl.h"}, "locks of an open file"},
	{"ring_admin.c", []string{"sys/random.h"}, "identity and salt of a new ring"},
	{"route_await.c", []string{"poll.h"}, "waiting for several regions at once"},
	{"route.h", []string{"pthread.h"}, "a thread for each leg that is not waited for"},
	{"route_open.c", []string{"sys/mman.h", "unistd.h"}, "memory of this process in which a leg's records wait"},
	{"shared.c", []string{"linux/futex.h", "sys/syscall.h", "unistd.h"}, "threads that wait for another's flush"},
	{"stats.c", []string{"fcntl.h", "sys/file.h", "sys/mman.h", "sys/stat.h", "unistd.h"}, "the counter file in shared memory"},
	{"shared_beat.c", []string{"pthread.h"}, "the thread that appends heartbeats"},
	{"store_reader.c", []string{"dirent.h"}, "a stream's directory in a store"},
	{"store_scan.c", []string{"fcntl.h", "unistd.h"}, "segments of a store, read only"},
	{"store_segment.c", []string{"fcntl.h", "sys/stat.h", "unistd.h"}, "segments of a store, read only"},
	{"stream.h", []string{"immintrin.h"}, "64-byte registers, streaming stores and carry-less multiplication"},
	{"target.h", []string{"pthread.h", "sys/socket.h"}, "one lock for rings, grants and connections; a peer's address"},
	{"target_ofi.c", []string{"poll.h", "sys/eventfd.h", "unistd.h"}, "waiting for libfabric's descriptors"},
	{"target_ofi_conn.c", []string{"sys/eventfd.h"}, "waking the thread that revokes"},
	{"target_ofi_door.c", []string{"arpa/inet.h", "dirent.h", "poll.h", "sys/eventfd.h", "sys/socket.h", "sys/time.h"},
		"the port it got, and a limit to how long its socket waits for a handshake"},
	{"target_network.c", []string{"arpa/inet.h"}, "a peer's address, to be compared"},
	{"target_refusals.c", []string{"arpa/inet.h"}, "a peer's address as text"},
	{"target_verbs.c", []string{"arpa/inet.h", "fcntl.h", "netdb.h", "poll.h", "sys/eventfd.h", "unistd.h"}, "listening, and waiting for the device's events"},
	{"target_verbs.h", []string{"pthread.h"}, "the thread of a listener"},
	{"target_verbs_conn.c", []string{"sys/eventfd.h"}, "waking the thread that revokes"},
	{"verbs_address.h", []string{"netdb.h"}, "addresses of a name"},
	{"verbs_device.c", []string{"fcntl.h", "poll.h", "sys/resource.h"}, "events of a device, and the limit of locked memory"},
	{"verbs_queue.c", []string{"sys/mman.h"}, "registered memory stays out of forked children"},
	{"writer_open.c", []string{"unistd.h"}, "host name and process id in the writer's identity"},
}

var includeLine = regexp.MustCompile(`(?m)^\s*#\s*include\s*<([^>]+)>`)

func allowedHeaders(name string) []string {
	for _, extra := range extraHeaders {
		if extra.file == name {
			return append(slices.Clone(plainHeaders), extra.headers...)
		}
	}
	return plainHeaders
}

func TestIncludes_OnlyRegionsKnowDevices(t *testing.T) {
	for _, f := range tracked(t, ".c", ".h") {
		name := path.Base(f.path)
		if path.Dir(f.path) != "rdma/src" || strings.HasPrefix(name, "region_") {
			continue
		}
		allowed := allowedHeaders(name)
		for _, match := range includeLine.FindAllStringSubmatch(string(f.content), -1) {
			if !slices.Contains(allowed, match[1]) {
				t.Errorf("%s includes <%s>: devices belong into region_*.c; if this file truly needs it, add a line with the reason to "+
					"extraHeaders", f.path, match[1])
			}
		}
	}
}

var localInclude = regexp.MustCompile(`(?m)^\s*#\s*include\s*"([^"]+)"`)

// pureFiles are arithmetic and bytes: they may include each other, the public header and nothing else of ours.
var pureFiles = []string{"record.c", "record.h", "ring.h", "layout.h", "crc32c.c", "crc32c.h", "gather.h", "mutant.h", "farlog/farlog.h"}

func TestIncludes_ArithmeticKnowsNoMedia(t *testing.T) {
	for _, f := range tracked(t, ".c", ".h") {
		if path.Dir(f.path) != "rdma/src" || !slices.Contains(pureFiles, path.Base(f.path)) {
			continue
		}
		for _, match := range localInclude.FindAllStringSubmatch(string(f.content), -1) {
			if !slices.Contains(pureFiles, match[1]) {
				t.Errorf("%s includes %q: record, ring and layout are arithmetic; do the input and output in the caller", f.path, match[1])
			}
		}
	}
}

var printing = regexp.MustCompile(`\b(printf|puts|putchar|perror|fprintf|vprintf|fputs)\s*\(`)

func TestIncludes_LibraryDoesNotPrint(t *testing.T) {
	for _, f := range tracked(t, ".c", ".h") {
		if path.Dir(f.path) != "rdma/src" {
			continue
		}
		for i, line := range f.lines() {
			if printing.MatchString(line) {
				t.Errorf("%s:%d prints: return a code, and a text through struct farlog_error", f.path, i+1)
			}
		}
	}
}

// A C++ header may take from this tree the public headers of its own folder: it is installed without the core.
func TestIncludes_CxxStandsOnThePublicHeader(t *testing.T) {
	for _, f := range tracked(t, ".hpp") {
		if path.Dir(f.path) != "rdma/include/farlog" {
			continue
		}
		for _, match := range localInclude.FindAllStringSubmatch(string(f.content), -1) {
			if name, isPublic := strings.CutPrefix(match[1], "farlog/"); !isPublic || name != path.Base(name) {
				t.Errorf("%s includes %q: the C++ layer stands on the headers of its own folder alone; add what you need to one of them", f.path, match[1])
			}
		}
	}
}
