#include "replica/kv_publisher.h"

#include <algorithm>
#include <chrono>

namespace pointsman {
namespace {

constexpr int kQuestionsInARow = 4;  // before the reactor's other work has its turn

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string big_endian(std::uint64_t number) {
  std::string frame;
  for (int shift = 56; shift >= 0; shift -= 8) {
    frame.push_back(static_cast<char>(number >> shift & 0xFF));
  }
  return frame;
}

bool is_listened_on(std::string_view endpoint) {
  return endpoint.find('*') != std::string_view::npos ||
         endpoint.find("::") != std::string_view::npos || endpoint.starts_with("ipc://");
}

}  // namespace

KvPublisher::KvPublisher(asio::io_context& io, KvPublisherOptions options)
    : options_(std::move(options)),
      events_(context_, ZmqSocket::Kind::kPublisher),
      replay_(context_, ZmqSocket::Kind::kRouter),
      readable_(io) {}

KvPublisher::~KvPublisher() {
  // The descriptor is the socket's, which closes it.
  if (readable_.is_open()) readable_.release();
}

Result<void> KvPublisher::start() {
  Result<void> done = is_listened_on(options_.events) ? events_.bind(options_.events)
                                                      : events_.connect(options_.events);
  if (!done || options_.replay.empty()) return done;
  done = replay_.bind(options_.replay);
  if (!done) return done;
  std::error_code error;
  readable_.assign(replay_.descriptor(), error);
  if (error) return Error{ErrorKind::kFault, options_.replay + ": " + error.message()};
  wait_for_questions();
  return {};
}

void KvPublisher::publish(const KvChanges& changes) {
  if (changes.empty()) return;
  kept_.push_back(write_event_batch(changes, unix_now(), options_.layout, options_.hashes));
  kept_bytes_ += kept_.back().size();
  while (kept_.size() > kKeptBatches || (kept_bytes_ > kKeptBytes && kept_.size() > 1)) {
    kept_bytes_ -= kept_.front().size();
    kept_.pop_front();
  }
  if (to_lose_ > 0) {
    --to_lose_;
  } else {
    events_.send({options_.topic, big_endian(next_), kept_.back()});
  }
  ++next_;
}

void KvPublisher::wait_for_questions() {
  readable_.async_wait(asio::posix::stream_descriptor::wait_read,
                       [this, alive = std::weak_ptr<bool>(alive_)](std::error_code error) {
                         if (!error && !alive.expired()) answer_questions();
                       });
}

void KvPublisher::answer_questions() {
  int taken = 0;
  while (taken < kQuestionsInARow && replay_.receive(frames_)) {
    ++taken;
    if (frames_.size() != 3 || !frames_[1].empty() || frames_[2].size() != 8) continue;
    std::uint64_t from = 0;
    for (const char c : frames_[2]) from = from << 8 | static_cast<std::uint8_t>(c);
    answer(frames_[0], from);
  }
  if (taken < kQuestionsInARow) return wait_for_questions();
  asio::post(readable_.get_executor(), [this, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) answer_questions();
  });
}

void KvPublisher::answer(std::string_view client, std::uint64_t from) {
  const bool has_topic = options_.layout == KvLayout::kMap;
  const auto send = [&](std::string_view topic, std::uint64_t number, std::string_view payload) {
    const std::string number_frame = big_endian(number);
    if (has_topic) return replay_.send({client, {}, topic, number_frame, payload});
    return replay_.send({client, {}, number_frame, payload});
  };
  const std::uint64_t first = next_ - kept_.size();
  for (std::uint64_t number = std::max(from, first); number < next_; ++number) {
    if (!send(options_.topic, number, kept_[number - first])) return;
  }
  send({}, UINT64_MAX, {});
}

}  // namespace pointsman
