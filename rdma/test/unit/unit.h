/* unit.h -- what the unit tests share. Test names are noun__condition. */
#ifndef FARLOG_TEST_UNIT_H
#define FARLOG_TEST_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "farlog/farlog.h"
#include "adversary/memory.h"

#define FAULT_NAME "unit"
#define FAULT_URI "fault:" FAULT_NAME

struct group_result {
	int run;
	int failed;
};

/* unit_count -- of these tests, those that were asked for. */
int unit_count(const struct CMUnitTest *tests, size_t count);

#define RUN_GROUP(name, tests) \
	struct group_result group_##name(void) \
	{ \
		struct group_result result = {unit_count(tests, sizeof(tests) / sizeof((tests)[0])), 0}; \
\
		if (result.run > 0) \
			result.failed = cmocka_run_group_tests_name(#name, tests, NULL, NULL); \
		return result; \
	}

/* clang-format off */
#define GROUP_TABLE(X) \
	X(crc32c) X(record) X(ring) X(superblock) X(uri) X(err) X(persist) X(region) X(admin) X(writer) X(outcome) \
	X(resolve) X(shared) X(reader) X(reader_members) X(reader_members_epoch) X(rewind) X(stats) X(clock) X(phc) \
	X(open) X(golden) X(append_path) X(methods) X(stores) X(directory) X(directory_crash) X(remove) \
	X(directory_blocks) X(far_link) X(far_header) X(far_window) X(far_tails) X(nvme) X(nvme_open) X(pack) X(ways) \
	X(loop) X(reserve) X(share) X(block_host) X(drained) X(attest) X(verbs_address) X(dmabuf) X(members) \
	X(members_new) X(members_reached) X(members_full) X(members_replace) X(members_far) X(members_behind) \
	X(members_twins) X(members_judged) X(route) X(route_spill) X(route_batch) X(route_gap) X(heartbeat) X(consume) \
	X(consume_ring) X(settings) X(renew) X(name_watch) X(disk_space) X(consume_end) X(hint) X(turns) X(failed_look) \
	X(route_late) X(far_resolve) X(thread) X(consume_base) X(lost_page) X(golden_encrypted) X(encrypt) X(decrypt)
/* clang-format on */

#define DECLARE_GROUP(name) struct group_result group_##name(void);
GROUP_TABLE(DECLARE_GROUP)
#undef DECLARE_GROUP

/* unit_random -- splitmix64 from the seed that main prints (SEED=n reproduces). */
uint64_t unit_random(void);
uint64_t unit_below(uint64_t bound);

/* unit_uri -- "mem:" and a path of this process's own: on tmpfs, or on a disk. Removed at exit. */

const char *unit_tmpfs_uri(const char *name);
const char *unit_file_uri(const char *name);
const char *unit_path(const char *uri);

/* unit_format -- a fresh ring; unit_open -- its writer, at the level that the region gives, private counters. */
void unit_format(const char *uri, uint64_t size_bytes, uint32_t record_len_max);
farlog_writer *unit_open(const char *uri);
/* unit_fault -- a fresh ring on adversarial memory. */
void unit_fault(uint64_t size_bytes, uint32_t record_len_max);

farlog_reader *unit_read(const char *uri, uint32_t start, bool is_drain);

/* unit_append -- a payload of len bytes of `fill`; its result. */
int unit_append(farlog_writer *writer, uint32_t len, uint8_t fill, struct farlog_position *position);
int unit_submit(farlog_writer *writer, uint32_t len, uint8_t fill, struct farlog_position *position);

/* unit_check_ops -- no operation of this region's tables is missing. */
struct region;
void unit_check_ops(const struct region *region);

#define CONFIG(...) (&(struct farlog_writer_config){.counters_dir = "", __VA_ARGS__})

#endif
