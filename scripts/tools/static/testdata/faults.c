/* faults.c -- a fault for clang-tidy and one for gcc -fanalyzer: scripts/static.sh fails when they are not found. */
#include <stdlib.h>

size_t tidy_finds(const char copy[8])
{
	return sizeof(sizeof(copy));
}

void analyzer_finds(void *memory)
{
	free(memory);
	free(memory);
}
