/* wire/wire.h -- what a client and a target say to each other (docs/reference/format.md section 7). Little endian.
 *
 * The connection's private data carry the grant one way and the region's contract the other: there is no other
 * handshake, and a connection that was accepted may write. After that the data path is one-sided. Requests are for what
 * one-sided operations cannot do, and for a few records whose flush is one (FAR_PERSIST); they are answered by a word
 * that the target writes into the client's copy of the header. */
#ifndef FARLOG_FAR_WIRE_H
#define FARLOG_FAR_WIRE_H

#include <stdint.h>

#include "ring/layout.h"

#define FAR_HELLO_MAGIC 0x48474C46u   /* "FLGH" */
#define FAR_WELCOME_MAGIC 0x57474C46u /* "FLGW" */
#define FAR_REFUSAL_MAGIC 0x52474C46u /* "FLGR" */
#define FAR_VERSION 2u

/* The header as a client knows it: what is fetched, then a word that exists only in its copy. */
#define FAR_HEADER_LEN 0x2140u
#define FAR_ANSWER_OFF 0x2180u
#define FAR_FLUSHED_OFF 0x2188u
/* where a client keeps the request of a message that carries bytes, until it has been answered */
#define FAR_REQUEST_OFF 0x21C0u
/* written now and then by a target whose transport would not notice otherwise that the client's host is gone */
#define FAR_ALIVE_OFF 0x2190u

/* Tags with this bit are those of a link that flushes by the target's processor. Their answers have a word of their
 * own: the answer to another request that was on its way beside must not take the place of one that has not been
 * seen. */
#define FAR_LINK_TAG 0x80000000u

/* In the connect request: 56 bytes is all that librdmacm carries there for RDMA_PS_TCP. The grant's client then tells
 * where its copy of the header lies (FAR_HEADER), because it knows how large a copy to make only from the welcome. */
struct far_hello {
	uint32_t magic;
	uint16_t version;
	uint8_t role; /* enum region_role */
	uint8_t reserved;
	uint32_t epoch;     /* of the grant; 0 for a drain */
	uint32_t ring_hash; /* CRC32C of the ring's name: a port or a name that is not meant is found out */
	uint8_t token[FARLOG_TOKEN_LEN];
	/* drawn once a handle: a token belongs to the one that opened its epoch, and before that to the one that is
	 * connected */
	uint64_t client_id;
};

/* A client has a key to each that its role may reach: wire/piece.h. */
enum far_piece {
	FAR_PIECE_HEADER = 0, /* all words before the data, to be read */
	FAR_PIECE_DRAIN = 1,  /* head slots and credit */
	FAR_PIECE_WRITER = 2, /* tail line, proposal and records */
	FAR_PIECE_COUNT = 3,
};

/* In the acceptance: at most 196 bytes. */
struct far_welcome {
	uint32_t magic;
	uint16_t version;
	uint8_t kind;  /* enum farlog_region_kind */
	uint8_t level; /* enum farlog_level: the highest that one of the methods gives */
	/* of the region's first byte, for the client's writes and reads; 0 = each piece is counted from its own */
	uint64_t data_addr;
	uint64_t keys[FAR_PIECE_COUNT];
	uint64_t size_bytes;
	/* where a read flushes; 0 = the last bytes written. A writer that is told the credit word takes its credit by that
	 * read */
	uint64_t flush_addr;
	uint32_t flush_methods; /* bit n: enum farlog_flush_method n gives this level here; FAR_CARRIES */
	uint32_t granularity;
	uint32_t atomic_unit;
	uint32_t epoch_min; /* the ring's fence */
	uint8_t ring_uuid[16];
	char probe[104];
};

/* In the rejection: at most 148 bytes. */
struct far_refusal {
	uint32_t magic;
	uint16_t version;
	uint16_t is_tail_exact; /* 1: nothing of a later epoch lies below tail_lsn */
	int32_t result;         /* enum farlog_result */
	uint32_t epoch_min;
	uint64_t tail_lsn; /* with FENCED: no record of the client's epoch lies at or above it; UINT64_MAX = not known */
	char text[120];
};

/* In flush_methods: with FARLOG_FLUSH_TARGET_CPU, FAR_PERSIST is taken. */
#define FAR_CARRIES 0x80000000u

/* What one message carries at most, in bytes: a record or a few. More goes by WRITEs, which need no second copy at the
 * target. */
#define FAR_CARRIED_LEN_MAX 4032u

/* Requests that a client has unanswered at most: one of its link, one of its cold calls, FAR_HEADER and FAR_LEAVE. Who
 * has more does not speak this protocol, and is disconnected. */
#define FAR_UNANSWERED_MAX 4u

enum far_operation {
	FAR_FLUSH = 1,  /* these spans, by the target's processor; answer 0 or -enum farlog_result */
	FAR_LOCKED = 2, /* whose locks are held; answer: bit n for enum region_role n */
	/* the client's copy of the header is at address spans[0].off with key spans[0].len; the first request; no answer */
	FAR_HEADER = 3,
	/* the client goes; the last request. The connection's end is the answer: the key is invalid by then and the role
	 * free */
	FAR_LEAVE = 4,
	/* a writer's superblock is at LAYOUT_PROPOSAL_OFF: make it the ring's, durably; answer as to FAR_FLUSH */
	FAR_EPOCH = 5,
	/* Of a writer: the bytes of these spans of the ring's data stand behind the request, those of the first one first.
	 * The target's processor puts them there, and flushes and answers as FAR_FLUSH. Whole words; from 1 to
	 * FAR_CARRIED_LEN_MAX bytes in all. */
	FAR_PERSIST = 6,
};

/* The client sleeps: answers make a completion there, where the transport can (a WRITE with immediate data, which takes
 * a receive). */
#define FAR_WANTS_EVENTS 1u

struct far_request {
	uint32_t operation;
	uint32_t tag; /* comes back in the answer; never 0 */
	uint32_t span_count;
	uint32_t flags; /* FAR_WANTS_EVENTS, with FAR_HEADER */
	struct {
		uint64_t off;
		uint64_t len;
	} spans[2];
};

/* What a target makes room for. */
struct far_message {
	struct far_request request;
	uint8_t carried[FAR_CARRIED_LEN_MAX];
};

/* The answer is one word, so that it is never seen in halves. */
static inline uint64_t far_answer(uint32_t tag, uint32_t value)
{
	return (uint64_t)tag << 32 | value;
}

static inline uint64_t far_answer_off(uint32_t tag)
{
	return tag & FAR_LINK_TAG ? FAR_FLUSHED_OFF : FAR_ANSWER_OFF;
}

_Static_assert(sizeof(struct far_hello) == 40, "far_hello fits the private data of a connect request");
_Static_assert(sizeof(struct far_welcome) == 192, "far_welcome fits the private data of an acceptance");
_Static_assert(sizeof(struct far_refusal) == 144, "far_refusal fits the private data of a rejection");
_Static_assert(sizeof(struct far_request) == 48, "far_request");
_Static_assert(sizeof(struct far_message) == sizeof(struct far_request) + FAR_CARRIED_LEN_MAX,
	"what a request carries stands right behind it");
_Static_assert(FAR_REQUEST_OFF + sizeof(struct far_request) <= LAYOUT_PROPOSAL_OFF,
	"a request kept in the copy touches nothing of the ring");

#endif
