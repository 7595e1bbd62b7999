/* target.h -- libfarlog: a target: what lets clients of other hosts into rings of this one. Part of farlog.h. */
#ifndef FARLOG_PUBLIC_TARGET_H
#define FARLOG_PUBLIC_TARGET_H

#include "result.h"
#include "region.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A target lets far writers and drains into rings of this process's host: by verbs or by libfabric, each only with a
 * grant that the target has. It owns the regions' mappings; a local drain or inspection may go on beside it.
 * Threads: all functions from any thread; each transport has a thread of its own. */
typedef struct farlog_target farlog_target;

/* farlog_target_open -- listen. uri: "verbs://host:port" or "ofi:tcp://host:port[?wait=spin|block]"; port 0 takes a
 * free one (farlog_target_uri returns it). Errors: INVALID, UNSUPPORTED (library or device not there), IO (port in
 * use). */
FARLOG_API int farlog_target_open(
	const char *uri, farlog_target **target, struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_target_uri -- where it listens: "ofi:tcp://127.0.0.1:7471". */
FARLOG_API const char *farlog_target_uri(const farlog_target *target);

/* What survives a power cut, in the words of the kernel's persistence_domain of an nvdimm region. */
enum farlog_persistence_domain {
	FARLOG_DOMAIN_UNKNOWN = 0,           /* the kernel names none */
	FARLOG_DOMAIN_MEMORY_CONTROLLER = 1, /* what the memory controller accepted (ADR) */
	FARLOG_DOMAIN_CPU_CACHE = 2          /* also what is in a processor's cache (eADR) */
};

/* Why a READ behind a WRITE, on the same queue pair, makes the WRITE persistent. */
enum farlog_read_flush {
	FARLOG_READ_FLUSH_NONE = 0,
	/* the card's writes pass the processor's caches by; the READ pushes them to the memory controller */
	FARLOG_READ_FLUSH_DDIO_OFF = 1,
	FARLOG_READ_FLUSH_EADR = 2, /* the caches survive as well; the READ pushes the writes into them */
	FARLOG_READ_FLUSH_BAR = 3   /* a PCI device's memory, which no cache holds */
};

#define FARLOG_ATTESTED_BY_LEN 25 /* with the 0 at its end: all of it has to fit a far client's contract */
/* What the operator of a target's host says of a region because no program finds it out; domain, BAR: as attest= */
struct farlog_attestation {
	uint32_t read_flush; /* enum farlog_read_flush */
	uint32_t domain;     /* enum farlog_persistence_domain; UNKNOWN = not attested: the kernel's word counts */
	/* 1: a READ of any of its bytes flushes all WRITEs before it, not only one of those written last. With a
	 * read_flush */
	uint32_t is_any_read;
	const char *by;   /* who: 1 to FARLOG_ATTESTED_BY_LEN - 1 bytes */
	const char *date; /* "2026-11-21" */
	/* of libfabric, "tcp": its FI_COMMIT_COMPLETE comes after a flush by this host's processor. At most 15 bytes; NULL
	 * = none */
	const char *commit_provider;
};

/* farlog_target_attest -- rings of this region that are served from now on have, beyond what is probed, what is
 * attested: with read_flush far writers are offered FARLOG_FLUSH_RDMA_READ, with is_any_read by a READ of the head,
 * which is their credit as well; with commit_provider, at a target that listens by it, FARLOG_FLUSH_OFI_COMMIT.
 * region_uri: its path is what counts. Errors: INVALID, of what contradicts the probe, names key, value and what was
 * expected; EXISTS: it is attested already; and as farlog_region_probe. */
FARLOG_API int farlog_target_attest(farlog_target *target, const char *region_uri,
	const struct farlog_attestation *attestation, struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_target_serve -- open a formatted ring and let granted clients reach it as <target uri>/<name>. tenant: rings
 * of different tenants are in different protection domains; NULL = one for all. Errors: EXISTS (name taken), and as
 * farlog_reader_open. */
FARLOG_API int farlog_target_serve(farlog_target *target, const char *name, const char *region_uri, const char *tenant,
	struct farlog_error *error) FARLOG_MUST_CHECK;

enum farlog_grant_role {
	FARLOG_GRANT_WRITER = 0,
	FARLOG_GRANT_DRAIN = 1,
	FARLOG_GRANT_READER = 3,
};

struct farlog_grant {
	uint8_t token[FARLOG_TOKEN_LEN]; /* drawn at random by who grants; all zero is refused */
	uint32_t role;                   /* enum farlog_grant_role */
	uint32_t epoch;                  /* of a writer */
	uint64_t expires_ns;             /* UTC; admission ends then, a connection does not; 0 = never */
};

/* farlog_target_grant -- from now on a client with this token is let in, in this role. A writer is let in once no
 * writer of a lower epoch is: fence it first. Errors: NOT_FOUND (no such ring), FENCED (epoch below the ring's floor:
 * nobody is admitted by it, but a client with its token gets FENCED; so a restarted target is given the grants of
 * writers that were fenced before), INVALID. */
FARLOG_API int farlog_target_grant(farlog_target *target, const char *name, const struct farlog_grant *grant,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_target_fence -- make writers of epochs below epoch_min unable to write: their connections are torn down and
 * their keys invalid, then the floor is persisted. OK is the confirmation: nothing of theirs lands any more, the log
 * ends at *tail_lsn (may be NULL). IO: not confirmed; the text says what device or media did not do, and no other
 * writer is let in until a fence is. A fenced client's append gives FENCED. Blocks for the transport and the media. */
FARLOG_API int farlog_target_fence(farlog_target *target, const char *name, uint32_t epoch_min, uint64_t *tail_lsn,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* farlog_target_forget -- end a ring: its connections are torn down, its grants forgotten. NOT_FOUND; IO: a client may
 * still write to it, and it stays. */
FARLOG_API int farlog_target_forget(
	farlog_target *target, const char *name, struct farlog_error *error) FARLOG_MUST_CHECK;

#define FARLOG_TARGET_COUNTER_TABLE(X) \
	X(admitted_count, "counter", "Connections let in.") \
	X(refused_count, "counter", "Connections refused: grant, epoch, ring or version.") \
	X(fenced_count, "counter", "Connections torn down by a fence.") \
	X(lost_count, "counter", "Connections that ended by an error.") \
	X(denied_count, "counter", "Operations of a peer that the device refused.") \
	X(registration_count, "counter", "Connections by verbs whose key is a registration: no window was bound.") \
	X(request_count, "counter", "Requests served.") \
	X(flush_count, "counter", "Flushes by this host's processor.") \
	X(bad_request_count, "counter", "Requests that made no sense.") \
	X(disconnected_count, "counter", "Clients disconnected for requests that the protocol does not have.") \
	X(flush_failed_count, "counter", "Flushes by this host's processor that failed.") \
	X(flush_errno, "gauge", "Why the last flush by this host's processor failed, as errno; 0: it did not fail.") \
	X(writer_count, "gauge", "Writers connected.") X(drain_count, "gauge", "Drains connected.")

struct farlog_target_counters {
#define FARLOG_TARGET_COUNTER_FIELD(name, kind, help) uint64_t name;
	FARLOG_TARGET_COUNTER_TABLE(FARLOG_TARGET_COUNTER_FIELD)
#undef FARLOG_TARGET_COUNTER_FIELD
};

/* farlog_target_counters_read -- of one ring. NOT_FOUND. */
FARLOG_API int farlog_target_counters_read(
	farlog_target *target, const char *name, struct farlog_target_counters *counters) FARLOG_MUST_CHECK;

/* farlog_target_close -- tear down all connections, stop, free. Safe on NULL. */
FARLOG_API void farlog_target_close(farlog_target *target);

#ifdef __cplusplus
}
#endif
#endif
