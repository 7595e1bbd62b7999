/* ring/stream.c -- the constants of ring/stream.h. */
#include "ring/stream.h"

#if defined(__x86_64__)
struct stream_powers stream_powers;

static uint32_t power_of_x(int exponent)
{
	return crc32c_times_x(0x80000000u, exponent);
}

static void set_pair(uint64_t pair[2], int bit_count)
{
	pair[0] = power_of_x(bit_count + 64 - 33);
	pair[1] = power_of_x(bit_count - 33);
}

/* Before main, as the CRC's tables: an append asks for nothing. */
__attribute__((constructor(101))) static void stream_init(void)
{
	struct stream_powers *powers = &stream_powers;

	for (int lane = 0; lane < 4; lane++) {
		set_pair(&powers->line[2 * lane], 512);
		if (lane < 3)
			set_pair(&powers->lanes[2 * lane], 384 - 128 * lane);
	}
	for (int i = 0; i < (int)STREAM_LINE_LEN; i++)
		powers->back[i] = power_of_x(-8 * i - 33);
	for (int i = 0; i < (int)STREAM_LEN_MAX; i++)
		powers->bodies[i] = i == 0 ? power_of_x(-33) : crc32c_times_x(powers->bodies[i - 1], 8);
}

bool stream_is_supported(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("vpclmulqdq") &&
		__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("bmi") &&
		__builtin_cpu_supports("bmi2");
}
#else
bool stream_is_supported(void)
{
	return false;
}
#endif
