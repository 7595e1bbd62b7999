/* packed.c -- a ring that shares its region: what its neighbours do is not its matter, nor what it does theirs. */
#include "conformance.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomics.h"
#include "region/directory.h"

#define PACKED_LEN (DIRECTORY_LEN + 5ull * SIZE)

/* What a neighbour's process tells, and is told. */
struct neighbour {
	uint64_t count; /* records appended and drained again */
	uint64_t is_wrong;
	uint64_t is_stopping;
};

/* use_neighbour -- append and drain in a ring of the same region until told to stop: every record is the one that was
 * appended. */
int use_neighbour(const struct place *place, const struct farlog_grant *writer_grant,
	const struct farlog_grant *drain_grant, void *shared)
{
	struct neighbour *neighbour = shared;
	farlog_writer *writer = open_writer(place, writer_grant, FARLOG_LEVEL_VISIBLE);
	farlog_reader *drain = open_drain(place, drain_grant);
	uint64_t next_seq = 0;

	neighbour->is_wrong |= writer == NULL || drain == NULL;
	while (!neighbour->is_wrong && !atomic_load_acquire(&neighbour->is_stopping)) {
		unsigned before = failed;

		for (unsigned i = 0; i < 20; i++) {
			struct farlog_cursors cursors;
			struct farlog_entry entry;
			struct farlog_position position;

			farlog_writer_cursors(writer, &cursors);
			entry = killed_entry(cursors.next_seq);
			neighbour->is_wrong |= farlog_append(writer, &entry, 0, &position) != FARLOG_OK;
		}
		drain_killed(drain, &next_seq);
		neighbour->is_wrong |= failed != before;
		atomic_store_release(&neighbour->count, neighbour->count + 20);
		sched_yield();
	}
	farlog_writer_close(writer);
	farlog_reader_close(drain);
	return neighbour->is_wrong != 0;
}

/* make_packed -- "still", "ring", "busy", and room behind them that is filled with a pattern. */
static void make_packed(const char *path, struct place places[3])
{
	static const char *const names[] = {"still", "ring", "busy"};
	struct farlog_ring_config config = {
		.size_bytes = SIZE, .record_len_max = RECORD_LEN_MAX, .stream_name = "conformance"};
	char uri[URI_LEN];
	FILE *file;

	for (unsigned i = 0; i < 3; i++) {
		snprintf(uri, sizeof(uri), "mem:%s?ring=%s&size=%llu", path, names[i], PACKED_LEN);
		CHECK(farlog_ring_format(uri, &config, NULL) == FARLOG_OK);
		places[i] = (struct place){0};
		snprintf(places[i].region_uri, URI_LEN, "mem:%s?ring=%s", path, names[i]);
		strcpy(places[i].uri, places[i].region_uri);
	}
	here = places[0];
	level = FARLOG_LEVEL_VISIBLE;
	check_laps();
	file = fopen(path, "r+");
	CHECK(file != NULL && fseek(file, DIRECTORY_LEN + 3 * SIZE, SEEK_SET) == 0);
	for (unsigned i = 0; file != NULL && i < 2 * SIZE; i++)
		fputc((int)(i % 251), file);
	CHECK(file != NULL && fclose(file) == 0);
}

static uint8_t *load_file(const char *path)
{
	uint8_t *bytes = malloc(PACKED_LEN);
	FILE *file = fopen(path, "r");

	CHECK(bytes != NULL && file != NULL && fread(bytes, 1, PACKED_LEN, file) == PACKED_LEN);
	fclose(file);
	return bytes;
}

/* start_neighbour -- far, by the same target as the ring under test. */
static pid_t start_neighbour(struct place *busy, bool is_by_target, int shared)
{
	struct farlog_grant writer = {0};
	struct farlog_grant drain = {0};

	if (is_by_target) {
		strcpy(busy->name, "busy");
		CHECK(entry_serve(busy, ""));
		writer = entry_grant(busy, FARLOG_GRANT_WRITER);
		drain = entry_grant(busy, FARLOG_GRANT_DRAIN);
	}
	return entry_spawn("neighbour", busy, &writer, &drain, shared);
}

void run_packed(const char *kind, bool is_by_target, void (*run_all)(const char *region_path))
{
	struct place places[3];
	struct neighbour *busy;
	char path[100];
	char named[130];
	uint8_t *before;
	uint8_t *after;
	pid_t pid;
	int status;
	int shared;

	busy = entry_share(sizeof(*busy), &shared);
	snprintf(path, sizeof(path), "/dev/shm/farlog-%s-%ld", kind, (long)getpid());
	make_packed(path, places);
	before = load_file(path);
	pid = start_neighbour(&places[2], is_by_target, shared);
	snprintf(named, sizeof(named), "%s?ring=ring", path);
	run_all(named);
	atomic_store_release(&busy->is_stopping, 1);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0 && busy->count > 0);
	printf("conformance: %s: the ring beside it took %lu records meanwhile\n", kind, busy->count);
	after = load_file(path);
	CHECK(memcmp(before, after, DIRECTORY_LEN + SIZE) == 0);
	CHECK(memcmp(before + DIRECTORY_LEN + SIZE, after + DIRECTORY_LEN + SIZE, SIZE) != 0);
	CHECK(memcmp(before + DIRECTORY_LEN + 3 * SIZE, after + DIRECTORY_LEN + 3 * SIZE, 2 * SIZE) == 0);
	free(before);
	free(after);
	unlink(path);
	munmap(busy, sizeof(*busy));
	close(shared);
}
