/* fuzz_request.c -- what a client says to a target: hellos and requests of any bytes are refused or carried out inside
 * the ring and by the role that was granted, and are answered in the words of the client's copy that are there for
 * answers.
 *
 * The target is the product's, by a transport of this file's that moves no bytes. An input is a byte that chooses, a
 * hello, and then messages: a length, a request, and what it carries. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "target/target.h"

#define SIZE (LAYOUT_DATA_OFF + (64u << 10))
#define MESSAGES_MAX 16u

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static farlog_target target;
static uint8_t *bytes; /* of the ring */
static uint8_t before[SIZE];
static uint8_t formatted[SIZE];

static void check(int claim)
{
	if (!claim)
		abort();
}

static int expose(void *listener, struct target_ring *ring, void **key, struct farlog_error *error)
{
	(void)listener, (void)ring, (void)error;
	*key = NULL;
	return FARLOG_OK;
}

static void withdraw(void *listener, struct target_ring *ring, void *key)
{
	(void)listener, (void)ring, (void)key;
}

static int revoke_conn(struct target_conn *conn, struct farlog_error *error)
{
	(void)conn, (void)error;
	return FARLOG_OK;
}

static void write_word(struct target_conn *conn, uint64_t off, uint64_t value)
{
	(void)conn, (void)value;
	check(off == FAR_ANSWER_OFF || off == FAR_FLUSHED_OFF || off == LAYOUT_CREDIT_OFF);
}

static void wake(struct target_conn *conn)
{
	(void)conn;
}

static const struct target_transport transport = {.scheme = "fuzz", .expose = expose, .withdraw = withdraw};
static const struct target_conn_ops ops = {.revoke = revoke_conn, .write_word = write_word, .wake = wake};

static uint8_t token_of(unsigned role)
{
	return (uint8_t)(0x11 * (1 + (role == REGION_ROLE_TAILS ? REGION_ROLE_READER : role)));
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const enum farlog_grant_role roles[] = {FARLOG_GRANT_WRITER, FARLOG_GRANT_DRAIN, FARLOG_GRANT_READER};
	struct farlog_ring_config config = {.size_bytes = SIZE, .stream_name = "ring"};
	int fd = memfd_create("ring", 0);
	char uri[100];

	(void)argc, (void)argv;
	check(fd >= 0 && ftruncate(fd, SIZE) == 0);
	bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(bytes != MAP_FAILED);
	snprintf(uri, sizeof(uri), "mem:/proc/%ld/fd/%d?flush=none", (long)getpid(), fd);
	check(clock_start() == 0);
	check(farlog_ring_format(uri, &config, NULL) == FARLOG_OK);
	check(pthread_mutex_init(&target.mutex, NULL) == 0 && pthread_cond_init(&target.moved, NULL) == 0);
	target.transport = &transport;
	check(farlog_target_serve(&target, "ring", uri, NULL, NULL) == FARLOG_OK);
	for (unsigned i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
		struct farlog_grant grant = {.role = roles[i], .epoch = roles[i] == FARLOG_GRANT_WRITER ? 5 : 0};

		memset(grant.token, token_of(roles[i]), sizeof(grant.token));
		check(farlog_target_grant(&target, "ring", &grant, NULL) == FARLOG_OK);
	}
	memcpy(formatted, bytes, SIZE);
	return 0;
}

/* forget -- what the input before did to the ring and its grants. */
static void forget(void)
{
	memcpy(bytes, formatted, SIZE);
	for (struct target_grant *grant = target.rings->grants; grant != NULL; grant = grant->next)
		grant->client_id = grant->superseded_count = grant->barred_until_ns = grant->barred_count = 0;
}

/* check_changes -- a request changes what its role has a key to, and a writer's epoch the superblocks besides. */
static void check_changes(const struct target_conn *conn, const struct far_request *request)
{
	uint64_t data_off = conn->role == REGION_ROLE_WRITER ? LAYOUT_DATA_OFF : SIZE;

	if (request->operation == FAR_EPOCH && conn->role == REGION_ROLE_WRITER)
		return;
	check(memcmp(bytes, before, data_off) == 0);
}

