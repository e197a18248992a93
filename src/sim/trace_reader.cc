#include "sim/trace_reader.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/utc_time.h"
#include "sim/scenario.h"

namespace pointsman::sim {
namespace {

constexpr std::size_t kLongestLine = std::size_t{1} << 20;
constexpr std::size_t kBuffer = std::size_t{64} << 10;
constexpr std::uint32_t kMooncakeBlock = 512;
constexpr double kMostTokens = 1e8;
// Seconds. Lines of real traces are out of order by less; farther back the order is none.
constexpr double kMostLate = 10;

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<double> number(std::string_view text) {
  text = trimmed(text);
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<std::uint32_t> tokens(std::string_view text) {
  const std::optional<double> value = number(text);
  if (!value || *value < 0 || *value > kMostTokens) return std::nullopt;
  return static_cast<std::uint32_t>(*value);
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", seconds);
  return text;
}

std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = 0x9ae1'6a3b'2f90'404fULL;
  for (const char c : text) hash = mixed(hash ^ static_cast<unsigned char>(c));
  return hash;
}

// What follows "key": in a flat JSON object; empty where there is no such key, or more than one.
std::string_view json_value(std::string_view line, std::string_view key) {
  const std::string quoted = "\"" + std::string(key) + "\"";
  std::size_t at = line.find(quoted);
  if (at == std::string_view::npos) return {};
  if (line.find(quoted, at + 1) != std::string_view::npos) return {};
  at = line.find_first_not_of(" \t", at + quoted.size());
  if (at == std::string_view::npos || line[at] != ':') return {};
  std::string_view rest = trimmed(line.substr(at + 1));
  const char end = rest.starts_with('[') ? ']' : ',';
  const std::size_t stop = std::min(rest.find(end), rest.find('}'));
  return trimmed(rest.substr(0, stop));
}

// A line of the access log of `pointsman serve` (docs/admin.md).
bool is_access_log(std::string_view line) {
  for (const std::string_view key : {"at", "client", "status", "whole_ms"}) {
    if (json_value(line, key).empty()) return false;
  }
  return true;
}

}  // namespace

Error TraceReader::error(const std::string& what) const {
  return {ErrorKind::kClient, path_ + ":" + std::to_string(line_number_) + ": " + what};
}

Result<TraceReader> TraceReader::open(const std::string& path) {
  TraceReader reader(path);
  // Before it is opened, since to open a pipe waits for its writer.
  std::error_code unknown;
  const std::filesystem::file_status found = std::filesystem::status(path, unknown);
  if (std::filesystem::exists(found) && !std::filesystem::is_regular_file(found)) {
    return Error{ErrorKind::kClient, path +
                                         ": is a folder, a pipe or a device: a trace must be a "
                                         "regular file, since each run reads it anew"};
  }
  reader.file_.reset(std::fopen(path.c_str(), "rb"));
  if (!reader.file_) {
    return Error{ErrorKind::kClient,
                 path + ": cannot be read: " + std::generic_category().message(errno)};
  }
  const Result<void> header = reader.read_header();
  if (!header) return header.error();
  return reader;
}

Result<bool> TraceReader::read_line() {
  do {
    line_.clear();
    ++line_number_;
    for (bool ended = false; !ended;) {
      if (buffer_at_ == buffer_.size() && !fill_buffer()) {
        if (std::ferror(file_.get()) != 0) return error("cannot be read further");
        break;
      }
      const std::size_t end = buffer_.find('\n', buffer_at_);
      ended = end != std::string::npos;
      const std::size_t next = ended ? end + 1 : buffer_.size();
      line_.append(buffer_, buffer_at_, next - buffer_at_);
      buffer_at_ = next;
      if (line_.find('\0') != std::string::npos) {
        return error("is no text, and a trace is one; unpack what is compressed");
      }
      if (line_.size() > kLongestLine) return error("this line is longer than 1 MiB");
    }
    if (line_.empty()) return false;
  } while (trimmed(line_).empty());
  return true;
}

bool TraceReader::fill_buffer() {
  buffer_.resize(kBuffer);
  buffer_.resize(std::fread(buffer_.data(), 1, buffer_.size(), file_.get()));
  buffer_at_ = 0;
  return !buffer_.empty();
}

void TraceReader::leave_out(const char* why) {
  if (left_out_++ == 0) first_left_out_ = "line " + std::to_string(line_number_) + ": it " + why;
}

std::string TraceReader::none_text(std::string_view where) const {
  std::string text = std::string("there is no request").append(where);
  if (left_out_ == 0) return text;
  return text + "; left out: " + std::to_string(left_out_) + (left_out_ == 1 ? " line" : " lines") +
         ", the first of them " + first_left_out_;
}

Result<void> TraceReader::read_header() {
  const Result<bool> line = read_line();
  if (!line) return line.error();
  if (!*line) return error("there is no request");
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (line_.starts_with(kByteOrderMark)) line_.erase(0, kByteOrderMark.size());
  if (DecisionLogHeader::is_one(line_)) return read_decision_log();
  if (trimmed(line_).starts_with('{')) {
    if (is_access_log(line_)) {
      return error(
          "is the access log, which does not say what prompts share: a trace is its fellow, the "
          "decision log (docs/decision_log.md)");
    }
    format_ = Format::kMooncake;
    pending_ = true;
    return {};
  }
  std::optional<std::size_t> time;
  std::optional<std::size_t> prompt;
  std::optional<std::size_t> output;
  for (std::size_t i = 0; const std::optional<std::string_view> name = column(i); ++i) {
    if (*name == "TIMESTAMP" || *name == "Timestamp") {
      time = i;
      format_ = *name == "TIMESTAMP" ? Format::kAzure : Format::kBurstGpt;
    } else if (*name == "ContextTokens" || *name == "Request tokens") {
      prompt = i;
    } else if (*name == "GeneratedTokens" || *name == "Response tokens") {
      output = i;
    } else if (*name == "Session ID") {
      session_column_ = i;
      has_sessions_ = true;
    }
  }
  if (!time || !prompt || !output) {
    return error(
        "is no known trace: expected a JSON object (Mooncake, or the decision log with its first "
        "line), or a line with the columns "
        "Timestamp, Request tokens, Response tokens (BurstGPT) or TIMESTAMP, ContextTokens, "
        "GeneratedTokens (Azure)");
  }
  time_column_ = *time;
  prompt_column_ = *prompt;
  output_column_ = *output;
  return {};
}

Result<void> TraceReader::read_decision_log() {
  format_ = Format::kDecisionLog;
  for (;;) {
    const std::size_t unserved = decisions_.unserved();
    const std::string problem = decisions_.add(trimmed(line_));
    if (!problem.empty()) {
      return error("is no line of the decision log (docs/decision_log.md): it " + problem);
    }
    if (decisions_.unserved() > unserved) leave_out("got no answer");
    const Result<bool> more = read_line();
    if (!more) return more.error();
    if (!*more) break;
  }
  decisions_.finish();
  if (decisions_.length_s() > kLongestRunSeconds) {
    return error("its requests come within " + seconds_text(decisions_.length_s()) +
                 " s, and a run may last " + seconds_text(kLongestRunSeconds) + " s");
  }
  return {};
}

std::optional<std::string_view> TraceReader::column(std::size_t wanted) const {
  // A comma within quotes ends no column.
  bool quoted = false;
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= line_.size(); ++at) {
    if (at < line_.size() && line_[at] == '"') quoted = !quoted;
    if (at < line_.size() && (quoted || line_[at] != ',')) continue;
    if (wanted == 0) {
      std::string_view text = trimmed(std::string_view(line_).substr(begin, at - begin));
      if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
        text = trimmed(text.substr(1, text.size() - 2));
      }
      return text;
    }
    --wanted;
    begin = at + 1;
  }
  return std::nullopt;
}

