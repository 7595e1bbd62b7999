/* target/tails.c -- a target keeps, for each tenant, a page of what it sees of the tenant's rings (ring/tails_page.h).
 *
 * The page is a ring that none of the tables of rings has: it has a key of its own in the tenant's protection domain,
 * and connections, which come in by any drain's or reader's grant on a ring of that tenant and may only read. Lines are
 * kept while somebody is connected. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/err.h"
#include "region/superblock.h"
#include "ring/record.h"
#include "ring/tails_page.h"
#include "target/target.h"

#define LOOK_EVERY_NS 500000u
#define STEP_COUNT_MAX 64u /* records that one look goes on over, in each ring: others wait for the thread */

/* ---------------------------------------------------------------- the page as a region */

static uint8_t *page_bytes(const struct region *region)
{
	return (uint8_t *)(uintptr_t)region->base; /* from make_region */
}

static void page_write(struct region *region, uint64_t off, const void *src, size_t len)
{
	memcpy(page_bytes(region) + off, src, len);
}

static void page_gather(struct region *region, uint64_t off, struct gather *gather)
{
	gather_build(page_bytes(region) + off, gather);
}

static void page_store_word(struct region *region, uint64_t off, uint64_t value)
{
	atomic_store_release((uint64_t *)(page_bytes(region) + off), value);
}

static int page_read(struct region *region, uint64_t off, void *dst, size_t len)
{
	memcpy(dst, region->base + off, len);
	return FARLOG_OK;
}

static int page_persist(struct region *region, const struct region_span *spans, unsigned span_count, uint64_t tag)
{
	(void)region, (void)spans, (void)span_count, (void)tag;
	return FARLOG_UNSUPPORTED; /* memory of this process: nothing of it outlives it */
}

static int page_poll(struct region *region)
{
	(void)region;
	return FARLOG_UNSUPPORTED;
}

static int page_flush(struct region *region, uint64_t off, uint64_t len)
{
	(void)region, (void)off, (void)len;
	return FARLOG_UNSUPPORTED;
}

static void page_seal(struct region *region)
{
	(void)region;
	__atomic_thread_fence(__ATOMIC_RELEASE); /* for who loads the page beside us */
}

static int page_lock(struct region *region, enum region_role role)
{
	(void)region, (void)role;
	return FARLOG_UNSUPPORTED;
}

static void page_unlock(struct region *region, enum region_role role)
{
	(void)region, (void)role;
}

static int page_is_locked(struct region *region, enum region_role role)
{
	(void)region, (void)role;
	return 0;
}

static void page_close(struct region *region)
{
	free(page_bytes(region));
	free(region);
}

static const struct region_ops page_ops = {
	.data = {.write = page_write,
		.gather = page_gather,
		.persist = page_persist,
		.poll = page_poll,
		.wait = region_default_wait,
		.list_wait_fds = region_default_list_wait_fds,
		.push = region_default_push,
		.flush = page_flush,
		.seal = page_seal,
		.read = page_read,
		.fetch = region_default_fetch,
		.prefetch = region_default_prefetch,
		.refresh_words = region_default_refresh_words,
		.store_word = page_store_word,
		.store_hints = region_default_store_hints,
		.populate = region_default_populate,
		.drop_pages = region_default_drop_pages},
	.fence = REGION_LOCKS(page_lock, page_unlock, page_is_locked),
	.members = REGION_SINGLE,
	.block = REGION_BYTES(region_default_narrow, region_default_unlink),
	.close = page_close,
};

static struct region *make_region(void)
{
	struct region *region = calloc(1, sizeof(*region));
	void *bytes = aligned_alloc(LAYOUT_BLOCK_LEN, TAILS_REGION_LEN);

	if (region == NULL || bytes == NULL) {
		free(bytes);
		free(region);
		return NULL;
	}
	memset(bytes, 0, TAILS_REGION_LEN);
	region->ops = &page_ops;
	region->base = bytes;
	region->contract = (struct farlog_contract){.kind = FARLOG_REGION_TMPFS,
		.level = FARLOG_LEVEL_VISIBLE,
		.granularity = LAYOUT_LINE_LEN,
		.atomic_unit = 8,
		.size_bytes = TAILS_REGION_LEN,
		.kind_name = "tails",
		.probe = "memory of the target's process"};
	return region;
}

/* ---------------------------------------------------------------- pages and their lines */

static struct target_ring *find_page(struct farlog_target *target, const char *tenant)
{
	struct target_ring *page = target->pages;

	while (page != NULL && strcmp(page->tenant, tenant) != 0)
		page = page->next;
	return page;
}

static struct target_ring *make_page(struct farlog_target *target, const char *tenant, struct farlog_error *error)
{
	struct target_ring *page = calloc(1, sizeof(*page));

