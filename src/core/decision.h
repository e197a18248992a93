#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/ledger.h"
#include "core/replica.h"

namespace pointsman {

// Why a replica was chosen: one word for metrics, logs and people.
enum class Reason : std::uint8_t {
  kPolicy,        // the policy's ordinary order
  kPrefix,        // it holds (part of) the prompt's prefix
  kSession,       // it is the session's home
  kValve,         // the home or all holders were saturated: the release valve opened
  kAllSaturated,  // every candidate was saturated; all were compared
  kPinned,        // it made the response that the request continues
  kOnlyOne,       // there was one candidate
};

constexpr std::string_view label(Reason reason) {
  switch (reason) {
    case Reason::kPolicy:
      return "policy";
    case Reason::kPrefix:
      return "prefix";
    case Reason::kSession:
      return "session";
    case Reason::kValve:
      return "valve";
    case Reason::kAllSaturated:
      return "all_saturated";
    case Reason::kPinned:
      return "pinned";
    case Reason::kOnlyOne:
      return "only_one";
  }
  return "policy";
}
inline constexpr std::size_t kReasons = 7;

// The answer of a policy: an ordered list of replicas, wait, or reject.
struct Decision {
  enum class Verdict : std::uint8_t {
    kSend,    // to replicas()[0]; the rest are fall-backs, best first
    kWait,    // admission asks to hold the request (no stage does so by default)
    kReject,  // no usable replica
  };
  static constexpr std::size_t kMaxReplicas = 4;

  Verdict verdict = Verdict::kReject;
  Reason reason = Reason::kPolicy;
  PoolIndex pool = 0;
  bool pool_fallback = false;  // the request's own pool had no usable replica
  std::uint8_t count = 0;
  std::array<ReplicaIndex, kMaxReplicas> order{};
  std::uint32_t predicted_cached_tokens = 0;  // on the first replica
  Charge charge;                              // held where the verdict is kSend

  [[nodiscard]] std::span<const ReplicaIndex> replicas() const { return {order.data(), count}; }
};

}  // namespace pointsman
