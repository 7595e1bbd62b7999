#include <netinet/in.h>
#include <stdio.h>

#include "base/member_uri.h"
#include "unit.h"
#include "base/uri.h"

static void uri__accepted(void **state)
{
	struct uri uri;

	(void)state;
	assert_int_equal(uri_parse("mem:/dev/shm/a.ring", &uri, NULL), FARLOG_OK);
	assert_string_equal(uri.scheme, "mem");
	assert_string_equal(uri.path, "/dev/shm/a.ring");
	assert_string_equal(uri.flush, "");
	assert_int_equal(uri_parse("mem:relative:with:colons?flush=clwb", &uri, NULL), FARLOG_OK);
	assert_string_equal(uri.path, "relative:with:colons");
	assert_string_equal(uri.flush, "clwb");
	assert_int_equal(uri_parse("fault:x?seed=7&size=16384", &uri, NULL), FARLOG_OK);
	assert_int_equal(uri.seed, 7);
	assert_int_equal(uri.size_bytes, 16384);
}

static void uri__refused_with_its_name(void **state)
{
	static const char *const refused[] = {"", "mem", "mem:", ":/x", "/dev/shm/a", "mem:?flush=clwb", "mem:/x?flush",
		"mem:/x?colour=red", "mem:/x?seed=-1", "mem:/x?seed=", "mem:/x?seed=1x", "mem:/x?flush=averyverylongmethodname",
		"schemethatistoolong:/x", "mem:/x?wait=sleep", "verbs:/dev/x", "verbs://host/ring", "verbs://:7471/ring",
		"verbs://host:/ring", "verbs://host:66000/ring", "verbs://host:7x/ring", "verbs:tcp://host:1/ring",
		"ofi://host:1/ring", "ofi:://host:1/ring", "ofi:tcp:/host:1/ring", "ofi:tcp://[::1:7/ring",
		"ofi:averyverylongprovider://host:1/r", "verbs://host:123456789/r", "verbs://host:1/r?flush=bogus",
		"ofi:tcp://host:1/r?flush=clwb", "ofi:tcp://host:1?test-flush-delay=10",
		"ofi:tcp://host:1?test-flush-delay=-1ms", "ofi:tcp://host:1/r?test-flush-delay=10ms",
		"mem:/x?test-flush-delay=10ms"};
	struct farlog_error error;
	struct uri uri;

	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		memset(&error, 0, sizeof(error));
		assert_int_equal(uri_parse(refused[i], &uri, &error), FARLOG_INVALID);
		assert_int_equal(error.result, FARLOG_INVALID);
		assert_non_null(strstr(error.text, refused[i]));
		assert_null(strchr(error.text, '\n'));
	}
}

static void uri__target_slow_on_purpose(void **state)
{
	struct uri uri;

	(void)state;
	assert_int_equal(uri_parse("ofi:tcp://h:0?wait=spin&test-flush-delay=10ms:desk7/orders", &uri, NULL), FARLOG_OK);
	assert_int_equal(uri.test_flush_delay_ns, 10000000);
	assert_string_equal(uri.test_ring, "desk7/orders");
	assert_int_equal(uri_parse("ofi:tcp://h:0?test-flush-delay=500us", &uri, NULL), FARLOG_OK);
	assert_int_equal(uri.test_flush_delay_ns, 500000);
	assert_string_equal(uri.test_ring, "");
}

static void uri__traffic_class(void **state)
{
	static const struct {
		const char *text;
		unsigned tos;
	} taken[] = {
		{"", 0}, {"?tos=0", 1}, {"?tos=104", 105}, {"?tos=255", 256}, {"?tos=0x68", 105}, {"?wait=spin&tos=0XfF", 256}};
	static const char *const refused[] = {
		"256", "-1", "", "0x", "0x100", "af11", "1 ", " 1", "+1", "0x-1", "18446744073709551617"};
	struct farlog_error error;
	char text[64];
	struct uri uri;

	(void)state;
	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
		snprintf(text, sizeof(text), "verbs://h:1/r%s", taken[i].text);
		assert_int_equal(uri_parse(text, &uri, NULL), FARLOG_OK);
		assert_int_equal(uri.tos, taken[i].tos);
	}
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		snprintf(text, sizeof(text), "verbs://h:1/r?tos=%s", refused[i]);
		assert_int_equal(uri_parse(text, &uri, &error), FARLOG_INVALID);
		assert_non_null(strstr(error.text, "expected 0 to 255, or 0x00 to 0xff"));
	}
	assert_int_equal(uri_parse("ofi:tcp://h:1/r?tos=8", &uri, &error), FARLOG_INVALID);
	assert_non_null(strstr(error.text, "a traffic class is for verbs:"));
	assert_int_equal(uri_parse("mem:/x?tos=8", &uri, NULL), FARLOG_INVALID);
}

static void uri__from(void **state)
{
	static const char *const taken[] = {"verbs://h:1/r?from=10.0.1.7", "ofi:tcp://h:1/r?wait=spin&from=fd00::7"};
	static const char *const refused[] = {"mem:/x?from=10.0.1.7", "ofi:tcp://h:1?from=10.0.1.7",
		"ofi:tcp://h:1/r?from=", "ofi:tcp://h:1/r?from=eth0", "verbs://h:1/r?from=10.0.1.7:4791"};
	struct sockaddr_storage address;
	struct farlog_error error;
	struct uri uri;

	(void)state;
	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
		assert_int_equal(uri_parse(taken[i], &uri, &error), FARLOG_OK);
		assert_int_equal(uri_from(&uri, &address), i == 0 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
	}
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		assert_int_equal(uri_parse(refused[i], &uri, &error), FARLOG_INVALID);
		assert_non_null(strstr(error.text, "expected an address of this host"));
	}
}