	if (page != NULL)
		page->region = make_region();
	if (page == NULL || page->region == NULL) {
		free(page);
		error_set(error, FARLOG_NO_MEMORY, 0, "page of tails for tenant \"%s\": out of memory", tenant);
		return NULL;
	}
	strcpy(page->name, "tails");
	strcpy(page->tenant, tenant);
	page->bytes = page->served_bytes = page_bytes(page->region);
	page->level = FARLOG_LEVEL_VISIBLE;
	if (target->transport->expose(target->listener, page, &page->key, error) == FARLOG_OK)
		return page;
	page->region->ops->close(page->region);
	free(page);
	return NULL;
}

int target_tails_open(struct farlog_target *target, const char *tenant, struct farlog_error *error)
{
	struct target_ring *page;
	struct target_ring *other;

	pthread_mutex_lock(&target->mutex);
	page = find_page(target, tenant);
	pthread_mutex_unlock(&target->mutex);
	if (page != NULL)
		return FARLOG_OK; /* it stays until the target is closed */
	page = make_page(target, tenant, error);
	if (page == NULL)
		return error->result;
	pthread_mutex_lock(&target->mutex);
	other = find_page(target, tenant);
	if (other == NULL) {
		page->next = target->pages;
		target->pages = page;
	}
	pthread_mutex_unlock(&target->mutex);
	if (other != NULL)
		target_free_ring(target, page);
	return FARLOG_OK;
}

static struct tails_line *line_of(const struct target_ring *ring)
{
	return (struct tails_line *)(ring->page->bytes + TAILS_OFF) + ring->line;
}

static bool is_line_taken(const struct farlog_target *target, const struct target_ring *page, uint32_t line)
{
	for (const struct target_ring *ring = target->rings; ring != NULL; ring = ring->next)
		if (ring->page == page && ring->line == line)
			return true;
	return false;
}

void target_tails_join(struct farlog_target *target, struct target_ring *ring)
{
	struct target_ring *page = find_page(target, ring->tenant);
	uint32_t line = 1;

	while (line <= TAILS_LINE_COUNT_MAX && is_line_taken(target, page, line))
		line++;
	if (line > TAILS_LINE_COUNT_MAX)
		return; /* its drains look at the ring itself */
	ring->page = page;
	ring->line = line;
	if (page->line < line)
		page->line = line;
}

/* came_by -- one of this ring's grants let the connection in. */
static bool came_by(const struct target_ring *ring, const struct target_conn *conn)
{
	for (const struct target_grant *grant = ring->grants; grant != NULL; grant = grant->next)
		if (conn->grant == grant)
			return true;
	return false;
}

void target_tails_part(struct farlog_target *target, struct target_ring *ring)
{
	struct target_ring *page = find_page(target, ring->tenant);
	struct target_conn *conn = page != NULL ? page->conns : NULL;

	while (conn != NULL) {
		bool is_its = came_by(ring, conn);

		if (is_its)
			conn->grant = NULL; /* which is going to be freed */
		if (is_its && !conn->is_revoked) {
			may_fail(target_disconnect(target, conn, NULL)); /* at worst it reads the page of its own tenant */
			conn = page->conns;                              /* the lock was let go */
		} else {
			conn = conn->next;
		}
	}
	if (ring->page != NULL)
		memset(line_of(ring), 0, LAYOUT_LINE_LEN);
	ring->page = NULL;
}

/* ---------------------------------------------------------------- looking */

static void store_line(void *at, void *line)
{
	uint32_t crc = crc32c_update(0, line, LAYOUT_LINE_LEN - sizeof(crc));
	uint64_t words[LAYOUT_LINE_LEN / 8];

	memcpy((uint8_t *)line + LAYOUT_LINE_LEN - sizeof(crc), &crc, sizeof(crc));
	memcpy(words, line, sizeof(words));
	for (unsigned i = 0; i < LAYOUT_LINE_LEN / 8; i++) /* whole words, in any order: a reader goes by the checksum */
		atomic_store_relaxed((uint64_t *)at + i, words[i]);
}

/* extent_at -- of what looks like a record at lsn; 0 = nothing does. Its header and its trailer have come; whether the
 * rest has, the reader finds out. */
