/* 05-consume.c -- print the payloads of a stream, from its history in a store on to what is appended. usage: 05-consume
 * uri store name [-f]
 *
 * store and name may be "-": none. It ends when there is nothing more, with -f only by SIGINT or SIGTERM, and goes on
 * behind what it printed when it is started again by the same name.
 * Killed, it prints the records since its last commit again: commit after what was done with them is done. */
#include <farlog/consume.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define COMMIT_EVERY 1000
#define WAIT_NS 50000000

static volatile sig_atomic_t is_asked_to_end;

static void end(int number)
{
	(void)number;
	is_asked_to_end = 1;
}

static const char *or_none(const char *text)
{
	return strcmp(text, "-") == 0 ? NULL : text;
}

static void tell(const struct farlog_notice *notice)
{
	static const char *const texts[] = {"", "overtaken: comes from the store", "lost", "replaced"};

	fprintf(stderr, "%s: lsn %" PRIu64 " to %" PRIu64 ", %" PRIu64 " records\n", texts[notice->kind], notice->from_lsn,
		notice->to_lsn, notice->record_count);
}

static int commit(farlog_consumer *consumer)
{
	if (fflush(stdout) != 0)
		return perror("print"), FARLOG_IO;
	return farlog_consumer_commit(consumer);
}

static int consume(farlog_consumer *consumer, bool is_following)
{
	struct farlog_consumed item;
	int result = FARLOG_OK;

	for (uint64_t count = 1; result == FARLOG_OK && !is_asked_to_end; count++) {
		result = farlog_consumer_next(consumer, 0, &item);
		if (result == FARLOG_NOT_YET) { /* the end for now: a moment to keep the place */
			result = commit(consumer);
			if (result != FARLOG_OK || !is_following)
				break;
			result = farlog_consumer_next(consumer, WAIT_NS, &item);
		}
		if (result == FARLOG_OK) {
			fwrite(item.payload, 1, item.payload_len, stdout);
			putchar('\n');
		} else if (result == FARLOG_OVERRUN) {
			tell(&item.notice);
		}
		if (result == FARLOG_NOT_YET || result == FARLOG_OVERRUN)
			result = FARLOG_OK;
		if (result == FARLOG_OK && count % COMMIT_EVERY == 0)
			result = commit(consumer);
	}
	if (result != FARLOG_OK)
		fprintf(stderr, "%s: %s\n", farlog_result_name(result), farlog_consumer_trouble(consumer));
	return result != FARLOG_OK;
}

int main(int argc, char **argv)
{
	struct farlog_consumer_config config = {.start = FARLOG_CONSUME_OLDEST};
	struct farlog_consumer_stats stats;
	struct farlog_error error;
	farlog_consumer *consumer;
	int code;

	if (argc < 4 || argc > 5 || (argc == 5 && strcmp(argv[4], "-f") != 0))
		return fprintf(stderr, "usage: %s uri store|- name|- [-f]\n", argv[0]), 2;
	signal(SIGINT, end);
	signal(SIGTERM, end);
	config.ring_uri = or_none(argv[1]);
	config.store_dir = or_none(argv[2]);
	config.name = or_none(argv[3]);
	if (farlog_consumer_open(&config, &consumer, &error) != FARLOG_OK)
		return fprintf(stderr, "%s\n", error.text), 1;
	code = consume(consumer, argc == 5);
	if (commit(consumer) != FARLOG_OK)
		code = 1;
	farlog_consumer_stats_read(consumer, &stats);
	fprintf(stderr, "%s: %" PRIu64 " records, %" PRIu64 " times overtaken, %" PRIu64 " bytes lost\n", stats.stream,
		stats.record_count, stats.overrun_count, stats.lost_bytes);
	farlog_consumer_close(consumer);
	return code;
}
