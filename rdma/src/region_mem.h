/* region_mem.h -- what the two halves of the mem: region share: finding out the contract, and using it. */
#ifndef FARLOG_REGION_MEM_H
#define FARLOG_REGION_MEM_H

#include "region.h"
#include "uri.h"

/* region_mem_probe -- fill the contract of a path. 0; NOT_FOUND when neither it nor its directory exists; INVALID, UNSUPPORTED or IO. */
int region_mem_probe(const char *text, const struct uri *uri, struct farlog_contract *contract,
	struct farlog_error *error);

int region_mem_open(const char *text, const struct uri *uri, const struct region_ask *ask, struct region **region,
	struct farlog_error *error);

#endif
