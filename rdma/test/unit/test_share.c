/* Rings of one namespace whose writers are on several hosts, on adversarial blocks. What is shown: nobody follows a
 * writer of another host that was not closed; of two hosts that open a ring at once, at every point of each other's
 * opening, at most one has it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "adversary/blocks.h"
#include "farlog/former.h"
#include "region/directory.h"
#include "blocks/nvme.h"
#include "unit.h"

#define NAME "share-blocks"
#define URI "block-fault:" NAME "?ring=%s"
#define RING_LEN (LAYOUT_DATA_OFF + (64u << 10))
#define DEVICE_LEN (DIRECTORY_LEN + 3 * (RING_LEN + NVME_EXTRA_LEN))
#define OPERATION_COUNT 400u /* more than an opening takes */

static struct farlog_error last;

static const char *uri_of(const char *ring, const char *options)
{
	static char text[200];

	snprintf(text, sizeof(text), URI "%s", ring, options);
	return text;
}

static void format_ring(const char *ring)
{
	char options[40];
	struct farlog_ring_config config = {
		.size_bytes = RING_LEN, .stream_name = ring, .salt = 0x5A17, .record_len_max = 4096};

	snprintf(options, sizeof(options), "&size=%u", DEVICE_LEN);
	if (farlog_ring_format(uri_of(ring, options), &config, &last) != FARLOG_OK)
		fail_msg("format: %s", last.text);
}

static void make_rings(int has_reservations)
{
	farlog_block_drop(NAME);
	farlog_block_hosts(has_reservations);
	farlog_block_shape(512, 1);
	farlog_block_host(0);
	format_ring("a");
	format_ring("b");
}

static farlog_writer *open_on(int host, const char *ring, const char *options, int *result)
{
	struct farlog_writer_config config = {.counters_dir = "", .policy = FARLOG_POLICY_REJECT};
	farlog_writer *writer = NULL;

	farlog_block_host(host);
	last.text[0] = '\0';
	*result = farlog_writer_open(uri_of(ring, options), &config, &writer, &last);
	return writer;
}

static farlog_writer *must_open(int host, const char *ring, const char *options)
{
	int result;
	farlog_writer *writer = open_on(host, ring, options, &result);

	if (result != FARLOG_OK)
		fail_msg("open: %s", last.text);
	return writer;
}

static void must_append(farlog_writer *writer)
{
	struct farlog_position position;

	assert_int_equal(
		farlog_append(writer, &(struct farlog_entry){.data = "order", .len = 5}, 30000000000u, &position), FARLOG_OK);
}

static void open__former_on_another_host_not_closed(void **state)
{
	farlog_writer *former;
	farlog_writer *writer;
	int result;

	(void)state;
	for (int has_reservations = 0; has_reservations < 2; has_reservations++) {
		make_rings(has_reservations);
		former = must_open(0, "a", "");
		must_append(former);
		assert_null(open_on(1, "a", "", &result));
		assert_int_equal(result, FARLOG_HELD);
		assert_non_null(strstr(last.text, "opened on another host, was not closed"));
		assert_non_null(strstr(last.text, "former=gone"));
		writer = must_open(1, "b", ""); /* the neighbour is no concern of it */
		must_append(former);
		farlog_writer_close(writer);
		farlog_writer_close(former);
		writer = must_open(1, "a", ""); /* a planned move */
		must_append(writer);
		farlog_writer_close(writer);
	}
	farlog_block_drop(NAME);
}

static void open__target_without_reservations(void **state)
{
	struct farlog_ring_config config = {.size_bytes = RING_LEN, .salt = 0x5A17, .record_len_max = 4096};
	farlog_writer *writer;
	farlog_writer *next;

	(void)state;
	farlog_block_drop(NAME);
	farlog_block_hosts(0);
	farlog_block_host(0);
	assert_int_equal(farlog_ring_format("block-fault:" NAME, &config, &last), FARLOG_OK);
	assert_int_equal(farlog_writer_open("block-fault:" NAME, NULL, &writer, &last), FARLOG_OK);
	farlog_block_host(1);
	assert_int_equal(farlog_writer_open("block-fault:" NAME, NULL, &next, &last), FARLOG_HELD);
	must_append(writer);
	farlog_writer_close(writer);
	assert_int_equal(farlog_writer_open("block-fault:" NAME, NULL, &next, &last), FARLOG_OK);
	must_append(next);
	farlog_writer_close(next);
	farlog_block_drop(NAME);
}

static void open__former_on_this_host_was_killed(void **state)
{
	farlog_writer *writer;

	(void)state;
	make_rings(1);
	writer = must_open(0, "a", "");
	must_append(writer);
	farlog_block_kill(NAME);
	farlog_writer_close(writer);
	writer = must_open(0, "a", "");
	farlog_writer_close(writer);
	farlog_block_drop(NAME);
}

