#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/engine_config.h"

namespace pointsman::sim {

// The requests of an engine that decode, oldest first. Each step gives every one of them exactly
// one token, so what changes with a step is a counter and not the requests: a step costs the same
// however many they are.
//
// A request's *context* is its tokens with KV entries after the steps that are done; while a step
// is under way, its blocks already cover the token that the step computes.
class DecodeGroup {
 public:
  // The youngest: a request at the beginning of its decode, which ends with the `left`-th step from
  // now on. Between steps only.
  void add(std::uint32_t request, std::uint32_t context, std::uint32_t left);
  void remove(std::size_t at);
  void clear();

  // The step under way is `count` steps further on.
  void skip(std::uint32_t count) { done_ += count; }
  void begin_step() { in_step_ = 1; }
  // The members whose last step this was must have been removed.
  void end_step() {
    done_ += in_step_;
    in_step_ = 0;
  }

  [[nodiscard]] std::size_t size() const { return requests_.size(); }
  [[nodiscard]] bool empty() const { return requests_.empty(); }
  // The owner's index for the member.
  [[nodiscard]] std::uint32_t request(std::size_t at) const { return requests_[at]; }
  [[nodiscard]] std::size_t find(std::uint32_t request) const;

  [[nodiscard]] std::uint32_t context(std::size_t at) const {
    return static_cast<std::uint32_t>(offsets_[at] + done_);
  }
  // Tokens that its blocks have to cover now.
  [[nodiscard]] std::uint32_t covered(std::size_t at) const {
    return static_cast<std::uint32_t>(offsets_[at] + done_ + in_step_);
  }
  // Steps to go, with the one under way.
  [[nodiscard]] std::uint32_t left(std::size_t at) const {
    return static_cast<std::uint32_t>(ends_[at] - done_);
  }

  // The oldest member, from the `from`-th on, for which the step under way is the last; size()
  // where there is none.
  [[nodiscard]] std::size_t find_ending(std::size_t from) const;

  // Over all members; of an empty group 0, and steps without end.
  [[nodiscard]] std::uint64_t total_context() const { return offset_sum_ + size() * done_; }
  [[nodiscard]] std::uint32_t steps_to_first_end() const {
    return empty() ? UINT32_MAX : static_cast<std::uint32_t>(first_end_ - done_);
  }

  // Blocks that all members together need for the next step, and for the `count` after it. The step
  // under way, if there is one, is the next.
  [[nodiscard]] std::uint64_t blocks_for_next_step() const;
  [[nodiscard]] std::uint64_t blocks_for_further_steps(std::uint32_t count) const;

 private:
  std::uint64_t done_ = 0;     // steps
  std::uint64_t in_step_ = 0;  // 1 while one is under way
  std::vector<std::uint32_t> requests_;
  std::vector<std::uint64_t> offsets_;  // context − done_, modulo 2^64
  std::vector<std::uint64_t> ends_;     // done_ after its last step
  std::uint64_t offset_sum_ = 0;
  std::uint64_t first_end_ = 0;
  // How many members have that offset modulo kBlockTokens: they need a block in the same steps.
  std::array<std::uint32_t, kBlockTokens> residues_{};
};

}  // namespace pointsman::sim
