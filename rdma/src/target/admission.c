/* target/admission.c -- which client may connect to a ring, and in which role: it holds a grant, comes from its host,
 * and nobody else has the role. */
#include "target/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "region/superblock.h"
#include "wire/piece.h"

/* clients of a grant; who was superseded longer ago than that has been told, or has slept through as many restarts */
#define SUPERSEDED_KEPT 256u

static uint64_t utc_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* is_same -- in a time that does not depend on where they differ. */
static bool is_same(const uint8_t *a, const uint8_t *b)
{
	unsigned difference = 0;

	for (unsigned i = 0; i < FARLOG_TOKEN_LEN; i++)
		difference |= a[i] ^ b[i];
	return difference == 0;
}

static int fill_refusal(struct target_ring *ring, struct far_refusal *refusal, int result, const char *text)
{
	*refusal = (struct far_refusal){
		.magic = FAR_REFUSAL_MAGIC, .version = FAR_VERSION, .result = result, .tail_lsn = UINT64_MAX};
	snprintf(refusal->text, sizeof(refusal->text), "%s", text);
	if (ring != NULL)
		ring->counters.refused_count++;
	return result;
}

/* epoch_floor -- what a writer's epoch must reach: a fence's, or that of the newest writer that was let in or has
 * opened its epoch. OK, or that of superblock_load: what the ring holds cannot be said. */
static int epoch_floor(const struct target_ring *ring, uint64_t *floor)
{
	struct superblock superblock;
	int result;

	*floor = region_load_word(ring->region, LAYOUT_FENCE_OFF);
	result = superblock_load(ring->region, ring->name, &superblock, NULL); /* it fails if the fence's page is lost */
	if (result != FARLOG_OK)
		return result;
	if (*floor < ring->epoch_admitted_min)
		*floor = ring->epoch_admitted_min;
	if (superblock.writer_epoch > *floor)
		*floor = superblock.writer_epoch;
	return FARLOG_OK;
}

/* epoch_before -- that of the log which the newest epoch went on behind, by its EPOCH record; 0 = the ring does not
 * tell (any more). */
static uint32_t epoch_before(const struct target_ring *ring, const struct superblock *superblock)
{
	struct record_identity identity = superblock_identity(superblock);
	struct record_cursor at = {
		.lsn = superblock->epoch_start_lsn, .seq = superblock->epoch_start_seq, .epoch_max = superblock->writer_epoch};
	struct record_epoch_payload payload;
	struct record_found found;

	for (unsigned i = 0; i < 2; i++) { /* a PAD may lie before it */
		uint64_t off = at.lsn % identity.capacity;
		const uint8_t *record = ring->bytes + LAYOUT_DATA_OFF + off;

		if (record_check(&identity, &at, record, identity.capacity - off, &found) != RECORD_VALID ||
			found.epoch != superblock->writer_epoch)
			return 0;
		if (found.flags & RECORD_FLAG_EPOCH) {
			memcpy(&payload, record + RECORD_HEADER_LEN, sizeof(payload));
			return payload.prev_epoch;
		}
		record_advance(&at, &found);
	}
	return 0;
}

/* log_end -- where what a fenced epoch wrote ends: nothing of it lies at or above that. *is_exact: below it, all is of
 * that epoch or of those before. UINT64_MAX: the ring does not tell. A fence says nothing of an epoch that was opened
 * after it. */
static uint64_t log_end(const struct target_ring *ring, uint32_t epoch, bool *is_exact)
{
	uint64_t end_lsn = epoch < ring->tail_epoch_min ? ring->tail_lsn : UINT64_MAX;
	struct superblock superblock;

	*is_exact = epoch < ring->tail_epoch_min && ring->tail_epoch == epoch;
	if (*is_exact || superblock_load(ring->region, ring->name, &superblock, NULL) != FARLOG_OK ||
		superblock.writer_epoch <= epoch || superblock.epoch_start_lsn > end_lsn)
		return end_lsn;
	*is_exact = epoch_before(ring, &superblock) == epoch;
	return superblock.epoch_start_lsn;
}

