/* base/uri.h -- taking "scheme:path?name=value&..." apart; of a far region also "//host:port/ring" and the provider. */
#ifndef FARLOG_URI_H
#define FARLOG_URI_H

#include "farlog/farlog.h"

#define URI_PATH_LEN_MAX 1024

struct sockaddr_storage;

struct uri {
	char scheme[16];
	char path[URI_PATH_LEN_MAX];
	char provider[16]; /* of ofi:, "" otherwise */
	char host[256];    /* of a far region; an IPv6 address without its brackets */
	char port[8];
	char ring[FARLOG_STREAM_NAME_LEN]; /* of a far region, or of ?ring=; "" = not given, as in a target's own URI */
	char flush[16];                    /* of ?flush=, "" = not given */
	char wait[8];                      /* of ?wait=, "spin", "block" or "" */
	char poll[8];                      /* of ?poll=, for nvme: "none", "io", "sq" or "" */
	char commands[8];                  /* of ?commands=, for nvme: "kernel", "nvme" or "" */
	char attest[20];                   /* of ?attest=, for mem: "memory_controller", "cpu_cache", "bar" or "" */
	char former[8];                    /* of ?former=, for nvme: "gone" or "" */
	/* of ?from=, of a far ring: the address of this host by which it is reached, in figures; "" = as the kernel's
	 * routes say */
	char from[64];
	uint16_t tos;                           /* of ?tos=, for verbs: 1 + the traffic class; 0 = not given */
	uint64_t test_flush_delay_ns;           /* of ?test-flush-delay=, for a target's own URI; 0 = not given */
	char test_ring[FARLOG_STREAM_NAME_LEN]; /* and the one ring that it is for; "" = all */
	uint64_t seed;                          /* of ?seed=, for fault: */
	uint64_t size_bytes;                    /* of ?size=: of a region that is made for many rings */
};

/* uri_parse -- 0 or FARLOG_INVALID with a text that names the URI and what was expected. */
int uri_parse(const char *text, struct uri *uri, struct farlog_error *error) FARLOG_MUST_CHECK;

/* uri_from -- the address of ?from=, and its length; 0: not given. */
size_t uri_from(const struct uri *uri, struct sockaddr_storage *address);

/* uri_is_remote -- verbs: or ofi:. */
bool uri_is_remote(const struct uri *uri);

#endif
