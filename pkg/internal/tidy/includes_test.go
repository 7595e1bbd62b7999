package tidy

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// plainHeaders do no input or output of their own (stdio.h serves snprintf here; printing is forbidden by another
// test).
var plainHeaders = []string{
	"errno.h", "limits.h", "sched.h", "stdarg.h", "stdbool.h", "stddef.h", "stdint.h",
	"stdio.h", "stdlib.h",
	"string.h", "time.h",
}

// mediaRooms are the seam to devices of this host: their files may include what they need.
var mediaRooms = []string{"mem", "blocks"}

// extraHeaders lists every other header that a file of the other rooms of the C core may include, and why.
var extraHeaders = []struct {
	file    string
	headers []string
	reason  string
}{
	{"admin/directory_admin.c", []string{"sys/random.h"}, "identity of a new region"},
	{"admin/ring_admin.c", []string{"sys/random.h"}, "identity and salt of a new ring"},
	{"agent/agent.c", []string{"poll.h", "sys/socket.h", "sys/un.h", "unistd.h"}, "the host agent's Unix socket"},
	{"agent/device.c", []string{"sys/stat.h", "unistd.h"}, "a descriptor that came over the socket"},
	{
		"agent/follow.c",
		[]string{"poll.h", "pthread.h", "sys/eventfd.h", "unistd.h"},
		"the thread that asks while a writer runs, and the event that ends it",
	},
	{
		"agent/renew.c",
		[]string{"pthread.h", "sys/eventfd.h", "unistd.h"},
		"the thread that asks for another grant, and the event that ends it",
	},
	{"agent/route.c", []string{"sys/stat.h"}, "the directory of a route's spills"},
	{"base/clock.c", []string{"poll.h", "pthread.h"}, "a sleep that an event ends; the sampler is a thread"},
	{"base/clock_sample.c", []string{"sys/timex.h"}, "the sampler asks the kernel's clock discipline"},
	{
		"base/crc32c.c",
		[]string{"arm_acle.h", "nmmintrin.h", "immintrin.h", "wmmintrin.h"},
		"CRC and carry-less instructions",
	},
	{
		"base/keys.c",
		[]string{"fcntl.h", "sys/random.h", "sys/stat.h", "unistd.h"},
		"a file of keys, which only its owner may read, and what an opening draws",
	},
	{"base/lib_crypto.c", []string{"dlfcn.h", "pthread.h"}, "libcrypto is loaded when the first key is read"},
	{
		"base/phc.c",
		[]string{"dirent.h", "fcntl.h", "linux/ptp_clock.h", "sys/ioctl.h", "sys/timex.h", "unistd.h"},
		"the sampler thread asks PTP devices",
	},
	{
		"base/stats.c",
		[]string{"fcntl.h", "sys/file.h", "sys/mman.h", "sys/stat.h", "unistd.h"},
		"the counter file in shared memory",
	},
	{"base/thread.c", []string{"signal.h"}, "a thread of the library handles no signals"},
	{"base/thread.h", []string{"pthread.h"}, "starting threads and waiting for conditions"},
	{"base/uri.c", []string{"arpa/inet.h", "netinet/in.h"}, "the address of this host that a far ring is reached by"},
	{"far/probe.c", []string{"poll.h", "sys/socket.h", "unistd.h"}, "whether anything listens at an address"},
	{"far/link.c", []string{"sys/mman.h"}, "the copy of a ring, which no child inherits"},
	{"far/far.h", []string{"poll.h"}, "what a thread sleeps for"},
	{"far/ofi.c", []string{"poll.h"}, "waiting for libfabric's descriptors"},
	{
		"far/open.c",
		[]string{"linux/futex.h", "pthread.h", "sys/eventfd.h", "sys/random.h", "sys/syscall.h", "unistd.h"},
		"the thread that connects again, and what wakes one that waits",
	},
	{"far/region.c", []string{"pthread.h", "sys/mman.h"}, "the copy of a ring, and the thread that connects again"},
	{"far/region.h", []string{"pthread.h"}, "the thread that connects again"},
	{"far/verbs_open.c", []string{"netdb.h"}, "resolving the target"},
	{"far/verbs.h", []string{"sys/socket.h"}, "the target's address"},
	{"far/verbs_connect.c", []string{"fcntl.h"}, "an event channel that does not block"},
	{"far/wait.c", []string{"unistd.h"}, "what wakes a thread that waits"},
	{
		"history/position.c",
		[]string{"fcntl.h", "inttypes.h", "libgen.h", "sys/file.h", "sys/stat.h", "unistd.h"},
		"the file of a named consumer, and its lock",
	},
	{"history/store_base.c", []string{"dirent.h"}, "base manifests in a stream's directory"},
	{"history/store_reader.c", []string{"dirent.h"}, "a stream's directory in a store"},
	{"history/store_scan.c", []string{"fcntl.h", "sys/stat.h", "unistd.h"}, "segments of a store, read only"},
	{"history/store_segment.c", []string{"fcntl.h", "sys/stat.h", "unistd.h"}, "segments of a store, read only"},
	{
		"log/reader_grant.c",
		[]string{"pthread.h"},
		"the owner of a reader gives another token while who connects again asks for it",
	},
	{"log/shared.c", []string{"linux/futex.h", "sys/syscall.h", "unistd.h"}, "threads that wait for another's flush"},
	{"log/shared_beat.c", []string{"pthread.h"}, "the thread that appends heartbeats"},
	{"log/settings.h", []string{"pthread.h"}, "what others set while a writer runs"},
	{
		"log/writer_open.c",
		[]string{"signal.h", "unistd.h"},
		"host name and process id in the writer's identity, and whether there is such a process",
	},
	{
		"members/members.c",
		[]string{"poll.h", "sys/mman.h"},
		"waiting for several members at once; memory that all of them copy from",
	},
	{"members/members.h", []string{"pthread.h"}, "a thread for each member"},
	{
		"members/open.c",
		[]string{"sys/mman.h", "sys/random.h"},
		"memory that all members copy from; an identity for reconnects",
	},
	{
		"members/reader.h",
		[]string{"pthread.h"},
		"each member is opened by a thread of its own: one that does not answer holds up nobody",
	},
	{
		"region/disk_space.c",
		[]string{"fcntl.h", "libgen.h", "sys/file.h", "sys/stat.h", "sys/statvfs.h", "unistd.h"},
		"how much room a file system has, and making a file there, one process at a time",
	},
	{"region/role_lock.c", []string{"fcntl.h"}, "locks of an open file"},
	{"region/staging.c", []string{"sys/mman.h", "unistd.h"}, "memory in which a writer's records are put together"},
	{"region/staging.h", []string{"pthread.h"}, "several members share one copy"},
	{"ring/stream.h", []string{"immintrin.h"}, "64-byte registers, streaming stores and carry-less multiplication"},
	{"route/await.c", []string{"poll.h"}, "waiting for several regions at once"},
	{"route/open.c", []string{"sys/mman.h", "unistd.h"}, "memory of this process in which a leg's records wait"},
	{"route/route.h", []string{"pthread.h"}, "a thread for each leg that is not waited for"},
	{
		"target/conn_limiter.c",
		[]string{"netinet/in.h", "sys/resource.h", "sys/stat.h"},
		"a connection's address and inode, and how many descriptors there may be",
	},
	{
		"target/conn_limiter.h",
		[]string{"dirent.h", "pthread.h", "sys/socket.h"},
		"the process's own sockets, and what two threads know of them",
	},
	{"target/network.c", []string{"arpa/inet.h"}, "a peer's address, to be compared"},
	{"target/ofi.c", []string{"poll.h", "sys/eventfd.h", "unistd.h"}, "waiting for libfabric's descriptors"},
	{"target/ofi_conn.c", []string{"sys/eventfd.h"}, "waking the thread that revokes"},
	{
		"target/ofi_acceptor.c",
		[]string{
			"arpa/inet.h", "dirent.h", "poll.h", "sys/eventfd.h", "sys/socket.h",
			"sys/time.h",
		},
		"the port it got, and a limit to how long its socket waits for a handshake",
	},
	{"target/refusals.c", []string{"arpa/inet.h"}, "a peer's address as text"},
	{
		"target/target.h",
		[]string{"pthread.h", "sys/socket.h"},
		"one lock for rings, grants and connections; a peer's address",
	},
	{
		"target/verbs.c",
		[]string{"arpa/inet.h", "fcntl.h", "netdb.h", "poll.h", "sys/eventfd.h", "unistd.h"},
		"listening, and waiting for the device's events",
	},
	{"target/verbs.h", []string{"pthread.h"}, "the thread of a listener"},
	{"target/verbs_conn.c", []string{"sys/eventfd.h"}, "waking the thread that revokes"},
	{
		"wire/lib_ofi.c",
		[]string{"dlfcn.h", "pthread.h", "signal.h", "sys/random.h", "sys/socket.h"},
		"libfabric is loaded at run time, and must leave signals alone; its keys are random",
	},
	{"wire/lib_ofi.h", []string{
		"rdma/fabric.h", "rdma/fi_cm.h", "rdma/fi_domain.h", "rdma/fi_endpoint.h",
		"rdma/fi_eq.h", "rdma/fi_errno.h",
		"rdma/fi_rma.h",
	}, "libfabric"},
	{"wire/lib_verbs.c", []string{"dlfcn.h", "pthread.h"}, "libibverbs and librdmacm are loaded at run time"},
	{"wire/lib_verbs.h", []string{"infiniband/verbs.h", "rdma/rdma_cma.h"}, "rdma-core"},
	{"wire/verbs_address.h", []string{"netdb.h"}, "addresses of a name"},
	{
		"wire/verbs_device.c",
		[]string{"fcntl.h", "poll.h", "sys/resource.h"},
		"events of a device, and the limit of locked memory",
	},
	{"wire/verbs_queue.c", []string{"sys/mman.h"}, "registered memory stays out of forked children"},
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

// coreFolder holds the C core: a folder a room.
const coreFolder = "rdma/src/"

// roomOfCore gives the room of a file of the C core.
func roomOfCore(name string) (room string, isCore bool) {
	rest, isCore := strings.CutPrefix(name, coreFolder)
	return path.Dir(rest), isCore
}

// coreArrows is the tree of docs/architecture.md for the C core: a room, and the rooms just below it. What these may
// include, it may include as well.
var coreArrows = map[string][]string{
	"base":    {},
	"ring":    {"base"},
	"region":  {"ring"},
	"mem":     {"region"},
	"blocks":  {"region"},
	"wire":    {"region"},
	"far":     {"wire"},
	"scan":    {"region"},
	"log":     {"scan"},
	"members": {"log"},
	"admin":   {"scan"},
	"route":   {"admin", "members"},
	"agent":   {"route"},
	"target":  {"mem", "scan", "wire"},
	"history": {"members"},
	"open":    {"agent", "blocks", "far", "mem"},
}

// below gives a room and all rooms below it. path holds the rooms on the way here.
func below(t *testing.T, room string, path ...string) map[string]bool {
	t.Helper()
	if slices.Contains(path, room) {
		t.Fatalf("coreArrows has a circle: %s", strings.Join(append(path, room), " → "))
	}
	rooms := map[string]bool{room: true}
	for _, next := range coreArrows[room] {
		for one := range below(t, next, append(slices.Clone(path), room)...) {
			rooms[one] = true
		}
	}
	return rooms
}

func TestIncludes_RoomsOfTheCoreFollowTheArrows(t *testing.T) {
	seen := make(map[string]bool)
	for _, f := range tracked(t, ".c", ".h") {
		room, isCore := roomOfCore(f.path)
		if !isCore {
			continue
		}
		seen[room] = true
		if coreArrows[room] == nil {
			t.Errorf("%s: rdma/src/%s is a new room: add it to docs/architecture.md and to coreArrows", f.path, room)
			continue
		}
		allowed := below(t, room)
		for _, match := range localInclude.FindAllStringSubmatch(string(f.content), -1) {
			if to := path.Dir(match[1]); to != "farlog" && !allowed[to] {
				t.Errorf("%s includes %q: %s stands on %v and what is below; pass the value in, call it by a table "+
					"that the room "+
					"above fills in (region_ops, region/kinds.h), or move the code", f.path, match[1], room,
					coreArrows[room])
			}
		}
	}
	for room := range coreArrows {
		if !seen[room] {
			t.Errorf("rdma/src/%s is in coreArrows but has no file: remove its line", room)
		}
	}
}

var mesonFile = regexp.MustCompile(`'([\w]+\.c)'`)

// Go compiles what lies in a room's folder, meson what its list says.
func TestIncludes_MesonListsTheRoomsFiles(t *testing.T) {
	files := make(map[string][]string)
	for _, f := range tracked(t, ".c") {
		if room, isCore := roomOfCore(f.path); isCore {
			files[room] = append(files[room], path.Base(f.path))
		}
	}
	for _, f := range tracked(t, ".build") {
		room, isCore := roomOfCore(f.path)
		if !isCore || room == "." {
			continue
		}
		var listed []string
		for _, match := range mesonFile.FindAllStringSubmatch(string(f.content), -1) {
			listed = append(listed, match[1])
		}
		if !slices.Equal(listed, files[room]) {
			t.Errorf("%s lists %v; in its folder are %v: list these, in this order", f.path, listed, files[room])
		}
		delete(files, room)
	}
	for room := range files {
		t.Errorf("rdma/src/%s has no meson.build: list its files in one", room)
	}
}

func TestIncludes_OnlyMediaRoomsKnowDevices(t *testing.T) {
	for _, f := range tracked(t, ".c", ".h") {
		room, isCore := roomOfCore(f.path)
		if !isCore || slices.Contains(mediaRooms, room) {
			continue
		}
		allowed := allowedHeaders(strings.TrimPrefix(f.path, coreFolder))
		for _, match := range includeLine.FindAllStringSubmatch(string(f.content), -1) {
			if !slices.Contains(allowed, match[1]) {
				t.Errorf("%s includes <%s>: devices belong into rdma/src/mem and blocks; if this file truly needs "+
					"it, add a line with the reason to "+
					"extraHeaders", f.path, match[1])
			}
		}
	}
}

var localInclude = regexp.MustCompile(`(?m)^\s*#\s*include\s*"([^"]+)"`)

// pureFiles are arithmetic and bytes: they may include each other, the public header and nothing else of ours.
var pureFiles = []string{
	"ring/record.c", "ring/record.h", "ring/ring.h", "ring/layout.h", "base/crc32c.c",
	"base/crc32c.h",
	"ring/gather.h", "farlog/farlog.h",
}

func TestIncludes_ArithmeticKnowsNoMedia(t *testing.T) {
	for _, f := range tracked(t, ".c", ".h") {
		if _, isCore := roomOfCore(f.path); !isCore || !slices.Contains(pureFiles,
			strings.TrimPrefix(f.path, coreFolder)) {
			continue
		}
		for _, match := range localInclude.FindAllStringSubmatch(string(f.content), -1) {
			if !slices.Contains(pureFiles, match[1]) {
				t.Errorf(
					"%s includes %q: record, ring and layout are arithmetic; do the input and output in the caller",
					f.path,
					match[1],
				)
			}
		}
	}
}

var printing = regexp.MustCompile(`\b(printf|puts|putchar|perror|fprintf|vprintf|fputs)\s*\(`)

func TestIncludes_LibraryDoesNotPrint(t *testing.T) {
	for _, f := range tracked(t, ".c", ".h") {
		if _, isCore := roomOfCore(f.path); !isCore {
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
				t.Errorf("%s includes %q: the C++ layer stands on the headers of its own folder alone; add what you "+
					"need to one of them", f.path, match[1])
			}
		}
	}
}
