// allocations.hpp -- how often operator new was called in this process.
#ifndef FARLOG_TEST_ALLOCATIONS_HPP
#define FARLOG_TEST_ALLOCATIONS_HPP

#include <atomic>

extern std::atomic<long> allocations;

#endif