static int fill_epoch_refusal(struct target_ring *ring, uint32_t epoch, uint64_t epoch_min, struct far_refusal *refusal)
{
	bool is_exact;
	char text[sizeof(refusal->text)];

	snprintf(text, sizeof(text), "epoch %u is fenced: ring \"%.40s\" requires at least %lu; acquire a new grant", epoch,
		ring->name, epoch_min);
	may_fail(fill_refusal(ring, refusal, FARLOG_FENCED, text)); /* it only words why */
	refusal->epoch_min = (uint32_t)epoch_min;
	refusal->tail_lsn = log_end(ring, epoch, &is_exact);
	refusal->is_tail_exact = is_exact;
	return FARLOG_FENCED;
}

struct target_grant *target_find_grant(struct farlog_target *target, const uint8_t *token, struct target_ring **ring)
{
	for (*ring = target->rings; *ring != NULL; *ring = (*ring)->next)
		for (struct target_grant *grant = (*ring)->grants; grant != NULL; grant = grant->next)
			if (is_same(grant->grant.token, token))
				return grant;
	return NULL;
}

/* is_claimed -- a writer's grant belongs to the client that opened its epoch, or that is in to do so. One whose opening
 * failed before that has written nothing, and who holds its token may try again by a handle of its own. */
static bool is_claimed(const struct target_ring *ring, const struct target_grant *grant, const struct far_hello *hello)
{
	struct superblock superblock;

	if (grant->client_id == 0 || grant->client_id == hello->client_id || grant->grant.role != FARLOG_GRANT_WRITER)
		return false;
	for (const struct target_conn *conn = ring->conns; conn != NULL; conn = conn->next)
		if (conn->grant == grant)
			return true;
	return superblock_load(ring->region, ring->name, &superblock, NULL) != FARLOG_OK ||
		superblock.writer_epoch >= grant->grant.epoch;
}

static bool is_superseded(const struct target_grant *grant, uint64_t client_id)
{
	for (uint64_t i = 0; grant->superseded != NULL && i < grant->superseded_count && i < SUPERSEDED_KEPT; i++)
		if (grant->superseded[i] == client_id)
			return true;
	return false;
}

/* claim_grant -- this client has it from now on. Of two living drains with one token the older one never comes back:
 * each would end the other's connection, for ever, and what the older one still has on its way would land on what the
 * newer one has released. */
static void claim_grant(struct target_grant *grant, uint64_t client_id)
{
	if (grant->client_id != 0 && grant->client_id != client_id && grant->grant.role != FARLOG_GRANT_WRITER) {
		if (grant->superseded == NULL)
			grant->superseded = calloc(SUPERSEDED_KEPT, sizeof(*grant->superseded));
		if (grant->superseded != NULL)
			grant->superseded[grant->superseded_count++ % SUPERSEDED_KEPT] = grant->client_id;
	}
	grant->client_id = client_id;
}

/* check_ring -- what lies in the region is still what was served. */
static int check_ring(struct target_ring *ring, struct far_refusal *refusal)
{
	struct superblock superblock;

	if (superblock_load(ring->region, ring->name, &superblock, NULL) != FARLOG_OK)
		return fill_refusal(
			ring, refusal, FARLOG_IO, "the ring is being formatted, or damaged; look at it on the target's host");
	if (memcmp(superblock.ring_uuid, ring->ring_uuid, sizeof(ring->ring_uuid)) != 0)
		return fill_refusal(ring, refusal, FARLOG_NOT_A_RING,
			"the ring has been removed or formatted again since its target served it; serve it again");
	return FARLOG_OK;
}

/* is_role_granted -- whoever may read a ring of a tenant may look at the page of that tenant's tails. */
static bool is_role_granted(uint32_t granted, uint8_t asked)
{
	return asked == granted ||
		(asked == REGION_ROLE_TAILS && (granted == FARLOG_GRANT_DRAIN || granted == FARLOG_GRANT_READER));
}

