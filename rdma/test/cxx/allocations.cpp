// allocations.cpp -- operator new that counts. A file of its own: where the compiler sees both ends it takes them
// apart.
#include "allocations.hpp"

#include <cstdlib>
#include <new>

std::atomic<long> allocations;

void *operator new(std::size_t size)
{
	void *memory = std::malloc(size);

	allocations++;
	if (memory == nullptr)
		std::abort();
	return memory;
}

void operator delete(void *memory) noexcept
{
	std::free(memory);
}
void operator delete(void *memory, std::size_t) noexcept
{
	std::free(memory);
}
