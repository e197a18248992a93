#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "base/time.h"
#include "core/decision.h"
#include "core/features.h"
#include "core/fleet_view.h"
#include "core/router.h"
#include "core/signals.h"
#include "sim/engine_model.h"

namespace pointsman::sim {

// Every run begins at this moment: that of a machine that has been up for a while, so that "never"
// is time zero.
constexpr TimePoint kRunBegin{std::chrono::hours(1)};

// A request whose answer is complete, or that failed.
struct FinishedRequest {
  std::uint64_t number = 0;        // of the request, in the order of arrival
  std::uint64_t conversation = 0;  // of the conversation
  std::uint32_t turn = 0;          // 0 for the first
  std::uint32_t balancer = 0;
  ReplicaIndex replica = kNoReplica;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t output_tokens = 0;
  std::uint32_t cached_tokens = 0;  // at first admission
  TimePoint arrived{};
  TimePoint first_token{};  // TimePoint{}: there was none
  TimePoint ended{};
  bool measured = false;
  bool failed = false;
};

// Follows a run. The calls for a balancer are, in their order and with their arguments, those that
// its router gets: a decision log. Fed to another router that was made with the same options they
// give the same decisions. Spans and references are valid during the call.
class RunLog {
 public:
  virtual ~RunLog() = default;

  virtual void report_opened(std::uint32_t, ReplicaIndex) {}
  virtual void report_applied(std::uint32_t, ReplicaIndex, const Signals&) {}
  // `charge` (Charge::entry()) names the request in the calls that follow.
  virtual void decided(std::uint32_t, const Features&, const FleetView&,
                       std::span<const ReplicaIndex>, TimePoint, const Decision&) {}
  virtual void first_token(std::uint32_t, std::uint32_t, TimePoint) {}
  virtual void finished(std::uint32_t, std::uint32_t, const Outcome&, TimePoint) {}
  virtual void peer_applied(std::uint32_t, PeerIndex, std::span<const PeerLoad>) {}
  virtual void forgotten(std::uint32_t, ReplicaIndex) {}

  virtual void request_finished(const FinishedRequest&) {}
  // The replica's engine when all requests have ended.
  virtual void replica_ended(ReplicaIndex, const EngineModel&) {}
};

}  // namespace pointsman::sim
