#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/time.h"
#include "net/asio.h"
#include "net/reactor.h"
#include "sim/workload.h"

namespace pointsman {

struct LoadOptions {
  std::vector<asio::ip::tcp::endpoint> targets;  // user i speaks to target i modulo their number
  std::string model = "sim";
  sim::WorkloadSpec workload;
  std::uint64_t seed = 1;
  std::size_t users = 50;          // conversations at once
  std::uint64_t requests = 2'000;  // that are measured
  std::uint64_t warm_up = 500;     // requests before these, sent and not measured
  double speed = 1;                // engine seconds per second, as the replicas have it
};

// One measured request. Seconds are engine time: real ones times the speed.
struct LoadSample {
  std::uint64_t conversation = 0;
  std::uint32_t turn = 0;  // 0 for the first of its conversation
  double ttft_s = 0;       // from the request's first byte sent to the first event with output
  double e2e_s = 0;        // to the end of the stream
};

struct LoadResult {
  std::vector<LoadSample> samples;  // of the measured requests that ended well
  std::uint64_t failed = 0;         // measured requests that did not
  std::string first_failure;        // of those of the warm-up too; what it was
  // Completions (measured or not) between the first measured request's start and the last one's.
  std::uint64_t window_completions = 0;
  double window_s = 0;  // engine seconds of that window
};

// Simulated chat users in a closed loop: each sends a turn, reads the streamed answer to its end,
// thinks, and sends the next turn with everything said so far. A conversation that has ended, or
// failed, is followed by the next one of the workload. After the last request has been sent, those
// under way are read to their ends, so that no slow one is left out.
//
// For the reactor's thread. To be destroyed when the reactor has stopped for good.
class LoadGenerator {
 public:
  LoadGenerator(Reactor& reactor, LoadOptions options);
  ~LoadGenerator();
  LoadGenerator(const LoadGenerator&) = delete;
  LoadGenerator& operator=(const LoadGenerator&) = delete;

  // Called when the first measured request is about to be sent.
  void on_measuring(std::function<void()> callback) { on_measuring_ = std::move(callback); }

  // Begins. `on_done` is called once, when the last answer has ended; not from inside this call.
  void start(std::function<void(LoadResult)> on_done);

  // Requests that have ended, of warm_up + requests. Thread-safe.
  [[nodiscard]] std::uint64_t ended() const { return ended_.load(std::memory_order_relaxed); }

 private:
  class User;

  // The number of the next request, or nothing when all have been sent.
  [[nodiscard]] bool take_request(std::uint64_t& number);
  void request_ended(std::uint64_t number, const LoadSample* sample, std::string_view failure);
  [[nodiscard]] double engine_seconds(Duration real) const {
    return to_seconds(real) * options_.speed;
  }

  Reactor& reactor_;
  const LoadOptions options_;
  std::vector<std::unique_ptr<User>> users_;
  std::function<void()> on_measuring_;
  std::function<void(LoadResult)> on_done_;
  std::uint64_t sent_ = 0;
  std::atomic<std::uint64_t> ended_ = 0;
  std::uint64_t next_conversation_ = 0;
  TimePoint window_start_{};
  TimePoint window_end_{};
  LoadResult result_;
};

}  // namespace pointsman
