#include "experiments/tuned_config.h"

#include <utility>

#include "core/options.h"

namespace pointsman::sim {
namespace {

std::string number_text(double value) {
  return to_text(OptionValue(value));
}

std::string policy_yaml(const PolicySpec& policy) {
  if (policy.options.empty()) return "policy: " + policy.preset + "\n";
  std::string text = "policy: {preset: " + policy.preset;
  for (const auto& [name, value] : policy.options) text += ", " + name + ": " + to_text(value);
  return text + "}\n";
}

std::string saturation_yaml(const SaturationLimits& limits) {
  const SaturationLimits shipped;
  std::string keys;
  const auto add = [&keys, &limits, &shipped](std::string_view name,
                                              double SaturationLimits::* member) {
    if (limits.*member == shipped.*member) return;
    keys.append(keys.empty() ? "" : ", ").append(name).append(": ");
    keys += number_text(limits.*member);
  };
  add("kv", &SaturationLimits::kv);
  add("queue", &SaturationLimits::queue);
  add("prefill_tokens", &SaturationLimits::prefill_tokens);
  return keys.empty() ? keys : "saturation: {" + keys + "}\n";
}

std::string segregation_yaml(const SegregationLimits& limits) {
  const SegregationLimits shipped;
  std::string keys;
  if (limits.long_context_tokens != shipped.long_context_tokens) {
    keys = "long_context_tokens: " + std::to_string(limits.long_context_tokens);
  }
  if (limits.long_generation_tokens != shipped.long_generation_tokens) {
    keys += (keys.empty() ? "" : ", ") + std::string("long_generation_tokens: ") +
            std::to_string(limits.long_generation_tokens);
  }
  return keys.empty() ? keys : "segregation: {" + keys + "}\n";
}

// Replicas [begin, end) as the entries of a list.
std::string replicas_yaml(const Scenario& scenario, std::size_t begin, std::size_t end,
                          const std::string& indent) {
  std::string text;
  for (std::size_t i = begin; i < end; ++i) {
    const std::string url = "http://replica-" + std::to_string(i + 1) + ":8000";
    const double weight = scenario.replicas[i].weight;
    text += indent + "- ";
    text += weight == 1 ? url : "{url: \"" + url + "\", weight: " + number_text(weight) + "}";
    text += '\n';
  }
  return text;
}

}  // namespace

std::string pools_text(const PoolSizes& pools, std::size_t replicas) {
  if (pools.total() == 0) return "none";
  return std::to_string(replicas - pools.total()) + "/" + std::to_string(pools.long_context) + "/" +
         std::to_string(pools.long_generation);
}

Scenario with_pools(const Scenario& scenario, const PoolSizes& pools) {
  Scenario changed = scenario;
  changed.segregated = pools.total() > 0;
  for (std::size_t i = 0; i < changed.replicas.size(); ++i) {
    const std::size_t from_end = changed.replicas.size() - i;
    changed.replicas[i].pool = from_end <= pools.long_generation ? PoolPurpose::kLongGeneration
                               : from_end <= pools.total()       ? PoolPurpose::kLongContext
                                                                 : PoolPurpose::kGeneral;
  }
  return changed;
}

Arm arm_of(const TunedConfig& config) {
  Arm arm;
  arm.policy = config.policy;
  arm.saturation = config.saturation;
  return arm;
}

std::string tuned_config_yaml(const TunedConfig& config, const Scenario& scenario,
                              std::string_view comment) {
  std::string text = "# ";
  text.append(comment).append("\n");
  text += policy_yaml(config.policy);
  text += saturation_yaml(config.saturation);
  const std::size_t count = scenario.replicas.size();
  const std::size_t general = count - std::min<std::size_t>(count, config.pools.total());
  if (config.pools.total() == 0) {
    return text + "replicas:\n" + replicas_yaml(scenario, 0, count, "  ");
  }
  text += segregation_yaml(scenario.balancers.segregation);
  text += "pools:\n";
  const auto pool = [&](std::string_view name, std::string_view purpose, std::size_t begin,
                        std::size_t end) {
    if (begin == end) return;
    text.append("  - name: ").append(name).append("\n");
    if (!purpose.empty()) text.append("    purpose: ").append(purpose).append("\n");
    text += "    replicas:\n" + replicas_yaml(scenario, begin, end, "      ");
  };
  const std::size_t context_end = general + config.pools.long_context;
  pool("general", "", 0, general);
  pool("long-context", "long_context", general, std::min(count, context_end));
  pool("long-generation", "long_generation", std::min(count, context_end), count);
  return text;
}

}  // namespace pointsman::sim