static uint64_t extent_at(const struct target_ring *ring, uint64_t lsn)
{
	const struct record_identity *identity = &ring->seen.identity;
	uint64_t left = identity->capacity - lsn % identity->capacity;
	const uint8_t *at = ring->bytes + LAYOUT_DATA_OFF + lsn % identity->capacity;
	struct record_header header;
	uint64_t extent;
	uint64_t trailer;

	if (lsn % identity->align != 0) /* where no record begins there may be less left than a header has */
		return 0;
	memcpy(&header, at, sizeof(header));
	if (header.magic != RECORD_MAGIC || header.lsn != lsn)
		return 0;
	if (header.flags & RECORD_FLAG_PAD)
		return header.payload_len + (uint64_t)RECORD_PAD_STORED_LEN == left ? left : 0;
	extent = record_extent(identity->align, header.key_len, header.payload_len);
	if (extent > left)
		return 0;
	memcpy(&trailer, at + extent - sizeof(trailer), sizeof(trailer));
	return trailer == (lsn ^ identity->salt) ? extent : 0;
}

/* look_at_superblocks -- a writer has come, perhaps: the tail is looked for from the head on again. False: they are
 * being written, or not a ring's. */
static bool look_at_superblocks(struct target_ring *ring, uint32_t mark)
{
	struct superblock superblock;

	if (superblock_load(ring->region, ring->name, &superblock, NULL) != FARLOG_OK)
		return false;
	ring->seen.identity = superblock_identity(&superblock);
	ring->seen.line.mark = mark;
	ring->seen.line.writer_epoch = superblock.writer_epoch;
	ring->seen.line.tail_lsn = 0;
	return true;
}

/* credit, hint -- words of the drain's and of the writer's, who may have stored anything there: what cannot be is not
 * believed, and is what is known already. */
static uint64_t credit(const struct target_ring *ring)
{
	uint64_t lsn = region_load_word(ring->region, LAYOUT_CREDIT_OFF);

	return lsn % ring->seen.identity.align == 0 ? lsn : ring->seen.line.head_lsn;
}

static uint64_t hint(const struct target_ring *ring, uint64_t off, uint64_t known_lsn)
{
	uint64_t lsn = region_load_word(ring->region, off);

	return lsn % ring->seen.identity.align == 0 && lsn - ring->seen.line.head_lsn <= ring->seen.identity.capacity ?
		lsn :
		known_lsn;
}

static void look_at_ring(struct target_ring *ring)
{
	struct tails_line *line = &ring->seen.line;
	struct tails_line before = *line;
	uint64_t hint_lsn;
	uint32_t marks[2];
	uint32_t mark;

	if (!superblock_checksums(ring->region, marks))
		return;
	mark = marks[0] ^ (marks[1] << 1 | marks[1] >> 31);
	if ((mark != line->mark || line->sequence == 0) && !look_at_superblocks(ring, mark))
		return;
	memcpy(line->ring_uuid, ring->ring_uuid, sizeof(line->ring_uuid));
	line->head_lsn = credit(ring);
	line->durable_lsn = hint(ring, LAYOUT_DURABLE_HINT_OFF, line->durable_lsn);
	hint_lsn = hint(ring, LAYOUT_TAIL_HINT_OFF, line->tail_lsn);
	if (line->tail_lsn < line->head_lsn)
		line->tail_lsn = line->head_lsn;
	if (line->tail_lsn < hint_lsn)
		line->tail_lsn = hint_lsn;
	for (unsigned i = 0; i < STEP_COUNT_MAX; i++) {
		uint64_t extent = extent_at(ring, line->tail_lsn);

		if (extent == 0)
			break;
		line->tail_lsn += extent;
	}
	if (region_has_lost_page(ring->region) || memcmp(line, &before, sizeof(before)) == 0)
		return;
	line->sequence++;
	store_line(line_of(ring), line);
}

/* update_line -- a ring whose own words may be zeros has no line: its drains look at the ring itself, and find the
 * error. */
static void update_line(struct target_ring *ring)
{
	if (!region_has_lost_page(ring->region))
		look_at_ring(ring);
	if (region_has_lost_page(ring->region))
		memset(line_of(ring), 0, LAYOUT_LINE_LEN);
}

static void end_turn(struct target_ring *page, uint64_t turn)
{
	struct tails_header header = {
		.magic = TAILS_MAGIC, .version = TAILS_VERSION, .line_count = page->line, .turn = turn};

	store_line(page->bytes + TAILS_OFF, &header);
}

void target_tails_update(struct farlog_target *target, struct target_ring *only)
{
	target->turn++;
	for (struct target_ring *ring = target->rings; ring != NULL; ring = ring->next)
		if (ring->page != NULL && (ring->page == only || (only == NULL && ring->page->conns != NULL)))
			update_line(ring);
	for (struct target_ring *page = target->pages; page != NULL; page = page->next)
		if (page == only || (only == NULL && page->conns != NULL))
			end_turn(page, target->turn);
}

void target_tails_tick(struct farlog_target *target, uint64_t now_ns)
{
	if (target->pages == NULL || now_ns - target->looked_at_ns < LOOK_EVERY_NS)
		return;
	target->looked_at_ns = now_ns;
	target_tails_update(target, NULL);
}
