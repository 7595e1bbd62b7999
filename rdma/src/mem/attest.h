/* mem/attest.h -- what an operator says of a region, against what is probed: arithmetic without I/O. */
#ifndef FARLOG_ATTEST_H
#define FARLOG_ATTEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/uri.h"
#include "farlog/farlog.h"

#define ATTEST_TEXT_LEN 96
#define ATTEST_DATE_LEN 11
#define ATTEST_PROVIDER_LEN sizeof(((struct uri *)0)->provider)

/* What a region is found to be. */
struct attest_found {
	uint32_t kind; /* enum farlog_region_kind */
	const char *kind_name;
	enum farlog_persistence_domain domain; /* by the kernel */
};

/* attest_check -- does it say something, of such a region, that what was found does not deny, and by whom and when? OK
 * or INVALID; the text has the region, the key of the operator's file, its value and what was expected. */
int attest_check(const char *region_uri, const struct attest_found *found, const struct farlog_attestation *attestation,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* attest_methods -- the flush methods that it adds, whatever the target listens by: bit n for enum farlog_flush_method
 * n. */
uint32_t attest_methods(const struct farlog_attestation *attestation);

/* attest_by_uri -- the same for the word of ?attest=, by which who opens a ring on this host answers for its memory:
 * the domain of DAX memory, or "bar". OK and *said, or INVALID. */
int attest_by_uri(const char *region_uri, const char *word, const struct attest_found *found,
	struct farlog_attestation *said, struct farlog_error *error) FARLOG_MUST_CHECK;

/* attest_word -- of an attestation, what ?attest= would have; "" where that says nothing. */
const char *attest_word(const struct farlog_attestation *attestation);

/* attest_level -- what may be promised, on this host and by a target, of memory whose flush gives `level`: no more than
 * visible where neither the kernel nor the operator (NULL: says nothing) knows that it outlives the power. A DAX device
 * may be volatile memory, and a BAR that of any card. */
uint8_t attest_level(const struct attest_found *found, const struct farlog_attestation *attestation, uint8_t level);

/* attest_text -- "ddio-off by attestation of NAME, DATE", for logs and a client's contract; is_commit: the provider's
 * commit is what counts at this target, and not a READ. */
void attest_text(const struct farlog_attestation *attestation, bool is_commit, char text[ATTEST_TEXT_LEN]);

#endif
