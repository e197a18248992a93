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
  request.deferred = false;
  request.blocks.reset(spec.chain);
  (first_waiting_ == kNone ? first_waiting_ : requests_[last_waiting_].next_waiting) = place;
  last_waiting_ = place;
  ++waiting_;
}

bool EngineModel::cancel(RequestId id) {
  for (std::size_t i = 0; i < decodes_.size(); ++i) {
    if (requests_[decodes_.request(i)].id != id) continue;
    drop_decode(i);
    disturbed_ = true;
    return true;
  }
  for (const std::uint32_t place : prefills_) {
    if (requests_[place].id != id) continue;
    std::erase(prefills_, place);
    kv_.release(requests_[place].blocks);
    unused_.push_back(place);
    disturbed_ = true;
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
    disturbed_ = true;
    return true;
  }
  return false;
}

void EngineModel::clear() {
  while (!decodes_.empty()) drop_decode(decodes_.size() - 1);
  decodes_.clear();
  for (const std::uint32_t place : prefills_) {
    kv_.release(requests_[place].blocks);
    unused_.push_back(place);
  }
  prefills_.clear();
  for (; first_waiting_ != kNone; first_waiting_ = requests_[first_waiting_].next_waiting) {
    unused_.push_back(first_waiting_);
  }
  last_waiting_ = kNone;
  waiting_ = 0;
  kv_.clear();
  in_step_ = false;
}

bool EngineModel::reset_cache() {
  if (kv_.referenced() > 0) return false;
  kv_.clear();
  return true;
}

std::optional<EngineTime> EngineModel::begin_step() {
  assert(!in_step_);
  if (idle()) return std::nullopt;
  work_ = {};
  budget_ = config_.max_num_batched_tokens;
  disturbed_ = false;
  if (!decodes_.empty()) schedule_decodes();
  if (!prefills_.empty()) schedule_prefill_under_way();
  // A step with a preemption admits nothing.
  if (!disturbed_) schedule_waiting();
  // A running request is preempted only in favour of an older one, and whatever was submitted fits
  // an empty cache: so each step advances at least the oldest request.
  assert(work_.tokens > 0);
  in_step_ = true;
  took_ = cost_.of(work_);
  ++counters_.steps;
  counters_.busy += took_;
  return took_;
}

// Admission leaves each running request at least one token of the budget. So all decodes get theirs
// in every step, and what is left goes to the prefill.
void EngineModel::schedule_decodes() {
  assert(running() <= budget_);
  if (deferred_ < decodes_.size() || !kv_.take(decodes_.blocks_for_next_step())) {
    decode_one_by_one();
  }
  decodes_.begin_step();
  const std::size_t count = decodes_.size();
  budget_ -= static_cast<std::uint32_t>(count);
  work_.tokens += count;
  work_.sequences += count;
  work_.decode_context += decodes_.total_context();
}

// The decodes of a step in their order, where one may preempt another, or fill blocks that others
// use as well.
void EngineModel::decode_one_by_one() {
  bring_all_up_to_date();
  for (std::size_t i = 0; i < decodes_.size(); ++i) {
    KvHolding& blocks = requests_[decodes_.request(i)].blocks;
    const std::uint32_t tokens = decodes_.context(i) + 1;
    bool room = kv_.grow(blocks, blocks_for(tokens));
    while (!room && i < decodes_.size()) {
      preempt_youngest();
      // With i past the end the request that asked was itself the youngest.
      room = i < decodes_.size() && kv_.grow(blocks, blocks_for(tokens));
    }
    if (room) kv_.publish(blocks, tokens / kBlockTokens);
  }
  for (std::size_t i = 0; i < decodes_.size(); ++i) defer_if_alone(decodes_.request(i));
}

void EngineModel::schedule_prefill_under_way() {
  assert(prefills_.size() == 1);
  Request& request = requests_[prefills_.front()];
  const std::uint32_t tokens = std::min(request.known() - request.computed, budget_);
  if (kv_.grow(request.blocks, blocks_for(request.computed + tokens))) {
    schedule(request, tokens);
  } else {
    preempt_youngest();
  }
}

