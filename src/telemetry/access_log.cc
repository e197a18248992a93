#include "telemetry/access_log.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/json_text.h"

namespace pointsman {
namespace {

constexpr std::size_t kMaxWaiting = std::size_t{16} << 20;
constexpr std::size_t kMaxText = 256;

void append_two(int number, std::string& out) {
  out += static_cast<char>('0' + number / 10);
  out += static_cast<char>('0' + number % 10);
}

// RFC 3339 in UTC with milliseconds. The part down to the second is made once a second.
void append_time(std::chrono::system_clock::time_point at, std::string& out) {
  using std::chrono::floor;
  thread_local std::chrono::sys_seconds cached_second{};
  thread_local std::string cached_text;
  const auto second = floor<std::chrono::seconds>(at);
  if (second != cached_second || cached_text.empty()) {
    cached_second = second;
    const auto day = floor<std::chrono::days>(second);
    const std::chrono::year_month_day date{day};
    const std::chrono::hh_mm_ss time{second - day};
    cached_text = std::to_string(static_cast<int>(date.year()));
    cached_text += '-';
    append_two(static_cast<int>(static_cast<unsigned>(date.month())), cached_text);
    cached_text += '-';
    append_two(static_cast<int>(static_cast<unsigned>(date.day())), cached_text);
    cached_text += 'T';
    append_two(static_cast<int>(time.hours().count()), cached_text);
    cached_text += ':';
    append_two(static_cast<int>(time.minutes().count()), cached_text);
    cached_text += ':';
    append_two(static_cast<int>(time.seconds().count()), cached_text);
    cached_text += '.';
  }
  out += cached_text;
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(at - second).count();
  out += static_cast<char>('0' + milliseconds / 100);
  append_two(static_cast<int>(milliseconds % 100), out);
  out += 'Z';
}

void append_number(std::uint64_t value, std::string& out) {
  char text[24];
  out.append(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

// Milliseconds with one digit after the point.
void append_milliseconds(Duration value, std::string& out) {
  const std::int64_t tenths = value.count() <= 0 ? 0 : (value.count() + 50'000) / 100'000;
  append_number(static_cast<std::uint64_t>(tenths / 10), out);
  out += '.';
  out += static_cast<char>('0' + tenths % 10);
}

// `key` with all that stands around it: a line is made for every request, and each append counts.
void append_text(std::string_view key, std::string_view value, std::string& out) {
  if (value.empty()) return;
  out.append(key);
  append_json_text(out, value.substr(0, kMaxText));
  out += '"';
}

void append_count(std::string_view key, std::uint64_t value, std::string& out) {
  out.append(key);
  append_number(value, out);
}

}  // namespace

void append_access_line(const AccessRecord& record, std::string& out) {
  out.append("{\"at\":\"");
  append_time(record.at, out);
  out += '"';
  append_text(R"(,"client":")", record.client, out);
  append_text(R"(,"method":")", record.method, out);
  append_text(R"(,"path":")", record.path, out);
  append_text(R"(,"request_id":")", record.request_id, out);
  append_text(R"(,"model":")", record.model, out);
  append_text(R"(,"replica":")", record.replica, out);
  append_text(R"(,"reason":")", record.reason, out);
  append_text(R"(,"error":")", record.error, out);
  append_count(R"(,"status":)", static_cast<std::uint64_t>(record.status < 0 ? 0 : record.status),
               out);
  append_count(R"(,"tries":)", static_cast<std::uint64_t>(record.tries < 0 ? 0 : record.tries),
               out);
  out.append(record.stream ? ",\"stream\":true" : ",\"stream\":false");
  if (record.prompt_tokens > 0) append_count(R"(,"prompt_tokens":)", record.prompt_tokens, out);
  if (record.predicted_cached > 0)
    append_count(R"(,"predicted_cached":)", record.predicted_cached, out);
  if (record.cached_tokens >= 0) {
    append_count(R"(,"cached_tokens":)", static_cast<std::uint64_t>(record.cached_tokens), out);
  }
  append_count(R"(,"request_bytes":)", record.request_bytes, out);
  append_count(R"(,"response_bytes":)", record.response_bytes, out);
  if (record.ttft > Duration{}) {
    out.append(",\"ttft_ms\":");
    append_milliseconds(record.ttft, out);
  }
  out.append(",\"whole_ms\":");
  append_milliseconds(record.whole, out);
  out.append("}\n");
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
