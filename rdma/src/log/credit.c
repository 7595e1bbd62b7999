/* log/credit.c -- what the drain has freed, as its writer takes it. */
#include "log/writer.h"

/* take_block_credit -- a drain may have read what a command is still writing. Until that is back its place is not used
 * again: the command takes its bytes from there. And an LBA of which the drain has read a part is written as a
 * whole. */
static uint64_t take_block_credit(const struct farlog_writer *writer, uint64_t credit_lsn)
{
	uint64_t durable_lsn = atomic_load_relaxed(&writer->durable_lsn);

	return (credit_lsn > durable_lsn ? durable_lsn : credit_lsn) & ~((uint64_t)writer->identity.block_len - 1);
}

/* writer_read_credit -- the drain stores the credit after it has persisted the head. A value that could not be one
 * (foreign bytes) is not believed. */
void writer_read_credit(struct farlog_writer *writer, bool is_urgent)
{
	uint64_t credit_lsn;

	writer->region->ops->data.refresh_words(writer->region, is_urgent);
	credit_lsn = region_load_word(writer->region, LAYOUT_CREDIT_OFF);
	if (writer->region->caps.commit_len != 0)
		credit_lsn = take_block_credit(writer, credit_lsn);
	if (credit_lsn > writer->ring.credit_lsn && credit_lsn <= writer->ring.appended_lsn)
		writer->ring.credit_lsn = credit_lsn;
	atomic_store_relaxed(&writer->counters->credit_lsn, writer->ring.credit_lsn);
}
