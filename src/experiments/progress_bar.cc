#include "experiments/progress_bar.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <unistd.h>

namespace pointsman::sim {
namespace {

constexpr std::chrono::seconds kSilent{2};
constexpr std::chrono::milliseconds kBetween{100};
constexpr std::size_t kWidth = 24;

std::string time_left(double seconds) {
  char text[40];
  if (seconds < 90) {
    std::snprintf(text, sizeof text, ", %.0f s left", seconds);
  } else {
    std::snprintf(text, sizeof text, ", %.0f min left", seconds / 60);
  }
  return text;
}

}  // namespace

std::string progress_text(const std::string& title, std::size_t done, std::size_t all,
                          double elapsed_s) {
  const double share =
      all == 0 ? 1.0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(all));
  const auto full = static_cast<std::size_t>(share * kWidth);
  std::string text = title + " [" + std::string(full, '#') + std::string(kWidth - full, '.') +
                     "] " + std::to_string(done) + " of " + std::to_string(all);
  if (share >= 0.05) text += time_left(elapsed_s / share - elapsed_s);
  return text;
}

ProgressBar::ProgressBar(std::string title)
    : title_(std::move(title)), terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (visible_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::show(std::size_t done, std::size_t all) {
  const Clock::time_point now = Clock::now();
  if (!terminal_ || now - started_ < kSilent || now - shown_ < kBetween) return;
  shown_ = now;
  visible_ = true;
  const double elapsed = std::chrono::duration<double>(now - started_).count();
  std::fprintf(stderr, "\r\033[K%s", progress_text(title_, done, all, elapsed).c_str());
  std::fflush(stderr);
}

}  // namespace pointsman::sim
