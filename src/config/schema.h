#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/config.h"
#include "config/yaml_tree.h"

namespace pointsman {

// One key of the configuration file, declared once: reading, range and unknown-key errors, the list
// that `pointsman check` prints and docs/config.md all come from it.
template <typename Owner>
struct Key {
  std::string path;     // "timeouts.connect": what stands before the point is the section
  std::string type;     // for people: "duration", "integer", …
  std::string allowed;  // for people: "1ms to 1h"; empty: anything of the type
  std::string help;
  bool secret = false;  // never shown
  // Takes the value over, or says what is wrong with it, without the place.
  std::function<Result<void>(Owner&, const YamlNode&)> read;
  // The value as the file would give it.
  std::function<std::string(const Owner&)> text;
};

// All keys but those with a structure of their own: policy, pools, replicas, tokenizers (see
// load.h).
const std::vector<Key<Config>>& config_keys();
const std::vector<Key<ReplicaConfig>>& replica_keys();
const std::vector<Key<TokenizerConfig>>& tokenizer_keys();

// What a section is about, in one sentence.
struct Section {
  std::string_view name;
  std::string_view help;
};
// In the order of config_keys().
std::span<const Section> config_sections();

}  // namespace pointsman
