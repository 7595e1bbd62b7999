/* far_test.h -- what the cases of the far test share. */
#ifndef FARLOG_TEST_FAR_TEST_H
#define FARLOG_TEST_FAR_TEST_H

#include "farlog/farlog.h"
#include "host.h"

#define RING_BYTES (1u << 20)
#define LONG_NS 20000000000ull /* a deadline that is there so that a hang shows; machines are slow at times */

extern unsigned failed;
extern bool is_skipped; /* set by a case that this machine cannot prove, which says what is missing */
extern char now_testing[96];

#define CHECK(claim) \
	do { \
		if (!(claim)) { \
			printf("far: %s: %s:%d: %s\n", now_testing, __FILE__, __LINE__, #claim); \
			failed++; \
		} \
	} while (0)

/* CHECK_OK -- a call that fills `error`: its text is shown. True: OK. */
#define CHECK_OK(call) check_ok(call, #call, error.text, __LINE__)
bool check_ok(int result, const char *call, const char *text, int line);
#define CHECK_ASK(host, ...) CHECK_HOST(host_ask(host, __VA_ARGS__), host, __LINE__)
#define CHECK_HOST(claim, host, line) ((claim) || check_ok(-1, "command to the target", (host)->reply, line))

/* A ring that a host serves as "ring", in a file that is removed at the end. */
struct bed {
	struct host host;
	char path[128];
	char local_uri[192]; /* mem:PATH */
	char uri[192];       /* of the ring, as clients know it */
	uint32_t level;      /* that it gives */
};

/* bed_make -- format the file, start the host, serve. directory: of which kind the region is. False: reported
 * already. */
bool bed_make(struct bed *bed, const char *directory, const char *listen_uri);
/* bed_again -- the target's process was killed: start another on the same port with the same ring. */
bool bed_again(struct bed *bed);
void bed_free(struct bed *bed);

/* await_no_writer -- a connection that ends without asking to leave is found out in a moment. */
void await_no_writer(struct bed *bed);

/* open_far_writer -- NULL and the result in error->result when it failed. options: of the URI, such as "?wait=spin". */
farlog_writer *open_far_writer(
	const struct bed *bed, const char *options, uint32_t epoch, char token_letter, struct farlog_error *error);

/* open_or_report -- the same; its error is reported. open_reader -- of that URI, likewise. */
farlog_writer *open_or_report(const struct bed *bed, const char *options, uint32_t epoch, char token_letter);
farlog_reader *open_reader(const char *uri, bool is_drain, char token_letter);

/* open_with_records -- a bed on tmpfs and its writer, epoch 2, that has `count` numbers acknowledged, the last at
 * *position. NULL: reported. */
farlog_writer *open_with_records(struct bed *bed, uint64_t count, struct farlog_position *position);

/* append_number, expect_numbers -- records whose payload is their number, so that order and presence can be checked. */
int append_number(farlog_writer *writer, uint64_t number, uint64_t deadline_ns, struct farlog_position *position);
/* check_numbers -- of a batch: *seen more of them. True: all are what was to come. */
bool check_numbers(const uint8_t *buffer, const struct farlog_batch *batch, uint64_t first, uint64_t *seen);
/* expect_numbers -- read from `reader` until `count` records of numbers from `first` on were seen in order. False: not
 * so, reported. */
bool expect_numbers(farlog_reader *reader, uint64_t first, uint64_t count);

/* the cases of the other files */
void test_hostile(void);        /* far_hostile.c */
void test_header(void);         /* far_header.c */
void test_commit(void);         /* far_commit.c */
void test_zombie(void);         /* far_zombie.c */
void test_token(void);          /* far_zombie.c */
void test_leave(void);          /* far_leave.c */
void test_lost_page(void);      /* far_lost_page.c */
void test_slow(void);           /* far_slow.c */
void test_slow_member(void);    /* far_members.c */
void test_fenced_members(void); /* far_members.c */
void test_fenced_under_way(void);
void test_kept_by_one(void);      /* far_kept.c */
void test_comeback_members(void); /* far_comeback.c */
void test_comeback_head(void);
void test_comeback_ring(void);
void test_rails(void);           /* far_members.c */
void test_silent(void);          /* far_silent.c */
void test_twins(void);           /* far_twins.c */
void test_carried(void);         /* far_carried.c */
void test_route(void);           /* far_route.c */
void test_stub(void);            /* far_stub.c */
void test_flood(void);           /* far_flood.c */
void test_unauthenticated(void); /* far_unauthenticated.c */
void test_handshake(void);       /* far_handshake.c */
void test_wakeup_late(void);     /* far_wakeup.c */
void test_wakeup_taken(void);    /* far_wakeup.c */
void test_wakeup_sleepers(void); /* far_wakeup.c */
void test_two_deadlines(void);   /* far_two.c */
void test_two_taken(void);       /* far_two.c */
void test_wakeup_worker(void);   /* far_wakeup.c */
void test_formatted_again(void); /* far_zombie.c */
/* far_hostile.c: a reader's connection, one read, and its end */
void connect_and_read(const struct bed *bed, char token_letter);
int open_and_tell(const char *uri); /* far_hostile.c: a process that opens and prints the error's text */

#endif
