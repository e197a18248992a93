// Any bytes as a metrics page. Reading it must be safe, and the page as a whole must give what its
// lines give one by one.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "signals/engine_metrics.h"
#include "signals/orca.h"
#include "signals/prometheus_text.h"
#include "support/fuzz_check.h"

namespace {

using pointsman::test::check;

bool within(std::string_view inner, std::string_view outer) {
  return inner.empty() || (inner.data() >= outer.data() &&
                           inner.data() + inner.size() <= outer.data() + outer.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pointsman;
  static const EngineMetrics metrics({{EngineSignal::kRunning, "a{b=c}"},
                                      {EngineSignal::kKvUsage, "k"},
                                      {EngineSignal::kBlocks, "n{x=\"\"}"}});
  const std::string_view page(reinterpret_cast<const char*>(data), size);

  std::size_t samples = 0;
  const std::size_t bad = scan_prometheus(
      page, [](std::string_view) { return true; },
      [&](const PrometheusSample& sample) {
        ++samples;
        check(within(sample.name, page) && !sample.name.empty());
        check(within(sample.labels, page));
        for (const std::string_view name : {"engine", "b", "x", "le"}) {
          const auto value = sample.label(name);
          check(!value || sample.label_is(name, *value));
          check(value || !sample.label_is(name, ""));
        }
      });

  std::size_t samples_by_line = 0;
  std::size_t bad_by_line = 0;
  std::string_view rest = page;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest = rest.substr(std::min(end + 1, rest.size()));
    const std::string_view name = prometheus_name(line);
    if (name.empty()) continue;
    parse_prometheus_line(line, name) ? ++samples_by_line : ++bad_by_line;
  }
  check(samples == samples_by_line && bad == bad_by_line);

  const EngineReading reading = metrics.read(page);
  check(std::isnan(reading.kv_usage) || (reading.kv_usage >= 0 && reading.kv_usage <= 1));
  check(std::isnan(reading.prefix_hit_rate) ||
        (reading.prefix_hit_rate >= 0 && reading.prefix_hit_rate <= 1));
  check(std::isnan(reading.running) || reading.running >= 0);
  check(std::isnan(reading.waiting) || reading.waiting >= 0);

  const OrcaReading orca = parse_orca(page);
  check(std::isnan(orca.kv_usage) || (orca.kv_usage >= 0 && orca.kv_usage <= 1));
  (void)EngineMetrics::check(page);
  return 0;
}
