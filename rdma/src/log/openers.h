/* log/openers.h -- openings that rooms above log do in its place: by a stream's name the host agent's, of several rings
 * that of members. The room `open` fills it in. */
#ifndef FARLOG_LOG_OPENERS_H
#define FARLOG_LOG_OPENERS_H

#include "farlog/farlog.h"

struct region_renewal;
struct writer_watch;

struct log_openers {
	/* As writer_open, by "farlog://desk7/orders". */
	int (*writer_by_name)(const char *uri, const struct farlog_writer_config *config, const struct writer_watch *watch,
		farlog_writer **writer, struct farlog_error *error) FARLOG_MUST_CHECK;
	/* As farlog_reader_open, by such a URI. */
	int (*reader_by_name)(const char *uri, const struct farlog_reader_config *config, farlog_reader **reader,
		struct farlog_error *error) FARLOG_MUST_CHECK;
	/* As reader_open, by "members:K URI URI ...". */
	int (*reader_of_members)(const char *uri, const struct farlog_reader_config *config, struct region_renewal *renewal,
		farlog_reader **reader, struct farlog_error *error) FARLOG_MUST_CHECK;
};

extern const struct log_openers log_openers;

#endif
