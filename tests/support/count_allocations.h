#pragma once

// Replaces the program's operator new by one that counts: of the files of a program, one at most
// may include this.

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace pointsman::testing_support {

// Of the whole program so far.
inline std::atomic<std::uint64_t> allocations{0};

}  // namespace pointsman::testing_support

// Never inlined: g++ would warn of free() on what new returned, and a replaced operator may not be.
// NOLINTBEGIN(misc-definitions-in-headers): one file of a program includes this
[[gnu::noinline]] void* operator new(std::size_t size) {
  pointsman::testing_support::allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
// NOLINTEND(misc-definitions-in-headers)
