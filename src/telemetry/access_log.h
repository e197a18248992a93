#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace pointsman {

// One request, as its line in the access log shows it. Never a prompt, an answer, a query string or
// a key. Views need to live during the call only.
struct AccessRecord {
  std::chrono::system_clock::time_point at;  // when the line is written
  std::string_view client;                   // address
  std::string_view method;
  std::string_view path;  // without the query
  std::string_view request_id;
  std::string_view model;    // as the client named it
  std::string_view replica;  // URL of the last replica tried; empty: none
  std::string_view reason;   // why that replica (core/decision.h)
  std::string_view error;    // word of x-pointsman-error or of a cut; empty: none
  int status = 0;            // 499: the client left before an answer
  int tries = 0;             // replicas asked
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
//
// Each thread has a writer of its own with a buffer; full buffers, and those that a timer flushes,
// go to one thread that writes them out, so that a slow disk or a reader that has stopped never
// holds up a request. When more than 16 MiB wait for it, lines are dropped and counted.
class AccessLog {
 public:
  // `where`: "stdout", or a file's path.
  static Result<std::unique_ptr<AccessLog>> open(const std::string& where);
  // Writes what is left. All writers must have been flushed or destroyed.
  ~AccessLog();

  class Writer {
   public:
    explicit Writer(AccessLog& log) : log_(log) { buffer_.reserve(kBuffer + 4096); }
    ~Writer() { flush(); }
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;

    void write(const AccessRecord& record) {
      append_access_line(record, buffer_);
      ++lines_;
      if (buffer_.size() >= kBuffer) flush();
    }
    // Hands over what there is. Called about every half second by the thread's timer.
    void flush();

   private:
    static constexpr std::size_t kBuffer = std::size_t{32} << 10;
    AccessLog& log_;
    std::string buffer_;
    std::uint64_t lines_ = 0;
  };

  [[nodiscard]] std::uint64_t dropped_lines() const {
    return dropped_.load(std::memory_order_relaxed);
  }

 private:
  AccessLog(int file, bool owned);
  std::string hand_over(std::string buffer, std::uint64_t lines);
  void run();

  int file_;
  bool owned_;
  std::atomic<std::uint64_t> dropped_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::string> waiting_;
  std::vector<std::string> spare_;  // emptied buffers, to be used again
  std::size_t waiting_bytes_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace pointsman
