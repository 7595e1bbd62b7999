/* ofi_faults.h -- links and connections by libfabric that behave as a test wants.
 *
 * ofi_link_connect and ofi_register are stood before: what they return gets other functions in the tables of
 * libfabric's objects. All switches are off at first, and may be set at any time by any thread. */
#ifndef FARLOG_OFI_FAULTS_H
#define FARLOG_OFI_FAULTS_H

#include <stdint.h>

/* 1: to a client that connects from now on no target says that a request may carry records. */
extern uint64_t ofi_carries_nothing;

/* 1: a wait of a client goes to sleep only when something has arrived at its socket, or after 10 s: what it is for
 * comes between its last look and fi_trywait. */
extern uint64_t ofi_wait_is_late;

/* What the provider refuses to close at a target: 1 keys, 2 endpoints, 3 both. */
extern uint64_t ofi_end_fails;

#endif
