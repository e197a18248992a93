#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace pointsman::bench {

using Clock = std::chrono::steady_clock;

// The replica writes when it sent an event into the event itself, as `"at NANOSECONDS `, by the
// monotonic clock that all processes of a machine share.
inline constexpr std::string_view kStampMark = "\"at ";

// One answer as it arrives: where it ends, by Content-Length or by chunks, how many events it has,
// and how long each took from the replica's write to here.
class Answer {
 public:
  enum class Progress : std::uint8_t { kMore, kDone, kBad };

  // `delays_us` gets one value for each event that begins in `in`, read at `now`.
  Progress feed(std::string_view in, Clock::time_point now, std::vector<float>& delays_us) {
    while (!in.empty() || (state_ == State::kBody && left_ == 0)) {
      if (state_ == State::kBody) {
        const std::size_t used = std::min(left_, in.size());
        read_events(in.substr(0, used), now, delays_us);
        left_ -= used;
        in.remove_prefix(used);
        if (left_ > 0) return Progress::kMore;
        if (!chunked_) return Progress::kDone;
        state_ = State::kChunkEnd;
        line_.clear();
        continue;
      }
      // All else comes in lines.
      const std::size_t end = in.find('\n');
      line_.append(in.substr(0, end));
      if (end == std::string_view::npos) return Progress::kMore;
      in.remove_prefix(end + 1);
      if (!line_.empty() && line_.back() == '\r') line_.pop_back();
      const Progress progress = on_line();
      line_.clear();
      if (progress != Progress::kMore) return progress;
    }
    return Progress::kMore;
  }

  int events() const { return events_; }
  // Why it is bad.
  const std::string& fault() const { return fault_; }

 private:
  enum class State : std::uint8_t { kStatus, kHead, kBody, kChunkSize, kChunkEnd, kTrailer };

  Progress bad(std::string fault) {
    fault_ = std::move(fault);
    return Progress::kBad;
  }

  Progress on_line() {
    switch (state_) {
      case State::kStatus:
        if (line_.find(" 200") == std::string::npos) return bad("answered " + line_.substr(0, 40));
        state_ = State::kHead;
        break;
      case State::kHead:
        if (line_.empty()) {
          if (!chunked_ && !sized_) return bad("an answer without a length");
          state_ = chunked_ ? State::kChunkSize : State::kBody;
          break;
        }
        std::transform(line_.begin(), line_.end(), line_.begin(),
                       [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
        if (line_.starts_with("content-length:")) {
          left_ = std::strtoul(line_.c_str() + 15, nullptr, 10);
          sized_ = true;
        }
        if (line_.starts_with("transfer-encoding:")) chunked_ = true;
        break;
      case State::kChunkSize:
        left_ = std::strtoul(line_.c_str(), nullptr, 16);
        state_ = left_ == 0 ? State::kTrailer : State::kBody;
        break;
      case State::kChunkEnd:
        state_ = State::kChunkSize;
        break;
      case State::kTrailer:
        if (line_.empty()) return Progress::kDone;
        break;
      case State::kBody:
        break;
    }
    return Progress::kMore;
  }

  void read_events(std::string_view data, Clock::time_point now, std::vector<float>& delays_us) {
    for (const char c : data) {
      events_ += c == '\n' && last_ == '\n' ? 1 : 0;
      last_ = c;
      if (marked_ < kStampMark.size()) {
        const bool next = c == kStampMark[marked_];
        marked_ = next ? marked_ + 1 : (c == kStampMark[0] ? 1 : 0);
      } else if (c >= '0' && c <= '9') {
        stamp_ = stamp_ * 10 + (c - '0');
      } else {
        const Clock::time_point sent{std::chrono::nanoseconds(stamp_)};
        delays_us.push_back(std::chrono::duration<float, std::micro>(now - sent).count());
        marked_ = 0;
        stamp_ = 0;
      }
    }
  }

  State state_ = State::kStatus;
  bool chunked_ = false;
  bool sized_ = false;
  std::size_t left_ = 0;
  std::string line_;
  std::string fault_;
  char last_ = 0;
  int events_ = 0;
  std::size_t marked_ = 0;  // characters of kStampMark just read
  std::int64_t stamp_ = 0;
};

}  // namespace pointsman::bench
