#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>

#include "core/options.h"
#include "core/session_ring.h"
#include "core/stage.h"

namespace pointsman {

struct BoundedHashOptions {
  double balance = 1.25;

  static constexpr auto fields() {
    return std::tuple{
        Field{"balance", &BoundedHashOptions::balance, 0.0, 100.0,
              "a replica's most requests in flight as a multiple of its fair share; beyond it the "
              "next one is taken; 0: no bound"},
    };
  }
};

// Names candidates in the order of a consistent hash of the request's session, or of the beginning
// of its prompt; a request with neither goes anywhere.
//
// Bounded load (Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads", SODA
// 2018): a replica takes the request only while it then has at most
//   ceil(balance * (in flight in the pool + 1) * its share of the weight)
// requests in flight; else the next distinct replica in the order does. KV use and queues are not
// looked at.
template <typename Table>
class BoundedHash : public Sampler {
 public:
  using Options = BoundedHashOptions;

  explicit BoundedHash(const Options& options) : options_(options) {}

  [[nodiscard]] Needs needs() const override { return {.blocks = true, .session = true}; }
  void sample(Context& context, Candidates& candidates) override;

 private:
  Options options_;
  TableCache<Table> tables_;
};

// On a ring of at least 1,024 points, in proportion to weight.
class Ring final : public BoundedHash<HashRing> {
 public:
  static constexpr std::string_view kType = "ring";
  static constexpr std::string_view kSummary =
      "consistent hash on a ring of 1,024 points, with bounded load";
  using BoundedHash::BoundedHash;
};

// In a Maglev table of 65,537 entries: more even than the ring, slightly more keys move.
class Maglev final : public BoundedHash<MaglevTable> {
 public:
  static constexpr std::string_view kType = "maglev";
  static constexpr std::string_view kSummary =
      "consistent hash by a Maglev table of 65,537 entries, with bounded load";
  using BoundedHash::BoundedHash;
};

}  // namespace pointsman
