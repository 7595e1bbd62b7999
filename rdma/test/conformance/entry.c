/* entry.c -- who is let in: near, whoever opens the ring; far, who has a grant of its target, which is in this
 * process. */
#include "conformance.h"
#include "base/err.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#define SHARED_FD 3
#define SHARED_LEN 4096u

static farlog_target *target;

int entry_open(const char *listen_uri, struct farlog_error *error)
{
	return farlog_target_open(listen_uri, &target, error);
}

void entry_close(void)
{
	farlog_target_close(target);
	target = NULL;
}

static bool report(int result, const struct farlog_error *error)
{
	if (result == FARLOG_OK)
		return true;
	printf("conformance: %s: %s: %s\n", here.uri, farlog_result_name(result), error->text);
	failed++;
	return false;
}

bool entry_attest(const char *region_uri)
{
	static const struct farlog_attestation said = {
		.read_flush = FARLOG_READ_FLUSH_DDIO_OFF, .by = "conformance", .date = "2026-11-21"};
	struct farlog_error error = {0};

	return report(farlog_target_attest(target, region_uri, &said, &error), &error);
}

bool entry_attest_commit(const char *region_uri)
{
	static const struct farlog_attestation said = {.commit_provider = "tcp", .by = "conformance", .date = "2026-11-21"};
	struct farlog_error error = {0};

	return report(farlog_target_attest(target, region_uri, &said, &error), &error);
}

bool entry_serve(struct place *place, const char *options)
{
	struct farlog_error error = {0};

	snprintf(place->uri, sizeof(place->uri), "%s/%s%s%s", farlog_target_uri(target), place->name,
		options[0] != '\0' ? "?" : "", options);
	may_fail(farlog_target_forget(target, place->name, NULL)); /* it need not have been there */
	return report(farlog_target_serve(target, place->name, place->region_uri, "tenant", &error), &error);
}

struct farlog_grant entry_grant(const struct place *place, uint32_t role)
{
	struct farlog_grant grant = {.role = role};
	struct farlog_ring_status status;
	struct farlog_error error = {0};

	if (!is_far(place))
		return (struct farlog_grant){0};
	if (role == FARLOG_GRANT_WRITER && report(farlog_ring_inspect(place->region_uri, &status, &error), &error))
		grant.epoch = status.epoch_min > status.writer_epoch ? status.epoch_min : status.writer_epoch + 1;
	CHECK(getrandom(grant.token, sizeof(grant.token), 0) == sizeof(grant.token));
	report(farlog_target_grant(target, place->name, &grant, &error), &error);
	return grant;
}

struct farlog_grant entry_take_over(const struct place *place)
{
	struct farlog_grant grant = entry_grant(place, FARLOG_GRANT_WRITER);
	struct farlog_error error = {0};

	if (is_far(place))
		report(farlog_target_fence(target, place->name, grant.epoch, NULL, &error), &error);
	return grant;
}

int entry_fence(const struct place *place, uint32_t epoch_min, struct farlog_error *error)
{
	return is_far(place) ? farlog_target_fence(target, place->name, epoch_min, NULL, error) :
						   farlog_ring_fence(place->uri, epoch_min, error);
}

/* ---------------------------------------------------------------- other processes */

void *entry_share(size_t len, int *shared)
{
	void *bytes = MAP_FAILED;

	*shared = memfd_create("conformance", 0);
	if (len <= SHARED_LEN && *shared >= 0 && ftruncate(*shared, SHARED_LEN) == 0)
		bytes = mmap(NULL, SHARED_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, *shared, 0);
	if (bytes != MAP_FAILED)
		return bytes;
	printf("conformance: no memory to share with another process\n");
	exit(1);
}

static void write_token(const struct farlog_grant *grant, char *text)
{
	for (unsigned i = 0; i < FARLOG_TOKEN_LEN; i++)
		snprintf(text + 2 * i, 3, "%02x", grant->token[i]);
}

static void read_token(const char *text, struct farlog_grant *grant)
{
	for (unsigned i = 0; i < FARLOG_TOKEN_LEN; i++)
		grant->token[i] = (uint8_t)strtoul((char[]){text[2 * i], text[2 * i + 1], '\0'}, NULL, 16);
}

pid_t entry_spawn(const char *part, const struct place *place, const struct farlog_grant *writer,
	const struct farlog_grant *drain, int shared)
{
	char level_text[16];
	char epoch[16];
	char tokens[2][2 * FARLOG_TOKEN_LEN + 1];
	pid_t parent = getpid();
	pid_t pid;

	snprintf(level_text, sizeof(level_text), "%u", level);
	snprintf(epoch, sizeof(epoch), "%u", writer->epoch);
	write_token(writer, tokens[0]);
	write_token(drain, tokens[1]);
	fflush(NULL);
	pid = fork();
	if (pid != 0)
		return pid;
	/* It keeps none of this process's connections open: who has ended must be seen to have ended. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || dup2(shared, SHARED_FD) != SHARED_FD || close_range(SHARED_FD + 1, ~0u, 0) != 0)
		_exit(126);
	execl("/proc/self/exe", "conformance", part, place->uri, place->name, level_text, epoch, tokens[0], tokens[1],
		(char *)NULL);
	_exit(127);
}

int entry_part(char **argv)
{
	struct farlog_grant writer = {.role = FARLOG_GRANT_WRITER, .epoch = (uint32_t)strtoul(argv[4], NULL, 10)};
	struct farlog_grant drain = {.role = FARLOG_GRANT_DRAIN};
	void *shared = mmap(NULL, SHARED_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, SHARED_FD, 0);

	if (shared == MAP_FAILED)
		return 125;
	snprintf(here.uri, sizeof(here.uri), "%s", argv[1]);
	snprintf(here.name, sizeof(here.name), "%s", argv[2]);
	level = (uint32_t)strtoul(argv[3], NULL, 10);
	read_token(argv[5], &writer);
	read_token(argv[6], &drain);
	return strcmp(argv[0], "append") == 0 ? append_for_ever(&here, &writer, shared) :
											use_neighbour(&here, &writer, &drain, shared);
}