Result<bool> TraceReader::next(TraceRequest& request) {
  if (format_ == Format::kDecisionLog) return decisions_.next(request);
  for (;;) {
    if (!pending_) {
      const Result<bool> line = read_line();
      if (!line) return line.error();
      if (!*line) return false;
    }
    pending_ = false;
    request.content.clear();
    request.session_key = 0;
    const Result<double> time =
        format_ == Format::kMooncake ? parse_mooncake(request) : parse_csv(request);
    if (!time) return time.error();
    if (request.prompt_tokens == 0 || request.output_tokens == 0) {
      leave_out(request.prompt_tokens == 0 ? "has no prompt tokens" : "has no answer tokens");
      continue;
    }
    request.max_tokens = request.output_tokens;
    if (!first_) first_ = last_ = *time;
    if (*time < last_) {
      if (last_ - *time > kMostLate) {
        return error("is " + seconds_text(last_ - *time) +
                     " s earlier than a line before it: sort the file by time");
      }
      ++late_;
    }
    last_ = std::max(last_, *time);
    if (last_ - *first_ > kLongestRunSeconds) {
      return error("comes " + seconds_text(last_ - *first_) +
                   " s after the first request, and a run may last " +
                   seconds_text(kLongestRunSeconds) + " s");
    }
    request.at = Duration(std::llround((last_ - *first_) * 1e9));
    const std::uint32_t end = request.prompt_tokens + request.output_tokens;
    if (request.content.empty()) {
      request.content.push_back({file_run(requests_), end});
    } else if (format_ == Format::kMooncake) {
      // Later prompts name the blocks of an answer with ids of their own.
      request.content.push_back({answer_run(requests_), end});
    } else {
      request.content.back().end = end;
    }
    ++requests_;
    return true;
  }
}