/* check_epoch -- a writer's: that of its grant, and at or above the floor. */
static int check_epoch(struct target_ring *ring, uint32_t granted, uint32_t epoch, struct far_refusal *refusal)
{
	char text[sizeof(refusal->text)];
	uint64_t floor;

	if (epoch_floor(ring, &floor) != FARLOG_OK)
		return fill_refusal(ring, refusal, FARLOG_IO,
			"the epoch that the ring requires cannot be read; look at the ring on the target's host");
	if (epoch < granted || epoch < floor)
		return fill_epoch_refusal(ring, epoch, floor, refusal);
	if (epoch == granted)
		return FARLOG_OK;
	snprintf(text, sizeof(text), "the grant with this token is of epoch %u, and not of %u", granted, epoch);
	return fill_refusal(ring, refusal, FARLOG_INVALID, text);
}

static int check_hello(struct farlog_target *target, const struct far_hello *hello, const struct sockaddr *peer,
	struct target_ring **ring, struct target_grant **grant, struct far_refusal *refusal)
{
	char text[sizeof(refusal->text)];
	uint64_t barred_ns;

	*ring = NULL;
	if (hello->magic != FAR_HELLO_MAGIC)
		return fill_refusal(
			NULL, refusal, FARLOG_INVALID, "this is a farlog target; what connected is no farlog client");
	if (hello->version != FAR_VERSION) {
		snprintf(text, sizeof(text), "client speaks version %u; expected %u", hello->version, FAR_VERSION);
		return fill_refusal(NULL, refusal, FARLOG_UNSUPPORTED, text);
	}
	*grant = target_find_grant(target, hello->token, ring);
	if (*grant == NULL)
		return fill_refusal(NULL, refusal, FARLOG_INVALID,
			"no grant with this token is known here; acquire a grant, and use it at its target");
	/* Before anything of the ring is told: who has listened in on a token learns nothing by it. */
	if (!target_may_come_from(*grant, peer))
		return fill_refusal(*ring, refusal, FARLOG_INVALID,
			"the grant is for a host that did not name this address as its own: give its agent --host-addresses");
	barred_ns = target_barred_ns(*grant);
	if (barred_ns > 0) {
		snprintf(text, sizeof(text), "%s; let in again in %lu s", (*grant)->barred_reason, barred_ns / 1000000000u + 1);
		return fill_refusal(*ring, refusal, FARLOG_IO, text);
	}
	if ((*ring)->hash != hello->ring_hash)
		return fill_refusal(
			*ring, refusal, FARLOG_NOT_A_RING, "the grant with this token is for another ring than the one asked for");
	if (check_ring(*ring, refusal) != FARLOG_OK)
		return refusal->result;
	if (!is_role_granted((*grant)->grant.role, hello->role))
		return fill_refusal(
			*ring, refusal, FARLOG_INVALID, "the grant with this token is for another role (writer, drain, reader)");
	/* A drain that was started again comes with the token it was told of; its earlier connection is torn down first,
	 * and does not come back. */
	if (hello->role != REGION_ROLE_TAILS && is_superseded(*grant, hello->client_id))
		return fill_refusal(*ring, refusal, FARLOG_FENCED,
			"another client has come with this token since; each drain or reader takes a grant of its own");
	if (is_claimed(*ring, *grant, hello))
		return fill_refusal(*ring, refusal, FARLOG_HELD,
			"the token has been used by another client already; every writer acquires its own");
	/* Before its time limit: who had been let in before the target was started again is told why it is not now. */
	if (hello->role == REGION_ROLE_WRITER && check_epoch(*ring, (*grant)->grant.epoch, hello->epoch, refusal))
		return refusal->result;
	if ((*grant)->grant.expires_ns != 0 && (*grant)->client_id != hello->client_id &&
		utc_now_ns() >= (*grant)->grant.expires_ns)
		return fill_refusal(*ring, refusal, FARLOG_INVALID, "the grant has expired; acquire a new one");
	return FARLOG_OK;
}

