#include "persist.h"
#include "unit.h"

static const enum farlog_flush_method methods[] = {FARLOG_FLUSH_NONE, FARLOG_FLUSH_CLWB, FARLOG_FLUSH_CLFLUSHOPT,
	FARLOG_FLUSH_NT_STORE, FARLOG_FLUSH_CVAP, FARLOG_FLUSH_MSYNC};

static void persist__every_method_copies_exactly(void **state)
{
	static uint8_t src[4096] __attribute__((aligned(64)));
	static uint8_t dst[4096 + 128] __attribute__((aligned(64)));

	(void)state;
	for (size_t i = 0; i < sizeof(src); i++)
		src[i] = (uint8_t)unit_random();
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		persist_copy_fn copy = persist_copy(methods[i]);

		assert_int_equal(copy != NULL, persist_is_supported(methods[i]));
		for (size_t len = 64; copy != NULL && len <= sizeof(src); len += 64) {
			memset(dst, 0xEE, sizeof(dst));
			copy(dst + 64, src, len);
			persist_fence();
			assert_memory_equal(dst + 64, src, len);
			assert_int_equal(dst[63], 0xEE);
			assert_int_equal(dst[64 + len], 0xEE);
		}
	}
}

static void persist__fastest_is_a_supported_flush(void **state)
{
	enum farlog_flush_method fastest = persist_fastest();

	(void)state;
	assert_true(persist_is_supported(fastest));
	assert_true(fastest != FARLOG_FLUSH_NONE && fastest != FARLOG_FLUSH_MSYNC);
	assert_int_equal(persist_fastest(), fastest);
}

static void persist__names_both_ways(void **state)
{
	enum farlog_flush_method method;

	(void)state;
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		assert_true(persist_method_named(persist_method_name(methods[i]), &method));
		assert_int_equal(method, methods[i]);
	}
	assert_true(persist_method_named("auto", &method));
	assert_false(persist_method_named("", &method));
	assert_false(persist_method_named("CLWB", &method));
}

static void persist__range_of_any_length(void **state)
{
	static uint8_t bytes[1000];

	(void)state;
	for (size_t len = 0; len < sizeof(bytes); len += 37)
		persist_range(bytes, len);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(persist__every_method_copies_exactly),
	cmocka_unit_test(persist__fastest_is_a_supported_flush),
	cmocka_unit_test(persist__names_both_ways),
	cmocka_unit_test(persist__range_of_any_length),
};
RUN_GROUP(persist, tests)
