#include "experiments/load_series.h"

#include <algorithm>
#include <numeric>

namespace pointsman::sim {
namespace {

// Samples within a window of swing().
constexpr int kSamples = 16;

}  // namespace

void LoadSeries::request_finished(const FinishedRequest& request) {
  if (request.replica >= replicas_) return;
  const Duration arrived = request.arrived - kRunBegin;
  stays_.push_back({arrived, request.ended - kRunBegin, request.replica});
  if (!request.measured) return;
  first_ = std::min(first_, arrived);
  last_ = std::max(last_, arrived);
}

std::vector<std::vector<double>> LoadSeries::sampled(Duration begin, Duration end,
                                                     Duration step) const {
  const auto count = end > begin
                         ? static_cast<std::size_t>((end - begin + step - Duration(1)) / step)
                         : std::size_t{0};
  std::vector<std::vector<double>> loads(replicas_, std::vector<double>(count, 0));
  // The first sample at `at` or after it.
  const auto place = [&](Duration at) {
    if (at <= begin) return std::size_t{0};
    return std::min(count, static_cast<std::size_t>((at - begin + step - Duration(1)) / step));
  };
  // Changes first, then their sums.
  for (const Stay& stay : stays_) {
    std::vector<double>& load = loads[stay.replica];
    if (const std::size_t from = place(stay.arrived); from < count) ++load[from];
    if (const std::size_t to = place(stay.ended); to < count) --load[to];
  }
  for (std::vector<double>& load : loads) std::partial_sum(load.begin(), load.end(), load.begin());
  return loads;
}

LoadSeries::Windows LoadSeries::windows(Duration length) const {
  if (last_ < first_) return {};
  const Duration begin = (first_ + length - Duration(1)) / length * length;
  if (last_ < begin) return {};
  return {begin, static_cast<std::size_t>((last_ - begin) / length)};
}

double LoadSeries::swing(Duration window) const {
  const auto [begin, count] = windows(window);
  double moved = 0;
  double sum = 0;
  const Duration end = begin + static_cast<std::int64_t>(count) * window;
  for (const std::vector<double>& load : sampled(begin, end, window / kSamples)) {
    for (std::size_t i = 0; i + kSamples <= load.size(); i += kSamples) {
      const auto from = load.begin() + static_cast<std::ptrdiff_t>(i);
      const auto [least, most] = std::minmax_element(from, from + kSamples);
      moved += *most - *least;
      sum += std::accumulate(from, from + kSamples, 0.0) / kSamples;
    }
  }
  return sum > 0 ? moved / sum : 0;
}

double LoadSeries::favourite_share(Duration window) const {
  const auto [begin, count] = windows(window);
  std::vector<std::size_t> sent(count * replicas_, 0);
  for (const Stay& stay : stays_) {
    if (stay.arrived < begin) continue;
    const auto place = static_cast<std::size_t>((stay.arrived - begin) / window);
    if (place < count) ++sent[place * replicas_ + stay.replica];
  }
  std::size_t favourites = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto from = sent.begin() + static_cast<std::ptrdiff_t>(i * replicas_);
    favourites += *std::max_element(from, from + static_cast<std::ptrdiff_t>(replicas_));
  }
  const std::size_t all = std::accumulate(sent.begin(), sent.end(), std::size_t{0});
  return all > 0 ? static_cast<double>(favourites) / static_cast<double>(all) : 0;
}

}  // namespace pointsman::sim
