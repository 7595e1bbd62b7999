/* verbs_pair.h -- a target and its clients in one process, for tests over verbs: what is between them is the device. */
#ifndef FARLOG_TEST_VERBS_PAIR_H
#define FARLOG_TEST_VERBS_PAIR_H

#include <stdio.h>

#include "far/verbs.h"
#include "target/verbs.h"

#define SIZE (0x3000u + (2u << 20)) /* of every ring */
#define WAIT_NS 20000000000u
#define EXIT_SKIP 77
#define LINE LAYOUT_DATA_OFF

extern farlog_target *pair_target;
extern char pair_directory[];
extern const char *pair_condition; /* under test, for reports */
extern unsigned pair_passed;
extern unsigned pair_failed;
extern bool pair_has_flush; /* false: an older library, or a device without it */

#define CHECK(claim) \
	do { \
		if (claim) { \
			pair_passed++; \
		} else { \
			printf("verbs: %s: %s:%d: %s\n", pair_condition, __FILE__, __LINE__, #claim); \
			pair_failed++; \
		} \
	} while (0)

/* CHECK_OK -- a call that fills `error`. */
#define CHECK_OK(call) \
	do { \
		struct farlog_error error = {0}; \
		int check_result = (call); \
		if (check_result != FARLOG_OK) \
			printf("verbs: %s: %s: %s\n", pair_condition, farlog_result_name(check_result), error.text); \
		CHECK(check_result == FARLOG_OK); \
	} while (0)

/* pair_use_device -- rings lie on the DAX device of FARLOG_TEST_DEVDAX, if that is set, whose contents may go;
 * pair_level is then persistent. Its READs are attested to flush, so that all methods are there: no power is cut here.
 * False: it was refused. */
bool pair_use_device(void);
extern uint32_t pair_level; /* what appends are asked for, and must reach */

/* pair_serve -- format a ring in a file of pair_directory, or on the device, and let the target serve it.
 * pair_region_uri and pair_far_uri are its names. */
void pair_serve(const char *name, const char *tenant);
void pair_region_uri(const char *name, char *text, size_t room);
void pair_far_uri(const char *name, const char *options, char *text, size_t room);
const uint8_t *pair_ring_bytes(const char *name);
struct farlog_target_counters pair_counters(const char *name);

/* pair_grant -- with a token of its own, which can travel as text. */
struct farlog_grant pair_grant(const char *name, uint32_t role, uint32_t epoch);
void pair_token_text(const struct farlog_grant *granted, char *text);
void pair_parse_token(const char *text, uint8_t *token);

/* pair_drain -- whatever is there, on the target's host. Counts records. */
uint64_t pair_drain(farlog_reader *reader);

/* pair_hello -- what a client says to be let in by this grant. */
struct far_hello pair_hello(const char *name, const struct farlog_grant *granted);
/* pair_open_link -- below the region: a link alone. Its method is NONE when the one asked for is not offered. */
struct far_link *pair_open_link(const char *name, const struct farlog_grant *granted, enum farlog_flush_method method);
/* pair_open_to_write -- by FLUSH, or where there is none by a READ. */
struct far_link *pair_open_to_write(const char *name, const struct farlog_grant *granted);
void pair_close_link(struct far_link *link);

/* pair_key -- the key that a link writes with: a test takes another's. */
static inline uint64_t *pair_key(struct far_link *link)
{
	return &link->welcome.keys[verbs_link_of(link)->written];
}

/* pair_await -- OK or IO. pair_persist -- and wait for it. */
int pair_await(struct far_link *link, uint64_t tag);
int pair_persist(struct far_link *link, const struct region_span *spans, unsigned count, uint64_t tag);

/* verbs_refusal.c -- what the device refuses, and what happens to connections. */
void test_refusals(void);
void hellos_are_refused(void);                              /* verbs_hello.c */
int append_until_killed(const char *uri, const char *text); /* the child of one of them */

/* verbs_unconfirmed.c -- a revocation that the device does not carry out. */
void test_unconfirmed(void);

/* verbs_way.c -- path MTU and traffic class. */
void test_way(const char *address);

#endif
