#include <cstdio>
#include <cstdlib>

#include "test/fuzz/fuzz_targets.h"

namespace headroom {

void Require(bool kept, const char* promise) {
  if (kept) return;
  std::fprintf(stderr, "a promise is broken: %s\n", promise);
  std::abort();
}

}  // namespace headroom
