#pragma once

#include <string_view>
#include <tuple>

#include "core/context.h"
#include "core/options.h"
#include "core/stage.h"

namespace pointsman {

// Compares replicas by the room in their KV caches: the lower live KV reading; within the tolerance
// the shorter live queue; then fewer charged tokens; then fewer own requests in flight; then
// chance.
//
// A fresh reading below saturation comes before none at all, and a saturated replica last; among
// saturated ones that are level in all this the least used. Two without a reading are compared by
// live queue, then by own requests in flight. Weights are not applied: a KV reading is relative to
// its own capacity already.
class LeastKv final : public CostScorer {
 public:
  static constexpr std::string_view kType = "least_kv";
  static constexpr std::string_view kSummary =
      "live KV reading, then live queue, charged tokens, requests in flight";

  struct Options {
    bool live = true;
    double tolerance = 0.02;

    static constexpr auto fields() {
      return std::tuple{
          Field{"live", &Options::live,
                "adds the prompts sent since the newest report; off: the bare report"},
          Field{"tolerance", &Options::tolerance, 0.0, 1.0,
                "KV readings this near to the lowest count as equal"},
      };
    }
  };

  explicit LeastKv(const Options& options) : options_(options) {}

  void cost(const Context& context, std::span<const ReplicaIndex> candidates,
            std::span<CostKeys> out) override;
  [[nodiscard]] CostKeys tolerance() const override { return {0, options_.tolerance}; }

 private:
  Options options_;
};

}  // namespace pointsman