Result<double> TraceReader::parse_mooncake(TraceRequest& request) const {
  if (!trimmed(line_).starts_with('{') || !trimmed(line_).ends_with('}')) {
    return error("is no whole JSON object");
  }
  const std::optional<double> time = number(json_value(line_, "timestamp"));
  const std::optional<std::uint32_t> prompt = tokens(json_value(line_, "input_length"));
  const std::optional<std::uint32_t> output = tokens(json_value(line_, "output_length"));
  std::string_view ids = json_value(line_, "hash_ids");
  if (!time || !prompt || !output || !ids.starts_with('[')) {
    return error(
        "needs timestamp, input_length, output_length (numbers) and hash_ids (a list), "
        "each once");
  }
  request.prompt_tokens = *prompt;
  request.output_tokens = *output;
  ids.remove_prefix(1);
  std::uint32_t end = 0;
  while (!trimmed(ids).empty() && end < *prompt) {
    const std::size_t comma = std::min(ids.find(','), ids.size());
    const std::optional<double> id = number(ids.substr(0, comma));
    if (!id || *id < 0 || *id > 1e15) return error("an entry of hash_ids is no whole number");
    end = std::min(end + kMooncakeBlock, *prompt);
    request.content.push_back({trace_run(static_cast<std::uint64_t>(*id)), end});
    ids.remove_prefix(std::min(comma + 1, ids.size()));
  }
  return *time / 1'000;
}

Result<double> TraceReader::parse_csv(TraceRequest& request) const {
  const std::optional<std::string_view> when = column(time_column_);
  const std::optional<std::string_view> prompt = column(prompt_column_);
  const std::optional<std::string_view> output = column(output_column_);
  if (!when || !prompt || !output) return error("has too few columns");
  const std::optional<double> time =
      format_ == Format::kAzure ? read_utc_time(*when) : number(*when);
  if (!time) {
    return error("'" + std::string(*when) + "' is no time" +
                 (format_ == Format::kAzure ? " as in 2023-11-16 18:15:46.6805900" : ""));
  }
  const std::optional<std::uint32_t> in = tokens(*prompt);
  const std::optional<std::uint32_t> out = tokens(*output);
  if (!in || !out) {
    return error("'" + std::string(in ? *output : *prompt) + "' is no number of tokens");
  }
  request.prompt_tokens = *in;
  request.output_tokens = *out;
  if (has_sessions_) {
    const std::optional<std::string_view> session = column(session_column_);
    if (session && !session->empty()) {
      request.session_key = hash_text(*session);
      request.content.push_back({session_run(request.session_key), *in});
    }
  }
  return *time;
}

}  // namespace pointsman::sim