/* find_place -- what the hello asks for: the ring of its grant, or that tenant's page. */
static int find_place(struct farlog_target *target, const struct far_hello *hello, const struct sockaddr *peer,
	struct target_ring **place, struct target_grant **grant, struct far_refusal *refusal)
{
	int result = check_hello(target, hello, peer, place, grant, refusal);

	if (result != FARLOG_OK || hello->role != REGION_ROLE_TAILS)
		return result;
	if ((*place)->page == NULL)
		return fill_refusal(*place, refusal, FARLOG_UNSUPPORTED,
			"the ring has no line in its tenant's page of tails; look at the ring itself");
	*place = (*place)->page;
	target_tails_update(target, *place); /* the first READ is not to show what was when somebody looked last */
	return FARLOG_OK;
}

static struct target_conn *find_conn(struct target_ring *ring, const struct target_grant *grant)
{
	struct target_conn *conn = ring->conns;

	while (conn != NULL && conn->grant != grant)
		conn = conn->next;
	return conn;
}

static const struct target_conn *find_holder(const struct target_ring *ring, uint8_t role)
{
	const struct target_conn *conn = ring->conns;

	while (conn != NULL && (conn->role != role || conn->is_gone))
		conn = conn->next;
	return conn;
}

/* lock_role -- the region's own lock: a writer or drain on this host excludes a far one, and the other way round. */
static int lock_role(struct target_ring *ring, uint8_t role, struct far_refusal *refusal)
{
	const struct target_conn *holder;
	int result;

	if (role == REGION_ROLE_READER)
		return FARLOG_OK;
	holder = find_holder(ring, role);
	if (holder != NULL && holder->is_revoked)
		return fill_refusal(ring, refusal, FARLOG_HELD,
			"who held this role before may still write: its key has not ended yet; fence the ring again");
	if (holder != NULL)
		return fill_refusal(
			ring, refusal, FARLOG_HELD, "another client holds this role; it is fenced by a higher epoch, or leaves");
	result = ring->is_locked[role] ? FARLOG_OK : region_lock(ring->region, (enum region_role)role);
	if (result == FARLOG_NOT_FOUND)
		return fill_refusal(ring, refusal, FARLOG_NOT_A_RING, "the ring has been removed from its region");
	if (result == FARLOG_HELD)
		return fill_refusal(ring, refusal, result, "a process on the target's host holds this role; stop it first");
	if (result != FARLOG_OK)
		return fill_refusal(ring, refusal, result, "the role's lock cannot be taken at the target");
	ring->is_locked[role] = true;
	return FARLOG_OK;
}

uint32_t target_methods(const struct farlog_contract *contract)
{
	uint32_t everywhere = 1u << FARLOG_FLUSH_TARGET_CPU;
	uint32_t device = 1u << FARLOG_FLUSH_RDMA_FLUSH;

	switch (contract->kind) {
	case FARLOG_REGION_FILE:
		return everywhere; /* only msync reaches the disk */
	/* never in a cache: a read of it pushes what was written before */
	case FARLOG_REGION_BAR:
		return everywhere | 1u << FARLOG_FLUSH_RDMA_READ;
	case FARLOG_REGION_DEVDAX:
	case FARLOG_REGION_FSDAX:
		return everywhere | device | 1u << FARLOG_FLUSH_OFI_COMMIT;
	case FARLOG_REGION_FAULT:
		return everywhere;
	default:
		break;
	}
	return everywhere | device | 1u << FARLOG_FLUSH_RDMA_READ | 1u << FARLOG_FLUSH_OFI_COMMIT |
		1u << FARLOG_FLUSH_OFI_DELIVERY;
}

