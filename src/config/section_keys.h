#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "config/schema.h"
#include "config/units.h"
#include "config/yaml_tree.h"
#include "core/registry.h"

namespace pointsman {
namespace schema_detail {

// The error of a value that is not allowed; `hint` is how it would be written right.
Error wrong(const std::string& got, const std::string& allowed, const std::string& hint = {});

// The node's text where it is a scalar.
Result<std::string> scalar(const YamlNode& node, const std::string& expected);

std::string list_text(const std::vector<std::string>& items);

// What differs between the types of values.
template <typename T>
struct Kind;

template <>
struct Kind<Duration> {
  static constexpr const char* kName = "duration";
  static std::optional<Duration> parse(const YamlNode& node) { return parse_duration(node.text); }
  static std::string text(Duration value) { return duration_text(value); }
  static std::string hint(const std::string& got) { return duration_hint(got); }
};
template <>
struct Kind<std::size_t> {
  static constexpr const char* kName = "bytes";
  static std::optional<std::size_t> parse(const YamlNode& node) { return parse_bytes(node.text); }
  static std::string text(std::size_t value) { return bytes_text(value); }
  static std::string hint(const std::string& got) { return bytes_hint(got); }
};
template <typename T>
  requires(std::is_same_v<T, std::uint32_t> || std::is_same_v<T, std::uint16_t>)
struct Kind<T> {
  static constexpr const char* kName = "integer";
  static std::optional<T> parse(const YamlNode& node) {
    const std::optional<double> number = parse_number(node.text);
    if (!number || *number != std::floor(*number) || *number < 0 ||
        *number > static_cast<double>(std::numeric_limits<T>::max())) {
      return std::nullopt;
    }
    return static_cast<T>(*number);
  }
  static std::string text(T value) { return std::to_string(value); }
  static std::string hint(const std::string&) { return ""; }
};
template <>
struct Kind<double> {
  static constexpr const char* kName = "number";
  static std::optional<double> parse(const YamlNode& node) { return parse_number(node.text); }
  static std::string text(double value) { return to_text(value); }
  static std::string hint(const std::string&) { return ""; }
};

}  // namespace schema_detail

// Adds the keys of one section to a table.
template <typename Owner, typename Section>
class SectionKeys {
 public:
  // `reach` finds the section's struct in its owner.
  SectionKeys(std::vector<Key<Owner>>& table, std::string prefix, Section& (*reach)(Owner&))
      : table_(table), prefix_(std::move(prefix)), reach_(reach) {}

  // A quantity within [low, high]. With `zero` given, 0 is allowed too and means that.
  template <typename T>
  SectionKeys& add(const char* name, T Section::* member, std::type_identity_t<T> low,
                   std::type_identity_t<T> high, const char* help, const char* zero = nullptr) {
    std::string allowed =
        schema_detail::Kind<T>::text(low) + " to " + schema_detail::Kind<T>::text(high);
    if (zero != nullptr) allowed += std::string(", or 0: ") + zero;
    return put<T>(
        name, member, schema_detail::Kind<T>::kName, allowed, help,
        [low, high, allowed, zero](const YamlNode& node) -> Result<T> {
          const Result<std::string> text = schema_detail::scalar(
              node, std::string(schema_detail::Kind<T>::kName) + ", " + allowed);
          if (!text) return text.error();
          const std::optional<T> value = schema_detail::Kind<T>::parse(node);
          const auto fits = [&](const std::optional<T>& one) {
            return one && ((*one >= low && *one <= high) || (zero != nullptr && *one == T{}));
          };
          if (fits(value)) return *value;
          std::string hint = value ? std::string() : schema_detail::Kind<T>::hint(*text);
          YamlNode hinted = node;
          hinted.text = hint;
          if (!fits(schema_detail::Kind<T>::parse(hinted))) hint.clear();
          return schema_detail::wrong(
              *text, std::string(schema_detail::Kind<T>::kName) + ", " + allowed, hint);
        },
        [](const T& value) { return schema_detail::Kind<T>::text(value); });
  }

  SectionKeys& add(const char* name, bool Section::* member, const char* help) {
    return put<bool>(
        name, member, "boolean", "true | false", help,
        [](const YamlNode& node) -> Result<bool> {
          const Result<std::string> text = schema_detail::scalar(node, "true | false");
          if (!text) return text.error();
          if (*text != "true" && *text != "false")
            return schema_detail::wrong(*text, "true | false");
          return *text == "true";
        },
        [](bool value) { return std::string(value ? "true" : "false"); });
  }

  // Text that `valid` accepts; `type` and `allowed` say in words what that is.
  SectionKeys& add(const char* name, std::string Section::* member, const char* type,
                   const char* allowed, bool (*valid)(const std::string&), const char* help) {
    const std::string expected =
        *allowed == '\0' ? std::string(type) : std::string(type) + ", " + allowed;
    return put<std::string>(
        name, member, type, allowed, help,
        [expected, valid](const YamlNode& node) -> Result<std::string> {
          Result<std::string> text = schema_detail::scalar(node, expected);
          if (text && !valid(*text)) return schema_detail::wrong(*text, expected);
          return text;
        },
        [](const std::string& value) { return value.empty() ? "\"\"" : value; });
  }

  SectionKeys& add(const char* name, std::vector<std::string> Section::* member, const char* type,
                   const char* allowed, bool (*valid)(const std::string&), const char* help) {
    const std::string expected = std::string(type) + ", " + allowed;
    return put<std::vector<std::string>>(
        name, member, type, allowed, help,
        [expected, valid](const YamlNode& node) -> Result<std::vector<std::string>> {
          if (node.kind != YamlNode::Kind::kSequence) {
            return Error{ErrorKind::kClient, "is not a list (expected: " + expected + ")"};
          }
          std::vector<std::string> items;
          for (const YamlNode& item : node.items) {
            const Result<std::string> text = schema_detail::scalar(item, expected);
            if (!text) return Error{ErrorKind::kClient, "an entry " + text.error().message};
            if (!valid(*text)) return schema_detail::wrong(*text, expected);
            items.push_back(*text);
          }
          return items;
        },
        &schema_detail::list_text);
  }

  SectionKeys& secret() {
    Key<Owner>& key = table_.back();
    key.secret = true;
    // What is wrong with a secret is told without it.
    key.read = [read = std::move(key.read), allowed = key.allowed](
                   Owner& owner, const YamlNode& node) -> Result<void> {
      if (Result<void> done = read(owner, node); done) return done;
      return Error{ErrorKind::kClient,
                   "has a value that is not allowed, and is a secret (expected: " + allowed + ")"};
    };
    return *this;
  }

 private:
  template <typename T, typename Read, typename Text>
  SectionKeys& put(const char* name, T Section::* member, std::string type, std::string allowed,
                   const char* help, const Read& read, const Text& text) {
    Key<Owner> key;
    key.path = prefix_ + name;
    key.type = std::move(type);
    key.allowed = std::move(allowed);
    key.help = help;
    key.read = [reach = reach_, member, read](Owner& owner, const YamlNode& node) -> Result<void> {
      auto value = read(node);
      if (!value) return value.error();
      reach(owner).*member = std::move(*value);
      return {};
    };
    key.text = [reach = reach_, member, text](const Owner& owner) -> std::string {
      // The section is found by the same function for reading and for writing.
      return text(reach(const_cast<Owner&>(owner)).*member);  // NOLINT(*-const-cast)
    };
    table_.push_back(std::move(key));
    return *this;
  }

  std::vector<Key<Owner>>& table_;
  std::string prefix_;
  Section& (*reach_)(Owner&);
};

}  // namespace pointsman
