/* bare.c -- a client of a target that uses no function of farlog: librdmacm, libibverbs, and the greeting of
 * docs/reference/format.md section 7. With a grant of its own it is let in like any other; then it posts one WRITE or
 * READ to whatever address and by whatever key it is told, and says what the device there made of it. What a target's
 * own client would refuse to post is refused by nobody here.
 *
 * usage: bare HOST PORT RING TOKEN EPOCH write|read [ADDRESS KEY]
 *
 * ADDRESS or KEY "own", or none: the last bytes of the ring that the grant is for, the key that came with it. It prints
 *	own ADDRESS KEY LEN		of the ring that it was let in to, numbers in hexadecimal but for LEN
 *	write STATUS TEXT		the completion's status (0: done; 10: refused by the device there) and what libibverbs calls
 *it 	read STATUS TEXT BYTES		and what lies then where the READ should have put its bytes, in hexadecimal
 * Exit code 0: the request was posted and completed, however. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "wire/wire.h"

#define TIMEOUT_MS 5000
#define RETRY_COUNT 6
#define COMPLETION_S 30
#define ROLE_WRITER 0
#define CLIENT_ID 0xBA9E
#define ATTACK_LEN 64u
#define WRITTEN 0xEE /* no farlog writer fills a line with it */
#define UNREAD 0xA5

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "bare: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* crc32c -- bit by bit: this program shares nothing with the core but the greeting's layout. */
static uint32_t crc32c(const char *text)
{
	uint32_t crc = 0xFFFFFFFFu;

	for (; *text != '\0'; text++) {
		crc ^= (uint8_t)*text;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
	}
	return ~crc;
}

static struct far_hello hello_of(const char *ring, const char *token, const char *epoch)
{
	struct far_hello hello = {.magic = FAR_HELLO_MAGIC,
		.version = FAR_VERSION,
		.role = ROLE_WRITER,
		.epoch = (uint32_t)strtoul(epoch, NULL, 10),
		.ring_hash = crc32c(ring),
		.client_id = CLIENT_ID};

	if (strlen(token) != 2 * sizeof(hello.token)) {
		errno = EINVAL;
		fail("token");
	}
	for (size_t i = 0; i < sizeof(hello.token); i++)
		hello.token[i] = (uint8_t)strtoul((char[]){token[2 * i], token[2 * i + 1], '\0'}, NULL, 16);
	return hello;
}

struct bare {
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t bytes[ATTACK_LEN];
};

static void resolve(struct bare *bare, const char *host, const char *port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)strtoul(port, NULL, 10))};

	if (inet_pton(AF_INET, host, &address.sin_addr) != 1 || rdma_create_id(NULL, &bare->id, NULL, RDMA_PS_TCP) != 0)
		fail("address");
	if (rdma_resolve_addr(bare->id, NULL, (struct sockaddr *)&address, TIMEOUT_MS) != 0 ||
		rdma_resolve_route(bare->id, TIMEOUT_MS) != 0)
		fail("resolve");
}

static void make_queue(struct bare *bare)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};

	bare->id->pd = ibv_alloc_pd(bare->id->verbs);
	bare->cq = ibv_create_cq(bare->id->verbs, 4, NULL, NULL, 0);
	if (bare->id->pd == NULL || bare->cq == NULL)
		fail("protection domain and completion queue");
	bare->mr = ibv_reg_mr(bare->id->pd, bare->bytes, sizeof(bare->bytes), IBV_ACCESS_LOCAL_WRITE);
	attr.send_cq = attr.recv_cq = bare->cq;
	if (bare->mr == NULL || rdma_create_qp(bare->id, bare->id->pd, &attr) != 0)
		fail("queue pair");
}

static struct far_welcome greet(struct bare *bare, const struct far_hello *hello)
{
	struct rdma_conn_param param = {.private_data = hello,
		.private_data_len = sizeof(*hello),
		.initiator_depth = 1,
		.responder_resources = 1,
		.retry_count = RETRY_COUNT,
		.rnr_retry_count = RETRY_COUNT};
	struct far_welcome welcome;
	struct far_refusal refusal = {0};

	if (rdma_connect(bare->id, &param) != 0) {
		if (bare->id->event != NULL && bare->id->event->param.conn.private_data_len >= sizeof(refusal))
			memcpy(&refusal, bare->id->event->param.conn.private_data, sizeof(refusal));
		fprintf(stderr, "bare: the target says: %.*s\n", (int)sizeof(refusal.text), refusal.text);
		fail("connect");
	}
	memcpy(&welcome, bare->id->event->param.conn.private_data, sizeof(welcome));
	if (welcome.magic != FAR_WELCOME_MAGIC || welcome.version != FAR_VERSION) {
		errno = EPROTO;
		fail("welcome");
	}
	return welcome;
}

static struct ibv_wc post(struct bare *bare, enum ibv_wr_opcode operation, uint64_t address, uint32_t key)
{
	struct ibv_sge piece = {
		.addr = (uint64_t)(uintptr_t)bare->bytes, .length = sizeof(bare->bytes), .lkey = bare->mr->lkey};
	struct ibv_send_wr request = {
		.sg_list = &piece, .num_sge = 1, .opcode = operation, .wr.rdma = {.remote_addr = address, .rkey = key}};
	struct ibv_send_wr *bad;
	struct ibv_wc completion;
	time_t until = time(NULL) + COMPLETION_S;
	int got = 0;

	errno = ibv_post_send(bare->id->qp, &request, &bad);
	if (errno != 0)
		fail("post");
	while (got == 0 && time(NULL) < until) {
		got = ibv_poll_cq(bare->cq, 1, &completion);
		usleep(1000);
	}
	if (got != 1) {
		errno = ETIMEDOUT;
		fail("completion");
	}
	return completion;
}

int main(int argc, char **argv)
{
	static struct bare bare;
	struct far_hello hello;
	struct far_welcome welcome;
	struct ibv_wc completion;
	uint64_t address;
	uint32_t key;
	int is_write;

	if (argc != 7 && argc != 9) {
		fprintf(stderr, "usage: bare HOST PORT RING TOKEN EPOCH write|read [ADDRESS KEY]\n");
		return 2;
	}
	is_write = strcmp(argv[6], "write") == 0;
	hello = hello_of(argv[3], argv[4], argv[5]);
	resolve(&bare, argv[1], argv[2]);
	make_queue(&bare);
	welcome = greet(&bare, &hello);
	printf("own %lx %lx %lu\n", welcome.data_addr, welcome.keys[FAR_PIECE_WRITER], welcome.size_bytes);
	address = welcome.data_addr + welcome.size_bytes - ATTACK_LEN;
	key = (uint32_t)welcome.keys[FAR_PIECE_WRITER];
	if (argc == 9 && strcmp(argv[7], "own") != 0)
		address = strtoull(argv[7], NULL, 16);
	if (argc == 9 && strcmp(argv[8], "own") != 0)
		key = (uint32_t)strtoul(argv[8], NULL, 16);
	memset(bare.bytes, is_write ? WRITTEN : UNREAD, sizeof(bare.bytes));
	completion = post(&bare, is_write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, address, key);
	printf("%s %d %s", argv[6], (int)completion.status, ibv_wc_status_str(completion.status));
	for (size_t i = 0; i < sizeof(bare.bytes) && !is_write; i++)
		printf("%s%02x", i == 0 ? " " : "", bare.bytes[i]);
	printf("\n");
	rdma_disconnect(bare.id);
	return 0;
}
