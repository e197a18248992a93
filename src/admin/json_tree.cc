#include "admin/json_tree.h"

#include <algorithm>
#include <string>
#include <utility>

#include <simdjson.h>

namespace pointsman {
namespace {

constexpr int kMaxDepth = 16;

class Converter {
 public:
  YamlNode convert(const simdjson::dom::element& element, int depth) {
    YamlNode node;
    node.line = 1;
    if (depth > kMaxDepth) {
      fault_ = "nested deeper than " + std::to_string(kMaxDepth) + " levels";
      return node;
    }
    switch (element.type()) {
      case simdjson::dom::element_type::ARRAY:
        node.kind = YamlNode::Kind::kSequence;
        for (const simdjson::dom::element item : simdjson::dom::array(element)) {
          node.items.push_back(convert(item, depth + 1));
        }
        break;
      case simdjson::dom::element_type::OBJECT:
        node.kind = YamlNode::Kind::kMap;
        for (const auto& field : simdjson::dom::object(element)) {
          add(std::string(field.key), convert(field.value, depth + 1), node);
        }
        break;
      case simdjson::dom::element_type::STRING:
        node.kind = YamlNode::Kind::kScalar;
        node.text = std::string(std::string_view(element));
        node.quoted = true;
        break;
      case simdjson::dom::element_type::NULL_VALUE:
        break;
      default:  // Numbers and switches: as they are written.
        node.kind = YamlNode::Kind::kScalar;
        node.text = simdjson::minify(element);
        break;
    }
    return node;
  }

  [[nodiscard]] const std::string& fault() const { return fault_; }

 private:
  void add(std::string key, YamlNode value, YamlNode& node) {
    const bool twice = std::any_of(node.members.begin(), node.members.end(),
                                   [&key](const YamlMember& member) { return member.key == key; });
    if (twice) fault_ = key + ": this key comes twice";
    node.members.push_back({std::move(key), 1, std::move(value)});
  }

  std::string fault_;
};

}  // namespace

Result<YamlNode> parse_json_tree(std::string_view text) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (const auto error = parser.parse(simdjson::padded_string(text)).get(root)) {
    return Error{ErrorKind::kClient,
                 std::string("the body is not valid JSON: ") + simdjson::error_message(error)};
  }
  Converter converter;
  YamlNode tree = converter.convert(root, 0);
  if (!converter.fault().empty()) return Error{ErrorKind::kClient, converter.fault()};
  return tree;
}

}  // namespace pointsman
