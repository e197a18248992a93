#include "demo_report.h"

#include <algorithm>
#include <cstdio>

#include "base/json_text.h"

namespace pointsman {
namespace {

template <typename... Values>
std::string format(const char* pattern, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

std::string interval_text(const sim::QuantileInterval& interval) {
  return format("%6.2f [%.2f, %.2f]", interval.value, interval.low, interval.high);
}

std::string interval_json(const sim::QuantileInterval& interval) {
  return format(R"({"value":%.4f,"low":%.4f,"high":%.4f})", interval.value, interval.low,
                interval.high);
}

}  // namespace

DemoRow make_demo_row(const DemoArm& arm, DemoResult result, std::uint64_t seed) {
  DemoRow row{.arm = arm, .result = std::move(result), .p50 = {}, .p99 = {}};
  std::vector<sim::GroupedValue> ttft;
  for (const LoadSample& sample : row.result.load.samples) {
    ttft.push_back({sample.conversation, sample.ttft_s});
  }
  row.p50 = sim::quantile_interval(ttft, 0.50, seed);
  row.p99 = sim::quantile_interval(ttft, 0.99, seed);
  const LoadResult& load = row.result.load;
  if (load.window_s > 0) {
    row.completions_per_s = static_cast<double>(load.window_completions) / load.window_s;
  }
  return row;
}

std::string demo_table(const std::vector<DemoRow>& rows) {
  std::string text = format("%-32s %-22s %-22s %8s  %s\n", "policy", "  p50 TTFT, s",
                            "  p99 TTFT, s", "hit rate", "completions/s");
  const double first = rows.empty() ? 0 : rows.front().completions_per_s;
  for (const DemoRow& row : rows) {
    text += format("%-32s %-22s %-22s %6.0f %%  %5.2f", row.arm.title.c_str(),
                   interval_text(row.p50).c_str(), interval_text(row.p99).c_str(),
                   100 * row.result.hit_rate, row.completions_per_s);
    if (first > 0) text += format(" (%.2fx)", row.completions_per_s / first);
    if (row.result.load.failed > 0) {
      text += format("  %llu FAILED", static_cast<unsigned long long>(row.result.load.failed));
    }
    text += '\n';
  }
  return text;
}

std::string demo_json(const std::vector<DemoRow>& rows, const DemoOptions& options) {
  std::string text = format(R"({"requests":%llu,"seed":%llu,"speed":%g,"arms":[)",
                            static_cast<unsigned long long>(options.requests),
                            static_cast<unsigned long long>(options.seed), options.speed);
  for (const DemoRow& row : rows) {
    if (text.back() == '}') text += ',';
    const DemoResult& result = row.result;
    text += R"({"name":)" + json_string(row.arm.name) + R"(,"preset":)" +
            json_string(row.arm.preset) + R"(,"ttft_p50_s":)" + interval_json(row.p50) +
            R"(,"ttft_p99_s":)" + interval_json(row.p99);
    text +=
        format(R"(,"hit_rate":%.4f,"completions_per_s":%.4f,"measured":%zu,"failed":%llu,)"
               R"("preemptions":%llu,"busy":%.4f,"lateness_s":%.5f})",
               result.hit_rate, row.completions_per_s, result.load.samples.size(),
               static_cast<unsigned long long>(result.load.failed),
               static_cast<unsigned long long>(result.preemptions), result.busy, result.lateness_s);
  }
  return text + "]}\n";
}

}  // namespace pointsman
