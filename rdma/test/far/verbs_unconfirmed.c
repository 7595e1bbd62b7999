/* verbs_unconfirmed.c -- a fence says OK only by what the device did: steps of the revocation are left out, as if the
 * device had refused them. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "verbs_faults.h"
#include "verbs_pair.h"

#define SPOT (LINE + (1u << 20)) /* no record comes that far here */
#define BIT(step) (1u << VERBS_END_##step)

static const struct {
	const char *name;
	unsigned fails;
	bool has_window;
	const char *text; /* of the refusal; NULL: the key is dead all the same */
} cases[] = {
	{"queue pair alone", BIT(INVALIDATE), true, NULL},
	{"window freed, queue pair destroyed", BIT(INVALIDATE) | BIT(STOP), true, NULL},
	{"window freed, queue pair stopped", BIT(INVALIDATE) | BIT(QUEUE), true, NULL},
	{"invalidated alone", BIT(STOP) | BIT(WINDOW) | BIT(QUEUE), true, NULL},
	{"window stays", BIT(INVALIDATE) | BIT(WINDOW) | BIT(QUEUE), true, "LOCAL_INV) nor freed it (dealloc_mw)"},
	{"queue pair stays", BIT(INVALIDATE) | BIT(STOP) | BIT(QUEUE), true, "nor destroyed it (destroy_qp)"},
	{"nothing is done", BIT(INVALIDATE) | BIT(STOP) | BIT(WINDOW) | BIT(QUEUE), true,
		"LOCAL_INV) nor freed it (dealloc_mw)"},
	{"registration stays", BIT(REGISTRATION), false, "(dereg_mr)"},
	{"registration and queue pair stay", BIT(REGISTRATION) | BIT(STOP) | BIT(QUEUE), false, "(dereg_mr)"},
};

static uint32_t next_epoch(void)
{
	static uint32_t epoch;

	return ++epoch;
}

/* has_landed -- a write that nobody will confirm any more. */
static bool has_landed(struct far_link *link, uint8_t value)
{
	struct region_span span = {SPOT, 64};
	uint64_t until_ns = clock_after_ns(200000000u);

	memset(link->copy + SPOT, value, 64);
	may_fail(link->ops->persist(link, &span, 1, value));
	while (pair_ring_bytes("unconfirmed")[SPOT] != value && clock_monotonic_ns() < until_ns)
		usleep(1000);
	return pair_ring_bytes("unconfirmed")[SPOT] == value;
}

/* was_admitted -- the next writer, by a link of its own. */
static bool was_admitted(const struct farlog_grant *granted)
{
	struct farlog_writer_config config = {
		.level = FARLOG_LEVEL_VISIBLE, .epoch = granted->epoch, .grant_token = granted->token, .counters_dir = ""};
	struct farlog_error error = {0};
	farlog_writer *writer = NULL;
	char uri[256];
	int result;

	pair_far_uri("unconfirmed", "", uri, sizeof(uri));
	result = farlog_writer_open(uri, &config, &writer, &error);
	if (result != FARLOG_OK)
		printf("verbs: %s: the next writer: %s: %s\n", pair_condition, farlog_result_name(result), error.text);
	farlog_writer_close(writer);
	return result == FARLOG_OK;
}

static void fence_is_confirmed_or_not(size_t i)
{
	struct verbs_listener *listener = pair_target->listener;
	struct farlog_grant granted = pair_grant("unconfirmed", FARLOG_GRANT_WRITER, next_epoch());
	struct farlog_grant next = {0};
	struct farlog_error error = {0};
	struct far_link *link;
	int result;

	pair_condition = cases[i].name;
	listener->hosts[0].device.has_window = cases[i].has_window;
	link = pair_open_to_write("unconfirmed", &granted);
	listener->hosts[0].device.has_window = true;
	/* its flush too: it would find its key ended, and break the queue pair */
	CHECK(has_landed(link, 1) && pair_await(link, 1) == FARLOG_OK);
	next = pair_grant("unconfirmed", FARLOG_GRANT_WRITER, next_epoch());
	verbs_faults_set(cases[i].fails);
	result = farlog_target_fence(pair_target, "unconfirmed", next.epoch, NULL, &error);
	printf("verbs: fence, %s: %s %s\n", pair_condition, farlog_result_name(result), error.text);
	if (cases[i].text == NULL) {
		CHECK(result == FARLOG_OK);
		CHECK(!has_landed(link, 2));
	} else {
		CHECK(result == FARLOG_IO && strstr(error.text, "not confirmed") != NULL &&
			strstr(error.text, cases[i].text) != NULL);
		if (cases[i].fails == (BIT(INVALIDATE) | BIT(STOP) | BIT(WINDOW) | BIT(QUEUE)))
			CHECK(has_landed(link, 2)); /* the refusal is right: the zombie still writes */
		CHECK(!was_admitted(&next));
		CHECK(farlog_target_forget(pair_target, "unconfirmed", &error) == FARLOG_IO);
		CHECK(farlog_target_fence(pair_target, "unconfirmed", next.epoch, NULL, NULL) == FARLOG_IO);
		verbs_faults_set(0);
		CHECK(farlog_target_fence(pair_target, "unconfirmed", next.epoch, NULL, NULL) == FARLOG_OK);
		CHECK(!has_landed(link, 3));
	}
	verbs_faults_set(0);
	CHECK(was_admitted(&next));
	pair_close_link(link);
}

void test_unconfirmed(void)
{
	verbs_await_ns = 10000000000u; /* one of the cases has nothing else to go by */
	pair_serve("unconfirmed", "a");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		fence_is_confirmed_or_not(i);
}