static void open__former_is_gone(void **state)
{
	farlog_writer *writer;
	int result;

	(void)state;
	for (int is_by_fence = 0; is_by_fence < 2; is_by_fence++) {
		make_rings(1);
		writer = must_open(0, "a", "");
		must_append(writer);
		farlog_block_kill(NAME);
		farlog_writer_close(writer); /* of a dead device: nothing says that it was closed */
		assert_null(open_on(1, "a", "", &result));
		assert_int_equal(result, FARLOG_HELD);
		if (is_by_fence)
			assert_int_equal(farlog_ring_fence(uri_of("a", "&former=gone"), 2, &last), FARLOG_OK);
		writer = must_open(1, "a", is_by_fence ? "" : "&former=gone");
		must_append(writer);
		farlog_writer_close(writer);
		writer = must_open(0, "a", "");
		farlog_writer_close(writer);
	}
	farlog_block_drop(NAME);
}

/* former_of -- of ring a, as its target sees it: on a host of its own. */
static struct farlog_former former_of(void)
{
	struct farlog_former former;

	farlog_block_host(3);
	assert_int_equal(farlog_ring_former(uri_of("a", ""), &former, &last), FARLOG_OK);
	return former;
}

static int put_out(uint64_t host, uint32_t epoch)
{
	farlog_block_host(3);
	return farlog_ring_former_out(uri_of("a", ""), host, epoch, &last);
}

static void make_dead_writer(int host)
{
	farlog_writer *writer = must_open(host, "a", "");

	must_append(writer);
	farlog_block_kill(NAME);
	farlog_writer_close(writer); /* of a dead device: nothing says that it was closed */
}

static void former__out_by_its_target(void **state)
{
	uint64_t host = farlog_host_number("nqn.host-0");
	farlog_writer *writer;
	int result;

	(void)state;
	for (int has_reservations = 0; has_reservations < 2; has_reservations++) {
		make_rings(has_reservations);
		assert_int_equal(former_of().epoch, 0);
		make_dead_writer(0);
		assert_int_equal(former_of().epoch, 1);
		assert_true(former_of().host == host && !former_of().is_closed && former_of().epoch_min <= 1);
		assert_int_equal(put_out(farlog_host_number("nqn.host-1"), 1), FARLOG_HELD);
		assert_int_equal(put_out(host, 2), FARLOG_HELD);
		assert_null(open_on(1, "a", "", &result)); /* neither has changed anything */
		assert_int_equal(put_out(host, 1), FARLOG_OK);
		assert_true(former_of().is_closed && former_of().epoch_min == 2);
		assert_int_equal(put_out(host, 1), FARLOG_OK);
		writer = must_open(1, "a", "");
		must_append(writer);
		/* Of the one who came after it nothing was said. */
		assert_int_equal(put_out(host, 1), FARLOG_HELD);
		assert_int_equal(put_out(host, 2), FARLOG_HELD);
		assert_null(open_on(0, "a", "", &result));
		assert_int_equal(result, FARLOG_HELD);
		farlog_writer_close(writer);
	}
	farlog_block_drop(NAME);
}

/* count_forgotten -- power cuts behind the word, of some, after which it is not there any more. */
static unsigned count_forgotten(void)
{
	unsigned forgotten = 0;

	for (uint64_t seed = 1; seed <= 40; seed++) {
		make_rings(0);
		farlog_block_reseed(NAME, seed);
		make_dead_writer(0);
		assert_int_equal(put_out(farlog_host_number("nqn.host-0"), 1), FARLOG_OK);
		farlog_block_crash(NAME);
		forgotten += !former_of().is_closed;
	}
	farlog_block_drop(NAME);
	return forgotten;
}

static void former__power_cut_when_it_is_out(void **state)
{
	(void)state;
	assert_int_equal(count_forgotten(), 0);
}

static void former__of_a_ring_in_memory(void **state)
{
	struct farlog_ring_config config = {.size_bytes = 1u << 20, .salt = 0x5A17, .record_len_max = 4096};
	struct farlog_former former;
	char uri[80];
	char path[60];

	(void)state;
	snprintf(path, sizeof(path), "/tmp/farlog-former-%d", (int)getpid());
	snprintf(uri, sizeof(uri), "mem:%s", path);
	assert_int_equal(farlog_ring_format(uri, &config, &last), FARLOG_OK);
	assert_int_equal(farlog_ring_former(uri, &former, &last), FARLOG_OK);
	assert_int_equal(former.host, 0);
	assert_int_equal(farlog_ring_former_out(uri, 1, 1, &last), FARLOG_UNSUPPORTED);
	unlink(path);
}

