#pragma once

#include <cstdio>
#include <cstdlib>

namespace pointsman::test {

// Ends a fuzz target that found what must not be, and says which of its checks did.
inline void check(bool holds, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%d: does not hold\n", file, line);
  std::abort();
}

}  // namespace pointsman::test
