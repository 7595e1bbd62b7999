/* target/target.c -- rings, grants and connections of a target: who is let in, and how they are shut out. See
 * target/target.h.
 *
 * One lock guards all of it. It is never held while a connection is revoked or a region is flushed: a transport's
 * thread may be waiting for it in target_leave, and media are slow. */
#include "base/err.h"
#include "target/target.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "region/superblock.h"
#include "wire/piece.h"

/* clients of a grant; who was superseded longer ago than that has been told, or has slept through as many restarts */
#define SUPERSEDED_KEPT 256u
#define FLUSH_LEN_SHORT (1u << 20) /* a tenth of a millisecond of clwb; a commit is never that long */
/* a credit is sent again that often: a client that fetched its header may have lost a newer word */
#define CREDIT_REPEAT_NS 100000000u

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

/* ---------------------------------------------------------------- admission */

static int refuse(struct target_ring *ring, struct far_refusal *refusal, int result, const char *text)
{
	*refusal = (struct far_refusal){
		.magic = FAR_REFUSAL_MAGIC, .version = FAR_VERSION, .result = result, .tail_lsn = UINT64_MAX};
	snprintf(refusal->text, sizeof(refusal->text), "%s", text);
	if (ring != NULL)
		ring->counters.refused_count++;
	return result;
}

/* epoch_floor -- what a writer's epoch must reach: a fence's, or that of the newest writer that was let in or has
 * opened its epoch. */
