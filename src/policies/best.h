#pragma once

#include <string_view>

#include "core/options.h"
#include "core/stage.h"

namespace pointsman {

// The best candidate: the highest score, or the lowest cost by its keys and their tolerances; level
// ones by chance. After it come fall-backs in plain order of score or keys.
class Best final : public Picker {
 public:
  static constexpr std::string_view kType = "best";
  static constexpr std::string_view kSummary = "highest score or lowest cost; ties by chance";

  using Options = NoOptions;

  explicit Best(const Options&) {}

  std::size_t pick(Context& context, std::span<const ReplicaIndex> candidates,
                   const Ranking& ranking, std::span<ReplicaIndex> order) override;

 private:
  template <typename Level>
  void collect_level(std::uint32_t size, Level&& level);

  std::vector<std::uint32_t> level_;  // scratch: places still level
};

}  // namespace pointsman
