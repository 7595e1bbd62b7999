/* 02-drain.c -- move what is in a ring to a file, then let the writer have the space. usage: 02-drain uri file
 *
 * The order is what matters: store, sync, release. A crash between two of them may store a record twice, never lose
 * one; a real store drops what is not above the last (epoch, lsn) that it holds. */
#include <farlog/farlog.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static char buffer[1 << 20];

static int store_and_release(farlog_reader *reader, int file, const struct farlog_batch *batch)
{
	if (write(file, buffer, batch->len) != (ssize_t)batch->len || fdatasync(file) != 0) {
		perror("store");
		return 1;
	}
	return farlog_reader_release(reader, batch->next_lsn, batch->next_seq, batch->last_epoch) != FARLOG_OK;
}

int main(int argc, char **argv)
{
	struct farlog_reader_config config = {.is_drain = 1};
	struct farlog_batch batch;
	struct farlog_error error;
	farlog_reader *reader;
	int file;
	int result;

	if (argc != 3)
		return fprintf(stderr, "usage: %s uri file\n", argv[0]), 2;
	if (farlog_reader_open(argv[1], &config, &reader, &error) != FARLOG_OK)
		return fprintf(stderr, "%s\n", error.text), 1;
	file = open(argv[2], O_WRONLY | O_CREAT | O_APPEND, 0640);
	if (file < 0)
		return perror(argv[2]), 1;
	while ((result = farlog_reader_read(reader, buffer, sizeof(buffer), &batch)) == FARLOG_OK) {
		if (store_and_release(reader, file, &batch) != 0)
			return 1;
		printf("stored %lu records, head is now %lu\n", batch.record_count, batch.next_lsn);
	}
	farlog_reader_close(reader);
	close(file);
	if (result != FARLOG_NOT_YET)
		fprintf(stderr, "%s\n", farlog_result_text(result));
	return result != FARLOG_NOT_YET;
}
