/* site.h -- what the tests of consumers share: a ring with its writer and its store. */
#ifndef FARLOG_TEST_SITE_H
#define FARLOG_TEST_SITE_H

#include "farlog/consume.h"
#include "ring/layout.h"
#include "segments.h"

#define RING_SIZE (LAYOUT_DATA_OFF + (64u << 10))
#define SEGMENT_LEN (32u << 10)
#define ALL (~0u)
#define RING_ONLY(site, ...) site_consumer(&(struct farlog_consumer_config){.ring_uri = (site)->uri, __VA_ARGS__})
#define OPEN(site, ...) RING_ONLY(site, .store_dir = (site)->segments.store_dir, __VA_ARGS__)

/* A ring, its writer, its store, and how many records were appended: record i bears the number i. */
struct site {
	const char *uri;
	farlog_writer *writer;
	struct segments segments;
	uint64_t count;
	uint64_t end_lsn;
};

/* What a consumer said besides records. */
struct told {
	struct farlog_notice first;
	unsigned count;
	unsigned rewound_count;
};

void site_open(struct site *site);
void site_close(struct site *site);
void site_reopen_writer(struct site *site);

/* site_append -- records of different lengths, classes 0 to 3, keys K0 to K2. */
void site_append(struct site *site, unsigned count);
uint64_t site_undrained(struct site *site);

/* site_consumer -- must open; site_refuse -- must not, with this in its text: the result. */
farlog_consumer *site_consumer(const struct farlog_consumer_config *config);
int site_refuse(const struct farlog_consumer_config *config, const char *text);

/* site_read -- at most max records, which must be *next and on, in order and each once. Gives how many. */
unsigned site_read(farlog_consumer *consumer, unsigned max, uint64_t *next, struct told *told);
struct farlog_consumer_stats site_stats(farlog_consumer *consumer);

#endif
