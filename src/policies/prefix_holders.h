#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/options.h"
#include "core/stage.h"
#include "policies/draw.h"
#include "policies/prefix_table.h"

namespace pointsman {

// Names the replicas that were lately sent a prompt with the same beginning, and that are not
// saturated; else some drawn by chance, of which the chosen one is remembered.
//
// The key is the hash of the first `tokens` tokens, or of the last whole block of a shorter prompt.
// A look-up tries its own block boundaries from the longest down, so that a longer prompt finds
// what a shorter one left. A replica that is not believed to cache anything is no holder.
class PrefixHolders final : public Sampler {
 public:
  static constexpr std::string_view kType = "prefix_holders";
  static constexpr std::string_view kSummary =
      "replicas lately sent a prompt with the same beginning; others if all of them are saturated";

  struct Options {
    std::uint32_t tokens = 512;
    std::uint32_t keys = 100'000;
    std::uint32_t choices = 2;

    static constexpr auto fields() {
      return std::tuple{
          Field{"tokens", &Options::tokens, 16U, 8'192U,
                "tokens of the prompt's beginning that make the key"},
          Field{"keys", &Options::keys, 1U, 10'000'000U,
                "keys remembered, least recently used first out"},
          Field{"choices", &Options::choices, 1U, 16U,
                "replicas drawn by chance and compared where no holder can be used"},
      };
    }
  };

  explicit PrefixHolders(const Options& options) : options_(options), table_(options.keys) {}

  [[nodiscard]] Needs needs() const override { return {.blocks = true, .session = false}; }
  void sample(Context& context, Candidates& candidates) override;
  void picked(const Context& context, ReplicaIndex replica) override;
  void forget(ReplicaIndex replica) override { table_.forget(replica); }

 private:
  // How many of the prompt's blocks make its key; 0: it has none.
  [[nodiscard]] std::uint32_t key_blocks(const Features& features) const;

  Options options_;
  PrefixTable table_;
  Draw draw_;
  std::vector<ReplicaIndex> usable_;  // scratch
};

}  // namespace pointsman
