#pragma once

#include <string_view>

#include "core/context.h"
#include "core/options.h"
#include "core/stage.h"

namespace pointsman {

// Leaves out replicas whose engine is full by its own words: live KV use or reported waiting beyond
// the saturation limits. What the router itself has sent is not looked at: a cost that weighs it
// does that better than a limit. If all are full, all stay.
class NotFull final : public Filter {
 public:
  static constexpr std::string_view kType = "not_full";
  static constexpr std::string_view kSummary =
      "leaves out replicas with KV use or reported waiting beyond the saturation limits";

  using Options = NoOptions;

  explicit NotFull(const Options&) {}

  void apply(Context& context, Candidates& candidates) override;
};

}  // namespace pointsman
