#include "feeds/pushed_signals.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <simdjson.h>

#include "core/options.h"
#include "feeds/target.h"
#include "signals/engine_metrics.h"

namespace pointsman {
namespace {

// How far ahead of ours a sender's clock may be.
constexpr double kClockSlack = 5;

struct Report {
  ReplicaIndex replica = kNoReplica;
  Duration age{};
  Signals signals;
  std::optional<bool> awake;
};

Error wrong(std::string text) {
  return Error{ErrorKind::kClient, std::move(text)};
}

Result<void> set_signal(Report& report, std::string_view name, double value) {
  const std::optional<EngineSignal> signal = engine_signal(name);
  const bool share = signal == EngineSignal::kKvUsage || signal == EngineSignal::kPrefixHitRate;
  const double highest = share ? 1.0 : 1e12;
  if (!(value >= 0 && value <= highest)) {
    return wrong("signals." + std::string(name) + ": " + to_text(value) + " is out of range");
  }
  Signals& signals = report.signals;
  const auto number = static_cast<float>(value);
  if (signal == EngineSignal::kKvUsage) {
    signals.kv_usage = number;
  } else if (signal == EngineSignal::kRunning) {
    signals.running = number;
  } else if (signal == EngineSignal::kWaiting) {
    signals.waiting = number;
  } else if (signal == EngineSignal::kQueuedTokens) {
    signals.queued_tokens = number;
  } else if (signal == EngineSignal::kPrefixHitRate) {
    signals.prefix_hit_rate = number;
  } else if (signal == EngineSignal::kCapacityTokens) {
    signals.kv_capacity_tokens = static_cast<std::uint64_t>(value);
  } else if (signal == EngineSignal::kBlockTokens) {
    signals.block_tokens = static_cast<std::uint32_t>(std::min(value, 1e6));
  } else if (signal == EngineSignal::kAwake) {
    report.awake = value > 0;
  } else {
    return wrong("signals." + std::string(name) +
                 ": unknown (known: kv_usage, running, waiting, queued_tokens, prefix_hit_rate, "
                 "kv_capacity_tokens, block_tokens, awake)");
  }
  return {};
}

Result<Report> read_report(const simdjson::dom::element& json, const Targets& targets,
                           Duration max_age, double unix_now) {
  Report report;
  simdjson::dom::object object;
  if (json.get(object) != simdjson::SUCCESS)
    return wrong("expected an object with replica, signals");
  for (const auto& [key, value] : object) {
    if (key != "replica" && key != "timestamp" && key != "signals") {
      return wrong("unknown key '" + std::string(key) + "' (known: replica, timestamp, signals)");
    }
  }
  std::string_view url;
  if (object["replica"].get(url) != simdjson::SUCCESS) return wrong("replica: expected its URL");
  const auto target =
      std::ranges::find_if(targets, [url](const auto& entry) { return entry.second->url == url; });
  if (target == targets.end()) return wrong("replica: no replica " + std::string(url));
  report.replica = target->first;

  double read_at = unix_now;
  const auto timestamp = object["timestamp"];
  if (timestamp.error() == simdjson::SUCCESS && timestamp.get(read_at) != simdjson::SUCCESS) {
    return wrong("timestamp: expected seconds of Unix time");
  }
  const double age = unix_now - read_at;
  if (!(age >= -kClockSlack)) return wrong("timestamp: lies in the future; check the clocks");
  if (age > to_seconds(max_age)) {
    return wrong("timestamp: older than " + to_text(to_seconds(max_age)) +
                 " s, which is as good as no signals");
  }
  report.age = from_seconds(std::max(age, 0.0));

  simdjson::dom::object signals;
  if (object["signals"].get(signals) != simdjson::SUCCESS || signals.size() == 0) {
    return wrong("signals: expected an object with at least one signal");
  }
  for (const auto& [name, value] : signals) {
    double number = 0;
    if (value.get(number) != simdjson::SUCCESS) {
      return wrong("signals." + std::string(name) + ": expected a number");
    }
    if (const Result<void> set = set_signal(report, name, number); !set) return set.error();
  }
  return report;
}

}  // namespace

Result<void> take_pushed_signals(std::string_view json, Fleet& fleet, SharedRouter& router,
                                 Duration max_age, TimePoint now, double unix_now) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (parser.parse(json.data(), json.size()).get(root) != simdjson::SUCCESS) {
    return wrong("the body is not JSON");
  }
  const Targets targets = fleet.replicas();
  std::vector<Report> reports;
  simdjson::dom::array several;
  if (root.get(several) == simdjson::SUCCESS) {
    for (const simdjson::dom::element item : several) {
      Result<Report> report = read_report(item, targets, max_age, unix_now);
      if (!report) return report.error();
      reports.push_back(*std::move(report));
    }
  } else {
    Result<Report> report = read_report(root, targets, max_age, unix_now);
    if (!report) return report.error();
    reports.push_back(*std::move(report));
  }
  for (Report& report : reports) {
    report.signals.observed_at = now - report.age;
    report.signals.max_age = max_age;
    router.with([&](Router& core) {
      report.signals.window = core.report_opened(report.replica);
      core.report_applied(report.replica, report.signals);
    });
    if (report.awake) fleet.set_awake(report.replica, *report.awake);
  }
  return {};
}

}  // namespace pointsman
