#include "telemetry/access_log.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/json_text.h"
#include "base/utc_time.h"

namespace pointsman {
namespace {

constexpr std::size_t kMaxText = 256;

// The longest line there can be: nine texts, of which each byte may become six, and the rest.
constexpr std::size_t kMaxLine = 9 * 6 * kMaxText + 1024;

// A line in the making. One is made for every request: it has room for the longest, so that no
// piece of it has to look how much is left.
class Line {
 public:
  [[nodiscard]] std::string_view view() const {
    return {bytes_.data(), static_cast<std::size_t>(end_ - bytes_.data())};
  }

  Line& operator+=(std::string_view piece) {
    std::memcpy(end_, piece.data(), piece.size());
    end_ += piece.size();
    return *this;
  }
  Line& operator+=(char c) {
    *end_++ = c;
    return *this;
  }
  Line& operator+=(std::uint64_t number) {
    constexpr std::ptrdiff_t kDigits = 20;
    end_ = std::to_chars(end_, end_ + kDigits, number).ptr;
    return *this;
  }

  // `key` with all that stands around it.
  void text(std::string_view key, std::string_view value) {
    if (value.empty()) return;
    *this += key;
    value = value.substr(0, kMaxText);
    if (is_plain_json_text(value)) {
      *this += value;
    } else {
      std::string escaped;
      append_json_text(escaped, value);
      *this += std::string_view(escaped);
    }
    *this += '"';
  }
  void count(std::string_view key, std::uint64_t value) {
    *this += key;
    *this += value;
  }
  // Milliseconds with one digit after the point.
  void milliseconds(std::string_view key, Duration value) {
    const std::int64_t tenths = value.count() <= 0 ? 0 : (value.count() + 50'000) / 100'000;
    *this += key;
    *this += static_cast<std::uint64_t>(tenths / 10);
    *this += '.';
    *this += static_cast<char>('0' + tenths % 10);
  }
  void time(std::chrono::system_clock::time_point at) {
    thread_local std::string text;
    text.clear();
    append_utc_time(text, at);
    *this += std::string_view(text);
  }

 private:
  std::array<char, kMaxLine> bytes_;
  char* end_ = bytes_.data();
};

}  // namespace

void append_access_line(const AccessRecord& record, std::string& out) {
  Line line;
  line += R"({"at":")";
  line.time(record.at);
  line += '"';
  line.text(R"(,"client":")", record.client);
  line.text(R"(,"key":")", record.key);
  line.text(R"(,"method":")", record.method);
  line.text(R"(,"path":")", record.path);
  line.text(R"(,"request_id":")", record.request_id);
  line.text(R"(,"model":")", record.model);
  line.text(R"(,"replica":")", record.replica);
  line.text(R"(,"reason":")", record.reason);
  line.text(R"(,"error":")", record.error);
  line.count(R"(,"status":)", static_cast<std::uint64_t>(std::max(record.status, 0)));
  line.count(R"(,"tries":)", record.tries);
  line += record.stream ? R"(,"stream":true)" : R"(,"stream":false)";
  if (record.prompt_tokens > 0) line.count(R"(,"prompt_tokens":)", record.prompt_tokens);
  if (record.predicted_cached > 0) line.count(R"(,"predicted_cached":)", record.predicted_cached);
  if (record.cached_tokens >= 0) {
    line.count(R"(,"cached_tokens":)", static_cast<std::uint64_t>(record.cached_tokens));
  }
  if (record.output_tokens >= 0) {
    line.count(R"(,"output_tokens":)", static_cast<std::uint64_t>(record.output_tokens));
  }
  line.count(R"(,"request_bytes":)", record.request_bytes);
  line.count(R"(,"response_bytes":)", record.response_bytes);
  if (record.ttft > Duration{}) line.milliseconds(R"(,"ttft_ms":)", record.ttft);
  line.milliseconds(R"(,"whole_ms":)", record.whole);
  line += "}\n";
  out += line.view();
}

Result<std::unique_ptr<AccessLog>> AccessLog::open(const std::string& where) {
  if (where == "stdout") return std::unique_ptr<AccessLog>(new AccessLog(STDOUT_FILENO, false));
  const int file = ::open(where.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  if (file < 0) {
    return Error{ErrorKind::kClient,
                 "log.access: cannot append to '" + where + "': " + std::strerror(errno)};
  }
  return std::unique_ptr<AccessLog>(new AccessLog(file, true));
}

AccessLog::AccessLog(int file, bool owned)
    : file_(file), owned_(owned), queue_([this](std::string_view lines) { write_out(lines); }) {}

AccessLog::~AccessLog() {
  queue_.close();
  if (owned_) ::close(file_);
}

void AccessLog::write_out(std::string_view lines) const {
  while (!lines.empty()) {
    const ssize_t written = ::write(file_, lines.data(), lines.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // a full disk or a closed pipe: the log is lost, not the service
    lines.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace pointsman
