#include "net/poller.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include <sys/eventfd.h>
#include <unistd.h>

namespace pointsman {

Poller::Poller()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wakeup_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = nullptr;
  if (epoll_ < 0 || wakeup_ < 0 || ::epoll_ctl(epoll_, EPOLL_CTL_ADD, wakeup_, &event) != 0) {
    // At start only: nothing can be served without it.
    std::perror("cannot make an epoll descriptor");
    std::abort();
  }
}

Poller::~Poller() {
  ::close(wakeup_);
  ::close(epoll_);
}

std::error_code Poller::add(int descriptor, std::uint32_t events, Source& source) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = &source;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) == 0) return {};
  return {errno, std::system_category()};
}

void Poller::remove(Source& source) {
  source.unlink();
  // It may be in the round that is being told.
  for (int i = told_ + 1; i < count_; ++i) {
    epoll_event& event = events_[static_cast<std::size_t>(i)];
    if (event.data.ptr == &source) event.data.ptr = nullptr;
  }
}

void Poller::wait(std::int64_t milliseconds) {
  ++round_;
  const int limit =
      soon_.empty() ? static_cast<int>(std::clamp<std::int64_t>(milliseconds, 0, 60'000)) : 0;
  const int got = ::epoll_wait(epoll_, events_.data(), static_cast<int>(events_.size()), limit);
  // Those who asked for a turn before this round; what they ask for now comes in the next one.
  while (Source* source = soon_.front()) turn_.push_back(*source);
  count_ = std::max(got, 0);
  for (told_ = 0; told_ < count_; ++told_) {
    const epoll_event& event = events_[static_cast<std::size_t>(told_)];
    // The next source is in no cache, most likely.
    if (told_ + 1 < count_) {
      __builtin_prefetch(events_[static_cast<std::size_t>(told_) + 1].data.ptr);
    }
    // Null: the wake-up, whose count nobody reads (its edge was the message), or a source that has
    // been removed meanwhile.
    if (event.data.ptr != nullptr) static_cast<Source*>(event.data.ptr)->on_ready(event.events);
  }
  count_ = told_ = 0;
  while (Source* source = turn_.front()) {
    source->unlink();
    source->on_ready(0);
  }
}

void Poller::wake() {
  const std::uint64_t one = 1;
  // It fails only where the count is at its top, and then a wake-up is on its way.
  [[maybe_unused]] const ssize_t written = ::write(wakeup_, &one, sizeof one);
}

}  // namespace pointsman
