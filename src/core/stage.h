#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/context.h"

namespace pointsman {

// What became of a request, told to every stage of the pipeline that chose its replica.
struct Feedback {
  enum class Event : std::uint8_t {
    kFirstToken,  // of a stream; ttft is set
    kFinished,    // ended well
    kFailed,      // the replica failed it
    kCancelled,   // the client left
  };
  Event event = Event::kFinished;
  ReplicaIndex replica = kNoReplica;
  Cost cost{};                  // as it was booked
  std::int64_t work_ahead = 0;  // tokens before its first token at booking, its own included
  Duration ttft{};
  TimePoint now{};
};

// The replicas still in question. Narrowing never empties it: a stage that would leave nobody
// leaves the list as it is. Starts as a view of the pool's list, so that an untouched list costs
// nothing.
class Candidates {
 public:
  void reset(std::span<const ReplicaIndex> all) { view_ = all; }

  [[nodiscard]] std::span<const ReplicaIndex> view() const { return view_; }
  [[nodiscard]] std::size_t size() const { return view_.size(); }
  [[nodiscard]] ReplicaIndex operator[](std::size_t i) const { return view_[i]; }

  // Keeps those that satisfy the predicate, in their order; all if none does. Returns whether any
  // did.
  template <typename Predicate>
  bool narrow(Predicate&& keep) {
    // That all stay is the ordinary case, and copies nothing.
    std::size_t first_gone = 0;
    while (first_gone < view_.size() && keep(view_[first_gone])) ++first_gone;
    if (first_gone == view_.size()) return true;
    std::vector<ReplicaIndex>& out = spare();
    out.assign(view_.begin(), view_.begin() + static_cast<std::ptrdiff_t>(first_gone));
    for (std::size_t i = first_gone + 1; i < view_.size(); ++i) {
      if (keep(view_[i])) out.push_back(view_[i]);
    }
    if (out.empty()) return false;
    view_ = out;
    return true;
  }

  // Replaces the list. `chosen` must be taken from it, and not be empty.
  void assign(std::span<const ReplicaIndex> chosen) {
    std::vector<ReplicaIndex>& out = spare();
    out.assign(chosen.begin(), chosen.end());
    view_ = out;
  }

 private:
  // The buffer that the view does not point into.
  std::vector<ReplicaIndex>& spare() {
    return view_.data() == buffers_[0].data() ? buffers_[1] : buffers_[0];
  }

  std::span<const ReplicaIndex> view_;
  std::array<std::vector<ReplicaIndex>, 2> buffers_;
};

// A part of a policy. State belongs to the stage and changes only in its decision method, in
// picked() and in feedback().
class Stage {
 public:
  virtual ~Stage() = default;
  [[nodiscard]] virtual Needs needs() const { return {}; }
  // The pipeline sends the request to `replica`. Not called for dry runs.
  virtual void picked(const Context&, ReplicaIndex) {}
  virtual void feedback(const Feedback&) {}
  // The replica restarted or left.
  virtual void forget(ReplicaIndex) {}
};

// Removes candidates.
class Filter : public Stage {
 public:
  virtual void apply(Context& context, Candidates& candidates) = 0;
};

// Bounds how many candidates are scored, or names them in an order of its own.
class Sampler : public Stage {
 public:
  virtual void sample(Context& context, Candidates& candidates) = 0;
};

// A value in [0, 1] per candidate, 1 best; weighted and summed with others. A replica's score
// depends on that replica alone.
class Scorer : public Stage {
 public:
  virtual void score(const Context& context, std::span<const ReplicaIndex> candidates,
                     std::span<float> out) = 0;
};

// Costs compared one after the other: the lowest first key wins; candidates within `tolerance[0]`
// of the lowest are level, and the next key decides among them, and so on; level in all keys:
// chance. Every key is finite.
inline constexpr std::size_t kCostKeys = 5;
using CostKeys = std::array<double, kCostKeys>;

// A cost per candidate, lowest best; stands alone in its pipeline.
class CostScorer : public Stage {
 public:
  virtual void cost(const Context& context, std::span<const ReplicaIndex> candidates,
                    std::span<CostKeys> out) = 0;
  [[nodiscard]] virtual CostKeys tolerance() const { return {}; }
};

// Orders the candidates, best first, into `order` and returns how many it wrote (at least one).
// `scores` is empty where the pipeline has no scorer.
struct Ranking {
  std::span<const float> scores;    // weighted sums, parallel to the candidates; or empty
  std::span<const CostKeys> costs;  // parallel to the candidates; or empty
  CostKeys tolerance{};
};
class Picker : public Stage {
 public:
  virtual std::size_t pick(Context& context, std::span<const ReplicaIndex> candidates,
                           const Ranking& ranking, std::span<ReplicaIndex> order) = 0;
};

}  // namespace pointsman
