#include "experiments/log_replay.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "sim/step_cost.h"

namespace pointsman::sim {
namespace {

// One replica's requests.
class ReplicaReplay {
 public:
  ReplicaReplay(std::span<const MeasuredRequest> requests, const EngineConfig& engine,
                double overhead_s, std::vector<ReplayedRequest>& out)
      : requests_(requests), engine_(engine), cost_(engine), overhead_s_(overhead_s), out_(out) {}

  // `order`: the places of the replica's requests, by their start.
  void run(std::span<const std::size_t> order) {
    double now = 0;
    std::size_t next = 0;
    while (next < order.size() || is_busy()) {
      if (!is_busy()) now = std::max(now, arrival(order[next]));
      for (; next < order.size() && arrival(order[next]) <= now; ++next) {
        waiting_.push_back(order[next]);
      }
      now += seconds_of(cost_.of(schedule()));
      finish_decodes(now);
      finish_prefills(now);
    }
  }

 private:
  struct Decode {
    std::size_t request = 0;
    std::uint32_t left = 0;  // tokens
  };
  struct Prefill {
    std::size_t request = 0;
    std::uint32_t computed = 0;   // tokens of the prompt, those found in the cache included
    std::uint32_t scheduled = 0;  // in the step under way
  };

  [[nodiscard]] double arrival(std::size_t request) const {
    return requests_[request].start + overhead_s_;
  }
  [[nodiscard]] bool is_busy() const {
    return !waiting_.empty() || !prefills_.empty() || !decodes_.empty();
  }

  StepWork schedule() {
    StepWork work;
    work.tokens = work.sequences = decodes_.size();
    work.decode_context = decode_context_;
    std::uint64_t budget = engine_.max_num_batched_tokens;
    budget -= std::min<std::uint64_t>(budget, decodes_.size());
    // At most one is under way.
    for (Prefill& prefill : prefills_) schedule(prefill, budget, work);
    while (!waiting_.empty() && budget > 0 &&
           decodes_.size() + prefills_.size() < engine_.max_num_seqs) {
      const std::size_t request = waiting_.front();
      waiting_.pop_front();
      prefills_.push_back({request, requests_[request].cached_tokens, 0});
      schedule(prefills_.back(), budget, work);
    }
    return work;
  }

  void schedule(Prefill& prefill, std::uint64_t& budget, StepWork& work) {
    const std::uint64_t rest = requests_[prefill.request].prompt_tokens - prefill.computed;
    const std::uint64_t tokens = std::min(rest, budget);
    prefill.scheduled = static_cast<std::uint32_t>(tokens);
    budget -= tokens;
    work.tokens += tokens;
    ++work.sequences;
    work.prefill_pairs += tokens * prefill.computed + tokens * (tokens + 1) / 2;
  }

  void finish_decodes(double now) {
    decode_context_ += decodes_.size();
    std::erase_if(decodes_, [&](Decode& decode) {
      if (--decode.left > 0) return false;
      const MeasuredRequest& request = requests_[decode.request];
      decode_context_ -= std::uint64_t{request.prompt_tokens} + request.output_tokens - 1;
      out_[decode.request].end = now;
      return true;
    });
  }

  void finish_prefills(double now) {
    std::erase_if(prefills_, [&](Prefill& prefill) {
      const MeasuredRequest& request = requests_[prefill.request];
      prefill.computed += prefill.scheduled;
      if (prefill.computed < request.prompt_tokens) return false;
      out_[prefill.request] = {now, now};
      if (request.output_tokens > 1) {
        decodes_.push_back({prefill.request, request.output_tokens - 1});
        decode_context_ += request.prompt_tokens;
      }
      return true;
    });
  }

  std::span<const MeasuredRequest> requests_;
  EngineConfig engine_;
  StepCost cost_;
  double overhead_s_;
  std::vector<ReplayedRequest>& out_;
  std::deque<std::size_t> waiting_;
  std::vector<Prefill> prefills_;
  std::vector<Decode> decodes_;
  std::uint64_t decode_context_ = 0;  // tokens that the next step's decodes read
};

}  // namespace

std::vector<ReplayedRequest> replay_log(std::span<const MeasuredRequest> requests,
                                        const EngineConfig& engine, double overhead_s) {
  std::vector<ReplayedRequest> out(requests.size());
  std::vector<std::vector<std::size_t>> by_replica;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].replica >= by_replica.size()) by_replica.resize(requests[i].replica + 1);
    by_replica[requests[i].replica].push_back(i);
  }
  for (std::vector<std::size_t>& order : by_replica) {
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(requests[a].start, a) < std::pair(requests[b].start, b);
    });
    ReplicaReplay(requests, engine, overhead_s, out).run(order);
  }
  return out;
}

}  // namespace pointsman::sim
