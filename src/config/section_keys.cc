#include "config/section_keys.h"

namespace pointsman::schema_detail {

Error wrong(const std::string& got, const std::string& allowed, const std::string& hint) {
  return {ErrorKind::kClient, "'" + got + "' is not allowed (allowed: " + allowed +
                                  (hint.empty() ? "" : "; write " + hint) + ")"};
}

// The node's text where it is a scalar.
Result<std::string> scalar(const YamlNode& node, const std::string& expected) {
  switch (node.kind) {
    case YamlNode::Kind::kScalar:
      return node.text;
    case YamlNode::Kind::kNull:
      return Error{ErrorKind::kClient, "has no value (expected: " + expected + ")"};
    case YamlNode::Kind::kSequence:
      return Error{ErrorKind::kClient, "is a list (expected: " + expected + ")"};
    case YamlNode::Kind::kMap:
      return Error{ErrorKind::kClient, "is a map (expected: " + expected + ")"};
  }
  return Error{ErrorKind::kInternal, "unknown kind of node"};
}

std::string list_text(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) {
    if (text.size() > 1) text += ", ";
    text += item;
  }
  return text + "]";
}

}  // namespace pointsman::schema_detail
