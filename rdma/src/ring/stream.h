/* ring/stream.h -- a record from where it lies to the region through 64-byte registers (x86-64 with AVX-512 and
 * VPCLMULQDQ).
 *
 * Every byte is loaded once, and what was loaded is both streamed to the region and folded into the CRC: an application
 * may change its bytes meanwhile, and a record whose CRC is of other bytes than it holds would hide all behind it.
 * Nothing is stored on the way: ordinary stores leave the core in order with the streaming ones, and a record's few
 * dozen of them cost more than its CRC.
 *
 * The CRC: a line is a polynomial, and one line is moved over the next by a carry-less multiplication with a power of x
 * modulo the CRC's polynomial (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
 * Instruction", Intel, 2009). Zeros behind the last byte are undone by a negative power. The head, which is known last
 * because of its timestamp, is taken in by the crc32 instruction and moved over all of the body at once: few steps lie
 * between the timestamp and the last line. */
#ifndef FARLOG_STREAM_H
#define FARLOG_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "ring/gather.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define STREAM_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,vpclmulqdq,pclmul,sse4.2,bmi,bmi2")))
#define STREAM_INLINE STREAM_TARGET __attribute__((always_inline)) static inline
#define STREAM_LINE_LEN 64u
#define STREAM_LEN_MAX 4096u /* of a record; a longer one goes another way */

/* Powers of x modulo the polynomial, bit-reflected, each less the 33 that a product and its reduction by the
 * instruction add. */
struct stream_powers {
	/* over the next line, for the low and the high half of each 16 bytes */
	uint64_t line[8] __attribute__((aligned(64)));
	uint64_t lanes[8] __attribute__((aligned(64))); /* the first three 16 bytes of a line over those behind them */
	uint32_t back[STREAM_LINE_LEN];                 /* back over zeros: negative ones */
	uint32_t bodies[STREAM_LEN_MAX];                /* over a body of so many bytes */
};

extern struct stream_powers stream_powers;

/* stream_is_supported -- by this processor and system. */
bool stream_is_supported(void);

/* stream_once -- what was loaded, kept in a register. Without it the compiler may load the same bytes again for the
 * second use, and does. */
STREAM_INLINE __m512i stream_once(__m512i loaded)
{
	__asm__("" : "+v"(loaded));
	return loaded;
}

STREAM_INLINE uint64_t stream_word_once(uint64_t loaded)
{
	__asm__("" : "+r"(loaded));
	return loaded;
}

/* stream_mask -- a bit for each of a line's bytes before the first `len`, which is at most 255. */
STREAM_INLINE __mmask64 stream_mask(uint64_t len)
{
	return _bzhi_u64(UINT64_MAX, (unsigned)len);
}

/* stream_seam -- the line of the pieces from pos on in which the second one begins, or any before; zeros behind them.
 * What a mask leaves out is not touched. */
STREAM_INLINE __m512i stream_seam(const struct gather *gather, uint64_t pos)
{
	uint64_t in_first = gather->piece[0].len - pos;
	uint64_t in_both = in_first + gather->piece[1].len;
	__mmask64 first = stream_mask(in_first < STREAM_LINE_LEN ? in_first : STREAM_LINE_LEN);
	__mmask64 both = stream_mask(in_both < STREAM_LINE_LEN ? in_both : STREAM_LINE_LEN);
	const uint8_t *second = (const uint8_t *)((uintptr_t)gather->piece[1].start - in_first);
	__m512i line = _mm512_maskz_loadu_epi8(first, gather->piece[0].start + pos);

	/* Not where nothing is wanted: a masked load of an unmapped page is right, but takes as long as a fault. */
	return stream_once(both == first ? line : _mm512_or_si512(line, _mm512_maskz_loadu_epi8(both & ~first, second)));
}

/* stream_first -- the first 8 bytes of the pieces, zeros behind them. */
STREAM_INLINE uint64_t stream_first(const struct gather *gather)
{
	uint64_t len = gather->piece[1].len;
	__m128i word;

	if (gather->piece[0].len > 0)
		return (uint64_t)_mm_cvtsi128_si64(_mm512_castsi512_si128(stream_seam(gather, 0)));
	if (__builtin_expect(len >= 8, 1))
		return gather_load_word(gather->piece[1].start);
	word = len > 0 ? _mm_maskz_loadu_epi8((__mmask16)stream_mask(len), gather->piece[1].start) : _mm_setzero_si128();
	return (uint64_t)_mm_cvtsi128_si64(word);
}

/* stream_fold -- what was folded so far, moved by `powers`, and the next bytes. */
STREAM_INLINE __m512i stream_fold(__m512i sum, __m512i powers, __m512i next)
{
	return _mm512_ternarylogic_epi64(
		_mm512_clmulepi64_epi128(sum, powers, 0x00), _mm512_clmulepi64_epi128(sum, powers, 0x11), next, 0x96);
}

/* stream_move -- a CRC, moved by a power. */
STREAM_INLINE uint32_t stream_move(uint64_t crc, uint32_t power)
{
	__m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi32_si128((int)power), 0);

	return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

