/* far_header.c -- what a client's keys do not open: the words by which a ring is kept. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "far_links.h"

/* reaches_not -- by this piece's key the role does not write there: the target ends the connection, and nothing has
 * changed. */
static void reaches_not(struct bed *bed, char letter, uint8_t role, uint32_t epoch, enum far_piece piece, uint64_t off)
{
	uint64_t before = word_at_target(bed, off);
	struct far_link_bed made;

	if (role == REGION_ROLE_WRITER)
		await_no_writer(bed);
	link_connect(&made, bed->uri, "ring", letter, role, epoch);
	CHECK(try_write_by(made.link, piece, off, ~before) == FARLOG_IO);
	CHECK(word_at_target(bed, off) == before);
	if (made.link->broken[0] == '\0' || word_at_target(bed, off) != before)
		printf("far: %s: offset %#lx by the key of piece %d\n", now_testing, off, (int)piece);
	link_free(&made);
}

/* What is not a role's to write it has no key to: a writer forges neither fence nor heads nor superblocks, a drain
 * neither the fence nor records. */
static void header(struct bed *bed)
{
	static const uint64_t not_writers[] = {LAYOUT_SUPERBLOCK_A_OFF, LAYOUT_SUPERBLOCK_B_OFF, LAYOUT_FENCE_OFF,
		LAYOUT_HEAD_A_OFF, LAYOUT_HEAD_B_OFF, LAYOUT_CREDIT_OFF};
	static const uint64_t not_drains[] = {
		LAYOUT_SUPERBLOCK_A_OFF, LAYOUT_SUPERBLOCK_B_OFF, LAYOUT_FENCE_OFF, LAYOUT_TAIL_HINT_OFF, TRIED_OFF};

	snprintf(now_testing, sizeof(now_testing), "hostile: header");
	for (unsigned i = 0; i < sizeof(not_writers) / sizeof(not_writers[0]); i++)
		for (enum far_piece piece = FAR_PIECE_HEADER; piece <= FAR_PIECE_WRITER; piece++)
			reaches_not(bed, 'd', REGION_ROLE_WRITER, 4, piece, not_writers[i]);
	for (unsigned i = 0; i < sizeof(not_drains) / sizeof(not_drains[0]); i++)
		for (enum far_piece piece = FAR_PIECE_HEADER; piece <= FAR_PIECE_WRITER; piece++)
			reaches_not(bed, 'e', REGION_ROLE_DRAIN, 0, piece, not_drains[i]);
}

static uint32_t propose(struct far_link *link, struct superblock proposal)
{
	static uint32_t tag = 100;

	proposal.crc32c = crc32c_update(0, &proposal, offsetof(struct superblock, crc32c));
	memcpy(link->copy + LAYOUT_PROPOSAL_OFF, &proposal, sizeof(proposal));
	CHECK(link_persist(link, (struct region_span){LAYOUT_PROPOSAL_OFF, sizeof(proposal)}) == FARLOG_OK);
	return link_ask(link, (struct far_request){.operation = FAR_EPOCH, .tag = ++tag});
}

#define REFUSED(link, field, value) \
	do { \
		struct superblock wrong = next; \
		wrong.field = value; \
		CHECK(propose(link, wrong) == (uint32_t)-FARLOG_INVALID); \
	} while (0)

static void present_superblock(const struct bed *bed, struct superblock *superblock)
{
	struct superblock other;
	int fd = open(bed->path, O_RDONLY);

	CHECK(fd >= 0 && pread(fd, superblock, sizeof(other), LAYOUT_SUPERBLOCK_A_OFF) == sizeof(other) &&
		pread(fd, &other, sizeof(other), LAYOUT_SUPERBLOCK_B_OFF) == sizeof(other));
	close(fd);
	if (other.generation > superblock->generation)
		*superblock = other;
}

/* A target stores the superblock that opens the epoch of the grant, and no other. */
static void epochs(struct bed *bed)
{
	struct far_link_bed made;
	struct superblock present;
	struct superblock next;
	struct superblock after;

	snprintf(now_testing, sizeof(now_testing), "hostile: epochs");
	await_no_writer(bed);
	link_connect(&made, bed->uri, "ring", 'd', REGION_ROLE_WRITER, 4);
	/* nothing has been proposed */
	CHECK(link_ask(made.link, (struct far_request){.operation = FAR_EPOCH, .tag = 99}) == (uint32_t)-FARLOG_INVALID);
	present_superblock(bed, &present);
	next = present;
	next.generation++;
	next.writer_epoch = 4;
	snprintf(next.writer_id, sizeof(next.writer_id), "host=hostile");
	REFUSED(made.link, writer_epoch, 5);
	REFUSED(made.link, writer_epoch, present.writer_epoch);
	REFUSED(made.link, generation, present.generation);
	REFUSED(made.link, generation, present.generation + 2);
	REFUSED(made.link, salt, present.salt + 1);
	REFUSED(made.link, capacity, present.capacity - 4096);
	REFUSED(made.link, record_len_max, present.record_len_max * 2);
	REFUSED(made.link, stream_id, present.stream_id + 1);
	REFUSED(made.link, ring_uuid[3], (uint8_t)(present.ring_uuid[3] + 1));
	REFUSED(made.link, stream_name[0], '!');
	REFUSED(made.link, epoch_start_lsn, present.epoch_start_lsn + 1);
	REFUSED(made.link, epoch_start_lsn, present.capacity * 3);
	REFUSED(made.link, writer_id[0], '\n');
	REFUSED(made.link, writer_id[sizeof(next.writer_id) - 1], 'x');
	REFUSED(made.link, reserved_b[7], 1);
	present_superblock(bed, &after);
	CHECK(memcmp(&after, &present, sizeof(after)) == 0);
	/* the second time as if the first answer had been lost */
	CHECK(propose(made.link, next) == 0 && propose(made.link, next) == 0);
	present_superblock(bed, &after);
	CHECK(after.writer_epoch == 4 && after.generation == present.generation + 1 &&
		strcmp(after.writer_id, "host=hostile") == 0);
	next = after; /* an epoch is opened once: not again, by a superblock that would follow */
	next.generation++;
	snprintf(next.writer_id, sizeof(next.writer_id), "host=second");
	CHECK(propose(made.link, next) == (uint32_t)-FARLOG_INVALID);
	present_superblock(bed, &present);
	CHECK(memcmp(&after, &present, sizeof(after)) == 0);
	link_free(&made);
	link_connect(&made, bed->uri, "ring", 'r', REGION_ROLE_READER, 0);
	CHECK(link_ask(made.link, (struct far_request){.operation = FAR_EPOCH, .tag = 98}) == (uint32_t)-FARLOG_INVALID);
	link_free(&made);
}

void test_header(void)
{
	struct bed bed;

	if (bed_make(&bed, "/dev/shm", "ofi:tcp://127.0.0.1:0") && CHECK_ASK(&bed.host, "grant ring 0 4 d") &&
		CHECK_ASK(&bed.host, "grant ring 1 0 e") && CHECK_ASK(&bed.host, "grant ring 3 0 r")) {
		header(&bed);
		epochs(&bed);
	}
	bed_free(&bed);
}
