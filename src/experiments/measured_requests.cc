#include "experiments/measured_requests.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace pointsman::sim {
namespace {

constexpr std::uint32_t kMostTokens = 100'000'000;

// What a line says. Texts are views of the line, as they are written there.
struct Line {
  std::string_view at;
  std::string_view replica;
  std::string_view error;
  bool stream = false;
  double status = -1;
  double tries = -1;
  double prompt_tokens = -1;
  double cached_tokens = -1;
  double output_tokens = -1;
  double ttft_ms = -1;
  double whole_ms = -1;
};

// Reads one flat JSON object: texts, numbers and booleans by their keys.
class LineReader {
 public:
  explicit LineReader(std::string_view text) : rest_(text) {}

  // What is wrong; empty: nothing.
  std::string_view read(Line& line) {
    if (!take('{')) return "is not a JSON object";
    if (take('}')) return {};
    do {
      const std::optional<std::string_view> key = string();
      if (!key || !take(':')) return "is not a JSON object of keys and values";
      if (!value(*key, line)) return "has a value that no access log has";
    } while (take(','));
    if (!take('}')) return "does not end as a JSON object does";
    skip_blanks();
    return rest_.empty() ? std::string_view() : "has something after its object";
  }

 private:
  void skip_blanks() {
    const std::size_t begin = rest_.find_first_not_of(" \t\r");
    rest_.remove_prefix(std::min(begin, rest_.size()));
  }
  bool take(char wanted) {
    skip_blanks();
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::optional<std::string_view> string() {
    if (!take('"')) return std::nullopt;
    std::size_t end = 0;
    while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) return std::nullopt;
    const std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return text;
  }
  bool value(std::string_view key, Line& line) {
    skip_blanks();
    if (rest_.starts_with('"')) {
      const std::optional<std::string_view> text = string();
      if (!text) return false;
      if (key == "at") line.at = *text;
      if (key == "replica") line.replica = *text;
      if (key == "error") line.error = *text;
      return true;
    }
    for (const std::string_view word : {"true", "false", "null"}) {
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      if (key == "stream") line.stream = word == "true";
      return true;
    }
    double number = 0;
    const auto read = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (read.ec != std::errc()) return false;
    rest_.remove_prefix(static_cast<std::size_t>(read.ptr - rest_.data()));
    if (key == "status") line.status = number;
    if (key == "tries") line.tries = number;
    if (key == "prompt_tokens") line.prompt_tokens = number;
    if (key == "cached_tokens") line.cached_tokens = number;
    if (key == "output_tokens") line.output_tokens = number;
    if (key == "ttft_ms") line.ttft_ms = number;
    if (key == "whole_ms") line.whole_ms = number;
    return true;
  }

  std::string_view rest_;
};

std::optional<int> digits(std::string_view text, std::size_t at, std::size_t count) {
  int value = 0;
  const auto read = std::from_chars(text.data() + at, text.data() + at + count, value);
  if (read.ec != std::errc() || read.ptr != text.data() + at + count) return std::nullopt;
  return value;
}

// "2026-01-31T12:34:56.007Z" in seconds.
std::optional<double> seconds_of(std::string_view at) {
  constexpr std::string_view kForm = "0000-00-00T00:00:00.000Z";
  if (at.size() != kForm.size()) return std::nullopt;
  for (const std::size_t place : {4, 7, 10, 13, 16, 19, 23}) {
    if (at[place] != kForm[place]) return std::nullopt;
  }
  const auto year = digits(at, 0, 4);
  const auto month = digits(at, 5, 2);
  const auto day = digits(at, 8, 2);
  const auto hour = digits(at, 11, 2);
  const auto minute = digits(at, 14, 2);
  const auto second = digits(at, 17, 2);
  const auto milli = digits(at, 20, 3);
  if (!year || !month || !day || !hour || !minute || !second || !milli) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return std::nullopt;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(days) * 86'400 + *hour * 3'600 + *minute * 60 + *second +
         *milli * 1e-3;
}

bool is_count(double value) {
  return value >= 0 && value <= kMostTokens && value == std::floor(value);
}

class Collector {
 public:
  // What is wrong with the line; empty: nothing.
  std::string_view add(std::string_view text) {
    Line line;
    const std::string_view wrong = LineReader(text).read(line);
    if (!wrong.empty()) return wrong;
    const std::optional<double> at = seconds_of(line.at);
    if (!at) return "has no time \"at\"";
    if (line.status < 0) return "has no \"status\"";
    if (!(line.whole_ms >= 0)) return "has no \"whole_ms\"";
    ++all_.lines;
    if (line.status != 200 || line.replica.empty() || !line.error.empty()) {
      ++all_.failed;
    } else if (line.tries != 1) {
      ++all_.tried_again;
    } else if (!line.stream || !(line.ttft_ms > 0)) {
      ++all_.not_streamed;
    } else if (!is_count(line.output_tokens) || !is_count(line.prompt_tokens) ||
               line.output_tokens < 1 || line.prompt_tokens < 1) {
      ++all_.uncounted;
    } else {
      add(line, *at);
    }
    return {};
  }

  MeasuredRequests take() { return std::move(all_); }

 private:
  void add(const Line& line, double at) {
    MeasuredRequest request;
    request.replica = number_of(line.replica);
    request.start = at - line.whole_ms * 1e-3;
    request.first_token = request.start + std::min(line.ttft_ms, line.whole_ms) * 1e-3;
    request.end = at;
    request.prompt_tokens = static_cast<std::uint32_t>(line.prompt_tokens);
    request.output_tokens = static_cast<std::uint32_t>(line.output_tokens);
    if (is_count(line.cached_tokens)) {
      // At least the last token of a prompt is computed.
      request.cached_tokens =
          std::min(static_cast<std::uint32_t>(line.cached_tokens), request.prompt_tokens - 1);
    } else {
      ++all_.without_cached;
    }
    all_.requests.push_back(request);
  }

  std::uint32_t number_of(std::string_view url) {
    const auto next = static_cast<std::uint32_t>(all_.replicas.size());
    const auto [known, is_new] = numbers_.try_emplace(std::string(url), next);
    if (is_new) all_.replicas.emplace_back(url);
    return known->second;
  }

  MeasuredRequests all_;
  std::map<std::string, std::uint32_t> numbers_;
};

}  // namespace

Result<MeasuredRequests> read_access_log(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return Error{ErrorKind::kClient,
                 path + ": cannot be read: " + std::generic_category().message(errno)};
  }
  Collector collector;
  std::string line;
  std::uint64_t number = 0;
  bool any = false;
  while (std::getline(file, line)) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    any = true;
    const std::string_view wrong = collector.add(line);
    if (!wrong.empty()) {
      return Error{ErrorKind::kClient,
                   path + ":" + std::to_string(number) +
                       ": is not a line of the access log (docs/admin.md): it " +
                       std::string(wrong)};
    }
  }
  if (file.bad()) return Error{ErrorKind::kClient, path + ": cannot be read further"};
  if (!any) return Error{ErrorKind::kClient, path + ":1: there is no request in this file"};
  return collector.take();
}

}  // namespace pointsman::sim
