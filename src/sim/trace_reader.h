#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"
#include "sim/decision_log_trace.h"
#include "sim/trace_request.h"

namespace pointsman::sim {

// Reads requests from a trace file one after the other, without holding it. The first line tells
// the format:
//
// - Mooncake (FAST'25): JSON lines with timestamp (ms), input_length, output_length, and hash_ids,
//   one id per 512 tokens of the prompt that stands for them and all before them. No sessions.
// - BurstGPT: CSV with the columns Timestamp (s), Request tokens, Response tokens; with Session ID
//   requests of one session are taken to continue one text, else nothing is shared. Requests
//   without a response failed.
// - Azure LLM inference (2023 and 2024): CSV with TIMESTAMP, ContextTokens, GeneratedTokens.
// Nothing
//   is shared.
// - The decision log of `pointsman serve` (docs/decision_log.md): with sessions, limits and what is
//   shared. Of this format the requests are held, but not their lines (decision_log_trace.h).
//
// Clients' limits are those of the decision log; the other formats name none, and the output stands
// for it. Requests without prompt or answer tokens are left out. Lines come in the order of time:
// up to 10 s back are forgiven, and such a line comes with the one before it. Lines may be up to 1
// MiB long. The file is a regular one, since each run reads it anew. Errors name the file and the
// line.
class TraceReader {
 public:
  [[nodiscard]] static Result<TraceReader> open(const std::string& path);

  // The next request, or nothing at the end of the file. `request` is reused.
  [[nodiscard]] Result<bool> next(TraceRequest& request);

  // Lines so far that were not taken as they are: requests without prompt or answer tokens, which
  // are left out; and times before that of a line before, for which that was taken.
  [[nodiscard]] std::uint64_t left_out() const { return left_out_; }
  [[nodiscard]] std::uint64_t late() const { return late_; }
  // Of a file whose end came without one request: "there is no request", `where`, and why.
  [[nodiscard]] std::string none_text(std::string_view where = {}) const;

 private:
  enum class Format : std::uint8_t { kMooncake, kBurstGpt, kAzure, kDecisionLog };
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  explicit TraceReader(std::string path) : path_(std::move(path)) {}

  [[nodiscard]] Error error(const std::string& what) const;
  [[nodiscard]] Result<bool> read_line();
  // Reads on in the file. False at its end.
  [[nodiscard]] bool fill_buffer();
  void leave_out(const char* why);
  [[nodiscard]] Result<void> read_header();
  [[nodiscard]] Result<void> read_decision_log();
  // Seconds of the line's own clock.
  [[nodiscard]] Result<double> parse_mooncake(TraceRequest& request) const;
  [[nodiscard]] Result<double> parse_csv(TraceRequest& request) const;
  // Nothing where the line has too few columns.
  [[nodiscard]] std::optional<std::string_view> column(std::size_t number) const;

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  Format format_ = Format::kMooncake;
  std::string buffer_;  // of the file; what is before buffer_at_ has been used
  std::size_t buffer_at_ = 0;
  std::string line_;
  std::uint64_t line_number_ = 0;
  bool pending_ = false;  // line_ has been read and not been used
  std::size_t time_column_ = 0;
  std::size_t prompt_column_ = 0;
  std::size_t output_column_ = 0;
  std::size_t session_column_ = 0;
  bool has_sessions_ = false;
  std::uint64_t requests_ = 0;
  std::uint64_t left_out_ = 0;
  std::string first_left_out_;  // its line, and why
  std::uint64_t late_ = 0;
  std::optional<double> first_;  // time of the first request
  double last_ = 0;
  DecisionLogTrace decisions_;
};

}  // namespace pointsman::sim