/* propose -- what a writer writes by its key before FAR_EPOCH: the ring's superblock, of its epoch, with some bytes
 * changed and a right checksum. */
static void propose(const struct far_message *message, size_t carried_len)
{
	struct superblock superblock;
	uint8_t *raw = (uint8_t *)&superblock;

	memcpy(&superblock, bytes + LAYOUT_SUPERBLOCK_A_OFF, sizeof(superblock));
	superblock.generation++;
	superblock.writer_epoch = 5;
	for (size_t i = 0; i < carried_len && i < sizeof(superblock); i++)
		raw[i] ^= message->carried[i];
	superblock.crc32c = crc32c_update(0, &superblock, offsetof(struct superblock, crc32c));
	memcpy(bytes + LAYOUT_PROPOSAL_OFF, &superblock, sizeof(superblock));
}

/* read_message -- what a message carries is as long as its first byte says, or as what is left. */
static size_t read_message(struct far_message *message, const uint8_t *data, size_t len)
{
	size_t carried_len = data[0] * 8u;

	if (carried_len > len - 1 - sizeof(message->request))
		carried_len = len - 1 - sizeof(message->request);
	memcpy(&message->request, data + 1, sizeof(message->request));
	memcpy(message->carried, data + 1 + sizeof(message->request), carried_len);
	return carried_len;
}

/* serve -- as a transport does (target/ofi_conn.c). The number of bytes that the message took; 0: the client has been
 * disconnected for it. */
static size_t serve(struct target_conn *conn, const uint8_t *data, size_t len, uint64_t look)
{
	struct far_message *message = calloc(1, sizeof(*message));
	struct far_request request;
	uint64_t has_answers = 0;
	size_t carried_len;
	bool is_served;

	check(message != NULL);
	carried_len = read_message(message, data, len);
	request = message->request;
	if (request.operation == FAR_EPOCH && conn->role == REGION_ROLE_WRITER)
		propose(message, carried_len);
	memcpy(before, bytes, SIZE);
	is_served = target_check_request(&target, conn, &request, look);
	if (is_served && request.operation == FAR_PERSIST) {
		request.operation = target_store_carried(conn, message, carried_len) ? FAR_FLUSH : FAR_PERSIST;
		check(request.operation == FAR_FLUSH || memcmp(bytes, before, SIZE) == 0);
	}
	is_served = is_served && target_serve(&target, conn, &request);
	check_changes(conn, &message->request);
	target_tick(&target, &has_answers);
	free(message);
	return is_served ? 1 + sizeof(request) + carried_len : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct target_conn conn = {.ops = &ops};
	struct far_refusal refusal = {0};
	struct far_welcome welcome;
	struct far_hello hello;
	unsigned choice;

	if (len < 1 + sizeof(hello))
		return 0;
	choice = data[0];
	forget();
	memcpy(&hello, data + 1, sizeof(hello));
	data += 1 + sizeof(hello);
	len -= 1 + sizeof(hello);
	if (choice & 1) { /* a token that is good, for its role */
		hello.ring_hash = target.rings->hash;
		hello.epoch = hello.role == REGION_ROLE_WRITER ? 5 : 0;
		memset(hello.token, token_of(hello.role), sizeof(hello.token));
	}
	if (target_admit(&target, &hello, NULL, &conn, &welcome, &refusal) != FARLOG_OK) {
		check(refusal.result < 0 && memchr(refusal.text, '\0', sizeof(refusal.text)) != NULL);
		return 0;
	}
	for (unsigned i = 0; i < MESSAGES_MAX && len > sizeof(struct far_request); i++) {
		size_t taken = serve(&conn, data, len, i);

		if (taken == 0)
			break;
		data += taken;
		len -= taken;
	}
	target_leave(&target, &conn);
	return 0;
}
