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

namespace pointsman {
namespace {

constexpr std::size_t kMaxWaiting = std::size_t{16} << 20;
constexpr std::size_t kMaxText = 256;

// The longest line there can be: eight texts, of which each byte may become six, and the rest.
constexpr std::size_t kMaxLine = 8 * 6 * kMaxText + 1024;

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
  // RFC 3339 in UTC with milliseconds. The part down to the second is made once a second.
  void time(std::chrono::system_clock::time_point at) {
    using std::chrono::floor;
    thread_local std::chrono::sys_seconds cached_second{};
    thread_local std::string cached_text;
    const auto second = floor<std::chrono::seconds>(at);
    if (second != cached_second || cached_text.empty()) {
      cached_second = second;
      cached_text = text_of(second);
    }
    *this += std::string_view(cached_text);
    const auto milliseconds =
        std::chrono::duration_cast<std::chrono::milliseconds>(at - second).count();
    *this += static_cast<char>('0' + milliseconds / 100);
    *this += static_cast<char>('0' + milliseconds / 10 % 10);
    *this += static_cast<char>('0' + milliseconds % 10);
    *this += 'Z';
  }

 private:
  // Down to the point that the milliseconds follow.
  static std::string text_of(std::chrono::sys_seconds second) {
    const auto day = std::chrono::floor<std::chrono::days>(second);
    const std::chrono::year_month_day date{day};
    const std::chrono::hh_mm_ss time{second - day};
    std::string text = std::to_string(static_cast<int>(date.year()));
    const auto two = [&text](char before, auto number) {
      text += before;
      text += static_cast<char>('0' + number / 10);
      text += static_cast<char>('0' + number % 10);
    };
    two('-', static_cast<unsigned>(date.month()));
    two('-', static_cast<unsigned>(date.day()));
    two('T', time.hours().count());
    two(':', time.minutes().count());
    two(':', time.seconds().count());
    text += '.';
    return text;
  }

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
  line.text(R"(,"method":")", record.method);
  line.text(R"(,"path":")", record.path);
  line.text(R"(,"request_id":")", record.request_id);
  line.text(R"(,"model":")", record.model);
  line.text(R"(,"replica":")", record.replica);
  line.text(R"(,"reason":")", record.reason);
  line.text(R"(,"error":")", record.error);
  line.count(R"(,"status":)", static_cast<std::uint64_t>(std::max(record.status, 0)));
  line.count(R"(,"tries":)", static_cast<std::uint64_t>(std::max(record.tries, 0)));
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

AccessLog::AccessLog(int file, bool owned) : file_(file), owned_(owned) {
  thread_ = std::thread([this] { run(); });
}

AccessLog::~AccessLog() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
  if (owned_) ::close(file_);
}

void AccessLog::Writer::flush() {
  if (buffer_.empty()) return;
  buffer_ = log_.hand_over(std::move(buffer_), lines_);
  lines_ = 0;
}

// Takes a full buffer and returns an empty one.
std::string AccessLog::hand_over(std::string buffer, std::uint64_t lines) {
  std::string empty;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_bytes_ + buffer.size() > kMaxWaiting) {
      dropped_.fetch_add(lines, std::memory_order_relaxed);
      buffer.clear();
      return buffer;
    }
    waiting_bytes_ += buffer.size();
    waiting_.push_back(std::move(buffer));
    if (!spare_.empty()) {
      empty = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  wake_.notify_one();
  return empty;
}

void AccessLog::run() {
  std::vector<std::string> batch;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      for (std::string& buffer : batch) {
        waiting_bytes_ -= buffer.size();
        buffer.clear();
        if (spare_.size() < 64) spare_.push_back(std::move(buffer));
      }
      batch.clear();
      wake_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      batch.swap(waiting_);
    }
    for (const std::string& buffer : batch) {
      std::string_view rest = buffer;
      while (!rest.empty()) {
        const ssize_t written = ::write(file_, rest.data(), rest.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) break;  // a full disk or a closed pipe: the log is lost, not the service
        rest.remove_prefix(static_cast<std::size_t>(written));
      }
    }
  }
}

}  // namespace pointsman
