#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"
#include "core/features.h"
#include "telemetry/log_queue.h"
#include "telemetry/opaque_hash.h"

namespace pointsman {

// One request whose replica was chosen here, or for which there was none. Never a text of the
// client but the model's name. Views need to live during the call only.
struct DecisionRecord {
  TimePoint arrived{};  // its head was complete
  std::string_view model;
  std::string_view pool;                     // of the replica
  std::string_view replica;                  // URL of the last one tried; empty: there was none
  std::string_view reason;                   // why that one (core/decision.h)
  std::string_view error;                    // as in the access log; empty: none
  std::uint64_t session = 0;                 // Features::session_key
  std::uint32_t estimated_tokens = 0;        // of the prompt, as the decision saw it
  std::uint32_t max_tokens = 0;              // the client's limit; 0: none
  std::uint32_t expected_output_tokens = 0;  // as the decision saw it; 0: nothing was known
  std::uint32_t block_tokens = 16;           // of each of the blocks
  std::span<const BlockHash> blocks;         // Features::blocks
  std::uint32_t predicted_cached = 0;        // tokens, on the replica
  std::uint32_t tries = 0;
  std::int32_t status = 0;          // sent to the client; 499: it left before
  bool stream = false;              // of the answer
  std::uint32_t output_events = 0;  // of a stream: events with output
  std::int64_t prompt_tokens = -1;  // as the engine counted; -1: it did not say
  std::int64_t cached_tokens = -1;  // likewise
  std::int64_t output_tokens = -1;  // likewise
  Duration ttft{};                  // streams: to the first token; 0: none
  Duration whole{};                 // to the end
};

struct DecisionLogOptions {
  std::string path;
  double sample = 1;  // share of the sessions that are written down, (0, 1]
  std::size_t max_bytes = std::size_t{128} << 20;  // of one file
  std::uint32_t keep = 4;                          // older files
  std::string key;                                 // of the hashes; empty: a random one
  std::uint32_t block_tokens = 16;                 // of most records' blocks
};

// The decision log: what the router knew of each request, what it chose and what came of it, one
// JSON object per line (docs/decision_log.md). The simulator reads it as a trace
// (sim/trace_reader).
//
// Lines are made and written by a thread of its own. A line names a request of the same file that
// had the longest beginning of its blocks, and lists only the hashes of the others, so that a
// conversation's file grows with its text and not with the square of it.
class DecisionLog {
 public:
  static constexpr int kVersion = 1;
  // Blocks of one record; what a longer prompt has beyond is left out.
  static constexpr std::size_t kMostBlocks = 32'768;

  // `now` and `wall` are the same moment. The error names the key and the file.
  static Result<std::unique_ptr<DecisionLog>> open(const DecisionLogOptions& options, TimePoint now,
                                                   std::chrono::system_clock::time_point wall);
  // Writes what is left. All writers must have been flushed or destroyed.
  ~DecisionLog();

  // One for each thread.
  class Writer {
   public:
    explicit Writer(DecisionLog& log);

    // Whether a request of that session (0: of none) belongs to the sample. All requests of a
    // session do or do not, at every router with the same key.
    [[nodiscard]] bool takes(std::uint64_t session);
    void write(const DecisionRecord& record);
    // Called about every half second by the thread's timer.
    void flush() { buffer_.flush(); }

   private:
    DecisionLog& log_;
    LogBuffer buffer_;
    std::uint64_t sessionless_ = 0;
  };

  // Lines that could not be written in time, or not at all.
  [[nodiscard]] std::uint64_t dropped_lines() const {
    return queue_->dropped_entries() + lost_.load(std::memory_order_relaxed);
  }

 private:
  class File;

  DecisionLog(const DecisionLogOptions& options, TimePoint now,
              std::chrono::system_clock::time_point wall);

  const OpaqueHash opaque_;
  const std::uint64_t sample_limit_;  // opaque hashes up to here are taken
  std::atomic<std::uint64_t> writers_{0};
  std::atomic<std::uint64_t> lost_{0};
  std::unique_ptr<File> file_;
  std::unique_ptr<LogQueue> queue_;
};

}  // namespace pointsman
