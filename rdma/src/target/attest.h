/* target/attest.h -- the list of attestations that a target keeps. */
#ifndef FARLOG_TARGET_ATTEST_H
#define FARLOG_TARGET_ATTEST_H

struct target_attested;

/* attest_free -- the whole list. */
void attest_free(struct target_attested *list);

#endif