/* stream_head_crc -- the first 52 bytes. Word by word, so that the compiler keeps them in registers. */
STREAM_INLINE uint32_t stream_head_crc(const struct gather *gather)
{
	uint64_t crc = ~gather->salt;

	crc = _mm_crc32_u64(crc, gather->head[0]);
	crc = _mm_crc32_u64(crc, gather->head[1]);
	crc = _mm_crc32_u64(crc, gather->head[2]);
	crc = _mm_crc32_u64(crc, gather->head[3]);
	crc = _mm_crc32_u64(crc, gather->head[4]);
	crc = _mm_crc32_u64(crc, gather->head[5]);
	return _mm_crc32_u32((uint32_t)crc, (uint32_t)gather->head[6]);
}

/* stream_body_crc -- with nothing before it, from the fold of its lines, the last of which has zero_len zeros at its
 * end. */
STREAM_INLINE uint32_t stream_body_crc(__m512i sum, uint64_t zero_len)
{
	__m512i moved = stream_fold(sum, _mm512_load_si512(stream_powers.lanes), _mm512_maskz_mov_epi64(0xC0, sum));
	__m256i half = _mm256_xor_si256(_mm512_castsi512_si256(moved), _mm512_extracti64x4_epi64(moved, 1));
	__m128i all = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
	uint64_t crc = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(all));

	return stream_move(_mm_crc32_u64(crc, (uint64_t)_mm_extract_epi64(all, 1)), stream_powers.back[zero_len]);
}

/* stream_store -- past the cache by the instruction itself: to a compiler the intrinsic is advice, and clang makes an
 * ordinary store of it here, which a fence does not make durable. */
STREAM_INLINE void stream_store(uint8_t *dst, __m512i line, bool is_past_cache)
{
	if (is_past_cache)
		__asm__ volatile("vmovntdq %1, %0" : "=m"(*(__m512i *)dst) : "v"(line));
	else
		_mm512_store_si512((void *)dst, line);
}

/* stream_head -- the first line: the head, its CRC still zero, and a word behind it. */
STREAM_INLINE __m512i stream_head(const struct gather *gather, uint64_t behind)
{
	return _mm512_set_epi64((long long)behind, (long long)gather->head[6], (long long)gather->head[5],
		(long long)gather->head[4], (long long)gather->head[3], (long long)gather->head[2], (long long)gather->head[1],
		(long long)gather->head[0]);
}

/* stream_record -- all of it, sealed. Past the cache it is durable after the next persist_fence of this thread, else it
 * lies where ordinary stores do. dst 64-byte aligned, gather->len at most
 * STREAM_LEN_MAX; gather->scratch is not used. */
STREAM_INLINE void stream_record(uint8_t *dst, const struct gather *gather, bool is_past_cache)
{
	uint64_t body_len = gather->piece[0].len + gather->piece[1].len;
	uint64_t body_end = GATHER_HEAD_LEN + body_len; /* counted as dst is */
	const uint8_t *second =
		(const uint8_t *)((uintptr_t)gather->piece[1].start - gather->piece[0].len - GATHER_HEAD_LEN);
	uint64_t last = gather->len - STREAM_LINE_LEN;
	uint64_t first_word = stream_word_once(stream_first(gather));
	uint32_t crc = stream_move(stream_head_crc(gather), stream_powers.bodies[body_len]);
	__m512i head = stream_head(gather, last > 0 ? first_word : gather->tail);
	__m512i powers = _mm512_load_si512(stream_powers.line);
	__m512i tail = _mm512_maskz_set1_epi64(0x80, (long long)gather->tail);
	__m512i sum = _mm512_maskz_set1_epi64(0x80, (long long)first_word);
	__m512i line;
	uint64_t off = STREAM_LINE_LEN;

	for (; __builtin_expect(off < GATHER_HEAD_LEN + gather->piece[0].len, 0); off += STREAM_LINE_LEN) {
		line = stream_seam(gather, off - GATHER_HEAD_LEN);
		sum = stream_fold(sum, powers, line);
		stream_store(dst + off, off == last ? _mm512_or_si512(line, tail) : line, is_past_cache);
	}
	for (; off + STREAM_LINE_LEN <= body_end; off += STREAM_LINE_LEN) {
		line = stream_once(_mm512_loadu_si512(second + off));
		sum = stream_fold(sum, powers, line);
		stream_store(dst + off, line, is_past_cache);
	}
	if (off < body_end) {
		line = stream_once(_mm512_maskz_loadu_epi8(stream_mask(body_end - off), second + off));
		sum = stream_fold(sum, powers, line);
		stream_store(dst + off, off == last ? _mm512_or_si512(line, tail) : line, is_past_cache);
		off += STREAM_LINE_LEN;
	}
	crc = ~(crc ^ stream_body_crc(sum, off - body_end));
	for (; off <= last; off += STREAM_LINE_LEN)
		stream_store(dst + off, off == last ? tail : _mm512_setzero_si512(), is_past_cache);
	stream_store(dst, _mm512_mask_set1_epi32(head, 1u << GATHER_CRC_OFF / 4, (int)crc), is_past_cache);
}
#endif

#endif
