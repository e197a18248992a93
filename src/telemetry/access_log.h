#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"
#include "telemetry/log_queue.h"

namespace pointsman {

// One request, as its line in the access log shows it. Never a prompt, an answer, a query string or
// a key. Views need to live during the call only.
struct AccessRecord {
  std::chrono::system_clock::time_point at;  // when the line is written
  std::string_view client;                   // address
  std::string_view key;                      // name of the client's key; empty: none
  std::string_view method;
  std::string_view path;  // without the query
  std::string_view request_id;
  std::string_view model;    // as the client named it
  std::string_view replica;  // URL of the last replica tried; empty: none
  std::string_view reason;   // why that replica (core/decision.h)
  std::string_view error;    // word of x-pointsman-error or of a cut; empty: none
  int status = 0;            // 499: the client left before an answer
  std::uint32_t tries = 0;   // replicas asked
  bool stream = false;
  std::uint32_t prompt_tokens = 0;     // counted by the engine, else estimated
  std::uint32_t predicted_cached = 0;  // tokens, when the replica was chosen
  std::int64_t cached_tokens = -1;     // as the answer's usage says; -1: it does not
  std::int64_t output_tokens = -1;     // likewise
  std::uint64_t request_bytes = 0;
  std::uint64_t response_bytes = 0;
  Duration ttft{};  // streams: to the first token; 0: none
  Duration whole{};
};

// Appends the record as one JSON object and a line end: keys in the order above, those without a
// value left out. Text from outside is escaped, and cut at 256 bytes.
void append_access_line(const AccessRecord& record, std::string& out);

// The access log: one JSON object per line, to standard output or to a file that is appended to.
// Lines that cannot be written in time are dropped and counted (telemetry/log_queue.h).
class AccessLog {
 public:
  // `where`: "stdout", or a file's path.
  static Result<std::unique_ptr<AccessLog>> open(const std::string& where);
  // Writes what is left. All writers must have been flushed or destroyed.
  ~AccessLog();

  // One for each thread.
  class Writer {
   public:
    explicit Writer(AccessLog& log) : buffer_(log.queue_) {}

    void write(const AccessRecord& record) {
      append_access_line(record, buffer_.bytes());
      buffer_.entry_ended();
    }
    // Hands over what there is. Called about every half second by the thread's timer.
    void flush() { buffer_.flush(); }

   private:
    LogBuffer buffer_;
  };

  [[nodiscard]] std::uint64_t dropped_lines() const { return queue_.dropped_entries(); }

 private:
  AccessLog(int file, bool owned);
  void write_out(std::string_view lines) const;

  int file_;
  bool owned_;
  LogQueue queue_;
};

}  // namespace pointsman
