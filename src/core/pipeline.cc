#include "core/pipeline.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace pointsman {

Pipeline::Pipeline(std::vector<std::unique_ptr<Filter>> filters, std::unique_ptr<Sampler> sampler,
                   std::vector<Weighted> scorers, std::unique_ptr<CostScorer> cost,
                   std::unique_ptr<Picker> picker)
    : filters_(std::move(filters)),
      sampler_(std::move(sampler)),
      scorers_(std::move(scorers)),
      cost_(std::move(cost)),
      picker_(std::move(picker)) {
  assert(picker_ != nullptr);
  assert(scorers_.empty() || cost_ == nullptr);
  for_each_stage([this](const Stage& stage) { needs_ = needs_ | stage.needs(); });
}

template <typename Visit>
void Pipeline::for_each_stage(Visit&& visit) {
  for (const auto& filter : filters_) visit(*filter);
  if (sampler_) visit(*sampler_);
  for (const Weighted& weighted : scorers_) visit(*weighted.scorer);
  if (cost_) visit(*cost_);
  visit(*picker_);
}

std::size_t Pipeline::choose(Context& context, std::span<const ReplicaIndex> candidates,
                             std::span<ReplicaIndex> order) {
  if (candidates.empty() || order.empty()) return 0;
  if (candidates.size() == 1) {
    context.reason = Reason::kOnlyOne;
    order[0] = candidates[0];
    return 1;
  }
  context.reason = Reason::kPolicy;
  candidates_.reset(candidates);
  for (const auto& filter : filters_) filter->apply(context, candidates_);
  if (sampler_) sampler_->sample(context, candidates_);

  const std::span<const ReplicaIndex> left = candidates_.view();
  Ranking ranking;
  if (cost_) {
    costs_.resize(std::max(costs_.size(), left.size()));
    const std::span<CostKeys> costs = std::span(costs_).first(left.size());
    cost_->cost(context, left, costs);
    ranking.costs = costs;
    ranking.tolerance = cost_->tolerance();
  } else if (!scorers_.empty()) {
    scores_.resize(std::max(scores_.size(), left.size()));
    sums_.assign(left.size(), 0.0F);
    const std::span<float> scores = std::span(scores_).first(left.size());
    for (const Weighted& weighted : scorers_) {
      weighted.scorer->score(context, left, scores);
      for (std::size_t i = 0; i < left.size(); ++i) sums_[i] += weighted.weight * scores[i];
    }
    ranking.scores = sums_;
  }
  return picker_->pick(context, left, ranking, order);
}

void Pipeline::picked(const Context& context, ReplicaIndex replica) {
  for_each_stage([&](Stage& stage) { stage.picked(context, replica); });
}

void Pipeline::feedback(const Feedback& feedback) {
  for_each_stage([&](Stage& stage) { stage.feedback(feedback); });
}

void Pipeline::forget(ReplicaIndex replica) {
  for_each_stage([&](Stage& stage) { stage.forget(replica); });
}

}  // namespace pointsman
