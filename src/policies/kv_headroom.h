#pragma once

#include <algorithm>
#include <string_view>
#include <tuple>

#include "core/context.h"
#include "core/options.h"
#include "core/stage.h"

namespace pointsman {

// The room left in the replica's KV cache: 1 − live KV use. Without a fresh reading `unknown`:
// below every unsaturated replica that speaks, above a full one.
class KvHeadroom final : public Scorer {
 public:
  static constexpr std::string_view kType = "kv_headroom";
  static constexpr std::string_view kSummary = "room in the KV cache: 1 - live KV use";

  struct Options {
    double unknown = 0.05;

    static constexpr auto fields() {
      return std::tuple{
          Field{"unknown", &Options::unknown, 0.0, 1.0, "score without a fresh reading"},
      };
    }
  };

  explicit KvHeadroom(const Options& options) : options_(options) {}

  void score(const Context& context, std::span<const ReplicaIndex> candidates,
             std::span<float> out) override {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const KvReading kv = live_kv(context, candidates[i]);
      out[i] = static_cast<float>(kv.known ? std::clamp(1 - kv.usage, 0.0, 1.0) : options_.unknown);
    }
  }

 private:
  Options options_;
};

}  // namespace pointsman
