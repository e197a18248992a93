#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/yaml_tree.h"
#include "core/registry.h"

namespace pointsman {

// What is wrong with a file, each with its line.
class ConfigFaults {
 public:
  // `file` is empty where there is none, and then no line is told.
  explicit ConfigFaults(std::string_view file) : file_(file) {}

  // `path` may be empty.
  void add(int line, const std::string& path, const std::string& what) {
    faults_.emplace_back(line, (path.empty() ? path : path + ": ") + what);
  }
  [[nodiscard]] bool empty() const { return faults_.empty(); }
  [[nodiscard]] std::string place(int line) const { return file_ + ":" + std::to_string(line); }
  // All of them, in the order of their lines.
  [[nodiscard]] Error error() const;

 private:
  std::string file_;
  std::vector<std::pair<int, std::string>> faults_;
};

// "unknown key (known: a, b; nearest: b)"
std::string unknown_key_text(const std::string& key, const std::vector<std::string>& known);

// Reads a policy: a preset's name, a map with `preset` and its options, or a map with stages. All
// names, types and ranges are checked against the registry; what is wrong goes to `faults`.
PolicySpec read_policy(const YamlNode& node, const std::string& path, const Registry& registry,
                       ConfigFaults& faults);

}  // namespace pointsman