static void uri__far_addresses(void **state)
{
	struct uri uri;

	(void)state;
	assert_int_equal(uri_parse("verbs://10.0.0.7:7471/desk7/orders?flush=rdma-read", &uri, NULL), FARLOG_OK);
	assert_string_equal(uri.host, "10.0.0.7");
	assert_string_equal(uri.port, "7471");
	assert_string_equal(uri.ring, "desk7/orders");
	assert_string_equal(uri.provider, "");
	assert_string_equal(uri.flush, "rdma-read");
	assert_int_equal(uri_parse("ofi:tcp://[::1]:0?wait=spin", &uri, NULL), FARLOG_OK);
	assert_string_equal(uri.provider, "tcp");
	assert_string_equal(uri.host, "::1");
	assert_string_equal(uri.port, "0");
	assert_string_equal(uri.ring, "");
	assert_string_equal(uri.wait, "spin");
	assert_true(uri_is_remote(&uri));
	assert_int_equal(uri_parse("mem:/x", &uri, NULL), FARLOG_OK);
	assert_false(uri_is_remote(&uri));
}

static void uri__longer_than_its_room(void **state)
{
	char text[3000];
	struct uri uri;

	(void)state;
	memset(text, 'a', sizeof(text));
	memcpy(text, "mem:", 4);
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(uri_parse(text, &uri, NULL), FARLOG_INVALID);
}

static void uri__unknown_scheme(void **state)
{
	struct farlog_contract contract;
	struct farlog_error error;

	(void)state;
	assert_int_equal(farlog_region_probe("tape:/dev/st0", &contract, &error), FARLOG_INVALID);
	assert_non_null(strstr(error.text, "tape"));
}

static void members__are_taken_apart_in_their_order(void **state)
{
	struct member_uri parsed;

	(void)state;
	assert_true(member_uri_is("members:2 mem:/a mem:/b"));
	assert_false(member_uri_is("mem:/members:2"));
	assert_int_equal(
		member_uri_parse("members:2 mem:/a ofi:tcp://h:1/desk7/orders?wait=block mem:/c", &parsed, NULL), FARLOG_OK);
	assert_int_equal(parsed.count, 3);
	assert_int_equal(parsed.needed, 2);
	assert_string_equal(parsed.uris[0], "mem:/a");
	assert_string_equal(parsed.uris[1], "ofi:tcp://h:1/desk7/orders?wait=block");
	assert_string_equal(parsed.uris[2], "mem:/c");
	assert_int_equal(member_quorum(3, 2), 2);
	assert_int_equal(member_quorum(3, 1), 3);
	assert_int_equal(member_quorum(2, 2), 2);
	assert_int_equal(member_quorum(5, 3), 3);
}

static void members__refused(void **state)
{
	static const struct {
		const char *uri;
		const char *text;
	} wrong[] = {
		{"members:", "no number of members"},
		{"members:0 mem:/a mem:/b", "no number of members"},
		{"members:12 mem:/a mem:/b", "no number of members"},
		{"members: mem:/a mem:/b", "no number of members"},
		{"members:1 mem:/a", "fewer than two members"},
		{"members:3 mem:/a mem:/b", "more members are needed"},
		{"members:2 mem:/a  mem:/b", "two spaces"},
		{"members:2 mem:/a mem:/b ", "one at the end"},
		{"members:2 mem:/a mem:/a", "named twice"},
		{"members:1 mem:/a members:1", "has members itself"},
		{"members:1 a b c d e f g h i j", "too many members"},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct farlog_error error = {0};
		struct member_uri parsed;

		assert_int_equal(member_uri_parse(wrong[i].uri, &parsed, &error), FARLOG_INVALID);
		if (strstr(error.text, wrong[i].text) == NULL || strstr(error.text, wrong[i].uri) == NULL)
			fail_msg("\"%s\" gave \"%s\"; expected \"%s\"", wrong[i].uri, error.text, wrong[i].text);
	}
}

static const struct CMUnitTest uri_tests[] = {
	cmocka_unit_test(members__are_taken_apart_in_their_order),
	cmocka_unit_test(members__refused),
	cmocka_unit_test(uri__accepted),
	cmocka_unit_test(uri__from),
	cmocka_unit_test(uri__refused_with_its_name),
	cmocka_unit_test(uri__target_slow_on_purpose),
	cmocka_unit_test(uri__traffic_class),
	cmocka_unit_test(uri__far_addresses),
	cmocka_unit_test(uri__longer_than_its_room),
	cmocka_unit_test(uri__unknown_scheme),
};
RUN_GROUP(uri, uri_tests)

static void result__every_code_has_name_and_text(void **state)
{
	(void)state;
	for (int result = 0; result >= -18; result--) {
		assert_string_not_equal(farlog_result_name(result), "?");
		assert_true(strlen(farlog_result_text(result)) > 3);
	}
	assert_string_equal(farlog_version(), FARLOG_VERSION);
	assert_string_equal(farlog_result_name(1), "?");
	assert_string_equal(farlog_result_name(-19), "?");
	assert_string_equal(farlog_level_name(FARLOG_LEVEL_PERSISTENT), "persistent");
	assert_string_equal(farlog_level_name(-1), "?");
	assert_string_equal(farlog_level_name(6), "?");
}

static const struct CMUnitTest err_tests[] = {
	cmocka_unit_test(result__every_code_has_name_and_text),
};
RUN_GROUP(err, err_tests)
