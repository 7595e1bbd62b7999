/* log/cut.c -- an operator's word that what lay in a ring behind an unreadable place is lost (farlog/member.h). */
#include "farlog/member.h"

#include <errno.h>

#include "base/err.h"
#include "base/member_uri.h"
#include "log/writer.h"

int farlog_ring_cut(const char *uri, uint64_t lsn, struct farlog_error *error)
{
	struct farlog_writer_config config = {.level = FARLOG_LEVEL_POSTED, .counters_dir = "", .writer_name = "cut"};
	struct writer_watch watch = {.is_cutting = true, .cut_lsn = lsn};
	struct farlog_writer *writer;
	int result;

	if (member_uri_is(uri))
		return error_set(error, FARLOG_UNSUPPORTED, 0,
			"ring \"%s\": expected one ring: of members the others bring what one has lost", uri);
	result = writer_open_ring(uri, &config, &watch, &writer, error);
	if (result != FARLOG_OK)
		return result;
	if (writer->region->ops->data.flush(writer->region, 0, LAYOUT_DATA_OFF) !=
		FARLOG_OK) /* the hint, which is lower now */
		result = region_set_error(writer->region, FARLOG_IO,
			"cut it again, where its opening says by then: flush header of ring", uri, error);
	if (farlog_writer_close(writer) != FARLOG_OK && result == FARLOG_OK)
		result = error_set(error, FARLOG_IO, 0,
			"close ring \"%s\" behind the cut, which may not be durable; open it, and cut it again where that says",
			uri);
	return result;
}
