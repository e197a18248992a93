#include "sim/request_log.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace pointsman::sim {
namespace {

using Entry = RequestLog::Entry;

Duration ttft(const Entry& entry) {
  return entry.ttft;
}
Duration e2e(const Entry& entry) {
  return entry.e2e;
}
// Nanoseconds per token after the first, of answers that have more than one.
double tpot(const Entry& entry) {
  return static_cast<double>((entry.e2e - entry.ttft).count()) /
         static_cast<double>(entry.output_tokens - 1);
}
bool has_tpot(const Entry& entry) {
  return entry.output_tokens > 1;
}

// The smallest value that at least the share `q` of all does not exceed. Reorders.
template <typename Value>
auto quantile_of(std::span<Entry> entries, double q, Value&& value) {
  const double rank = std::ceil(q * static_cast<double>(entries.size())) - 1;
  const auto at =
      entries.begin() + static_cast<std::ptrdiff_t>(std::clamp(rank, 0.0, entries.size() - 1.0));
  std::nth_element(entries.begin(), at, entries.end(),
                   [&](const Entry& a, const Entry& b) { return value(a) < value(b); });
  return value(*at);
}

}  // namespace

void RequestLog::measure(const MeasureSpec& spec, double seconds, RunResult& result) {
  result.requests = static_cast<double>(entries_.size());
  if (entries_.empty()) return;
  const std::span<Entry> all(entries_);
  const double overhead = to_seconds(spec.overhead);
  const auto first = [&](std::span<Entry> some, double q) {
    return some.empty() ? RunResult::kNone : overhead + to_seconds(quantile_of(some, q, &ttft));
  };
  result.ttft_p50_s = first(all, 0.5);
  result.ttft_p90_s = first(all, 0.9);
  result.ttft_p99_s = first(all, 0.99);
  result.e2e_p50_s = overhead + to_seconds(quantile_of(all, 0.5, &e2e));
  result.e2e_p99_s = overhead + to_seconds(quantile_of(all, 0.99, &e2e));

  const auto first_long = std::partition(entries_.begin(), entries_.end(),
                                         [](const Entry& entry) { return entry.is_long == 0; });
  const std::span<Entry> brief(entries_.begin(), first_long);
  const std::span<Entry> lengthy(first_long, entries_.end());
  result.ttft_p50_short_s = first(brief, 0.5);
  result.ttft_p99_short_s = first(brief, 0.99);
  result.ttft_p50_long_s = first(lengthy, 0.5);
  result.ttft_p99_long_s = first(lengthy, 0.99);

  const std::span<Entry> several(entries_.begin(),
                                 std::partition(entries_.begin(), entries_.end(), &has_tpot));
  if (!several.empty()) {
    result.tpot_p50_s = quantile_of(several, 0.5, &tpot) * 1e-9;
    result.tpot_p99_s = quantile_of(several, 0.99, &tpot) * 1e-9;
  }

  // Integer sums do not depend on the order that the partial sorts left.
  Duration ttft_sum{};
  Duration e2e_sum{};
  std::size_t good = 0;
  for (const Entry& entry : entries_) {
    ttft_sum += entry.ttft;
    e2e_sum += entry.e2e;
    const bool prompt = overhead + to_seconds(entry.ttft) <= spec.goodput_ttft_s;
    const bool steady =
        spec.goodput_tpot_s <= 0 || !has_tpot(entry) || tpot(entry) * 1e-9 <= spec.goodput_tpot_s;
    if (prompt && steady) ++good;
  }
  const double count = result.requests;
  result.ttft_mean_s = overhead + to_seconds(ttft_sum) / count;
  result.e2e_mean_s = overhead + to_seconds(e2e_sum) / count;
  if (seconds > 0) result.goodput_rps = static_cast<double>(good) / seconds;
}

}  // namespace pointsman::sim
