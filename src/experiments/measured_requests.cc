#include "experiments/measured_requests.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/json_line.h"
#include "base/utc_time.h"
#include "sim/decision_log_trace.h"

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
  double t = -1;  // of the decision log
};

// What is wrong; empty: nothing.
std::string_view read_line(std::string_view text, Line& line) {
  constexpr std::pair<std::string_view, std::string_view Line::*> kTexts[] = {
      {"at", &Line::at}, {"replica", &Line::replica}, {"error", &Line::error}};
  constexpr std::pair<std::string_view, double Line::*> kNumbers[] = {
      {"status", &Line::status},
      {"tries", &Line::tries},
      {"prompt_tokens", &Line::prompt_tokens},
      {"cached_tokens", &Line::cached_tokens},
      {"output_tokens", &Line::output_tokens},
      {"ttft_ms", &Line::ttft_ms},
      {"whole_ms", &Line::whole_ms},
      {"t", &Line::t}};
  JsonLine fields(text);
  while (const std::optional<JsonLine::Field> field = fields.next()) {
    if (field->kind == JsonLine::Kind::kText) {
      for (const auto& [key, member] : kTexts) {
        if (field->key == key) line.*member = field->text;
      }
    } else if (field->kind == JsonLine::Kind::kNumber) {
      for (const auto& [key, member] : kNumbers) {
        if (field->key == key) line.*member = field->number;
      }
    } else if (field->key == "stream") {
      line.stream = field->kind == JsonLine::Kind::kTrue;
    }
  }
  return fields.problem();
}

bool is_count(double value) {
  return value >= 0 && value <= kMostTokens && value == std::floor(value);
}

class Collector {
 public:
  // What is wrong with the line; empty: nothing.
  std::string add(std::string_view text) {
    if (DecisionLogHeader::is_one(text)) {
      std::string problem;
      header_ = DecisionLogHeader::read(text, problem);
      return problem;
    }
    Line line;
    const std::string_view wrong = read_line(text, line);
    if (!wrong.empty()) return std::string(wrong);
    std::optional<double> at = read_utc_time(line.at);
    // The decision log says when a request came, the access log when it ended.
    if (header_ && line.t >= 0) at = header_->start_s + line.t + line.whole_ms * 1e-3;
    if (!at) return header_ ? "has no time \"t\"" : "has no time \"at\"";
    if (line.status < 0) return "has no \"status\"";
    if (!(line.whole_ms >= 0)) return "has no \"whole_ms\"";
    // The router's own answers, as to GET /v1/models, asked no replica for anything.
    if (line.status == 200 && line.replica.empty() && line.error.empty()) return {};
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

  [[nodiscard]] std::string_view kind() const {
    return header_ ? "decision log (docs/decision_log.md)" : "access log (docs/admin.md)";
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

  std::optional<DecisionLogHeader> header_;
  MeasuredRequests all_;
  std::map<std::string, std::uint32_t> numbers_;
};

}  // namespace

Result<MeasuredRequests> read_request_log(const std::string& path) {
  if (std::error_code unknown; std::filesystem::is_directory(path, unknown)) {
    return Error{ErrorKind::kClient, path + ": is a folder, not a file"};
  }
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
    const std::string wrong = collector.add(line);
    if (!wrong.empty()) {
      std::string text = path + ":" + std::to_string(number) + ": is not a line of the ";
      text.append(collector.kind()).append(": it ").append(wrong);
      return Error{ErrorKind::kClient, std::move(text)};
    }
  }
  if (file.bad()) return Error{ErrorKind::kClient, path + ": cannot be read further"};
  if (!any) return Error{ErrorKind::kClient, path + ":1: there is no request in this file"};
  return collector.take();
}

}  // namespace pointsman::sim
