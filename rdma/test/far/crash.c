/* crash.c -- power cuts of a target while a far writer is at work, on adversarial memory.
 *
 * usage: far-crash [--fences]        SEED=n reproduces the choices, not the threads' timing   CRASHES=n (500)
 *
 * The real client and the real target, over libfabric's tcp provider on the loopback, in one process. The ring lies in
 * a memory that keeps every store pending until the target has flushed it, and that loses any subset of the pending
 * words at a power cut. The writer goes on by itself when the target is back; now and then another one takes its ring
 * over, undrained records and all, and goes on behind them. The power is cut as well between a fence that the target
 * has confirmed and the opening that rests on it: the epoch floor and all that lies below the log's end are still
 * there. Then: every acknowledged record is in the ring or was drained, once, in order and with its own bytes. With
 * --fences only the cuts behind a fence. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "wire/wire.h"
#include "adversary/memory.h"
#include "adversary/random.h"

#define MEMORY "far-crash"
#define URI "fault:" MEMORY
#define RING "desk7/orders"
#define SIZE (LAYOUT_DATA_OFF + (64u << 10))
#define PAYLOAD_MAX 900u
#define RECORDS_MAX 200000u
#define CRASHES_A_LIFE 50u
#define TAKEOVER_EVERY 5u /* turns of the writer */
#define TRIES_MAX 100u
#define FENCE_ROUNDS 40u

/* What is known of each record, by the number in its payload. */
static uint8_t is_acknowledged[RECORDS_MAX];
static uint64_t seen_lsn[RECORDS_MAX]; /* plus 1; 0 = not seen */

static struct {
	farlog_target *target;
	char uri[64];
	uint64_t random;     /* of the writer's thread */
	uint64_t cut_random; /* of the thread that cuts the power */
	bool is_over;
	unsigned crashes;
	unsigned crashes_wanted;
	const char *broken; /* what a fence had confirmed; NULL = nothing */
	uint32_t epoch;     /* of the writer that is let in */
	unsigned takeovers;
	pthread_mutex_t power; /* held by who cuts it, and by who must not be cut off */
} world = {.power = PTHREAD_MUTEX_INITIALIZER};

static void die(const char *what, const struct farlog_error *error)
{
	printf("far-crash: %s: %s\n", what, error != NULL ? error->text : "");
	exit(1);
}

/* make_grant -- every epoch is another client's, with a token of its own. */
static struct farlog_grant make_grant(void)
{
	struct farlog_grant grant = {.role = FARLOG_GRANT_WRITER, .epoch = world.epoch, .token = "writer's token"};

	memcpy(grant.token + FARLOG_TOKEN_LEN - 4, &world.epoch, 4);
	return grant;
}

/* power_on -- the target's host comes up: the same address, the same ring, the grants as the control plane has them. */
static void power_on(void)
{
	struct farlog_grant grant = make_grant();
	struct farlog_error error = {0};

	if (farlog_target_open(world.uri, &world.target, &error) != FARLOG_OK ||
		farlog_target_serve(world.target, RING, URI, NULL, &error) != FARLOG_OK ||
		farlog_target_grant(world.target, RING, &grant, &error) != FARLOG_OK)
		die("power on", &error);
	snprintf(world.uri, sizeof(world.uri), "%s", farlog_target_uri(world.target));
}

static void power_off(void)
{
	farlog_target_close(world.target);
	farlog_fault_crash(MEMORY);
}

static void *cut_power(void *context)
{
	(void)context;
	while (!__atomic_load_n(&world.is_over, __ATOMIC_ACQUIRE)) {
		struct timespec pause = {0, (long)(random_draw(&world.cut_random) % 20000000)};

		nanosleep(&pause, NULL);
		pthread_mutex_lock(&world.power);
		power_off();
		power_on();
		pthread_mutex_unlock(&world.power);
		if (++world.crashes >= world.crashes_wanted)
			__atomic_store_n(&world.is_over, true, __ATOMIC_RELEASE);
	}
	return NULL;
}

static uint8_t byte_of(uint64_t number)
{
	return (uint8_t)(number * 167 + 13);
}

static struct farlog_entry entry_of(uint64_t number, uint8_t *payload)
{
	uint32_t len = 8 + (uint32_t)(number * 37 % (PAYLOAD_MAX - 8));

	memcpy(payload, &number, 8);
	memset(payload + 8, byte_of(number), len - 8);
	return (struct farlog_entry){.data = payload, .len = len};
}

static const char *violation(const char *what, uint64_t number)
{
	static char text[96];

	snprintf(text, sizeof(text), "record %lu %s", number, what);
	return text;
}

