#include "replica/load_generator.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/json_text.h"
#include "http/chunk_scanner.h"
#include "http/head_parser.h"
#include "http/sse_scanner.h"
#include "replica/prompt.h"

namespace pointsman {
namespace {

constexpr std::size_t kReadSize = 64 * 1024;

// The text of a delta in an event's data; nothing where the event has none, or opens the answer.
std::optional<std::string_view> delta_text(std::string_view data) {
  static constexpr std::string_view kContent = R"("content":")";
  if (data.find(R"("role":)") != std::string_view::npos) return std::nullopt;
  const std::size_t at = data.find(kContent);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = data.substr(at + kContent.size());
  return rest.substr(0, rest.find('"'));  // the simulated model's texts have nothing to escape
}

}  // namespace

// One user: a connection, and the conversation it is in.
class LoadGenerator::User {
 public:
  User(LoadGenerator& load, std::size_t index)
      : load_(load),
        target_(load.options_.targets[index % load.options_.targets.size()]),
        timer_(load.reactor_.io()),
        socket_(load.reactor_.io()) {}

  void start() { next_conversation(); }

 private:
  void next_conversation() {
    conversation_ = load_.next_conversation_++;
    turns_ = sim::make_conversation(load_.options_.workload, load_.options_.seed, conversation_);
    turn_ = 0;
    messages_.clear();
    think();
  }

  void think() {
    const double seconds = turns_[turn_].think_s / load_.options_.speed;
    timer_.expires_after(from_seconds(seconds));
    timer_.async_wait([this](std::error_code error) {
      if (!error) begin_turn();
    });
  }

  void begin_turn() {
    if (!load_.take_request(number_)) return;
    const sim::Turn& turn = turns_[turn_];
    // Words that no other message has, one token each.
    const AnswerText words(
        mix_hash(load_.options_.seed ^ 0x75736572, mix_hash(conversation_, turn_)));
    std::string text;
    text.reserve(turn.new_tokens * kTokenBytes);
    for (std::uint32_t i = 0; i < turn.new_tokens; ++i) text.append(words.token(i));
    append_message("user", text);

    std::string body = R"({"model":)" + json_string(load_.options_.model) + R"(,"messages":[)";
    body.append(messages_).append(R"(],"stream":true,"max_tokens":)");
    body.append(std::to_string(turn.max_tokens)).append(R"(,"min_tokens":)");
    body.append(std::to_string(turn.output_tokens)).append("}");
    request_ =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: " + target_.address().to_string() +
        "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
        "\r\n\r\n" + body;
    answer_.clear();
    first_output_ = TimePoint{};
    done_ = false;
    started_ = load_.reactor_.now();
    reused_ = socket_.is_open();
    if (reused_) return send();
    connect();
  }

  void connect() {
    socket_.async_connect(target_, [this](std::error_code error) {
      if (error) return fail("connect: " + error.message());
      socket_.set_option(asio::ip::tcp::no_delay(true), error);
      socket_.non_blocking(true, error);
      send();
    });
  }

  void send() {
    in_.clear();
    head_.reset();
    chunks_.reset();
    events_.reset();
    in_body_ = false;
    asio::async_write(socket_, asio::buffer(request_), [this](std::error_code error, std::size_t) {
      if (error) return lost("send: " + error.message());
      receive();
    });
  }

  // Waits first and reads then, so that one buffer serves all users.
  void receive() {
    socket_.async_wait(asio::socket_base::wait_read, [this](std::error_code error) {
      static thread_local std::array<char, kReadSize> scratch;
      std::size_t size = 0;
      if (!error) size = socket_.read_some(asio::buffer(scratch), error);
      if (error == asio::error::would_block) return receive();
      if (error) return lost("receive: " + error.message());
      take(std::string_view(scratch.data(), size));
    });
  }

  void take(std::string_view bytes) {
    if (in_body_) return take_body(bytes);
    in_.append(bytes);
    const HeadResult result = head_.parse(in_);
    if (result.status == HeadResult::kNeedMore) return receive();
    if (result.status == HeadResult::kBad) return fail("malformed answer");
    if (head_.head().status() != 200 || !head_.head().chunked()) {
      return fail("status " + std::to_string(head_.head().status()) + ": " +
                  in_.substr(result.size, 200));
    }
    in_body_ = true;
    const std::string rest = in_.substr(result.size);
    take_body(rest);
  }

