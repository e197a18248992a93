#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>

#include "core/options.h"
#include "core/stage.h"
#include "policies/draw.h"

namespace pointsman {

// How many candidates are compared: all, or some drawn by chance in proportion to their weights
// (two are enough to even out load, and make many routers choose differently: Mitzenmacher, "The
// Power of Two Choices in Randomized Load Balancing", 2001).
//
// Saturated replicas are left out while there are others; if all are saturated, all are compared.
class Sample final : public Sampler {
 public:
  static constexpr std::string_view kType = "sample";
  static constexpr std::string_view kSummary =
      "compares all candidates or a few drawn by chance, unsaturated ones while there are any";

  struct Options {
    std::uint32_t choices = 0;
    bool keep_holder = false;
    bool avoid_saturated = true;

    static constexpr auto fields() {
      return std::tuple{
          Field{"choices", &Options::choices, 0U, 16U,
                "replicas drawn by chance and compared; 0 compares all"},
          Field{"keep_holder", &Options::keep_holder,
                "the replica that holds most of the prompt's prefix is compared too"},
          Field{"avoid_saturated", &Options::avoid_saturated,
                "saturated replicas are compared only if all are"},
      };
    }
  };

  explicit Sample(const Options& options) : options_(options) {}

  void sample(Context& context, Candidates& candidates) override;

 private:
  Options options_;
  Draw draw_;
  std::vector<ReplicaIndex> chosen_;
};

}  // namespace pointsman
