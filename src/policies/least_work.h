#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/context.h"
#include "core/options.h"
#include "core/stage.h"

namespace pointsman {

// The cost of a replica is the work that stands before the request's first token there, and the
// harm that the request does:
//
//   s * (base + Q + shared_weight * u_shared + private_weight * u_private + decode * routers * d)
//     + kv_weight * max(0, kv + prompt / capacity - kv_knee)
//
// in tokens of prefill, where
//   Q          outstanding prefill: tokens sent there and not yet answered by a first token, those
//              included that other routers tell of
//   u          this request's tokens that are not cached there: *shared* where the block was seen
//              under more than one session, else *private*. Private ones weigh more, since
//              computing them elsewhere makes a second copy that only one session can use
//   d          own requests in flight there, standing for those of every router. Those without a
//              first token count too: they are about to decode, and a burst of short prompts, whose
//              Q is next to nothing, would else all go to the replica that has none yet. Never the
//              numbers of other routers: what all routers see alike makes them choose alike
//   kv         live KV use; `unknown_kv` without a fresh reading. Without a known capacity the
//              prompt adds nothing
//   s          how slow the replica is: 1/weight at first, then learnt
//
// Several routers without a common index each know a part of what is cached where. So where there
// is more than one, and this one knows no replica that holds any private token of the request, its
// private tokens at the session's home weigh less, by `home_trust`: all routers compute the same
// home (by rendezvous hashing, see core/session_ring.h), so what the others were sent of the
// session most likely lies there; by as much of it as is believed to stay cached. A home with much
// work before it loses all the same, and where it is known what lies there, no home is guessed.
//
// Ties go to a replica with a fresh reading (of KV use or queue) before one without, then to fewer
// own requests in flight, then to private chance (ties broken by numbers that routers share would
// make them herd).
//
// Speed: s follows observed over predicted time to first token of streams by an EWMA, relative to
// the pool's median; within the dead band around the median it counts as the median, since raw
// rates chase noise on an equal fleet.
//
// Several routers: set `routers` to their number. docs/concepts/least_work.md says what they gain
// by telling each other their outstanding prefill, and what it costs not to.
class LeastWork final : public CostScorer {
 public:
  static constexpr std::string_view kType = "least_work";
  static constexpr std::string_view kSummary =
      "prefill work before the first token: outstanding, own uncached tokens, decode, KV pressure, "
      "by learnt speed";

  struct Options {
    double base_tokens = 400;
    double private_weight = 3;
    double shared_weight = 1;
    double decode_tokens = 64;
    std::uint32_t routers = 1;
    double home_trust = 0.95;
    double kv_weight = 200'000;
    double kv_knee = 0.95;
    double unknown_kv = 0.5;
    double speed_gain = 0.03;
    double speed_dead_band = 0.3;
    std::uint32_t speed_samples = 20;

    static constexpr auto fields() {
      return std::tuple{
          Field{"base_tokens", &Options::base_tokens, 0.0, 100'000.0,
                "fixed cost of a request, in tokens of prefill"},
          Field{"private_weight", &Options::private_weight, 0.0, 100.0,
                "weight of an uncached token seen under no other session"},
          Field{"shared_weight", &Options::shared_weight, 0.0, 100.0,
                "weight of an uncached token seen under several sessions"},
          Field{"decode_tokens", &Options::decode_tokens, 0.0, 100'000.0,
                "cost of a request in flight there, in tokens of prefill"},
          Field{"routers", &Options::routers, 1U, 1'000U, "routers in front of the same replicas"},
          Field{"home_trust", &Options::home_trust, 0.0, 1.0,
                "of several routers: share of a session's unknown tokens taken to be cached at its "
                "home, where no engine's events tell"},
          Field{"kv_weight", &Options::kv_weight, 0.0, 1e9,
                "cost of KV use beyond the knee, in tokens of prefill per whole cache"},
          Field{"kv_knee", &Options::kv_knee, 0.0, 2.0,
                "KV use with this prompt from which it costs"},
          Field{"unknown_kv", &Options::unknown_kv, 0.0, 1.0, "KV use without a fresh reading"},
          Field{"speed_gain", &Options::speed_gain, 0.0, 1.0,
                "share of a sample in the learnt speed; 0: speeds stay at 1/weight"},
          Field{"speed_dead_band", &Options::speed_dead_band, 0.0, 10.0,
                "deviation from the pool's median speed that counts as none"},
          Field{"speed_samples", &Options::speed_samples, 1U, 100'000U,
                "streams seen before a replica's learnt speed is used"},
      };
    }
  };

  explicit LeastWork(const Options& options) : options_(options) {}

  [[nodiscard]] Needs needs() const override { return {.blocks = true, .session = true}; }
  void cost(const Context& context, std::span<const ReplicaIndex> candidates,
            std::span<CostKeys> out) override;
  void picked(const Context& context, ReplicaIndex replica) override;
  void feedback(const Feedback& feedback) override;
  void forget(ReplicaIndex replica) override;

  // How slow the replica counts: 1 is typical. `weight` is its configured capacity.
  [[nodiscard]] double slowness(ReplicaIndex replica, double weight) const;

 private:
  struct Speed {
    double ratio = 0;  // EWMA of observed over predicted TTFT
    std::uint32_t samples = 0;
    double slowness = 0;  // as used; 0: not learnt yet
    double weight = 1;    // as last seen
  };

  // The home of the request's session where it stands for what this router does not know, else
  // kNoReplica. `shared`: the leading tokens that were seen under several sessions.
  [[nodiscard]] ReplicaIndex home(const Context& context, std::span<const ReplicaIndex> candidates,
                                  double shared) const;
  void settle();

  Options options_;
  std::vector<Speed> speeds_;  // by ReplicaIndex
  std::vector<double> scratch_;
  std::uint32_t until_settled_ = 0;  // samples until the median is taken anew
};

}  // namespace pointsman
