/* host.c -- a target in a process of its own. */
#include "host.h"

#include <dirent.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/atomics.h"
#include "farlog/health.h"
#include "farlog/refusals.h"
#include "adversary/memory.h"
#include "ofi_faults.h"

bool host_start(struct host *host, const char *listen_uri)
{
	int commands[2];
	int replies[2];

	*host = (struct host){.pid = -1};
	if (pipe(commands) != 0 || pipe(replies) != 0)
		return false;
	host->pid = fork();
	if (host->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(commands[0], 0);
		dup2(replies[1], 1);
		for (int fd = 3; fd < 64; fd++)
			close(fd);
		execl("/proc/self/exe", "far_test", "host", listen_uri, NULL);
		_exit(127);
	}
	close(commands[0]);
	close(replies[1]);
	host->commands = fdopen(commands[1], "w");
	host->replies = fdopen(replies[0], "r");
	if (fgets(host->reply, sizeof(host->reply), host->replies) == NULL ||
		sscanf(host->reply, "OK %127s", host->uri) != 1)
		return false;
	return true;
}

bool host_ask(struct host *host, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(host->commands, format, args);
	va_end(args);
	fputc('\n', host->commands);
	fflush(host->commands);
	if (fgets(host->reply, sizeof(host->reply), host->replies) == NULL)
		snprintf(host->reply, sizeof(host->reply), "the target's process is dead");
	host->reply[strcspn(host->reply, "\n")] = '\0';
	return strncmp(host->reply, "OK", 2) == 0;
}

void host_kill(struct host *host)
{
	if (host->pid <= 0)
		return;
	kill(host->pid, SIGKILL);
	waitpid(host->pid, NULL, 0);
	fclose(host->commands);
	fclose(host->replies);
	host->pid = -1;
}

void host_token(char letter, uint8_t token[16])
{
	memset(token, letter, 16);
}

unsigned open_file_count(void)
{
	DIR *directory = opendir("/proc/self/fd");
	unsigned count = 0;

	while (directory != NULL && readdir(directory) != NULL)
		count++;
	if (directory != NULL)
		closedir(directory);
	return count;
}

static void reply(int result, const struct farlog_error *error, const char *format, ...)
{
	va_list args;

	if (result != FARLOG_OK) {
		printf("%s %s\n", farlog_result_name(result), error->text);
	} else {
		printf("OK ");
		va_start(args, format);
		vprintf(format, args);
		va_end(args);
		printf("\n");
	}
	fflush(stdout);
}

static int count(farlog_target *target, const char *name)
{
	struct farlog_target_counters counters;
	struct farlog_error error = {.text = "counters"};
	int result = farlog_target_counters_read(target, name, &counters);

	reply(result, &error, "%lu %lu %lu %lu %lu %lu %lu %lu %lu", counters.admitted_count, counters.refused_count,
		counters.fenced_count, counters.writer_count, counters.drain_count, counters.flush_count,
		counters.request_count, counters.bad_request_count, counters.disconnected_count);
	return result;
}

static uint64_t utc_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* tell_refusals -- how many were unauthenticated, and the last one, whosever. */
static void tell_refusals(farlog_target *target)
{
	struct farlog_target_refusal refusals[FARLOG_TARGET_REFUSALS_KEPT];
	struct farlog_error error = {0};
	uint64_t unauthenticated_count;
	size_t count =
		farlog_target_refusals_read(target, 0, refusals, FARLOG_TARGET_REFUSALS_KEPT, &unauthenticated_count);
	const struct farlog_target_refusal *last = &refusals[count - 1];

	if (count == 0)
		reply(FARLOG_OK, &error, "0 0");
	else
		reply(FARLOG_OK, &error, "%lu %lu peer=%s ring=%s result=%s %s", unauthenticated_count, last->sequence,
			last->peer, last->ring, farlog_result_name(last->result), last->text);
}

static void tell_unauthenticated(farlog_target *target)
{
	struct farlog_target_unauthenticated counts;
	struct farlog_error error = {0};

	farlog_target_unauthenticated_read(target, &counts);
	reply(FARLOG_OK, &error, "%lu %lu %lu %lu %lu", counts.open_count,
		counts.closed_count[FARLOG_UNAUTHENTICATED_ADDRESS], counts.closed_count[FARLOG_UNAUTHENTICATED_ALL],
		counts.closed_count[FARLOG_UNAUTHENTICATED_DESCRIPTORS], counts.closed_count[FARLOG_UNAUTHENTICATED_LATE]);
}

static void obey(farlog_target *target, const char *line)
{
	struct farlog_error error = {0};
	struct farlog_grant grant = {0};
	char name[64] = "";
	char region[400] = "";
	char tenant[64] = "";
	char letter = 0;
	unsigned epoch = 0;
	unsigned expires_ms = 0;
	uint64_t tail_lsn = 0;
	int result;

	if (sscanf(line, "serve %63s %399s %63s", name, region, tenant) == 3) {
		result = farlog_target_serve(target, name, region, tenant, &error);
		reply(result, &error, "");
	} else if (sscanf(line, "grant %63s %u %u %c %u", name, &grant.role, &grant.epoch, &letter, &expires_ms) >= 4) {
		host_token(letter, grant.token);
		grant.expires_ns = expires_ms != 0 ? utc_ns() + expires_ms * 1000000ul : 0;
		result = farlog_target_grant(target, name, &grant, &error);
		reply(result, &error, "");
	} else if (sscanf(line, "fence %63s %u", name, &epoch) == 2) {
		result = farlog_target_fence(target, name, epoch, &tail_lsn, &error);
		reply(result, &error, "%lu", tail_lsn);
	} else if (sscanf(line, "forget %63s", name) == 1) {
		result = farlog_target_forget(target, name, &error);
		reply(result, &error, "");
	} else if (sscanf(line, "counters %63s", name) == 1) {
		count(target, name);
	} else if (strncmp(line, "refusals", 8) == 0) {
		tell_refusals(target);
	} else if (strncmp(line, "unauthenticated", 15) == 0) {
		tell_unauthenticated(target);
	} else if (sscanf(line, "files %u", &epoch) == 1) {
		result = setrlimit(RLIMIT_NOFILE, &(struct rlimit){epoch, epoch}) == 0 ? FARLOG_OK : FARLOG_IO;
		reply(result, &error, "");
	} else if (sscanf(line, "fault %u", &epoch) == 1) {
		atomic_store_relaxed(&ofi_end_fails, epoch);
		reply(FARLOG_OK, &error, "");
	} else if (strncmp(line, "usage", 5) == 0) {
		reply(FARLOG_OK, &error, "%u %zu", open_file_count(), mallinfo2().uordblks);
	} else {
		reply(FARLOG_INVALID, &error, "");
	}
}

int host_main(const char *listen_uri)
{
	struct farlog_error error = {0};
	farlog_target *target;
	char line[640];
	int result = farlog_guard_mappings(&error); /* as a daemon does */

	if (result == FARLOG_OK)
		result = farlog_target_open(listen_uri, &target, &error);
	reply(result, &error, "%s", result == FARLOG_OK ? farlog_target_uri(target) : "");
	if (result != FARLOG_OK)
		return 1;
	while (fgets(line, sizeof(line), stdin) != NULL)
		obey(target, line);
	farlog_target_close(target);
	return 0;
}