  void take_body(std::string_view bytes) {
    chunks_.feed(bytes, [this](std::string_view piece) {
      events_.feed(piece, [this](const SseEvent& event) { take_event(event.data); });
    });
    if (chunks_.bad()) return fail("malformed chunk");
    if (!chunks_.done()) return receive();
    if (!done_ || first_output_ == TimePoint{}) return fail("the stream ended early");
    finish();
  }

  void take_event(std::string_view data) {
    if (data == "[DONE]") {
      done_ = true;
    } else if (const std::optional<std::string_view> text = delta_text(data)) {
      if (first_output_ == TimePoint{}) first_output_ = load_.reactor_.now();
      answer_.append(*text);
    }
  }

  void finish() {
    const TimePoint now = load_.reactor_.now();
    const LoadSample sample{.conversation = conversation_,
                            .turn = turn_,
                            .ttft_s = load_.engine_seconds(first_output_ - started_),
                            .e2e_s = load_.engine_seconds(now - started_)};
    append_message("assistant", answer_);
    const bool over = ++turn_ == turns_.size();
    load_.request_ended(number_, &sample, {});
    if (over) {
      next_conversation();
    } else {
      think();
    }
  }

  // A kept connection that the server has closed in the meantime is no failure.
  void lost(const std::string& what) {
    std::error_code ignored;
    socket_.close(ignored);
    if (std::exchange(reused_, false) && in_.empty()) return connect();
    fail(what);
  }

  void fail(const std::string& what) {
    std::error_code ignored;
    socket_.close(ignored);
    load_.request_ended(number_, nullptr, what);
    next_conversation();
  }

  void append_message(std::string_view role, std::string_view text) {
    messages_.append(messages_.empty() ? "" : ",").append(R"({"role":")").append(role);
    messages_.append(R"(","content":")").append(text).append("\"}");
  }

  LoadGenerator& load_;
  const asio::ip::tcp::endpoint target_;
  asio::steady_timer timer_;
  asio::ip::tcp::socket socket_;

  std::uint64_t conversation_ = 0;
  sim::Conversation turns_;
  std::uint32_t turn_ = 0;
  std::string messages_;  // said so far, as JSON

  std::uint64_t number_ = 0;
  std::string request_;
  TimePoint started_{};
  TimePoint first_output_{};
  bool reused_ = false;
  bool in_body_ = false;
  bool done_ = false;
  std::string in_;
  std::string answer_;
  ResponseHeadParser head_;
  ChunkScanner chunks_;
  SseScanner events_;
};

LoadGenerator::LoadGenerator(Reactor& reactor, LoadOptions options)
    : reactor_(reactor), options_(std::move(options)) {
  result_.samples.reserve(options_.requests);
}

LoadGenerator::~LoadGenerator() = default;

void LoadGenerator::start(std::function<void(LoadResult)> on_done) {
  on_done_ = std::move(on_done);
  for (std::size_t i = 0; i < options_.users; ++i) {
    users_.push_back(std::make_unique<User>(*this, i));
    users_.back()->start();
  }
}

bool LoadGenerator::take_request(std::uint64_t& number) {
  if (sent_ == options_.warm_up + options_.requests) return false;
  number = sent_++;
  if (number == options_.warm_up) {
    window_start_ = reactor_.now();
    if (on_measuring_) on_measuring_();
  }
  if (sent_ == options_.warm_up + options_.requests) window_end_ = reactor_.now();
  return true;
}

void LoadGenerator::request_ended(std::uint64_t number, const LoadSample* sample,
                                  std::string_view failure) {
  ++ended_;
  const bool measured = number >= options_.warm_up;
  if (sample == nullptr) {
    if (measured) ++result_.failed;
    if (result_.first_failure.empty()) result_.first_failure = failure;
  } else {
    if (measured) result_.samples.push_back(*sample);
    if (window_start_ != TimePoint{} && window_end_ == TimePoint{}) ++result_.window_completions;
  }
  if (ended_ < options_.warm_up + options_.requests) return;
  result_.window_s = engine_seconds(window_end_ - window_start_);
  reactor_.post([on_done = std::move(on_done_), result = std::move(result_)]() mutable {
    on_done(std::move(result));
  });
}

}  // namespace pointsman