static void remove__writer_on_another_host(void **state)
{
	farlog_writer *writer;

	(void)state;
	make_rings(1);
	writer = must_open(0, "a", "");
	farlog_block_host(1);
	assert_int_equal(farlog_ring_remove(uri_of("a", ""), 0, &last), FARLOG_HELD);
	assert_non_null(strstr(last.text, "opened on another host"));
	farlog_writer_close(writer);
	farlog_block_drop(NAME);
}

/* A call of reservations that fails, each in turn: what could not be looked at is not taken for a device of one host.
 * The neighbour ring opens when nothing fails. */
static void open__reservations_cannot_be_looked_at(void **state)
{
	unsigned call_count = 0;

	(void)state;
	for (int has_reservations = 0; has_reservations < 2; has_reservations++) {
		farlog_writer *former;
		int result;

		make_rings(has_reservations);
		former = must_open(0, "a", "");
		must_append(former);
		for (unsigned call = 1;; call++) {
			farlog_block_fail_reservation(call);
			assert_null(open_on(1, "a", "", &result));
			if (farlog_block_has_failed_reservation() && call == 1) {
				assert_int_equal(result, FARLOG_IO);
				assert_non_null(strstr(last.text, "look at the reservation"));
			}
			assert_int_not_equal(farlog_ring_remove(uri_of("a", ""), 0, &last), FARLOG_OK);
			call_count += (unsigned)farlog_block_has_failed_reservation();
			if (!farlog_block_has_failed_reservation())
				break;
		}
		for (unsigned call = 1; call < 10; call++) {
			farlog_block_fail_reservation(call);
			farlog_block_host(1);
			assert_int_not_equal(farlog_ring_remove(uri_of("a", ""), 0, &last), FARLOG_OK);
		}
		farlog_block_fail_reservation(0);
		farlog_writer_close(must_open(1, "b", ""));
		must_append(former);
		farlog_writer_close(former);
	}
	assert_true(call_count >= 3);
	farlog_block_drop(NAME);
}

/* A ring of its own on a target without reservations: the same. */
static void open__whole_device_cannot_be_looked_at(void **state)
{
	struct farlog_ring_config config = {.size_bytes = RING_LEN, .salt = 0x5A17, .record_len_max = 4096};
	farlog_writer *writer;
	farlog_writer *next;
	unsigned call = 0;

	(void)state;
	farlog_block_drop(NAME);
	farlog_block_hosts(0);
	farlog_block_host(0);
	assert_int_equal(farlog_ring_format("block-fault:" NAME, &config, &last), FARLOG_OK);
	assert_int_equal(farlog_writer_open("block-fault:" NAME, NULL, &writer, &last), FARLOG_OK);
	farlog_block_host(1);
	do {
		farlog_block_fail_reservation(++call);
		assert_int_not_equal(farlog_writer_open("block-fault:" NAME, NULL, &next, &last), FARLOG_OK);
	} while (farlog_block_has_failed_reservation());
	assert_true(call > 2);
	farlog_block_fail_reservation(0);
	must_append(writer);
	farlog_writer_close(writer);
	farlog_block_drop(NAME);
}

static farlog_writer *second;

static void open_second(void *context)
{
	int result;

	(void)context;
	second = open_on(1, "a", "", &result);
}

/* count_at_once -- the points of host 0's opening at which host 1, opening as well, ends with both having the ring. */
static unsigned count_at_once(unsigned *one_count)
{
	unsigned both_count = 0;

	*one_count = 0;
	for (unsigned operation = 0; operation < OPERATION_COUNT; operation += 1 + operation / 40) {
		farlog_writer *first;
		int result;

		make_rings(1);
		farlog_block_reseed(NAME, operation + 1);
		second = NULL;
		farlog_block_call(NAME, operation, open_second, NULL);
		first = open_on(0, "a", "", &result);
		farlog_block_call(NAME, UINT64_MAX, NULL, NULL);
		both_count += first != NULL && second != NULL;
		*one_count += (first != NULL) != (second != NULL);
		farlog_writer_close(first);
		farlog_writer_close(second);
	}
	farlog_block_drop(NAME);
	return both_count;
}

static void open__two_hosts_at_once(void **state)
{
	unsigned one_count;

	(void)state;
	assert_int_equal(count_at_once(&one_count), 0);
	assert_true(one_count > 20);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(open__former_on_another_host_not_closed),
	cmocka_unit_test(open__target_without_reservations),
	cmocka_unit_test(open__reservations_cannot_be_looked_at),
	cmocka_unit_test(open__whole_device_cannot_be_looked_at),
	cmocka_unit_test(open__former_on_this_host_was_killed),
	cmocka_unit_test(open__former_is_gone),
	cmocka_unit_test(former__out_by_its_target),
	cmocka_unit_test(former__power_cut_when_it_is_out),
	cmocka_unit_test(former__of_a_ring_in_memory),
	cmocka_unit_test(remove__writer_on_another_host),
	cmocka_unit_test(open__two_hosts_at_once),
};

RUN_GROUP(share, tests)
