// Has the counting CPU allocator refuse chosen allocations. Names no type of libtorch, so that headroom_faulty can use it too.
#pragma once

#include <cstdint>

namespace headroom {

// Stands in front of the counting allocator from now on. After InitializeTorch, from one thread; calling it again changes nothing.
void InstallRefusingAllocator();

// The `nth` tensor allocation from now on, of whichever thread, is refused by the real allocator as if its limit had been reached;
// and every nth after it, if `repeat`. 0: none is. Thread-safe.
void RefuseAllocation(std::int64_t nth, bool repeat = false);

// How many were refused since the last call of RefuseAllocation.
std::int64_t AllocationsRefused();

}  // namespace headroom
