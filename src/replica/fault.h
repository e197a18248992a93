#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace pointsman {

// What happens where a faulty answer stops.
enum class FaultEnd : std::uint8_t {
  kClose,  // FIN; what was written before arrives
  kReset,  // RST
  kHang,   // nothing more, until the client leaves
};

// Something that goes wrong, or merely otherwise, with the answers of a replica: on demand, so that
// a test needs no other fake server. Durations are real ones, not engine time.
//
// As JSON, for POST /fault; every key is optional, and unknown keys are errors:
//
//   path            only requests whose path starts with it; "" (default): every path, but for
//                   /health, /ping and /metrics, which a fault must name
//   count           for so many requests, then it is over; 0: until replaced. Default 1
//   delay_s         wait before anything is sent
//   status, body, content_type, headers {name: value}
//                   answer this instead of the engine's. Without a `status`: 200
//   no_content_length   such a body ends with the connection, not by its length
//   raw             these bytes, head and framing included, then `then`
//   piece_bytes, piece_s   `body` and `raw` leave in pieces of that size at that interval
//   before_head     nothing is sent, then `then`
//   after_head      the head of the engine's answer (a stream's) is sent, then `then`
//   after_events    N events of the engine's stream are sent, then `then`
//   in_event        with after_events: half of the next event is sent as well, inside its chunk
//   then            "close" (default), "reset" or "hang"
struct Fault {
  std::string path{};
  std::uint32_t count = 1;
  Duration delay{};
  std::optional<int> status{};
  std::optional<std::string> body{};
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers{};
  bool no_content_length = false;
  std::optional<std::string> raw{};
  std::size_t piece_bytes = 0;  // 0: all at once
  Duration piece_interval{};
  bool before_head = false;
  bool after_head = false;
  std::optional<std::uint32_t> after_events{};
  bool in_event = false;
  FaultEnd then = FaultEnd::kClose;

  // Whether the answer is the fault's own, and the engine is not asked.
  [[nodiscard]] bool replaces_answer() const { return status || body || raw || before_head; }
};

[[nodiscard]] Result<Fault> parse_fault(std::string_view json);

// The faults that wait for a request. Later ones come after earlier ones of the same path.
class FaultQueue {
 public:
  void add(Fault fault) { faults_.push_back(std::move(fault)); }
  void clear() { faults_.clear(); }
  [[nodiscard]] std::size_t size() const { return faults_.size(); }

  // The fault of a request to `path`, counted. `named`: only one that has a `path`.
  [[nodiscard]] std::optional<Fault> take(std::string_view path, bool named = false);

 private:
  std::vector<Fault> faults_;
};

}  // namespace pointsman
