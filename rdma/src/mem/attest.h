/* mem/attest.h -- check what an operator attests of a region against what was probed. No I/O. */
#ifndef FARLOG_ATTEST_H
#define FARLOG_ATTEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/uri.h"
#include "farlog/farlog.h"

#define ATTEST_TEXT_LEN 96
#define ATTEST_DATE_LEN 11
#define ATTEST_PROVIDER_LEN sizeof(((struct uri *)0)->provider)

/* What the probe found. */
struct attest_found {
	uint32_t kind; /* enum farlog_region_kind */
	const char *kind_name;
	enum farlog_persistence_domain domain; /* as the kernel states it */
};

/* attest_check -- is the attestation complete (what, by whom, when), and consistent with what was found? OK or INVALID;
 * the text names the region, the key of the operator's file, its value and what was expected. */
int attest_check(const char *region_uri, const struct attest_found *found, const struct farlog_attestation *attestation,
	struct farlog_error *error) FARLOG_MUST_CHECK;

/* attest_flush_methods -- the flush methods that it adds, of any transport: bit n for enum farlog_flush_method n. */
uint32_t attest_flush_methods(const struct farlog_attestation *attestation);

/* attest_from_uri -- check and convert the value of ?attest=, which attests the memory of a ring on this host: the
 * domain of DAX memory, or "bar". OK and *attestation, or INVALID. */
int attest_from_uri(const char *region_uri, const char *word, const struct attest_found *found,
	struct farlog_attestation *attestation, struct farlog_error *error) FARLOG_MUST_CHECK;

/* attest_uri_value -- the value of ?attest= that says the same; "" = none does. */
const char *attest_uri_value(const struct farlog_attestation *attestation);

/* attest_level -- the level of memory whose flush gives `level`, on this host and for a target's clients. At most
 * visible where neither the kernel nor the operator (NULL: no attestation) states that the memory outlives the power: a
 * DAX device may be volatile memory, and a BAR may be on any card. */
uint8_t attest_level(const struct attest_found *found, const struct farlog_attestation *attestation, uint8_t level);

/* attest_describe -- "ddio-off by attestation of NAME, DATE", for logs and a client's contract. is_commit: the
 * provider's commit is attested, not a READ. */
void attest_describe(const struct farlog_attestation *attestation, bool is_commit, char text[ATTEST_TEXT_LEN]);

#endif
