/* floor.h -- the least that an append over verbs can be: the same work requests from a program that does nothing
 * else. */
#ifndef FARLOG_BENCH_VERBS_FLOOR_H
#define FARLOG_BENCH_VERBS_FLOOR_H

#include <stdbool.h>
#include <stdint.h>

#include <rdma/rdma_cma.h>

#define FLOOR_LEN (4u << 20) /* of the memory that is written, here and there */
#define FLOOR_PAIR_COUNT_MAX 16u

struct floor {
	struct rdma_cm_id *id;
	struct ibv_qp_ex *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *bytes;
	uint64_t off; /* of the next pair */
	uint64_t peer_addr;
	uint32_t peer_key;
	bool has_flush;
	bool is_persistent; /* its FLUSH asks for persistence, else for visibility */
};

/* floor_memory -- what is written: a file on tmpfs that is made, or with a device DAX whatever lies there at `off`, of
 * which FLUSH can make it persistent. */
struct floor_memory {
	const char *path;
	uint64_t off;
	bool is_device;
};

/* floor_listen -- at this address, and what port it got. floor_serve -- let one floor in, and return. Both, and
 * floor_connect, exit with a text when that fails. */
struct rdma_cm_id *floor_listen(const char *address, uint16_t *port);
void floor_serve(struct rdma_cm_id *listener, const struct floor_memory *memory);
void floor_connect(struct floor *floor, const char *address, uint16_t port);
void floor_close(struct floor *floor);

/* floor_pairs -- write `len` bytes and FLUSH or READ behind them, `count` times under one doorbell; only the last is
 * signalled. Spins until that has come back. */
void floor_pairs(struct floor *floor, unsigned count, uint32_t len, bool is_flush);

/* floor_read -- READ `len` bytes from where the memory begins into one place. Spins until they have come. */
void floor_read(struct floor *floor, uint32_t len);

_Noreturn void floor_fail(const char *what);

#endif
