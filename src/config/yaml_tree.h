#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pointsman {

struct YamlMember;

// A YAML document as a plain tree that remembers its lines.
struct YamlNode {
  enum class Kind : std::uint8_t { kNull, kScalar, kSequence, kMap };
  Kind kind = Kind::kNull;
  int line = 0;  // from 1
  std::string text;
  bool quoted = false;  // a quoted scalar is text, whatever it looks like
  std::vector<YamlNode> items;
  std::vector<YamlMember> members;  // in the order of the file
};

struct YamlMember {
  std::string key;
  int line = 0;
  YamlNode value;
};

// Reads one document. Errors name the file and the line, as in "pointsman.yaml:7: …". Refused,
// since no configuration needs them and each can surprise: a key twice in the same map, anchors and
// aliases, tags, keys that are not plain text, more than one document, more than 1 MiB, nesting
// deeper than 16.
Result<YamlNode> parse_yaml(std::string_view text, std::string_view file);

}  // namespace pointsman
