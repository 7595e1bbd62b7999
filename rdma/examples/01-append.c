/* 01-append.c -- append one record and learn where it is and how durable. usage: 01-append [mem:/path |
 * farlog://stream] */
#include <farlog/farlog.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	const char *uri = argc > 1 ? argv[1] : "mem:orders.ring";
	struct farlog_ring_config ring = {.size_bytes = 1 << 20, .stream_name = "desk7/orders"};
	struct farlog_entry order = {.data = "35=D|11=ORD-1|55=FLG|38=100", .len = 27, .key = "ORD-1", .key_len = 5};
	struct farlog_position position;
	struct farlog_error error;
	farlog_writer *writer;
	bool is_own = strncmp(uri, "mem:", 4) == 0; /* the ring of a stream is made by its target */
	int result = is_own ? farlog_ring_format(uri, &ring, &error) : FARLOG_OK; /* once in a ring's life */

	if (result != FARLOG_OK && result != FARLOG_EXISTS)
		return fprintf(stderr, "%s\n", error.text), 1;
	if (farlog_writer_open(uri, NULL, &writer, &error) != FARLOG_OK)
		return fprintf(stderr, "%s\n", error.text), 1;
	result = farlog_append(writer, &order, 0, &position);
	printf("%s lsn=%lu seq=%lu level=%s\n", farlog_result_name(result), position.lsn, position.seq,
		farlog_level_name(position.level));
	return farlog_writer_close(writer) != FARLOG_OK || result != FARLOG_OK;
}
