#include "admin/pushed_report.h"

#include <array>
#include <string_view>

#include "config/policy_reader.h"
#include "config/units.h"

namespace pointsman {
namespace {

struct Quantity {
  std::string_view name;
  double high;  // from 0 to here
  void (*set)(Signals&, double);
};

constexpr std::array kQuantities = {
    Quantity{"kv_usage", 1.0,
             [](Signals& signals, double value) { signals.kv_usage = static_cast<float>(value); }},
    Quantity{"running", 1e6,
             [](Signals& signals, double value) { signals.running = static_cast<float>(value); }},
    Quantity{"waiting", 1e6,
             [](Signals& signals, double value) { signals.waiting = static_cast<float>(value); }},
    Quantity{
        "queued_tokens", 1e12,
        [](Signals& signals, double value) { signals.queued_tokens = static_cast<float>(value); }},
    Quantity{"prefix_hit_rate", 1.0,
             [](Signals& signals, double value) {
               signals.prefix_hit_rate = static_cast<float>(value);
             }},
    Quantity{"kv_capacity_tokens", 1e12,
             [](Signals& signals, double value) {
               signals.kv_capacity_tokens = static_cast<std::uint64_t>(value);
             }},
    Quantity{"block_tokens", 65'536,
             [](Signals& signals, double value) {
               signals.block_tokens = static_cast<std::uint32_t>(value);
             }},
};

Error wrong(const std::string& key, const std::string& what) {
  return {ErrorKind::kClient, key + ": " + what};
}

std::optional<double> number_of(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar || node.quoted) return std::nullopt;
  return parse_number(node.text);
}

}  // namespace

Result<PushedReport> read_pushed_report(const YamlNode& body) {
  if (body.kind != YamlNode::Kind::kMap) {
    return Error{ErrorKind::kClient, "the body is not a JSON object"};
  }
  PushedReport report;
  bool any = false;
  for (const YamlMember& member : body.members) {
    if (member.key == "replica") {
      if (member.value.kind != YamlNode::Kind::kScalar) return wrong("replica", "is not a text");
      report.replica = member.value.text;
      continue;
    }
    if (member.key == "timestamp") {
      report.timestamp = number_of(member.value);
      if (!report.timestamp || *report.timestamp < 0 || *report.timestamp > 1e11) {
        return wrong("timestamp", "is not a number of seconds since 1970");
      }
      continue;
    }
    const Quantity* quantity = nullptr;
    std::vector<std::string> known = {"replica", "timestamp"};
    for (const Quantity& one : kQuantities) {
      if (one.name == member.key) quantity = &one;
      known.emplace_back(one.name);
    }
    if (quantity == nullptr) return wrong(member.key, unknown_key_text(member.key, known));
    if (member.value.kind == YamlNode::Kind::kNull) continue;
    const std::optional<double> value = number_of(member.value);
    if (!value || *value < 0 || *value > quantity->high) {
      return wrong(member.key, "is not a number from 0 to " + to_text(quantity->high));
    }
    quantity->set(report.signals, *value);
    any = true;
  }
  if (report.replica.empty()) return wrong("replica", "is missing");
  if (!any) return Error{ErrorKind::kClient, "no signal is given"};
  return report;
}

}  // namespace pointsman
