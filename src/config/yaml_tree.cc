#include "config/yaml_tree.h"

#include <algorithm>
#include <exception>
#include <sstream>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

namespace pointsman {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxDepth = 16;

// Thrown out of the library's parser, and caught in parse_yaml().
struct Refusal {
  int line;
  std::string what;
};

// Builds the tree from yaml-cpp's events: its own tree loses the lines of keys, keeps a key that
// comes twice, and follows aliases.
class TreeBuilder final : public YAML::EventHandler {
 public:
  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    YamlNode node;
    node.line = mark.line + 1;
    add(std::move(node));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw Refusal{mark.line + 1, "aliases (*name) are not supported; write the value out"};
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    if (!tag.empty() && tag != "?" && tag != "!") refuse_tag(mark);
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.line = mark.line + 1;
    node.text = value;
    node.quoted = tag == "!";
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    start(YamlNode::Kind::kSequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    start(YamlNode::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { end(); }

 private:
  struct Open {
    YamlNode node;
    std::string key;  // of the member whose value comes next
    int key_line = 0;
    bool has_key = false;
  };

  static void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0) {
      throw Refusal{mark.line + 1, "anchors (&name) are not supported; write the value out"};
    }
  }
  static void refuse_tag(const YAML::Mark& mark) {
    throw Refusal{mark.line + 1, "tags (!name) are not supported"};
  }

  // Of the map that is being read, as in "pools[1].": what its keys follow.
  [[nodiscard]] std::string path() const {
    std::string path;
    for (std::size_t i = 0; i + 1 < open_.size(); ++i) {
      const Open& around = open_[i];
      if (around.node.kind == YamlNode::Kind::kSequence) {
        if (!path.empty()) path.pop_back();  // the point behind the list's key
        path += "[" + std::to_string(around.node.items.size()) + "].";
      } else {
        path += around.key + ".";
      }
    }
    return path;
  }

  void start(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
             YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    if (!tag.empty() && tag != "?") refuse_tag(mark);
    if (open_.size() >= kMaxDepth) {
      throw Refusal{mark.line + 1, "nested deeper than " + std::to_string(kMaxDepth) + " levels"};
    }
    Open open;
    open.node.kind = kind;
    open.node.line = mark.line + 1;
    open_.push_back(std::move(open));
  }
  void end() {
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    add(std::move(node));
  }

  void add(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::kSequence) {
      parent.node.items.push_back(std::move(node));
      return;
    }
    if (parent.has_key) {
      parent.node.members.push_back({std::move(parent.key), parent.key_line, std::move(node)});
      parent.has_key = false;
      return;
    }
    if (node.kind != YamlNode::Kind::kScalar) throw Refusal{node.line, "a key must be plain text"};
    for (const YamlMember& member : parent.node.members) {
      if (member.key == node.text) {
        throw Refusal{node.line, path() + node.text + ": this key comes twice (first in line " +
                                     std::to_string(member.line) + ")"};
      }
    }
    parent.key = std::move(node.text);
    parent.key_line = node.line;
    parent.has_key = true;
  }

  YamlNode root_;
  std::vector<Open> open_;
};

Error error_at(std::string_view file, int line, const std::string& what) {
  return {ErrorKind::kClient, std::string(file) + ":" + std::to_string(line) + ": " + what};
}

// Whether blanks with a tab among them begin the line (from 1); the library blames what follows.
bool indented_by_tab(std::string_view text, int line) {
  for (; line > 1 && !text.empty(); --line) {
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  const std::string_view blanks = text.substr(0, text.find_first_not_of(" \t"));
  return blanks.find('\t') != std::string_view::npos;
}

}  // namespace

Result<YamlNode> parse_yaml(std::string_view text, std::string_view file) {
  if (text.size() > kMaxBytes) return error_at(file, 1, "larger than 1 MiB");
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    const auto line =
        std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(zero), '\n');
    return error_at(file, static_cast<int>(line) + 1, "a zero byte: this is not a text file");
  }
  try {
    std::istringstream in{std::string(text)};
    YAML::Parser parser(in);
    TreeBuilder builder;
    if (!parser.HandleNextDocument(builder)) return YamlNode{};
    YamlNode root = builder.take();
    TreeBuilder second;
    if (parser.HandleNextDocument(second)) {
      return error_at(file, std::max(1, second.take().line),
                      "a second document: only one is allowed in a file");
    }
    return root;
  } catch (const Refusal& refusal) {
    return error_at(file, refusal.line, refusal.what);
  } catch (const YAML::Exception& exception) {
    const int line = exception.mark.line + 1;
    return error_at(file, line,
                    indented_by_tab(text, line)
                        ? "a tab before the text: YAML is indented with spaces"
                        : "not valid YAML: " + exception.msg);
  } catch (const std::exception& exception) {
    return error_at(file, 1, std::string("not valid YAML: ") + exception.what());
  }
}

}  // namespace pointsman
