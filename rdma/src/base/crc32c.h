/* base/crc32c.h -- CRC-32C (Castagnoli), RFC 3720 appendix B.4. */
#ifndef FARLOG_CRC32C_H
#define FARLOG_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* crc32c_update -- continue `seed` over len bytes; crc32c_update(0, "123456789", 9) = 0xE3069283.
 * Chosen once by CPUID: SSE4.2 and PCLMULQDQ three lanes wide, arm64 CRC, or a table. */
uint32_t crc32c_update(uint32_t seed, const void *data, size_t len);

#define CRC32C_HEAD_LEN 52u

/* crc32c_record -- continue `seed` over CRC32C_HEAD_LEN bytes at head, then over len bytes at body: crc32c_update
 * twice, for a walk over many small records. */
uint32_t crc32c_record(uint32_t seed, const void *head, const void *body, size_t len);

/* crc32c_times_x -- times x^exponent modulo the polynomial, bit-reflected as a CRC is; the exponent may be negative.
 * 0x80000000 is one. For the constants of carry-less multiplication. */
uint32_t crc32c_times_x(uint32_t power, int exponent);

/* crc32c_update_table -- the portable one, the oracle of the tests. */
uint32_t crc32c_update_table(uint32_t seed, const void *data, size_t len);

#endif
