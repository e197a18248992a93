#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "sim/run_result.h"
#include "sim/scenario.h"

namespace pointsman::sim {

// The measured requests of a run: 24 bytes each, so that percentiles are those of all of them and
// not of a sketch.
class RequestLog {
 public:
  struct Entry {
    Duration ttft{};  // without the overhead that the measure adds
    Duration e2e{};
    std::uint32_t prompt_tokens = 0;
    std::uint32_t output_tokens : 31 = 0;
    std::uint32_t is_long : 1 = 0;  // by prompt or by output limit
  };
  static_assert(sizeof(Entry) == 24);

  void reserve(std::size_t count) { entries_.reserve(count); }
  void add(const Entry& entry) { entries_.push_back(entry); }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

  // Writes the measures of times, and the goodput over `seconds` of arrivals; 0: no rate is
  // measured. Reorders the entries.
  void measure(const MeasureSpec& spec, double seconds, RunResult& result);

 private:
  std::vector<Entry> entries_;
};

}  // namespace pointsman::sim
