#include "sim/engine_model.h"

#include <algorithm>
#include <cassert>

namespace pointsman::sim {
namespace {

std::uint32_t blocks_for(std::uint32_t tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

}  // namespace

EngineModel::EngineModel(const EngineConfig& config)
    : config_(config), cost_(config), kv_(config.blocks) {
  assert(config.max_num_batched_tokens >= 1 && config.max_num_seqs >= 1);
}

void EngineModel::submit(const EngineRequest& spec) {
  assert(spec.prompt_tokens >= 1 && spec.output_tokens >= 1);
  assert(fits(spec.prompt_tokens, spec.output_tokens));
  std::uint32_t place = 0;
  if (unused_.empty()) {
    place = static_cast<std::uint32_t>(requests_.size());
    requests_.emplace_back();
  } else {
    place = unused_.back();
    unused_.pop_back();
  }
  Request& request = requests_[place];
  request.id = spec.id;
  request.prompt = spec.prompt_tokens;
  request.output = spec.output_tokens;
  request.generated = 0;
  request.computed = 0;
  request.scheduled = 0;
  request.cached = 0;
  request.next_waiting = kNone;
  request.admitted = false;
  request.blocks.reset(spec.chain);
  (first_waiting_ == kNone ? first_waiting_ : requests_[last_waiting_].next_waiting) = place;
  last_waiting_ = place;
  ++waiting_;
}

bool EngineModel::cancel(RequestId id) {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    const std::uint32_t place = running_[i];
    if (requests_[place].id != id) continue;
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    kv_.release(requests_[place].blocks);
    unused_.push_back(place);
    return true;
  }
  std::uint32_t before = kNone;
  for (std::uint32_t place = first_waiting_; place != kNone;
       before = place, place = requests_[place].next_waiting) {
    if (requests_[place].id != id) continue;
    const std::uint32_t after = requests_[place].next_waiting;
    (before == kNone ? first_waiting_ : requests_[before].next_waiting) = after;
    if (after == kNone) last_waiting_ = before;
    --waiting_;
    unused_.push_back(place);
    return true;
  }
  return false;
}

void EngineModel::clear() {
  for (const std::uint32_t place : running_) {
    kv_.release(requests_[place].blocks);
    unused_.push_back(place);
  }
  running_.clear();
  for (; first_waiting_ != kNone; first_waiting_ = requests_[first_waiting_].next_waiting) {
    unused_.push_back(first_waiting_);
  }
  last_waiting_ = kNone;
  waiting_ = 0;
  kv_.clear();
  in_step_ = false;
}

std::optional<EngineTime> EngineModel::begin_step() {
  assert(!in_step_);
  if (idle()) return std::nullopt;
  work_ = {};
  budget_ = config_.max_num_batched_tokens;
  short_of_blocks_ = false;
  preempted_ = !schedule_running();
  if (!preempted_) schedule_waiting();
  // A running request is preempted only in favour of an older one, and whatever was submitted fits
  // an empty cache: so each step advances at least the oldest request.
  assert(work_.tokens > 0);
  in_step_ = true;
  took_ = cost_.of(work_);
  ++counters_.steps;
  counters_.busy += took_;
  return took_;
}

bool EngineModel::schedule_running() {
  bool preempted = false;
  for (std::size_t i = 0; i < running_.size() && budget_ > 0; ++i) {
    Request& request = requests_[running_[i]];
    const std::uint32_t tokens = std::min(request.known() - request.computed, budget_);
    const std::uint32_t total = blocks_for(request.computed + tokens);
    bool room = kv_.grow(request.blocks, total);
    while (!room && i < running_.size()) {
      preempt_youngest();
      preempted = true;
      // With i past the end the request that asked was itself the youngest.
      room = i < running_.size() && kv_.grow(request.blocks, total);
    }
    if (room) schedule(request, tokens);
  }
  return !preempted;
}

void EngineModel::schedule_waiting() {
  while (first_waiting_ != kNone && budget_ > 0 && running_.size() < config_.max_num_seqs) {
    const std::uint32_t place = first_waiting_;
    Request& request = requests_[place];
    const KvModel::Hit hit = kv_.find(request.blocks.chain(), request.hit_limit());
    const std::uint32_t cached = hit.blocks * kBlockTokens;
    const std::uint32_t tokens = std::min(request.known() - cached, budget_);
    short_of_blocks_ = !kv_.admit(request.blocks, hit, blocks_for(cached + tokens));
    if (short_of_blocks_) return;

    first_waiting_ = request.next_waiting;
    if (first_waiting_ == kNone) last_waiting_ = kNone;
    --waiting_;
    running_.push_back(place);
    request.computed = cached;
    if (!request.admitted) {
      request.admitted = true;
      request.cached = cached;
      counters_.prefix_queries += request.prompt;
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
  const std::uint32_t full = (request.computed + tokens) / kBlockTokens;
  if (full > request.blocks.findable()) kv_.publish(request.blocks, full);
}

void EngineModel::preempt_youngest() {
  const std::uint32_t place = running_.back();
  Request& request = requests_[place];
  running_.pop_back();
  request.next_waiting = first_waiting_;
  if (first_waiting_ == kNone) last_waiting_ = place;
  first_waiting_ = place;
  ++waiting_;
  kv_.release(request.blocks);
  request.computed = 0;
  assert(request.scheduled == 0);  // only requests not yet looked at in this step are younger
  ++counters_.preemptions;
}

const std::vector<EngineEvent>& EngineModel::finish_step(EngineTokens tokens) {
  assert(in_step_);
  in_step_ = false;
  events_.clear();
  std::size_t kept = 0;
  for (const std::uint32_t place : running_) {
    Request& request = requests_[place];
    request.computed += request.scheduled;
    const bool sampled = request.scheduled > 0 && request.computed == request.known();
    request.scheduled = 0;
    if (sampled) {
      if (request.generated == 0 || tokens == EngineTokens::kAll) {
        events_.push_back({EngineEventKind::kToken, request.id, request.generated, request.cached});
      }
      ++request.generated;
      ++counters_.generated_tokens;
      if (request.generated == request.output) {
        events_.push_back(
            {EngineEventKind::kFinished, request.id, request.generated - 1, request.cached});
        kv_.release(request.blocks);
        unused_.push_back(place);
        continue;
      }
    }
    running_[kept++] = place;
  }
  running_.resize(kept);
  return events_;
}

std::uint32_t EngineModel::count_equal_steps() {
  assert(in_step_);
  if (preempted_ || work_.sequences != running_.size()) return 1;
  residues_.fill(0);
  std::uint32_t steps = UINT32_MAX;
  for (const std::uint32_t place : running_) {
    const Request& request = requests_[place];
    if (!request.decodes() || !kv_.fills_alone(request.blocks)) return 1;
    steps = std::min(steps, request.output - request.generated);
    ++residues_[request.computed % kBlockTokens];
  }
  // As the running requests take blocks, the head of the queue, short of blocks now, stays so: an
  // evicted block that it would have hit is one that it needs less, but also one less that is
  // free. Only a longer hit could help it.
  if (short_of_blocks_) {
    const Request& head = requests_[first_waiting_];
    if (kv_.may_lengthen(head.blocks.chain(), head.hit_limit())) return 1;
  }
  const std::uint32_t free = kv_.free_blocks();
  if (blocks_of_further_steps(steps - 1) <= free) return steps;
  std::uint32_t enough = 1;  // the step under way has its blocks
  while (steps - enough > 1) {
    const std::uint32_t middle = enough + (steps - enough) / 2;
    (blocks_of_further_steps(middle - 1) <= free ? enough : steps) = middle;
  }
  return enough;
}

std::uint64_t EngineModel::blocks_of_further_steps(std::uint32_t count) const {
  std::uint64_t blocks = 0;
  for (std::uint32_t residue = 0; residue < kBlockTokens; ++residue) {
    blocks += std::uint64_t{residues_[residue]} * ((residue + count) / kBlockTokens);
  }
  return blocks;
}

void EngineModel::skip_steps(std::uint32_t count) {
  if (count == 0) return;
  const std::uint64_t sequences = running_.size();
  for (const std::uint32_t place : running_) {
    Request& request = requests_[place];
    request.computed += count;
    request.generated += count;
    const std::uint32_t tokens = request.computed + 1;  // with that of the step under way
    [[maybe_unused]] const bool room = kv_.grow(request.blocks, blocks_for(tokens));
    assert(room);
    const std::uint32_t full = tokens / kBlockTokens;
    if (full > request.blocks.findable()) kv_.publish(request.blocks, full);
  }
  const std::uint32_t turn = count % kBlockTokens;
  std::ranges::rotate(residues_, residues_.end() - turn);

  work_.decode_context += count * sequences;
  const EngineTime growth = decode_growth();
  counters_.steps += count;
  counters_.generated_tokens += count * sequences;
  counters_.busy += count * took_ + growth * (std::int64_t{count} * (count + 1) / 2);
  took_ += count * growth;
}

EngineState EngineModel::state() const {
  EngineState state = counters_;
  state.running = running_.size();
  state.waiting = waiting_;
  state.kv_usage = kv_.usage();
  return state;
}

}  // namespace pointsman::sim