/* check_payload -- a record may be read again at its place when the power cut has taken back a release, as a store
 * knows it by (epoch, lsn). */
static const char *check_payload(const uint8_t *payload, uint32_t len, uint64_t lsn)
{
	uint64_t number;

	memcpy(&number, payload, 8);
	if (number >= RECORDS_MAX || (seen_lsn[number] != 0 && seen_lsn[number] != lsn + 1))
		return violation("is there twice, or was never appended", number);
	if (number > 0 && seen_lsn[number - 1] == 0)
		return violation("comes before the one before it", number);
	seen_lsn[number] = lsn + 1;
	for (uint32_t i = 8; i < len; i++)
		if (payload[i] != byte_of(number))
			return violation("has bytes of another", number);
	return NULL;
}

/* drain -- all there is, by a reader on the target's host. A release that fails met a power cut. The header's fields:
 * docs/reference/format.md section 2. */
static const char *drain(farlog_reader *reader)
{
	static uint8_t buf[SIZE];
	struct farlog_batch batch;

	while (farlog_reader_read(reader, buf, sizeof(buf), &batch) == FARLOG_OK) {
		for (uint64_t at = 0; at < batch.len;) {
			uint16_t flags;
			uint32_t len;
			uint64_t lsn;
			const char *found = NULL;

			memcpy(&flags, buf + at + 6, 2);
			memcpy(&lsn, buf + at + 8, 8);
			memcpy(&len, buf + at + 20, 4);
			if (flags == 0)
				found = check_payload(buf + at + 56, len, lsn);
			if (found != NULL)
				return found;
			at += flags & 1 ? 64 : (56u + len + 8 + 63) / 64 * 64;
		}
		if (farlog_reader_release(reader, batch.next_lsn, batch.next_seq, batch.last_epoch) != FARLOG_OK)
			break;
	}
	return NULL;
}

/* The power is off now and then, and a reader's handle dies with it: it is opened again. */
static const char *drain_some(void)
{
	struct farlog_reader_config config = {.is_drain = 1};
	farlog_reader *reader;
	const char *found;

	if (farlog_reader_open(URI, &config, &reader, NULL) != FARLOG_OK)
		return NULL;
	found = drain(reader);
	farlog_reader_close(reader);
	return found;
}

/* settle -- after an append whose outcome is not known: the writer comes back to its target, and knows. */
static int settle(farlog_writer *writer, uint64_t lsn)
{
	struct farlog_position position;
	int result = FARLOG_UNKNOWN;

	for (unsigned i = 0; i < TRIES_MAX && result == FARLOG_UNKNOWN; i++)
		result = farlog_resolve(writer, lsn, 100000000, &position);
	return result;
}

/* append_one -- singly, or to be flushed with a later one. NULL: well, or the ring is full and *is_full. */
static const char *append_one(farlog_writer *writer, uint64_t *number, bool *is_full)
{
	static uint8_t payload[PAYLOAD_MAX];
	struct farlog_position position = {0};
	struct farlog_entry entry = entry_of(*number, payload);
	bool is_single = random_draw(&world.random) % 2 == 0;
	int result =
		is_single ? farlog_append(writer, &entry, 20000000, &position) : farlog_submit(writer, &entry, &position);

	*is_full = result == FARLOG_FULL;
	if (*is_full)
		return NULL;
	if (result == FARLOG_UNKNOWN)
		result = settle(writer, position.lsn);
	if (result != FARLOG_OK)
		return violation(farlog_result_name(result), *number);
	for (uint64_t n = *number + 1; is_single && n > 0 && !is_acknowledged[n - 1]; n--)
		is_acknowledged[n - 1] = 1; /* one flush covers all before it */
	(*number)++;
	return NULL;
}

static const char *append_some(farlog_writer *writer, uint64_t *number)
{
	unsigned count = 1 + (unsigned)(random_draw(&world.random) % 30);
	const char *found = NULL;
	bool is_full = false;

	while (count-- > 0 && *number < RECORDS_MAX && found == NULL && !is_full)
		found = append_one(writer, number, &is_full);
	return found == NULL && is_full ? drain_some() : found;
}

/* make_room -- for the record that opens an epoch: power cuts may have undone every release since the ring was last
 * full. */
static void make_room(void)
{
	const char *found;

	pthread_mutex_lock(&world.power);
	found = drain_some();
	pthread_mutex_unlock(&world.power);
	if (found != NULL)
		die(found, NULL);
}

/* cut_behind_fence -- the power, before anybody has opened the epoch that the fence was for. NULL: what was confirmed
 * is there. */
