#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace pointsman::sim {

// What a key of the rows of a report means. Keys are stable: files and other programs rely on them.
struct Definition {
  std::string_view key;  // `*` stands for any text: `p99_gain_load_*`
  std::string_view meaning;
};

// All keys but those of a run's measures (sim/run_result.h), by experiment.
struct DefinitionGroup {
  std::string_view title;
  std::span<const Definition> definitions;
};
[[nodiscard]] std::span<const DefinitionGroup> definition_groups();

// The full name or meaning of a key, measures included. Nothing where none is known, which a test
// forbids of every key that an experiment writes.
[[nodiscard]] std::optional<std::string_view> definition_of(std::string_view key);

// docs/experiments/keys.md.
[[nodiscard]] std::string definitions_markdown();

}  // namespace pointsman::sim
