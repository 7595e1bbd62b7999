/* 01-append.c -- make a ring, append one order, say where it is. Usage: 01-append mem:/path/to/ring */
#include <farlog/farlog.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	struct farlog_ring_config ring = {.size_bytes = 16 << 20, .stream_name = "desk7/orders"};
	struct farlog_entry order = {.data = "35=D|11=ord-1|55=IBM|38=100", .len = 27, .key = "ord-1", .key_len = 5};
	struct farlog_position at;
	struct farlog_error error;
	farlog_writer *writer;
	int result = argc == 2 ? farlog_ring_format(argv[1], &ring, &error) : FARLOG_INVALID;

	if (argc == 2 && (result == FARLOG_OK || result == FARLOG_EXISTS))
		result = farlog_writer_open(argv[1], NULL, &writer, &error);
	if (result != FARLOG_OK)
		return fprintf(stderr, "%s\n", argc == 2 ? error.text : "usage: 01-append mem:/path"), 1;
	result = farlog_append(writer, &order, 0, &at); /* durable when it returns OK; deadline: the default */
	printf("%s lsn=%lu seq=%lu level=%s\n", farlog_result_name(result), at.lsn, at.seq, farlog_level_name(at.level));
	return farlog_writer_close(writer) != FARLOG_OK || result != FARLOG_OK;
}
