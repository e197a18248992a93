#include "sim/flight.h"

namespace pointsman::sim {

RequestLog::Entry Flight::entry(TimePoint ended, const SegregationLimits& limits) const {
  RequestLog::Entry entry;
  entry.ttft = first_token - arrived;
  entry.e2e = ended - arrived;
  entry.prompt_tokens = request.prompt_tokens;
  entry.output_tokens = request.output_tokens & 0x7fff'ffffU;
  entry.is_long = request.prompt_tokens > limits.long_context_tokens ||
                          request.max_tokens > limits.long_generation_tokens
                      ? 1
                      : 0;
  return entry;
}

FinishedRequest Flight::finished(TimePoint ended, bool failed) const {
  return {.number = number,
          .conversation = request.conversation,
          .turn = request.turn,
          .balancer = balancer,
          .replica = replica,
          .prompt_tokens = request.prompt_tokens,
          .output_tokens = request.output_tokens,
          .cached_tokens = cached_tokens,
          .arrived = arrived,
          .first_token = first_token,
          .ended = ended,
          .measured = measured,
          .failed = failed};
}

std::uint32_t Flights::begin() {
  ++in_flight_;
  if (free_.empty()) {
    flights_.emplace_back();
    return static_cast<std::uint32_t>(flights_.size() - 1);
  }
  const std::uint32_t place = free_.back();
  free_.pop_back();
  Flight& flight = flights_[place];
  flight.first_token = TimePoint{};
  flight.cached_tokens = 0;
  flight.lost_once = false;
  return place;
}

}  // namespace pointsman::sim
