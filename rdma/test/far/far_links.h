/* far_links.h -- links by libfabric without a region above them: what a client of ours would not do, a test does by
 * them. */
#ifndef FARLOG_TEST_FAR_LINKS_H
#define FARLOG_TEST_FAR_LINKS_H

#include "far/far.h"
#include "far_test.h"

#define TIMEOUT_NS 500000000u
#define IN_TIME_NS (TIMEOUT_NS + 10000000000u) /* the rest is for a busy machine */
#define TRIED_OFF (LAYOUT_DATA_OFF + 65536u)

struct far_link_bed {
	struct far_link *link;
	struct far_refusal refusal;
	struct farlog_error error;
	uint64_t took_ns;
};

/* link_try -- as a handle of its own. The result; there is a link in any case. */
int link_try(struct far_link_bed *made, const char *ring_uri, const char *name, char letter, uint8_t role,
	uint32_t epoch, uint16_t version, uint64_t timeout_ns);
/* link_connect -- to a target that is there: must succeed. */
void link_connect(
	struct far_link_bed *made, const char *ring_uri, const char *name, char letter, uint8_t role, uint32_t epoch);
void link_free(struct far_link_bed *made);

/* link_persist -- these bytes of the copy, and wait for it: OK, or IO when the link is broken. */
int link_persist(struct far_link *link, struct region_span span);

/* try_write_by, try_write, try_read -- 64 bytes, by whatever key the link's welcome names by now for that piece, or for
 * the records. */
int try_write_by(struct far_link *link, enum far_piece piece, uint64_t off, uint64_t value);
int try_write(struct far_link *link, uint64_t off, uint64_t value);
int try_read(struct far_link *link);

/* link_settle -- poll until the tags have come (0: not waited for; OK) or the link is broken (IO). */
int link_settle(struct far_link *link, uint64_t persist_tag, uint64_t read_tag);

/* link_answer -- poll until the request of this tag has been answered: with what. */
uint32_t link_answer(struct far_link *link, uint32_t tag);
/* link_ask -- a request of ours, or of nobody's. The answer. */
uint32_t link_ask(struct far_link *link, struct far_request request);

/* word_at_target -- of the ring's file. */
uint64_t word_at_target(const struct bed *bed, uint64_t off);

#endif