static const char *cut_behind_fence(uint64_t tail_lsn)
{
	struct farlog_grant late = {.role = FARLOG_GRANT_WRITER, .epoch = world.epoch - 1, .token = "fenced token"};
	struct farlog_ring_status status;
	struct farlog_error error = {0};

	power_off();
	power_on();
	if (farlog_ring_inspect(URI, &status, &error) != FARLOG_OK)
		die("inspect behind a fence", &error);
	if (status.appended_lsn < tail_lsn)
		return violation("lies below the end that a fence had confirmed, and the log ends there", status.lag_records);
	return farlog_target_grant(world.target, RING, &late, &error) == FARLOG_FENCED ?
		NULL :
		"an epoch below a confirmed fence is let in again";
}

/* open_writer -- the next epoch's, where the last one's is shut out. A power cut in the middle may have used its epoch
 * up: then the one after it. NULL: the ring is refused, as one that has lost bytes. */
static farlog_writer *open_writer(void)
{
	struct farlog_error error = {0};
	farlog_writer *writer = NULL;

	for (unsigned i = 0; i < TRIES_MAX && writer == NULL && error.result != FARLOG_CORRUPT && world.broken == NULL;
		i++) {
		struct farlog_writer_config config = {.counters_dir = "", .policy = FARLOG_POLICY_REJECT};
		struct farlog_grant grant;
		char uri[96];
		uint64_t tail_lsn;

		pthread_mutex_lock(&world.power);
		world.epoch++;
		grant = make_grant();
		if (farlog_target_fence(world.target, RING, world.epoch, &tail_lsn, &error) != FARLOG_OK)
			die("fence", &error);
		if (random_draw(&world.random) % 2 == 0)
			world.broken = cut_behind_fence(tail_lsn);
		if (farlog_target_grant(world.target, RING, &grant, &error) != FARLOG_OK)
			die("take over", &error);
		snprintf(uri, sizeof(uri), "%s/%s", world.uri, RING);
		pthread_mutex_unlock(&world.power);
		config.epoch = grant.epoch;
		config.grant_token = grant.token;
		error.result = farlog_writer_open(uri, &config, &writer, &error);
		if (error.result == FARLOG_FULL)
			make_room();
	}
	if (writer == NULL && error.result != FARLOG_CORRUPT && world.broken == NULL)
		die("open writer", &error);
	return writer;
}

/* take_over -- by a writer that knows of the log what is in the ring. It goes on behind the last record that recovery
 * kept: all that were acknowledged lie before it. */
static const char *take_over(farlog_writer **writer, uint64_t *number)
{
	farlog_writer *next = open_writer();
	const char *found;
	uint64_t kept = *number;

	farlog_writer_close(*writer);
	*writer = next;
	if (world.broken != NULL)
		return world.broken;
	if (next == NULL)
		return violation("and what is before it: the next writer finds the ring damaged", *number);
	world.takeovers++;
	pthread_mutex_lock(&world.power);
	found = drain_some();
	pthread_mutex_unlock(&world.power);
	while (kept > 0 && seen_lsn[kept - 1] == 0 && found == NULL)
		if (is_acknowledged[--kept])
			found = violation("was acknowledged, and the next writer has written over it", kept);
	*number = kept;
	return found;
}

static const char *check_all(uint64_t count)
{
	for (uint64_t number = 0; number < count; number++)
		if (is_acknowledged[number] && seen_lsn[number] == 0)
			return violation("was acknowledged and is not there", number);
	return NULL;
}

static void begin(uint64_t seed, unsigned crashes)
{
	struct farlog_ring_config ring = {.size_bytes = SIZE, .record_len_max = 1024, .stream_name = RING};
	struct farlog_error error = {0};

	memset(is_acknowledged, 0, sizeof(is_acknowledged));
	memset(seen_lsn, 0, sizeof(seen_lsn));
	world.is_over = false;
	world.broken = NULL;
	world.crashes = world.takeovers = 0;
	world.epoch = 1; /* nobody's: each writer takes the next */
	snprintf(world.uri, sizeof(world.uri), "ofi:tcp://127.0.0.1:0");
	world.random = seed * 2 + 1;
	world.cut_random = seed * 3 + 1;
	world.crashes_wanted = crashes;
	farlog_fault_drop(MEMORY);
	if (farlog_ring_format(URI, &ring, &error) != FARLOG_OK)
		die("format", &error);
	farlog_fault_expose(MEMORY);
	farlog_fault_reseed(MEMORY, seed);
	power_on();
}

