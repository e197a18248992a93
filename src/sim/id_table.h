#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pointsman::sim {

// From 64-bit ids to small indices. Open addressing with linear probing, and erasure by shifting
// back, so that there are no tombstones. Allocates only when it grows past twice its entries.
class IdTable {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  IdTable() : cells_(kFirstSize) {}

  // The index stored for `id`, or kNone.
  [[nodiscard]] std::uint32_t find(std::uint64_t id) const {
    for (std::size_t at = home(id);; at = next(at)) {
      if (cells_[at].index == kNone || cells_[at].id == id) return cells_[at].index;
    }
  }

  // `id` must not be there yet, and `index` not be kNone.
  void insert(std::uint64_t id, std::uint32_t index) {
    if (2 * (size_ + 1) > cells_.size()) grow();
    place(id, index);
    ++size_;
  }

  // `id` must be there.
  void erase(std::uint64_t id) {
    std::size_t hole = home(id);
    while (cells_[hole].id != id || cells_[hole].index == kNone) hole = next(hole);
    // A cell further on may fill the hole if its home does not lie between the two.
    for (std::size_t at = next(hole); cells_[at].index != kNone; at = next(at)) {
      const std::size_t mask = cells_.size() - 1;
      if (((at - home(cells_[at].id)) & mask) < ((at - hole) & mask)) continue;
      cells_[hole] = cells_[at];
      hole = at;
    }
    cells_[hole] = {};
    --size_;
  }

  void clear() {
    cells_.assign(cells_.size(), {});
    size_ = 0;
  }

 private:
  static constexpr std::size_t kFirstSize = 64;  // a power of two, as every later size

  struct Cell {
    std::uint64_t id = 0;
    std::uint32_t index = kNone;
  };

  // Fibonacci hashing (Knuth, volume 3, 6.4), with the high bits folded in: ids may be counters or
  // hashes.
  [[nodiscard]] std::size_t home(std::uint64_t id) const {
    const std::uint64_t mixed = id * 0x9e3779b97f4a7c15ULL;
    return static_cast<std::size_t>(mixed ^ (mixed >> 32)) & (cells_.size() - 1);
  }
  [[nodiscard]] std::size_t next(std::size_t at) const { return (at + 1) & (cells_.size() - 1); }

  void place(std::uint64_t id, std::uint32_t index) {
    std::size_t at = home(id);
    while (cells_[at].index != kNone) at = next(at);
    cells_[at] = {id, index};
  }

  void grow() {
    std::vector<Cell> old(2 * cells_.size());
    old.swap(cells_);
    for (const Cell& cell : old) {
      if (cell.index != kNone) place(cell.id, cell.index);
    }
  }

  std::vector<Cell> cells_;
  std::size_t size_ = 0;
};

}  // namespace pointsman::sim
