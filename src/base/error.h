#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pointsman {

// What went wrong, from the point of view of whoever has to react.
enum class ErrorKind : std::uint8_t {
  kClient,     // the client's request is at fault
  kCapacity,   // there is capacity, but it is taken
  kFault,      // the replica failed, or could not be reached
  kTimeout,    // the replica was silent for too long
  kCancelled,  // the client left
  kInternal,   // a defect of this program
};

struct ErrorTraits {
  int http_status;
  std::string_view openai_type;
  bool may_retry;          // on another replica, while nothing has gone to the client
  bool counts_against;     // may lead to ejection of the replica
  std::string_view label;  // in metrics and in x-pointsman-error
};

// The one place that says what each kind means to a client, to retry and to ejection.
constexpr ErrorTraits traits(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kClient:
      return {400, "invalid_request_error", false, false, "client"};
    case ErrorKind::kCapacity:
      return {429, "rate_limit_error", true, false, "capacity"};
    case ErrorKind::kFault:
      return {502, "upstream_error", true, true, "fault"};
    case ErrorKind::kTimeout:
      // The first try may still be computing, so a second would double the work. A connect
      // time-out, where nothing was sent, is a kFault.
      return {504, "timeout_error", false, true, "timeout"};
    case ErrorKind::kCancelled:
      return {499, "cancelled", false, false, "cancelled"};
    case ErrorKind::kInternal:
      return {500, "internal_error", false, false, "internal"};
  }
  return {500, "internal_error", false, false, "internal"};
}

// An error with a text for a person: it names the thing, the value and the remedy.
struct Error {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
};

}  // namespace pointsman