void EngineModel::schedule_waiting() {
  while (first_waiting_ != kNone && budget_ > 0 && running() < config_.max_num_seqs) {
    const std::uint32_t place = first_waiting_;
    Request& request = requests_[place];
    const std::span<const ChainRun> chain = request.blocks.chain();
    for (std::uint32_t filler = kv_.filler(chain); filler != KvModel::kNobody;
         filler = kv_.filler(chain)) {
      stop_deferring(filler);
    }
    const KvModel::Hit hit = kv_.find(chain, config_.prefix_caching ? request.hit_limit() : 0);
    const std::uint32_t cached = hit.blocks * kBlockTokens;
    const std::uint32_t tokens = std::min(request.known() - cached, budget_);
    if (!kv_.admit(request.blocks, hit, blocks_for(cached + tokens))) return;

    first_waiting_ = request.next_waiting;
    if (first_waiting_ == kNone) last_waiting_ = kNone;
    --waiting_;
    prefills_.push_back(place);
    request.computed = cached;
    if (!request.admitted) {
      request.admitted = true;
      request.cached = cached;
      if (config_.prefix_caching) counters_.prefix_queries += request.prompt;
      counters_.prefix_hits += cached;
    }
    schedule(request, tokens);
  }
}

// A chunk of a prompt; or of prompt and answer, of a request that comes back.
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
  kv_.publish(request.blocks, (request.computed + tokens) / kBlockTokens);
}

void EngineModel::preempt_youngest() {
  std::uint32_t place = kNone;
  if (prefills_.empty()) {
    const std::size_t last = decodes_.size() - 1;
    place = decodes_.request(last);
    Request& request = requests_[place];
    request.generated = decodes_.context(last) + 1 - request.prompt;
    if (request.deferred) --deferred_;
    request.deferred = false;
    decodes_.remove(last);
  } else {
    place = prefills_.back();
    prefills_.pop_back();
  }
  Request& request = requests_[place];
  request.next_waiting = first_waiting_;
  if (first_waiting_ == kNone) last_waiting_ = place;
  first_waiting_ = place;
  ++waiting_;
  kv_.release(request.blocks);
  request.computed = 0;
  assert(request.scheduled == 0);  // only requests not yet looked at in this step are younger
  disturbed_ = true;
  ++counters_.preemptions;
}

const std::vector<EngineEvent>& EngineModel::finish_step(EngineTokens tokens) {
  assert(in_step_);
  in_step_ = false;
  events_.clear();
  finish_decodes(tokens);
  finish_prefills(tokens);
  return events_;
}

void EngineModel::finish_decodes(EngineTokens tokens) {
  counters_.generated_tokens += decodes_.size();
  const bool all = tokens == EngineTokens::kAll;
  for (std::size_t i = all ? 0 : decodes_.find_ending(0); i < decodes_.size();) {
    const Request& request = requests_[decodes_.request(i)];
    const std::uint32_t token = decodes_.covered(i) - request.prompt;
    if (all) events_.push_back({EngineEventKind::kToken, request.id, token, request.cached});
    if (decodes_.left(i) > 1) {
      ++i;
      continue;
    }
    events_.push_back({EngineEventKind::kFinished, request.id, token, request.cached});
    drop_decode(i);
    if (!all) i = decodes_.find_ending(i);
  }
  decodes_.end_step();
}

void EngineModel::finish_prefills(EngineTokens tokens) {
  std::size_t kept = 0;
  for (const std::uint32_t place : prefills_) {
    Request& request = requests_[place];
    request.computed += request.scheduled;
    request.scheduled = 0;
    if (request.computed < request.known()) {
      prefills_[kept++] = place;
      continue;
    }
    if (request.generated == 0 || tokens == EngineTokens::kAll) {
      events_.push_back({EngineEventKind::kToken, request.id, request.generated, request.cached});
    }
    ++request.generated;
    ++counters_.generated_tokens;
    if (request.generated < request.output) {
      start_decode(place);
    } else {
      events_.push_back(
          {EngineEventKind::kFinished, request.id, request.generated - 1, request.cached});
      kv_.release(request.blocks);
      unused_.push_back(place);
    }
  }
  prefills_.resize(kept);
}

