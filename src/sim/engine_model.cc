#include "sim/engine_model.h"

#include <algorithm>
#include <cassert>
#include <span>

namespace pointsman::sim {
namespace {

std::size_t blocks_for(std::uint64_t tokens) {
  return static_cast<std::size_t>((tokens + kBlockTokens - 1) / kBlockTokens);
}

}  // namespace

double step_seconds(const EngineConfig& config, const StepWork& work) {
  const double compute = config.token_s * static_cast<double>(work.tokens);
  return config.step_s + std::max(config.weights_s, compute) +
         config.context_s * static_cast<double>(work.decode_context) +
         config.sequence_s * static_cast<double>(work.sequences) +
         config.token_s * config.attention_ratio * static_cast<double>(work.prefill_pairs);
}

EngineModel::EngineModel(const EngineConfig& config) : config_(config), kv_(config.blocks) {
  assert(config.max_num_batched_tokens >= 1 && config.max_num_seqs >= 1);
}

void EngineModel::submit(EngineRequest request) {
  assert(request.prompt_tokens >= 1 && request.output_tokens >= 1);
  assert(fits(request.prompt_tokens, request.output_tokens));
  const RequestId id = request.id;
  Request entry;
  entry.spec = std::move(request);
  [[maybe_unused]] const bool fresh = requests_.emplace(id, std::move(entry)).second;
  assert(fresh);
  waiting_.push_back(id);
}

bool EngineModel::cancel(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return false;
  kv_.release(found->second.blocks);
  requests_.erase(found);
  if (std::erase(running_, id) == 0) std::erase(waiting_, id);
  return true;
}

std::optional<Duration> EngineModel::begin_step() {
  assert(!in_step_);
  if (idle()) return std::nullopt;
  work_ = {};
  budget_ = config_.max_num_batched_tokens;
  if (schedule_running()) schedule_waiting();
  // A running request is preempted only in favour of an older one, and whatever was submitted fits
  // an empty cache: so each step advances at least the oldest request.
  assert(work_.tokens > 0);
  in_step_ = true;
  const Duration took = from_seconds(step_seconds(config_, work_));
  ++counters_.steps;
  counters_.busy += took;
  return took;
}

bool EngineModel::schedule_running() {
  bool preempted = false;
  for (std::size_t i = 0; i < running_.size() && budget_ > 0; ++i) {
    Request& request = requests_.at(running_[i]);
    const std::uint32_t tokens = std::min(request.known() - request.computed, budget_);
    const std::size_t total = blocks_for(request.computed + tokens);
    bool room = kv_.grow(request.blocks, {}, 0, total);
    while (!room && i < running_.size()) {
      preempt_youngest();
      preempted = true;
      // With i past the end the request that asked was itself the youngest.
      room = i < running_.size() && kv_.grow(request.blocks, {}, 0, total);
    }
    if (room) schedule(request, tokens);
  }
  return !preempted;
}

void EngineModel::schedule_waiting() {
  while (!waiting_.empty() && budget_ > 0 && running_.size() < config_.max_num_seqs) {
    const RequestId id = waiting_.front();
    Request& request = requests_.at(id);
    const std::size_t limit =
        std::min<std::size_t>((request.known() - 1) / kBlockTokens, request.spec.chain.size());
    const std::span<const BlockHash> chain(request.spec.chain.data(), limit);
    const std::size_t hit = kv_.cached_prefix(chain);
    const auto cached = static_cast<std::uint32_t>(hit * kBlockTokens);
    const std::uint32_t tokens = std::min(request.known() - cached, budget_);
    if (!kv_.grow(request.blocks, chain, hit, blocks_for(cached + tokens))) return;

    waiting_.pop_front();
    running_.push_back(id);
    request.computed = cached;
    request.published = static_cast<std::uint32_t>(hit);
    if (!request.cached) {
      request.cached = cached;
      counters_.prefix_queries += request.spec.prompt_tokens;
      counters_.prefix_hits += cached;
    }
    schedule(request, tokens);
  }
}

void EngineModel::schedule(Request& request, std::uint32_t tokens) {
  request.scheduled = tokens;
  budget_ -= tokens;
  work_.tokens += tokens;
  ++work_.sequences;
  if (tokens == 1 && request.generated > 0) {
    work_.decode_context += request.computed;
  } else {
    const std::uint64_t query = tokens;
    work_.prefill_pairs += query * request.computed + query * (query + 1) / 2;
  }
  // As in the engine, blocks are findable as soon as they are scheduled: a request admitted in the
  // same step already shares them.
  const std::size_t full =
      std::min<std::size_t>((request.computed + tokens) / kBlockTokens, request.spec.chain.size());
  for (; request.published < full; ++request.published) {
    kv_.publish(request.blocks[request.published], request.spec.chain[request.published]);
  }
}

void EngineModel::preempt_youngest() {
  const RequestId id = running_.back();
  Request& request = requests_.at(id);
  running_.pop_back();
  waiting_.push_front(id);
  kv_.release(request.blocks);
  request.computed = 0;
  request.published = 0;
  assert(request.scheduled == 0);  // only requests not yet looked at in this step are younger
  ++counters_.preemptions;
}

const std::vector<EngineEvent>& EngineModel::finish_step() {
  assert(in_step_);
  in_step_ = false;
  events_.clear();
  std::size_t kept = 0;
  for (const RequestId id : running_) {
    Request& request = requests_.at(id);
    request.computed += request.scheduled;
    const bool sampled = request.scheduled > 0 && request.computed == request.known();
    request.scheduled = 0;
    if (sampled) {
      const std::uint32_t cached = request.cached.value_or(0);
      events_.push_back({EngineEventKind::kToken, id, request.generated, cached});
      ++request.generated;
      ++counters_.generated_tokens;
      if (request.generated == request.spec.output_tokens) {
        events_.push_back({EngineEventKind::kFinished, id, request.generated - 1, cached});
        kv_.release(request.blocks);
        requests_.erase(id);
        continue;
      }
    }
    running_[kept++] = id;
  }
  running_.resize(kept);
  return events_;
}

EngineState EngineModel::state() const {
  EngineState state = counters_;
  state.running = running_.size();
  state.waiting = waiting_.size();
  state.kv_usage = kv_.usage();
  return state;
}

}  // namespace pointsman::sim
