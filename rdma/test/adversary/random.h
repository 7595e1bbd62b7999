/* adversary/random.h -- random numbers of adversarial media, the same for the same seed. */
#ifndef FARLOG_ADVERSARY_RANDOM_H
#define FARLOG_ADVERSARY_RANDOM_H

#include <stdint.h>

/* random_draw -- xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled",
 * 2016. */
static inline uint64_t random_draw(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545F4914F6CDD1Dull;
}

#endif
