/* crc32c.c -- CRC-32C by instruction where there is one.
 *
 * The x86 instruction has a latency of three cycles and a throughput of one, so three independent lanes of 64 bytes
 * run in the time of one; two of them are then moved forward over the bytes that follow (a multiplication by
 * x^(8n) modulo the polynomial, done by table: Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using
 * CRC32 Instruction", Intel, 2011). */
#include "crc32c.h"

#include <string.h>

#define POLYNOMIAL 0x82F63B78u
#define LANE_LEN 64

static uint32_t byte_table[256];
static uint32_t lane_shift[4][256];  /* moves a CRC over LANE_LEN zero bytes */
static uint32_t lanes_shift[4][256]; /* over 2 * LANE_LEN */
static uint32_t block_shift[4][256]; /* over 3 * LANE_LEN */

static uint32_t (*update_chosen)(uint32_t crc, const uint8_t *data, size_t len);

static uint32_t update_table(uint32_t crc, const uint8_t *data, size_t len)
{
	for (; len > 0; len--)
		crc = byte_table[(crc ^ *data++) & 0xFF] ^ (crc >> 8);
	return crc;
}

static void make_shift(uint32_t shift[4][256], size_t zero_len)
{
	static const uint8_t zeros[3 * LANE_LEN];

	for (unsigned lane = 0; lane < 4; lane++)
		for (uint32_t value = 0; value < 256; value++)
			shift[lane][value] = update_table(value << (8 * lane), zeros, zero_len);
}

#if defined(__x86_64__)
#include <nmmintrin.h>

static inline uint32_t apply_shift(uint32_t shift[4][256], uint32_t crc)
{
	return shift[0][crc & 0xFF] ^ shift[1][(crc >> 8) & 0xFF] ^ shift[2][(crc >> 16) & 0xFF] ^ shift[3][crc >> 24];
}

static inline uint64_t load_word(const uint8_t *data)
{
	uint64_t word;

	memcpy(&word, data, sizeof(word));
	return word;
}

__attribute__((target("sse4.2"))) static uint32_t update_sse42(uint32_t crc, const uint8_t *data, size_t len)
{
	uint64_t rest;

	for (; len >= 3 * LANE_LEN; data += 3 * LANE_LEN, len -= 3 * LANE_LEN) {
		uint64_t lane_a = 0;
		uint64_t lane_b = 0;
		uint64_t lane_c = 0;

#pragma GCC unroll 8
		for (unsigned off = 0; off < LANE_LEN; off += 8) {
			lane_a = _mm_crc32_u64(lane_a, load_word(data + off));
			lane_b = _mm_crc32_u64(lane_b, load_word(data + LANE_LEN + off));
			lane_c = _mm_crc32_u64(lane_c, load_word(data + 2 * LANE_LEN + off));
		}
		crc = apply_shift(block_shift, crc) ^ apply_shift(lanes_shift, (uint32_t)lane_a) ^
			apply_shift(lane_shift, (uint32_t)lane_b) ^ (uint32_t)lane_c;
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

static void choose(void)
{
	update_chosen = __builtin_cpu_supports("sse4.2") ? update_sse42 : update_table;
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

static void choose(void)
{
	update_chosen = update_arm;
}
#else
static void choose(void)
{
	update_chosen = update_table;
}
#endif

/* Runs before main and before any other constructor of ours needs a CRC: the append path then has no "is it set up?". */
__attribute__((constructor(101))) static void crc32c_init(void)
{
	for (uint32_t value = 0; value < 256; value++) {
		uint32_t crc = value;

		for (unsigned bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (crc & 1 ? POLYNOMIAL : 0);
		byte_table[value] = crc;
	}
	make_shift(lane_shift, LANE_LEN);
	make_shift(lanes_shift, 2 * LANE_LEN);
	make_shift(block_shift, 3 * LANE_LEN);
#if defined(__x86_64__)
	__builtin_cpu_init();
#endif
	choose();
}

uint32_t crc32c_update(uint32_t seed, const void *data, size_t len)
{
	return ~update_chosen(~seed, data, len);
}

uint32_t crc32c_update_table(uint32_t seed, const void *data, size_t len)
{
	return ~update_table(~seed, data, len);
}
