/* host.h -- a target in a process of its own, which a test commands by lines and may kill. */
#ifndef FARLOG_TEST_HOST_H
#define FARLOG_TEST_HOST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define HOST_REPLY_LEN 640

struct host {
	pid_t pid;
	FILE *commands;
	FILE *replies;
	char uri[128];              /* where it listens, with the port that it got */
	char reply[HOST_REPLY_LEN]; /* to the last command */
};

/* host_start -- run this program again as "host LISTEN-URI". False: it does not listen, and reply says why. */
bool host_start(struct host *host, const char *listen_uri);

/* host_ask -- send one command and take the reply: "OK ..." or the name of a result and its text. True: OK. */
bool host_ask(struct host *host, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* host_kill -- as a power cut does it: nothing is told to anybody. */
void host_kill(struct host *host);

/* host_main -- the other process. Commands:
 *   serve NAME REGION-URI TENANT         forget NAME
 *   grant NAME ROLE EPOCH TOKEN-LETTER [MILLISECONDS-UNTIL-IT-EXPIRES]   fence NAME EPOCH          OK tail_lsn
 *   counters NAME                        OK admitted refused fenced writers drains flushes requests bad
 *                                        disconnected
 *   refusals                             OK of-unauthenticated of-all peer=HOST:PORT ring=NAME result=NAME text, of the
 *                                        last one
 *   fault N                              ofi_end_fails, ofi_faults.h
 *   unauthenticated                      OK open, closed: of-address in-all descriptors late
 *   files N                              descriptors that it may have
 *   usage                                OK open files, bytes of heap in use */
int host_main(const char *listen_uri);

/* host_token -- the token of which a command gives the letter. */
void host_token(char letter, uint8_t token[16]);

/* open_file_count -- of this process; one more than there are, always the same one. */
unsigned open_file_count(void);

#endif