static uint64_t epoch_floor(const struct target_ring *ring)
{
	uint64_t floor = region_load_word(ring->region, LAYOUT_FENCE_OFF);
	struct superblock superblock;

	if (floor < ring->epoch_admitted_min)
		floor = ring->epoch_admitted_min;
	if (superblock_load(ring->region, ring->name, &superblock, NULL) == FARLOG_OK && superblock.writer_epoch > floor)
		floor = superblock.writer_epoch;
	return floor;
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

static int refuse_epoch(struct target_ring *ring, uint32_t epoch, struct far_refusal *refusal)
{
	bool is_exact;
	uint64_t epoch_min = epoch_floor(ring);
	char text[sizeof(refusal->text)];

	snprintf(text, sizeof(text), "epoch %u is fenced: ring \"%.40s\" demands at least %lu; acquire a new grant", epoch,
		ring->name, epoch_min);
	may_fail(refuse(ring, refusal, FARLOG_FENCED, text)); /* it only words why */
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

/* is_taken -- a writer's grant belongs to the client that opened its epoch, or that is in to do so. One whose opening
 * failed before that has written nothing, and who holds its token may try again by a handle of its own. */
static bool is_taken(const struct target_ring *ring, const struct target_grant *grant, const struct far_hello *hello)
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

/* take_grant -- this client has it from now on. Of two living drains with one token the older one never comes back:
 * each would end the other's connection, for ever, and what the older one still has on its way would land on what the
 * newer one has released. */
static void take_grant(struct target_grant *grant, uint64_t client_id)
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
		return refuse(
			ring, refusal, FARLOG_IO, "the ring is being formatted, or damaged; look at it on the target's host");
	if (memcmp(superblock.ring_uuid, ring->ring_uuid, sizeof(ring->ring_uuid)) != 0)
		return refuse(ring, refusal, FARLOG_NOT_A_RING,
			"the ring has been removed or formatted anew since its target served it; it is to be served again");
	return FARLOG_OK;
}

/* is_role_granted -- whoever may read a ring of a tenant may look at the page of that tenant's tails. */
static bool is_role_granted(uint32_t granted, uint8_t asked)
{
	return asked == granted ||
		(asked == REGION_ROLE_TAILS && (granted == FARLOG_GRANT_DRAIN || granted == FARLOG_GRANT_READER));
}

static int check_hello(struct farlog_target *target, const struct far_hello *hello, const struct sockaddr *peer,
	struct target_ring **ring, struct target_grant **grant, struct far_refusal *refusal)
{
	char text[sizeof(refusal->text)];
	uint64_t barred_ns;

	*ring = NULL;
	if (hello->magic != FAR_HELLO_MAGIC)
		return refuse(NULL, refusal, FARLOG_INVALID, "this is a farlog target; what connected is no farlog client");
	if (hello->version != FAR_VERSION) {
		snprintf(text, sizeof(text), "client speaks version %u; expected %u", hello->version, FAR_VERSION);
		return refuse(NULL, refusal, FARLOG_UNSUPPORTED, text);
	}
	*grant = target_find_grant(target, hello->token, ring);
	if (*grant == NULL)
		return refuse(NULL, refusal, FARLOG_INVALID,
			"no grant with this token is known here; acquire a grant, and use it at its target");
	/* Before anything of the ring is told: who has listened in on a token learns nothing by it. */
	if (!target_may_come_from(*grant, peer))
		return refuse(*ring, refusal, FARLOG_INVALID,
			"the grant is for a host that did not name this address as its own: give its agent --host-addresses");
	barred_ns = target_barred_ns(*grant);
	if (barred_ns > 0) {
		snprintf(text, sizeof(text), "%s; let in again in %lu s", (*grant)->barred_reason, barred_ns / 1000000000u + 1);
		return refuse(*ring, refusal, FARLOG_IO, text);
	}
	if ((*ring)->hash != hello->ring_hash)
		return refuse(
			*ring, refusal, FARLOG_NOT_A_RING, "the grant with this token is for another ring than the one asked for");
	if (check_ring(*ring, refusal) != FARLOG_OK)
		return refusal->result;
	if (!is_role_granted((*grant)->grant.role, hello->role))
		return refuse(
			*ring, refusal, FARLOG_INVALID, "the grant with this token is for another role (writer, drain, reader)");
	/* A drain that was started again comes with the token it was told of; its earlier connection is torn down first,
	 * and does not come back. */
	if (hello->role != REGION_ROLE_TAILS && is_superseded(*grant, hello->client_id))
		return refuse(*ring, refusal, FARLOG_FENCED,
			"another client has come with this token since; each drain or reader takes a grant of its own");
	if (is_taken(*ring, *grant, hello))
		return refuse(*ring, refusal, FARLOG_HELD,
			"the token has been used by another client already; every writer acquires its own");
	/* Before its time limit: who had been let in before the target was started again is told why it is not now. */
	if (hello->role == REGION_ROLE_WRITER &&
		(hello->epoch < (*grant)->grant.epoch || hello->epoch < epoch_floor(*ring)))
		return refuse_epoch(*ring, hello->epoch, refusal);
	if (hello->role == REGION_ROLE_WRITER && hello->epoch != (*grant)->grant.epoch) {
		snprintf(text, sizeof(text), "the grant with this token is of epoch %u, and not of %u", (*grant)->grant.epoch,
			hello->epoch);
		return refuse(*ring, refusal, FARLOG_INVALID, text);
	}
	if ((*grant)->grant.expires_ns != 0 && (*grant)->client_id != hello->client_id &&
		utc_now_ns() >= (*grant)->grant.expires_ns)
		return refuse(*ring, refusal, FARLOG_INVALID, "the grant has expired; acquire a new one");
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
		return refuse(*place, refusal, FARLOG_UNSUPPORTED,
			"the ring has no line in its tenant's page of tails; look at the ring itself");
	*place = (*place)->page;
	target_tails_look(target, *place); /* the first READ is not to show what was when somebody looked last */
	return FARLOG_OK;
}

static struct target_conn *find_conn(struct target_ring *ring, const struct target_grant *grant)
{
	struct target_conn *conn = ring->conns;

	while (conn != NULL && conn->grant != grant)
		conn = conn->next;
	return conn;
}

int target_shut_out(struct farlog_target *target, struct target_conn *conn, struct farlog_error *error)
{
	int result;

	if (conn->is_gone)
		return FARLOG_OK;
	conn->is_revoked = true;
	conn->pin_count++;
	pthread_mutex_unlock(&target->mutex);
	result = conn->ops->revoke(conn, error);
	if (atomic_load_acquire(&target->is_closing))
		result = FARLOG_OK; /* the transport lets go of it, and of the device */
	pthread_mutex_lock(&target->mutex);
	conn->is_gone |= result == FARLOG_OK;
	conn->pin_count--;
	pthread_cond_broadcast(&target->moved);
	return result;
}

static const struct target_conn *find_holder(const struct target_ring *ring, uint8_t role)
{
	const struct target_conn *conn = ring->conns;

	while (conn != NULL && (conn->role != role || conn->is_gone))
		conn = conn->next;
	return conn;
}

/* take_role -- the region's own lock: a writer or drain on this host excludes a far one, and the other way round. */
static int take_role(struct target_ring *ring, uint8_t role, struct far_refusal *refusal)
{
	const struct target_conn *holder;
	int result;

	if (role == REGION_ROLE_READER)
		return FARLOG_OK;
	holder = find_holder(ring, role);
	if (holder != NULL && holder->is_revoked)
		return refuse(ring, refusal, FARLOG_HELD,
			"who held this role before may still write: its key has not ended yet; fence the ring again");
	if (holder != NULL)
		return refuse(
			ring, refusal, FARLOG_HELD, "another client holds this role; it is fenced by a higher epoch, or leaves");
	result = ring->is_locked[role] ? FARLOG_OK : region_lock(ring->region, (enum region_role)role);
	if (result == FARLOG_NOT_FOUND)
		return refuse(ring, refusal, FARLOG_NOT_A_RING, "the ring has been removed from its region");
	if (result == FARLOG_HELD)
		return refuse(ring, refusal, result, "a process on the target's host holds this role; stop it first");
	if (result != FARLOG_OK)
		return refuse(ring, refusal, result, "the role's lock cannot be taken at the target");
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

static void copy_peer(const struct sockaddr *peer, struct sockaddr_storage *copy)
{
	memset(copy, 0, sizeof(*copy));
	if (peer != NULL && peer->sa_family == AF_INET)
		memcpy(copy, peer, sizeof(struct sockaddr_in));
	else if (peer != NULL && peer->sa_family == AF_INET6)
		memcpy(copy, peer, sizeof(struct sockaddr_in6));
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
			may_fail(target_shut_out(target, old, NULL));                 /* while it lasts the place is taken: HELD */
		result = find_place(target, hello, peer, &ring, &grant, refusal); /* the lock was let go */
		old = result == FARLOG_OK ? find_conn(ring, grant) : NULL;
		if (old != NULL && !old->is_gone)
			result = refuse(
				ring, refusal, FARLOG_HELD, "the connection before this one is still being torn down; try again");
	}
	if (result == FARLOG_OK)
		result = take_role(ring, role, refusal);
	if (result == FARLOG_OK) {
		if (hello->role != REGION_ROLE_TAILS)
			take_grant(grant, hello->client_id);
		conn->ring = ring;
		conn->grant = grant;
		conn->role = role;
		conn->is_revoked = false;
		conn->relayed_at_ns = 0;
		copy_peer(peer, &conn->peer);
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
	target_worker_part(conn);
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

/* ---------------------------------------------------------------- requests */

static bool is_inside(const struct target_ring *ring, const struct far_request *request)
{
	uint64_t size = ring->region->contract.size_bytes;

	if (request->span_count < 1 || request->span_count > 2)
		return false;
	for (unsigned i = 0; i < request->span_count; i++)
		if (request->spans[i].len > size || request->spans[i].off > size - request->spans[i].len)
			return false;
	return true;
}

/* may_put -- what the key of a writer's connection would let in, of the ring's data. */
static bool may_put(const struct target_conn *conn, const struct far_request *request, size_t carried_len)
{
	uint64_t len = 0;

	if (!(far_piece_rights(FAR_PIECE_WRITER, conn->role) & FAR_MAY_WRITE) || !is_inside(conn->ring, request))
		return false;
	for (unsigned i = 0; i < request->span_count; i++) {
		if (request->spans[i].off < LAYOUT_DATA_OFF || request->spans[i].off % sizeof(uint64_t) != 0 ||
			request->spans[i].len % sizeof(uint64_t) != 0)
			return false;
		len += request->spans[i].len;
	}
	return len > 0 && len == carried_len;
}

/* Word by word, as a drain on this host may be reading what lies there: it finds the words of one record or of the
 * other, and its checksum tells. */
bool target_put(const struct target_conn *conn, const struct far_message *message, size_t carried_len)
{
	const uint64_t *from = (const uint64_t *)message->carried;

	if (!may_put(conn, &message->request, carried_len))
		return false;
	for (unsigned i = 0; i < message->request.span_count; i++) {
		uint64_t *to = (uint64_t *)(conn->ring->bytes + message->request.spans[i].off);

		for (uint64_t word = 0; word < message->request.spans[i].len / sizeof(*to); word++)
			atomic_store_relaxed(&to[word], *from++);
	}
	return true;
}

static uint32_t locked_roles(struct target_ring *ring)
{
	uint32_t bits = 0;

	for (int role = REGION_ROLE_WRITER; role <= REGION_ROLE_DRAIN; role++)
		/* what cannot be said is held */
		if (ring->is_locked[role] || ring->region->ops->fence.is_locked(ring->region, (enum region_role)role) != 0)
			bits |= 1u << role;
	return bits;
}

/* may_flush -- whoever writes something here has made durable what he builds upon: a drain also the records, before it
 * gives away that members of a stream have them. Nothing is changed by it. */
static bool may_flush(const struct target_conn *conn, const struct far_request *request)
{
	return conn->role != REGION_ROLE_READER && is_inside(conn->ring, request);
}

/* flush -- by the ring's worker what takes long, for all connections wait for this thread. A worker of memory is
 * started by the first such request. True: it answers later. */
static bool flush(struct target_conn *conn, const struct far_request *request, uint32_t *answer)
{
	struct target_ring *ring = conn->ring;
	uint64_t len = request->spans[0].len + (request->span_count == 2 ? request->spans[1].len : 0);
	bool is_long = target_is_disk(ring) || len > FLUSH_LEN_SHORT || ring->test_delay_ns > 0;

	if (is_long && ring->worker == NULL)
		may_fail(target_worker_start(ring, NULL)); /* without one this thread flushes */
	if (is_long && ring->worker != NULL && target_worker_take(conn, request)) {
		conn->requests.deferred_count++;
		return true;
	}
	*answer = is_long && ring->worker != NULL ? (uint32_t)-FARLOG_FULL : target_flush_spans(ring, request);
	return false;
}

bool target_serve(struct farlog_target *target, struct target_conn *conn, const struct far_request *request)
{
	struct target_ring *ring = conn->ring;
	struct far_request flushed = *request;
	int taken = FARLOG_INVALID;
	uint32_t answer;

	atomic_bump(&ring->counters.request_count, 1);
	if (request->operation == FAR_EPOCH)
		taken = target_take_epoch(target, conn, request, &flushed);
	else if (request->operation == FAR_FLUSH && may_flush(conn, request))
		taken = FARLOG_OK;
	if (taken == FARLOG_OK && flush(conn, &flushed, &answer))
		return true;
	if (taken == FARLOG_OK)
		; /* flush has the answer */
	else if (request->operation == FAR_LOCKED)
		answer = locked_roles(ring);
	else
		answer = (uint32_t)-taken;
	conn->ops->write_word(conn, far_answer_off(request->tag), far_answer(request->tag, answer));
	if (taken == FARLOG_INVALID && request->operation != FAR_LOCKED)
		return target_note_bad_request(target, conn);
	return true;
}

/* relay -- the drain's credit, wherever it drains from. */
static void relay(struct target_conn *conn, uint64_t now_ns)
{
	uint64_t credit_lsn = region_load_word(conn->ring->region, LAYOUT_CREDIT_OFF);

	if (conn->role != REGION_ROLE_WRITER || conn->is_revoked)
		return;
	if (credit_lsn == conn->relayed_credit && now_ns - conn->relayed_at_ns < CREDIT_REPEAT_NS)
		return;
	conn->relayed_credit = credit_lsn;
	conn->relayed_at_ns = now_ns;
	conn->ops->write_word(conn, LAYOUT_CREDIT_OFF, credit_lsn);
}

void target_tick(struct farlog_target *target, uint64_t *has_answers)
{
	uint64_t now_ns = clock_monotonic_ns();

	if (pthread_mutex_trylock(&target->mutex) != 0) {
		atomic_store_relaxed(has_answers, 1);
		return;
	}
	for (struct target_ring *ring = target->rings; ring != NULL; ring = ring->next) {
		target_worker_answer(ring);
		for (struct target_conn *conn = ring->conns; conn != NULL; conn = conn->next)
			relay(conn, now_ns);
	}
	target_tails_tick(target, now_ns);
	pthread_mutex_unlock(&target->mutex);
}
