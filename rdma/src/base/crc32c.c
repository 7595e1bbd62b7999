/* base/crc32c.c -- CRC-32C by instruction where there is one.
 *
 * The x86 instruction has a latency of three cycles and a throughput of one, so three independent lanes of 64 bytes
 * run in the time of one. A lane is then moved forward over the bytes that follow it: a multiplication by x^(8n) modulo
 * the polynomial, by one carry-less multiplication whose product goes into the last word of the last lane, so that the
 * instruction that takes this word in reduces all of them at once (Gopal et al., "Fast CRC Computation for iSCSI
 * Polynomial Using CRC32 Instruction", Intel, 2011, with the reduction of section 3.1 there shared by the lanes). */
#include "base/crc32c.h"

#include <stdbool.h>
#include <string.h>

#define POLYNOMIAL 0x82F63B78u
#define LANE_LEN 64u

static uint32_t byte_table[256];
static uint32_t (*update_chosen)(uint32_t crc, const uint8_t *data, size_t len);
static uint32_t (*record_chosen)(uint32_t crc, const uint8_t *head, const uint8_t *body, size_t len);

static uint32_t update_table(uint32_t crc, const uint8_t *data, size_t len)
{
	for (; len > 0; len--)
		crc = byte_table[(crc ^ *data++) & 0xFF] ^ (crc >> 8);
	return crc;
}

static uint32_t record_table(uint32_t crc, const uint8_t *head, const uint8_t *body, size_t len)
{
	return update_table(update_table(crc, head, CRC32C_HEAD_LEN), body, len);
}

uint32_t crc32c_times_x(uint32_t power, int exponent)
{
	for (; exponent > 0; exponent--)
		power = (power >> 1) ^ (power & 1 ? POLYNOMIAL : 0);
	for (; exponent < 0; exponent++)
		power = power & 0x80000000u ? (power ^ POLYNOMIAL) << 1 | 1 : power << 1;
	return power;
}

#if defined(__x86_64__)
#include <nmmintrin.h>
#include <wmmintrin.h>

static uint64_t over_lane;  /* what moves a CRC over LANE_LEN bytes when its product is reduced by the instruction */
static uint64_t over_lanes; /* over 2 * LANE_LEN */
static uint64_t over_block; /* over 3 * LANE_LEN */

static inline uint64_t load_word(const uint8_t *data)
{
	uint64_t word;

	memcpy(&word, data, sizeof(word));
	return word;
}

/* The instruction multiplies by x^32, and the product of two reflected words is one bit short of where it belongs: 33
 * are given already. */
static uint64_t over_bytes(unsigned len)
{
	return crc32c_times_x(0x80000000u, (int)(8 * len) - 33);
}

__attribute__((target("pclmul"))) static inline __m128i moved(uint64_t crc, uint64_t over)
{
	return _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi64_si128((long long)over), 0);
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t update_clmul(uint32_t crc, const uint8_t *data, size_t len)
{
	uint64_t rest;

	for (; len >= 3 * LANE_LEN; data += 3 * LANE_LEN, len -= 3 * LANE_LEN) {
		uint64_t lane_a = 0;
		uint64_t lane_b = 0;
		uint64_t lane_c = 0;
		__m128i all;

#pragma GCC unroll 8
		for (unsigned off = 0; off < LANE_LEN - 8; off += 8) {
			lane_a = _mm_crc32_u64(lane_a, load_word(data + off));
			lane_b = _mm_crc32_u64(lane_b, load_word(data + LANE_LEN + off));
			lane_c = _mm_crc32_u64(lane_c, load_word(data + 2 * LANE_LEN + off));
		}
		lane_a = _mm_crc32_u64(lane_a, load_word(data + LANE_LEN - 8));
		lane_b = _mm_crc32_u64(lane_b, load_word(data + 2 * LANE_LEN - 8));
		all = _mm_xor_si128(_mm_xor_si128(moved(crc, over_block), moved(lane_a, over_lanes)), moved(lane_b, over_lane));
		crc = (uint32_t)_mm_crc32_u64(lane_c, load_word(data + 3 * LANE_LEN - 8) ^ (uint64_t)_mm_cvtsi128_si64(all));
	}
	rest = crc;
	for (; len >= 8; data += 8, len -= 8)
		rest = _mm_crc32_u64(rest, load_word(data));
	if (len >= 4) { /* a record's header is 52 bytes */
		uint32_t half;

		memcpy(&half, data, sizeof(half));
		rest = _mm_crc32_u32((uint32_t)rest, half);
		data += 4;
		len -= 4;
	}
	for (; len > 0; len--)
		rest = _mm_crc32_u8((uint32_t)rest, *data++);
	return (uint32_t)rest;
}

/* record_clmul -- the head's few words in line: a call and its loop cost half as much again as the head. */
__attribute__((target("sse4.2,pclmul"))) static uint32_t record_clmul(
	uint32_t crc, const uint8_t *head, const uint8_t *body, size_t len)
{
	uint64_t words = crc;
	uint32_t half;

#pragma GCC unroll 6
	for (unsigned off = 0; off < CRC32C_HEAD_LEN - 4; off += 8)
		words = _mm_crc32_u64(words, load_word(head + off));
	memcpy(&half, head + CRC32C_HEAD_LEN - 4, sizeof(half));
	return update_clmul(_mm_crc32_u32((uint32_t)words, half), body, len);
}

static void choose_functions(void)
{
	bool is_clmul = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");

	update_chosen = is_clmul ? update_clmul : update_table;
	record_chosen = is_clmul ? record_clmul : record_table;
	over_lane = over_bytes(LANE_LEN);
	over_lanes = over_bytes(2 * LANE_LEN);
	over_block = over_bytes(3 * LANE_LEN);
}
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>

static uint32_t update_arm(uint32_t crc, const uint8_t *data, size_t len)
{
	for (; len >= 8; data += 8, len -= 8) {
		uint64_t word;

		memcpy(&word, data, sizeof(word));
		crc = __crc32cd(crc, word);
	}
	for (; len > 0; len--)
		crc = __crc32cb(crc, *data++);
	return crc;
}

static uint32_t record_arm(uint32_t crc, const uint8_t *head, const uint8_t *body, size_t len)
{
	return update_arm(update_arm(crc, head, CRC32C_HEAD_LEN), body, len);
}

static void choose_functions(void)
{
	update_chosen = update_arm;
	record_chosen = record_arm;
}
#else
static void choose_functions(void)
{
	update_chosen = update_table;
	record_chosen = record_table;
}
#endif

/* Runs before main and before any other constructor of ours needs a CRC: the append path then has no "is it set
 * up?". */
__attribute__((constructor(101))) static void crc32c_init(void)
{
	for (uint32_t value = 0; value < 256; value++)
		byte_table[value] = crc32c_times_x(value, 8);
#if defined(__x86_64__)
	__builtin_cpu_init();
#endif
	choose_functions();
}

uint32_t crc32c_update(uint32_t seed, const void *data, size_t len)
{
	return ~update_chosen(~seed, data, len);
}

uint32_t crc32c_record(uint32_t seed, const void *head, const void *body, size_t len)
{
	return ~record_chosen(~seed, head, body, len);
}

uint32_t crc32c_update_table(uint32_t seed, const void *data, size_t len)
{
	return ~update_table(~seed, data, len);
}
