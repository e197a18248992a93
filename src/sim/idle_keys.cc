#include "sim/idle_keys.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace pointsman::sim {
namespace {

bool comes_by_rate(const Scenario& s) {
  return s.arrivals.kind == ArrivalKind::kSemiOpen || s.arrivals.kind == ArrivalKind::kOpen;
}
bool is_closed(const Scenario& s) {
  return s.arrivals.kind == ArrivalKind::kClosed;
}
bool is_trace(const Scenario& s) {
  return s.arrivals.kind == ArrivalKind::kTrace;
}
// The closed loop that is run besides has conversations before a trace as well.
bool has_conversations(const Scenario& s) {
  return !is_trace(s) || s.measure.closed_loop_users > 0;
}
bool ends_by_requests(const Scenario& s) {
  return (!is_trace(s) && s.measure.length <= Duration{}) || s.measure.closed_loop_users > 0;
}
bool has_pools(const Scenario& s) {
  return !s.segregated || std::ranges::any_of(s.replicas, [](const ReplicaSpec& replica) {
    return replica.pool != PoolPurpose::kGeneral;
  });
}
bool polls(const Scenario& s) {
  return s.balancers.poll > Duration{};
}

constexpr const char* kConversations =
    "unless arrivals.kind is trace, whose requests come as they are";
constexpr const char* kDocuments = "where workload.document_share is above 0";
constexpr const char* kLongGenerations = "where workload.long_generation_share is above 0";
constexpr const char* kSystemPrompts = "where workload.system_prompts is above 0";
constexpr const char* kPolls = "where balancers.poll_s is above 0";

struct Rule {
  std::string_view path;  // of a key, or of a section for all that is in it
  bool (*counts)(const Scenario&);
  const char* where;  // it counts
  // A key that switches it off: where the file gives that, it is off on purpose.
  std::string_view off{};
  std::string_view arm_key{};  // of an arm, which then stands for it
};

constexpr std::array kRules = {
    Rule{"arrivals.rate", comes_by_rate, "where arrivals.kind is semi_open or open"},
    Rule{"arrivals.cv", comes_by_rate, "where arrivals.kind is semi_open or open"},
    Rule{"arrivals.users", is_closed, "where arrivals.kind is closed"},
    Rule{"arrivals.trace", is_trace, "where arrivals.kind is trace"},
    Rule{"arrivals.trace_speed", is_trace, "where arrivals.kind is trace"},
    Rule{"arrivals.trace_skip", is_trace, "where arrivals.kind is trace"},
    Rule{"arrivals.trace_requests", is_trace, "where arrivals.kind is trace"},
    Rule{"workload.first_prompt", has_conversations, kConversations},
    Rule{"workload.follow_up", has_conversations, kConversations},
    Rule{"workload.output", has_conversations, kConversations},
    Rule{"workload.turns", has_conversations, kConversations},
    Rule{"workload.turns_mean", has_conversations, kConversations},
    Rule{"workload.turns_sigma",
         [](const Scenario& s) {
           return has_conversations(s) && s.workload.turns_law == TurnsLaw::kLognormal;
         },
         "where workload.turns is lognormal, unless arrivals.kind is trace"},
    Rule{"workload.think_s", has_conversations, kConversations},
    Rule{"workload.document_share", has_conversations, kConversations},
    Rule{"workload.document_low", [](const Scenario& s) { return s.workload.document_share > 0; },
         kDocuments, "document_share"},
    Rule{"workload.document_high", [](const Scenario& s) { return s.workload.document_share > 0; },
         kDocuments, "document_share"},
    Rule{"workload.long_generation_share", has_conversations, kConversations},
    Rule{"workload.long_generation",
         [](const Scenario& s) { return s.workload.long_generation_share > 0; }, kLongGenerations,
         "long_generation_share"},
    Rule{"workload.max_tokens", has_conversations, kConversations},
    Rule{"workload.long_max_tokens",
         [](const Scenario& s) { return s.workload.long_generation_share > 0; }, kLongGenerations,
         "long_generation_share"},
    Rule{"workload.system_prompts", has_conversations, kConversations},
    Rule{"workload.system_zipf", [](const Scenario& s) { return s.workload.system_prompts > 0; },
         kSystemPrompts, "system_prompts"},
    Rule{"workload.system_share", [](const Scenario& s) { return s.workload.system_prompts > 0; },
         kSystemPrompts, "system_prompts"},
    Rule{"workload.system_prompt", [](const Scenario& s) { return s.workload.system_prompts > 0; },
         kSystemPrompts, "system_prompts"},
    Rule{"measure.requests", ends_by_requests,
         "where measure.length_s is 0 and arrivals.kind is not trace, which has "
         "arrivals.trace_requests"},
    Rule{"balancers.phase", polls, kPolls, {}, "phase"},
    Rule{"balancers.signal_delay_s",
         [](const Scenario& s) { return polls(s) || s.balancers.signal_delay <= Duration{}; },
         kPolls},
    Rule{"balancers.exchange_s",
         [](const Scenario& s) {
           return s.balancers.count > 1 || s.balancers.exchange <= Duration{};
         },
         "where balancers.count is above 1",
         {},
         "exchange_s"},
    Rule{"balancers.event_delay_s",
         [](const Scenario& s) {
           return s.balancers.index == IndexKind::kExact || s.balancers.event_delay <= Duration{};
         },
         "where balancers.index is exact",
         {},
         "event_delay_s"},
    Rule{"balancers.index_bytes",
         [](const Scenario& s) { return s.balancers.index != IndexKind::kExact; },
         "where balancers.index is own or shared"},
    Rule{
        "segregated", has_pools, "where a replica has a pool other than general", {}, "segregated"},
};

const YamlMember* find(const YamlNode& node, std::string_view key) {
  const auto found =
      std::ranges::find_if(node.members, [key](const YamlMember& one) { return one.key == key; });
  return found == node.members.end() ? nullptr : &*found;
}

void tell(int line, const std::string& path, const Rule& rule, ConfigFaults& faults) {
  faults.add(line, path, std::string("changes nothing: it counts ") + rule.where);
}

void check_arms(const YamlNode& root, const Scenario& file, const Scenario& run,
                std::span<const Arm> arms, ConfigFaults& faults) {
  const YamlMember* const list = find(root, "arms");
  if (list == nullptr) return;
  for (std::size_t i = 0; i < std::min(arms.size(), list->value.items.size()); ++i) {
    for (const Rule& rule : kRules) {
      if (rule.arm_key.empty()) continue;
      const YamlMember* const member = find(list->value.items[i], rule.arm_key);
      if (member == nullptr || rule.counts(with_arm(file, arms[i])) ||
          rule.counts(with_arm(run, arms[i]))) {
        continue;
      }
      tell(member->line, "arms[" + std::to_string(i) + "]." + member->key, rule, faults);
    }
  }
}

}  // namespace

void find_idle_keys(const YamlNode& root, const Scenario& file, const Scenario& run,
                    std::span<const Arm> arms, ConfigFaults& faults) {
  std::vector<Scenario> all{file, run};
  for (const Arm& arm : arms) {
    all.push_back(with_arm(file, arm));
    all.push_back(with_arm(run, arm));
  }
  for (const Rule& rule : kRules) {
    const std::size_t point = rule.path.find('.');
    const YamlMember* member = find(root, rule.path.substr(0, point));
    if (member != nullptr && point != std::string_view::npos) {
      const YamlNode& section = member->value;
      if (!rule.off.empty() && find(section, rule.off) != nullptr) continue;
      member = find(section, rule.path.substr(point + 1));
    }
    if (member == nullptr || member->value.kind == YamlNode::Kind::kNull) continue;
    if (std::ranges::any_of(all, rule.counts)) continue;
    tell(member->line, std::string(rule.path), rule, faults);
  }
  check_arms(root, file, run, arms, faults);
}

}  // namespace pointsman::sim
