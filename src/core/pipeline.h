#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/decision.h"
#include "core/stage.h"

namespace pointsman {

// A policy: filter → sampler → scorers → picker. One virtual call per stage and not per replica; no
// allocation once warm.
class Pipeline {
 public:
  struct Weighted {
    std::unique_ptr<Scorer> scorer;
    float weight;
  };
  // Either `scorers` or `cost` may be given, or neither (then all candidates are level).
  // `sampler` may be null.
  Pipeline(std::vector<std::unique_ptr<Filter>> filters, std::unique_ptr<Sampler> sampler,
           std::vector<Weighted> scorers, std::unique_ptr<CostScorer> cost,
           std::unique_ptr<Picker> picker);

  [[nodiscard]] Needs needs() const { return needs_; }

  // Orders up to `order.size()` of the candidates, best first; returns how many, 0 only where there
  // is no candidate. Sets context.reason.
  std::size_t choose(Context& context, std::span<const ReplicaIndex> candidates,
                     std::span<ReplicaIndex> order);

  // The request was booked on `replica`.
  void picked(const Context& context, ReplicaIndex replica);
  void feedback(const Feedback& feedback);
  void forget(ReplicaIndex replica);

 private:
  template <typename Visit>
  void for_each_stage(Visit&& visit);

  std::vector<std::unique_ptr<Filter>> filters_;
  std::unique_ptr<Sampler> sampler_;
  std::vector<Weighted> scorers_;
  std::unique_ptr<CostScorer> cost_;
  std::unique_ptr<Picker> picker_;
  Needs needs_;

  // Scratch, kept warm between decisions.
  Candidates candidates_;
  std::vector<float> scores_;
  std::vector<float> sums_;
  std::vector<CostKeys> costs_;
};

}  // namespace pointsman