void EngineModel::start_decode(std::uint32_t place) {
  const Request& request = requests_[place];
  decodes_.add(place, request.computed, request.output - request.generated);
  defer_if_alone(place);
}

void EngineModel::defer_if_alone(std::uint32_t place) {
  Request& request = requests_[place];
  if (request.deferred || !kv_.fills_alone(request.blocks)) return;
  request.deferred = true;
  ++deferred_;
  kv_.set_filler(request.blocks, place);
}

void EngineModel::stop_deferring(std::uint32_t place) {
  bring_up_to_date(decodes_.find(place));
  Request& request = requests_[place];
  request.deferred = false;
  --deferred_;
  kv_.clear_filler(request.blocks);
}

void EngineModel::bring_up_to_date(std::size_t decode) {
  KvHolding& blocks = requests_[decodes_.request(decode)].blocks;
  const std::uint32_t tokens = decodes_.covered(decode);
  kv_.give(blocks, blocks_for(tokens));
  kv_.publish(blocks, tokens / kBlockTokens);
}

void EngineModel::bring_all_up_to_date() {
  for (std::size_t i = 0; i < decodes_.size(); ++i) bring_up_to_date(i);
}

// Ends a decode and frees its blocks.
void EngineModel::drop_decode(std::size_t decode) {
  const std::uint32_t place = decodes_.request(decode);
  bring_up_to_date(decode);
  Request& request = requests_[place];
  if (request.deferred) --deferred_;
  kv_.release(request.blocks);
  decodes_.remove(decode);
  unused_.push_back(place);
}

std::uint32_t EngineModel::count_equal_steps() const {
  assert(in_step_);
  // As the decodes take blocks, a head of the queue that is short of blocks now stays so: a block
  // evicted that it would have hit is one that it needs less, but also one less that is free. Only
  // a decode that fills a run of its chain could lengthen its hit; such a one is not deferred.
  if (disturbed_ || !prefills_.empty() || deferred_ < decodes_.size()) return 1;
  std::uint32_t steps = decodes_.steps_to_first_end();
  const std::uint32_t free = kv_.free_blocks();
  if (blocks_of_further_steps(steps - 1) <= free) return steps;
  std::uint32_t enough = 1;  // the step under way has its blocks
  while (steps - enough > 1) {
    const std::uint32_t middle = enough + (steps - enough) / 2;
    (blocks_of_further_steps(middle - 1) <= free ? enough : steps) = middle;
  }
  return enough;
}

void EngineModel::skip_steps(std::uint32_t count) {
  if (count == 0) return;
  [[maybe_unused]] const bool room = kv_.take(blocks_of_further_steps(count));
  assert(room);
  decodes_.skip(count);

  const std::uint64_t sequences = decodes_.size();
  work_.decode_context += count * sequences;
  const EngineTime growth = decode_growth();
  counters_.steps += count;
  counters_.generated_tokens += count * sequences;
  counters_.busy += count * took_ + growth * (std::int64_t{count} * (count + 1) / 2);
  took_ += count * growth;
}

std::uint32_t EngineModel::cached_blocks(std::span<const ChainRun> chain) {
  if (!config_.prefix_caching) return 0;
  for (const ChainRun& run : chain) {
    const std::uint32_t filler = kv_.filler({&run, 1});
    if (filler != KvModel::kNobody) bring_up_to_date(decodes_.find(filler));
  }
  return kv_.find(chain, UINT32_MAX).blocks;
}

std::span<const ChainRun> EngineModel::take_kv_changes() {
  bring_all_up_to_date();
  return kv_.take_changes();
}

EngineState EngineModel::state() const {
  EngineState state = counters_;
  state.running = running();
  state.waiting = waiting_;
  state.kv_usage = kv_.usage();
  return state;
}

}  // namespace pointsman::sim
