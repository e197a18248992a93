#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace pointsman::sim {

// "[#########...............] 12 of 32, 14 s left". `elapsed_s` since the start. Nothing is said of
// the time left until a twentieth is done: before that it would be a guess.
[[nodiscard]] std::string progress_text(const std::string& title, std::size_t done, std::size_t all,
                                        double elapsed_s);

// A line on standard error that counts up and tells the time left, where standard error is a
// terminal and the run takes longer than two seconds; the line goes when the bar does. Not
// thread-safe: run_parallel calls back from one thread at a time.
class ProgressBar {
 public:
  explicit ProgressBar(std::string title);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(std::size_t done, std::size_t all);

 private:
  using Clock = std::chrono::steady_clock;

  const std::string title_;
  const bool terminal_;
  const Clock::time_point started_ = Clock::now();
  Clock::time_point shown_;
  bool visible_ = false;
};

}  // namespace pointsman::sim
