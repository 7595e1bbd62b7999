/* log/reader_grant.h -- the tokens that a reader was given since it was opened, for the connections that it makes
 * again. */
#ifndef FARLOG_READER_GRANTS_H
#define FARLOG_READER_GRANTS_H

#include "farlog/reader_grant.h"
#include "region/region.h"

struct reader_grants;

/* reader_grants_new -- none yet. NULL: out of memory. */
struct reader_grants *reader_grants_new(void) FARLOG_MUST_CHECK;

/* reader_grants_renewal -- for the openings of the regions, which have to be closed before it is freed. */
struct region_renewal *reader_grants_renewal(struct reader_grants *grants) FARLOG_MUST_CHECK;

#endif