static void welcome_to(const struct target_ring *ring, struct far_welcome *welcome)
{
	const struct farlog_contract *contract = &ring->region->contract;

	*welcome = (struct far_welcome){.magic = FAR_WELCOME_MAGIC,
		.version = FAR_VERSION,
		.kind = (uint8_t)contract->kind,
		.level = ring->level,
		.size_bytes = contract->size_bytes,
		.granularity = contract->granularity,
		.atomic_unit = contract->atomic_unit,
		.epoch_min = (uint32_t)region_load_word(ring->region, LAYOUT_FENCE_OFF),
		.flush_methods = target_methods(contract) | ring->attested_methods};
	memcpy(welcome->ring_uuid, ring->ring_uuid, sizeof(welcome->ring_uuid));
	if (ring->test_delay_ns > 0)
		welcome->flush_methods = 1u << FARLOG_FLUSH_TARGET_CPU; /* the others do not pass by the worker that is slow */
	snprintf(
		welcome->probe, sizeof(welcome->probe), "%.103s", ring->attested[0] != '\0' ? ring->attested : contract->probe);
}

int target_admit(struct farlog_target *target, const struct far_hello *hello, const struct sockaddr *peer,
	struct target_conn *conn, struct far_welcome *welcome, struct far_refusal *refusal)
{
	uint8_t role = hello->role == REGION_ROLE_TAILS ? REGION_ROLE_READER : hello->role;
	struct target_ring *ring;
	struct target_grant *grant;
	struct target_conn *old;
	int result;

	pthread_mutex_lock(&target->mutex);
	result = find_place(target, hello, peer, &ring, &grant, refusal);
	if (result == FARLOG_OK && (old = find_conn(ring, grant)) != NULL) {
		/* The same client again: what its old connection had on the way must not land after what the new one brings. */
		if (old->pin_count == 0)
			may_fail(target_disconnect(target, old, NULL));               /* while it lasts the place is taken: HELD */
		result = find_place(target, hello, peer, &ring, &grant, refusal); /* the lock was let go */
		old = result == FARLOG_OK ? find_conn(ring, grant) : NULL;
		if (old != NULL && !old->is_gone)
			result = fill_refusal(
				ring, refusal, FARLOG_HELD, "the connection before this one is still being torn down; try again");
	}
	if (result == FARLOG_OK)
		result = lock_role(ring, role, refusal);
	if (result == FARLOG_OK) {
		if (hello->role != REGION_ROLE_TAILS)
			claim_grant(grant, hello->client_id);
		conn->ring = ring;
		conn->grant = grant;
		conn->role = role;
		conn->is_revoked = false;
		conn->relayed_at_ns = 0;
		target_copy_peer(peer, &conn->peer);
		conn->next = ring->conns;
		ring->conns = conn;
		ring->counters.admitted_count++;
		if (conn->role == REGION_ROLE_WRITER && hello->epoch > ring->epoch_admitted_min)
			ring->epoch_admitted_min = hello->epoch;
		target->writer_count += conn->role == REGION_ROLE_WRITER;
		pthread_cond_broadcast(&target->moved);
		welcome_to(ring, welcome);
	}
	pthread_mutex_unlock(&target->mutex);
	return result;
}

void target_leave(struct farlog_target *target, struct target_conn *conn)
{
	struct target_ring *ring = conn->ring;
	struct target_conn **link;

	pthread_mutex_lock(&target->mutex);
	target_worker_cancel(conn);
	if (!conn->is_revoked)
		ring->counters.lost_count += conn->is_broken;
	conn->is_revoked = true;
	conn->is_gone = true;
	while (conn->pin_count > 0)
		pthread_cond_wait(&target->moved, &target->mutex);
	link = &ring->conns; /* only now: a ring without connections may be freed */
	while (*link != conn)
		link = &(*link)->next;
	*link = conn->next;
	if (conn->role != REGION_ROLE_READER && find_holder(ring, conn->role) == NULL && ring->is_locked[conn->role]) {
		ring->region->ops->fence.unlock(ring->region, (enum region_role)conn->role);
		ring->is_locked[conn->role] = false;
	}
	target->writer_count += conn->role == REGION_ROLE_WRITER;
	pthread_cond_broadcast(&target->moved);
	pthread_mutex_unlock(&target->mutex);
}
