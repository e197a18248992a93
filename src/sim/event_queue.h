#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/time.h"

namespace pointsman::sim {

// Events in the order of their times; those of the same time in the order in which they were put
// in, so that a run is the same every time. A heap with four children per node: one cache line
// holds two entries and a half, and the tree is half as deep as a binary one. 24 bytes an entry.
//
// `Kind` is an enumeration of at most 256 values.
template <typename Kind>
class EventQueue {
 public:
  struct Event {
    TimePoint at;
    Kind kind;
    std::uint32_t subject;  // of the kind's own numbering
    std::uint32_t version;  // lets the owner tell that an entry was superseded
  };

  void put(TimePoint at, Kind kind, std::uint32_t subject, std::uint32_t version = 0) {
    const std::uint64_t order = next_++ << 8 | static_cast<std::uint64_t>(kind);
    entries_.push_back({at, order, subject, version});
    std::size_t i = entries_.size() - 1;
    const Entry moved = entries_[i];
    while (i > 0) {
      const std::size_t parent = (i - 1) / kArity;
      if (!(moved < entries_[parent])) break;
      entries_[i] = entries_[parent];
      i = parent;
    }
    entries_[i] = moved;
  }

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  // Of the earliest event; not where the queue is empty.
  [[nodiscard]] TimePoint next_time() const { return entries_.front().at; }

  // The earliest event; not where the queue is empty.
  Event take() {
    const Entry first = entries_.front();
    const Entry last = entries_.back();
    entries_.pop_back();
    if (!entries_.empty()) sink(last);
    return {first.at, static_cast<Kind>(first.order & 0xff), first.subject, first.version};
  }

 private:
  static constexpr std::size_t kArity = 4;

  struct Entry {
    TimePoint at;
    std::uint64_t order;  // number of the entry, then its kind
    std::uint32_t subject;
    std::uint32_t version;
    bool operator<(const Entry& other) const {
      return at != other.at ? at < other.at : order < other.order;
    }
  };

  // Puts `moved` where the root is missing.
  void sink(const Entry& moved) {
    const std::size_t size = entries_.size();
    std::size_t i = 0;
    for (;;) {
      const std::size_t first = i * kArity + 1;
      if (first >= size) break;
      std::size_t best = first;
      const std::size_t end = std::min(first + kArity, size);
      for (std::size_t child = first + 1; child < end; ++child) {
        if (entries_[child] < entries_[best]) best = child;
      }
      if (!(entries_[best] < moved)) break;
      entries_[i] = entries_[best];
      i = best;
    }
    entries_[i] = moved;
  }

  std::vector<Entry> entries_;
  std::uint64_t next_ = 0;
};

}  // namespace pointsman::sim