/* live -- one writer's life through many power cuts. NULL: all is well. */
static const char *live(uint64_t seed, unsigned crashes, uint64_t *number)
{
	const char *found = NULL;
	farlog_writer *writer;
	pthread_t power;

	begin(seed, crashes);
	*number = 0;
	writer = open_writer();
	if (writer == NULL)
		die("open the first writer: its ring is damaged", NULL);
	found = world.broken;
	if (pthread_create(&power, NULL, cut_power, NULL) != 0)
		die("start thread", NULL);
	while (found == NULL && *number < RECORDS_MAX && !__atomic_load_n(&world.is_over, __ATOMIC_ACQUIRE))
		found =
			random_draw(&world.random) % TAKEOVER_EVERY == 0 ? take_over(&writer, number) : append_some(writer, number);
	__atomic_store_n(&world.is_over, true, __ATOMIC_RELEASE);
	pthread_join(power, NULL);
	power_off(); /* before the writer can say goodbye; what lay in a cache alone is gone, too */
	if (writer != NULL)
		farlog_writer_close(writer);
	if (found == NULL)
		found = drain_some();
	return found != NULL ? found : check_all(*number);
}

static bool play(uint64_t seed, unsigned crashes_wanted, unsigned *crashes, unsigned *takeovers, uint64_t *records)
{
	*crashes = *takeovers = 0;
	*records = 0;
	for (uint64_t life = 0; *crashes < crashes_wanted; life++) {
		uint64_t number;
		const char *found = live(seed * 0x2545F4914F6CDD1Dull + life, CRASHES_A_LIFE, &number);

		*crashes += world.crashes;
		*takeovers += world.takeovers;
		*records += number;
		if (found == NULL)
			continue;
		printf("far-crash: SEED=%lu life %lu: %s\n", seed, life, found);
		return false;
	}
	return true;
}

/* fence_round -- a writer is fenced whose last records were stored and not flushed, and the power is cut before the
 * next one opens. Its stores are a near writer's: those of a far one lie in the ring in the same way, but when they do
 * is the network's to choose. */
static const char *fence_round(uint64_t seed)
{
	static uint8_t payload[PAYLOAD_MAX];
	struct farlog_error error = {0};
	struct farlog_position position;
	const char *found;
	farlog_writer *writer;
	uint64_t tail_lsn;

	begin(seed, 0);
	if (farlog_writer_open(URI, &(struct farlog_writer_config){.counters_dir = ""}, &writer, &error) != FARLOG_OK)
		die("open a near writer", &error);
	for (uint64_t number = 0; number < 20; number++) {
		struct farlog_entry entry = entry_of(number, payload);

		if (farlog_submit(writer, &entry, &position) != FARLOG_OK)
			die("submit", NULL);
	}
	world.epoch = 3;
	if (farlog_target_fence(world.target, RING, world.epoch, &tail_lsn, &error) != FARLOG_OK)
		die("fence", &error);
	found =
		tail_lsn < position.end_lsn ? "a fence has not counted what was stored before it" : cut_behind_fence(tail_lsn);
	power_off();
	farlog_writer_close(writer);
	return found;
}

/* play_fences -- true: all that was confirmed was there. */
static bool play_fences(uint64_t seed, unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++) {
		const char *found = fence_round(seed * 0x2545F4914F6CDD1Dull + i);

		if (found == NULL)
			continue;
		printf("far-crash: SEED=%lu fence %u: %s\n", seed, i, found);
		return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	uint64_t seed = getenv("SEED") != NULL ? strtoull(getenv("SEED"), NULL, 10) : (uint64_t)time(NULL);
	unsigned wanted = getenv("CRASHES") != NULL ? (unsigned)strtoul(getenv("CRASHES"), NULL, 10) : 500;
	bool is_fences_alone = argc > 1 && strcmp(argv[1], "--fences") == 0;
	unsigned crashes = 0;
	unsigned takeovers = 0;
	uint64_t records = 0;
	bool is_well;

	setvbuf(stdout, NULL, _IOLBF, 0);
	is_well =
		(is_fences_alone || play(seed, wanted, &crashes, &takeovers, &records)) && play_fences(seed, FENCE_ROUNDS);
	printf("far-crash: SEED=%lu, %u power cuts, %u takeovers, %lu records\n", seed, crashes, takeovers, records);
	if (!is_well) /* the cuts that it took, and no fewer than one */
		printf("far-crash: reproduce: SEED=%lu CRASHES=%u\n", seed, crashes + 1);
	printf("far-crash: %d passed, %d failed\n", is_well, !is_well);
	return is_well ? 0 : 1;
}
