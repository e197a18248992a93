// What is written down of an exchange when it has ended.

#include <chrono>

#include "proxy/exchange.h"
#include "proxy/proxy_shard.h"

namespace pointsman {

template <typename Record>
void Exchange::fill(Record& record, TimePoint now) const {
  record.model = facts_.model;
  if (tries_ > 0) {
    const ReplicaTarget& target = shard_.target(replica_);
    if (target.spec) record.replica = target.spec->url;
    record.reason = label(reason_);
  }
  record.error = error_word_;
  record.status = status_;
  record.tries = tries_;
  record.stream = event_stream_;
  record.predicted_cached = predicted_cached_;
  if (observer_.prompt_tokens()) record.prompt_tokens = *observer_.prompt_tokens();
  if (observer_.cached_tokens()) record.cached_tokens = *observer_.cached_tokens();
  if (observer_.output_tokens()) record.output_tokens = *observer_.output_tokens();
  if (first_token_at_ != TimePoint{}) record.ttft = first_token_at_ - started_;
  record.whole = now - started_;
}

void Exchange::write_log(TimePoint now) {
  AccessRecord record;
  record.prompt_tokens = facts_.prompt_tokens;  // where the engine does not say
  fill(record, now);
  record.at = std::chrono::system_clock::now();
  record.client = client_->client_address();
  record.key = key_.name();
  record.method = method_;
  record.path = path_;
  record.request_id = request_id();
  record.request_bytes = body_.payload_bytes();
  record.response_bytes = response_bytes_;
  shard_.access_log()->write(record);
}

void Exchange::log_decision(TimePoint now) {
  DecisionRecord record;
  fill(record, now);
  record.arrived = started_;
  const FleetView& view = shard_.view();
  if (tries_ > 0 && pool_ < view.pools.size()) record.pool = view.pools[pool_].name;
  record.session = facts_.session_key;
  record.estimated_tokens = facts_.prompt_tokens;
  record.max_tokens = facts_.max_output_tokens;
  record.expected_output_tokens = facts_.expected_output_tokens;
  record.block_tokens = facts_.block_tokens;
  record.blocks = facts_.blocks;
  record.output_events = output_events_;
  shard_.decision_log()->write(record);
}

}  // namespace pointsman
