#include "feeds/kv_event_feed.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include "base/log.h"
#include "http/url.h"
#include "kv_events/event_decoder.h"
#include "net/reactor.h"
#include "net/zmq_socket.h"

namespace pointsman {
namespace {

constexpr std::size_t kSlice = 64;            // keys told under one hold of the router's lock
constexpr std::size_t kLongestWhole = 1'024;  // keys that are taken back under one hold
constexpr int kMessagesInARow = 256;          // of one socket, before the others have their turn
constexpr std::size_t kMostTopics = 4'096;    // remembered
constexpr Duration kTick = std::chrono::milliseconds(50);
constexpr Duration kShow = std::chrono::milliseconds(200);
constexpr Duration kLookAtModels = std::chrono::seconds(1);
constexpr Duration kQuiet = std::chrono::seconds(10);  // between two log lines of a publisher
// Prompts that a replica has computed without an event before it is not believed.
constexpr std::uint64_t kMostUnheard = 3;
// A replay that failed is asked for again after so long, and after twice as long each time.
constexpr Duration kFirstRetry = std::chrono::seconds(1);
constexpr Duration kLongestRetry = std::chrono::seconds(60);

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::optional<std::uint64_t> number_of(std::string_view frame) {
  if (frame.size() != 8) return std::nullopt;
  std::uint64_t number = 0;
  for (const char c : frame) number = (number << 8) | static_cast<std::uint8_t>(c);
  return number;
}

std::string tcp_endpoint(const std::string& host, std::uint32_t port) {
  return "tcp://" + authority_of(host, port);
}

// Where rank r's publisher connects: r ports above the first one.
std::string ranked_endpoint(const std::string& endpoint, std::uint16_t rank) {
  const std::size_t colon = endpoint.rfind(':');
  std::uint32_t port = 0;
  if (rank == 0 || colon == std::string::npos) return endpoint;
  for (const char c : endpoint.substr(colon + 1)) {
    if (c < '0' || c > '9') return endpoint;
    port = std::min<std::uint32_t>(port * 10 + static_cast<std::uint32_t>(c - '0'), 100'000);
  }
  return endpoint.substr(0, colon + 1) + std::to_string(port == 0 ? 0 : port + rank);
}

// Whether a part of the topic ("kv@10.0.0.1:8000@model") is the word.
bool has_part(std::string_view topic, std::string_view word) {
  while (!topic.empty()) {
    const std::size_t end = std::min(topic.find_first_of("@/, "), topic.size());
    if (topic.substr(0, end) == word) return true;
    topic.remove_prefix(std::min(end + 1, topic.size()));
  }
  return false;
}

}  // namespace

class KvEventFeed::Loop {
 public:
  Loop(Fleet& fleet, SharedRouter& router, const TokenChain& chain, Options options)
      : fleet_(fleet),
        router_(router),
        chain_(chain),
        options_(std::move(options)),
        clock_(Reactor::steady_clock()),
        wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    budget_.max_bytes = options_.table_max_bytes;
  }
  ~Loop() {
    if (thread_.joinable()) {
      post([this] { stopping_ = true; });
      thread_.join();
    }
    ::close(wake_);
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  Result<void> start() {
    for (std::uint16_t rank = 0; !options_.bind.empty() && rank < options_.ranks; ++rank) {
      auto socket = std::make_unique<ZmqSocket>(context_, ZmqSocket::Kind::kSubscriber);
      bound_monitors_.push_back(std::make_unique<ZmqMonitor>(context_, *socket));
      const Result<void> bound = socket->bind(ranked_endpoint(options_.bind, rank));
      if (!bound) return bound.error();
      if (const Result<void> done = socket->subscribe(options_.topic); !done) return done.error();
      bound_endpoints_.push_back(socket->endpoint());
      bound_.push_back(std::move(socket));
    }
    thread_ = std::thread([this] { run(); });
    return {};
  }

  [[nodiscard]] std::string bound_endpoint(std::uint16_t rank) const {
    return rank < bound_endpoints_.size() ? bound_endpoints_[rank] : std::string();
  }

  void post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof(one));
  }

  void follow(const Targets& targets);
  void engine_said(ReplicaIndex replica, std::uint64_t blocks, std::optional<bool> caches);
  void gone(ReplicaIndex replica);
  void forgot(ReplicaIndex replica);

  [[nodiscard]] std::vector<Status> status() const {
    const std::lock_guard lock(mutex_);
    return shown_;
  }
  [[nodiscard]] std::uint64_t strays() const { return strays_.load(std::memory_order_relaxed); }

 private:
  struct Member;
  class Publisher;

  void run();
  void run_tasks();
  void wait();
  void take_bound(std::size_t offset);
  void take_bound_changes(std::size_t offset);
  void tick();
  void look_at_models();
  void look_for_silence();
  void show();
  void tell_trust(Member& member);
  void stray(const std::string& topic);
  [[nodiscard]] Member* member_of(const std::string& topic);
  [[nodiscard]] Member* find_member(const std::string& topic);
  Publisher& publisher(Member& member, std::uint16_t rank);
  [[nodiscard]] std::optional<std::string> world_of(const Member& member) const;

  Fleet& fleet_;
  SharedRouter& router_;
  const TokenChain& chain_;
  const Options options_;
  const Clock& clock_;
  const int wake_;
  ZmqContext context_;
  TableBudget budget_;
  std::vector<std::string> bound_endpoints_;

  // Of the loop's thread.
  std::vector<std::unique_ptr<ZmqSocket>> bound_;  // by rank
  std::vector<std::unique_ptr<ZmqMonitor>> bound_monitors_;
  std::map<ReplicaIndex, std::unique_ptr<Member>> members_;
  std::unordered_map<std::string, ReplicaIndex> topics_;  // kNoReplica: of none
  std::vector<std::string> frames_;                       // scratch
  bool stopping_ = false;
  TimePoint next_tick_{};
  TimePoint next_show_{};
  TimePoint next_look_{};
  bool changed_ = true;  // since it was shown

  std::atomic<std::uint64_t> strays_{0};
  mutable std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;  // under mutex_
  std::vector<Status> shown_;                 // under mutex_
  std::thread thread_;
};

// A rank's publisher: its stream, the sockets to it, and the way from it to the router.
class KvEventFeed::Loop::Publisher : public CacheChanges {
 public:
  Publisher(Loop& loop, Member& member, std::uint16_t rank);

  void store(Tier tier, std::optional<BlockHash> before, std::span<const BlockHash> keys,
             std::vector<BlockHash>& again) override;
  void remove(Tier tier, std::span<const BlockHash> keys, bool tails) override;
  void clear() override;

  // A message on the connection of that number, where engines connect to us.
  void published_on(int connection, const std::vector<std::string>& frames);
  void take_published();
  void take_changes();
  void take_replayed();
  void tend(TimePoint now);
  // It has a connection to us.
  void is_on(int connection) {
    connection_ = std::max(connection, 0);
    was_connected_ = true;
  }
  // A connection of an engine to us has ended: whether it was this one's.
  void ended(int connection);
  // Nothing comes from it although something must.
  void is_silent();

  [[nodiscard]] Trust trust() const;
  [[nodiscard]] std::string_view why() const;
  [[nodiscard]] Status status() const;

  // Of the connection to it; null where it connects to us.
  [[nodiscard]] const KvEventLink* link() const { return link_.get(); }
  [[nodiscard]] void* replay() const { return replay_ ? replay_->handle() : nullptr; }

  EventStream stream;
  TimePoint logged{};
  Trust logged_trust = Trust::kNone;

 private:
  Loop& loop_;
  Member& member_;
  const std::uint16_t rank_;
  void published(const std::vector<std::string>& frames);
  void look_at_counts();
  void fail_replay(TimePoint now);
  void keep_asking(TimePoint now);
  [[nodiscard]] bool linked() const { return link_ ? link_->up() : connection_ >= 0; }
  void log_fault(TimePoint now);

  std::unique_ptr<KvEventLink> link_;  // none where the engine connects to us
  // Where it connects to us.
  int connection_ = -1;  // that its last message came on; -1: none, or it has ended
  bool was_connected_ = false;
  std::array<std::uint64_t, kLinkFaults> faults_{};

  bool silent_ = false;        // until the next batch
  std::uint64_t batches_ = 0;  // of the stream, when it was looked at last
  std::uint64_t emptied_ = 0;  // times that the engine said it holds nothing, likewise
  std::uint64_t faults_logged_ = 0;
  TimePoint fault_logged_{};

  std::unique_ptr<ZmqSocket> replay_;  // while something is asked for
  bool asked_ = false;
  TimePoint deadline_{};
  std::optional<TimePoint> retry_at_;  // of a replay that has failed
  Duration retry_after_ = kFirstRetry;
  std::optional<double> delay_s_;
};

// A replica with its ranks.
struct KvEventFeed::Loop::Member {
  Member(Loop&, ReplicaIndex its_index, std::shared_ptr<const ReplicaSpec> its_spec)
      : index(its_index), spec(std::move(its_spec)) {}

  const ReplicaIndex index;
  const std::shared_ptr<const ReplicaSpec> spec;
  std::string world;
  bool has_world = false;
  std::uint64_t engine_blocks = 0;
  bool caches = true;
  bool gone = false;
  bool crowded_out = false;  // the index had no room for it
  bool retell = false;
  bool touched = true;    // its trust may be another now
  bool has_told = false;  // there were events, and the router does not know
  bool odd_rank = false;  // it was logged that there are ranks beyond ours
  Trust told = Trust::kNone;
  // When events were last looked for: the batches heard and the prompts computed so far, and since
  // when there were more prompts and no more batches.
  std::uint64_t heard = 0;
  std::uint64_t computed = 0;
  std::optional<TimePoint> unheard_since;
  // Connections to us, by rank, that it was heard on before its model was known.
  std::map<std::uint16_t, int> early;
  std::vector<std::unique_ptr<Publisher>> ranks;

  [[nodiscard]] Trust trust() const {
    if (gone || crowded_out || ranks.empty()) return Trust::kNone;
    Trust least = Trust::kTrusted;
    for (const auto& rank : ranks) least = std::min(least, rank->trust());
    return least;
  }
};

KvEventFeed::Loop::Publisher::Publisher(Loop& loop, Member& member, std::uint16_t rank)
    : stream(loop.chain_, loop.budget_, member.world,
             {.can_replay = loop.options_.replay_port != 0 || member.spec->kv_replay_port != 0,
              .blocks = {.block_tokens = loop.options_.block_tokens, .seed = loop.options_.seed}}),
      loop_(loop),
      member_(member),
      rank_(rank) {
  stream.set_engine(member.engine_blocks, member.caches);
  const ReplicaSpec& spec = *member.spec;
  std::uint32_t port = spec.kv_events_port;
  if (port == 0 && loop.options_.bind.empty()) port = loop.options_.port;
  if (port == 0) return;
  link_ = std::make_unique<KvEventLink>(loop.context_, tcp_endpoint(spec.host, port + rank),
                                        loop.options_.topic);
  if (const Result<void> opened = link_->open(); !opened) {
    log_warning("replica " + spec.url + ": no cache events: " + opened.error().message);
    link_.reset();
  }
}

Trust KvEventFeed::Loop::Publisher::trust() const {
  const Trust trust = stream.trust();
  return trust == Trust::kNone || (linked() && !silent_) ? trust : Trust::kGap;
}

std::string_view KvEventFeed::Loop::Publisher::why() const {
  if (silent_) return describe(LinkFault::kSilent);
  if (linked()) return stream.why();
  if (link_) return describe(link_->fault());
  return describe(was_connected_ ? LinkFault::kClosed : LinkFault::kNone);
}

void KvEventFeed::Loop::Publisher::store(Tier tier, std::optional<BlockHash> before,
                                         std::span<const BlockHash> keys,
                                         std::vector<BlockHash>& again) {
  const EngineCache cache{member_.index, rank_, tier};
  while (!keys.empty() && !member_.crowded_out) {
    const auto slice = keys.first(std::min(kSlice, keys.size()));
    const bool kept = loop_.router_.with(
        [&](Router& router) { return router.engine_caches().store(cache, before, slice, &again); });
    before = slice.back();
    keys = keys.subspan(slice.size());
    if (kept) continue;
    member_.crowded_out = true;
    log_warning("replica " + member_.spec->url +
                ": its cache events are left out, for index.engine_max_bytes is spent");
  }
}

void KvEventFeed::Loop::Publisher::remove(Tier tier, std::span<const BlockHash> keys, bool tails) {
  const EngineCache cache{member_.index, rank_, tier};
  // Nothing is left behind any of them only when all are gone: short lists go whole.
  const bool whole = keys.size() <= kLongestWhole;
  while (!keys.empty() && !member_.crowded_out) {
    const auto slice = whole ? keys : keys.first(std::min(kSlice, keys.size()));
    keys = keys.subspan(slice.size());
    loop_.router_.with(
        [&](Router& router) { router.engine_caches().remove(cache, slice, whole && tails); });
  }
}

void KvEventFeed::Loop::Publisher::clear() {
  loop_.router_.with([&](Router& router) { router.engine_caches().clear(member_.index, rank_); });
  // There may be room again; what the other ranks hold was forgotten when there was none.
  if (member_.crowded_out) member_.retell = true;
}

// A message that came: topic, number, payload.
void KvEventFeed::Loop::Publisher::published(const std::vector<std::string>& frames) {
  const std::optional<std::uint64_t> number =
      frames.size() == 3 ? number_of(frames[1]) : std::nullopt;
  if (!number || *number >= EventStream::kMostBatches)
    return loop_.stray(frames.empty() ? std::string() : frames.front());
  const std::uint64_t before = stream.counts().batches;
  stream.published(*number, frames[2], *this);
  if (stream.counts().batches == before + 1) delay_s_ = unix_now() - stream.last_time();
  look_at_counts();
}

// What the batches that were just taken mean for others.
void KvEventFeed::Loop::Publisher::look_at_counts() {
  member_.touched = true;
  loop_.changed_ = true;
  const EventStream::Counts& counts = stream.counts();
  if (counts.batches != batches_) {
    silent_ = false;
    member_.has_told = true;
  }
  batches_ = counts.batches;
  const std::uint64_t emptied = counts.restarts + stream.blocks().counts().cleared;
  if (emptied == emptied_) return;
  emptied_ = emptied;
  silent_ = false;
  loop_.router_.with([&](Router& router) { router.forget_cache(member_.index); });
}

void KvEventFeed::Loop::Publisher::take_published() {
  std::vector<std::string>& frames = loop_.frames_;
  for (int i = 0; i < kMessagesInARow && link_->receive(frames); ++i) published(frames);
}

void KvEventFeed::Loop::Publisher::published_on(int connection,
                                                const std::vector<std::string>& frames) {
  if (connection_ < 0 && was_connected_) stream.reconnected();
  is_on(connection);
  published(frames);
}

void KvEventFeed::Loop::Publisher::ended(int connection) {
  if (link_ || connection_ != connection) return;
  connection_ = -1;
  ++faults_[static_cast<std::size_t>(LinkFault::kClosed)];
  replay_.reset();
  member_.touched = true;
  loop_.changed_ = true;
}

void KvEventFeed::Loop::Publisher::take_changes() {
  for (;;) {
    const KvEventLink::Change change = link_->look(loop_.clock_.now());
    if (change == KvEventLink::Change::kNone) return;
    if (change == KvEventLink::Change::kUp) stream.reconnected();
    replay_.reset();
    member_.touched = true;
    loop_.changed_ = true;
  }
}

void KvEventFeed::Loop::Publisher::is_silent() {
  if (silent_) return;
  silent_ = true;
  if (link_) {
    link_->give_up(LinkFault::kSilent, loop_.clock_.now());
  } else {
    ++faults_[static_cast<std::size_t>(LinkFault::kSilent)];
  }
  replay_.reset();
}

void KvEventFeed::Loop::Publisher::tend(TimePoint now) {
  if (link_) {
    link_->tend(now);
    log_fault(now);
  }
  if (linked()) keep_asking(now);
  if (!retry_at_ || now < *retry_at_) return;
  retry_at_.reset();
  if (stream.trust() != Trust::kTrusted) stream.ask_anew(*this);
}

void KvEventFeed::Loop::Publisher::log_fault(TimePoint now) {
  std::uint64_t faults = 0;
  for (const std::uint64_t count : link_->faults()) faults += count;
  if (faults == faults_logged_) return;
  loop_.changed_ = true;
  if (fault_logged_ != TimePoint{} && now - fault_logged_ < kQuiet) return;
  faults_logged_ = faults;
  fault_logged_ = now;
  log_warning("cache events of " + member_.spec->url + " rank " + std::to_string(rank_) + ": " +
              std::string(describe(link_->fault())) + "; connecting anew");
}

// Answers end in the number and the payload; in front there may be an empty frame and a topic.
void KvEventFeed::Loop::Publisher::take_replayed() {
  std::vector<std::string>& frames = loop_.frames_;
  for (int i = 0; i < kMessagesInARow && replay_ && replay_->receive(frames); ++i) {
    const std::optional<std::uint64_t> number =
        frames.size() >= 2 ? number_of(frames[frames.size() - 2]) : std::nullopt;
    constexpr std::uint64_t kEnd = ~std::uint64_t{0};
    if (number == kEnd) {
      replay_.reset();
      retry_after_ = kFirstRetry;
      stream.replay_ended(*this);
    } else if (!number || !stream.replayed(*number, frames.back(), *this)) {
      fail_replay(loop_.clock_.now());
    }
    look_at_counts();
  }
}

void KvEventFeed::Loop::Publisher::fail_replay(TimePoint now) {
  replay_.reset();
  stream.replay_failed(*this);
  retry_at_ = now + retry_after_;
  retry_after_ = std::min(2 * retry_after_, kLongestRetry);
  look_at_counts();
}

// Opens, sends and gives up what the stream wants to have asked.
void KvEventFeed::Loop::Publisher::keep_asking(TimePoint now) {
  if (replay_ && asked_ && !stream.replaying()) replay_.reset();  // no use for the answer any more
  if (!replay_) {
    if (!stream.wanted()) return;
    // A batch that is published before the subscription has arrived is in the replay.
    if (link_ && now - link_->up_since() < kTick) return;
    const ReplicaSpec& spec = *member_.spec;
    const std::uint32_t port =
        spec.kv_replay_port != 0 ? spec.kv_replay_port : loop_.options_.replay_port;
    replay_ = std::make_unique<ZmqSocket>(loop_.context_, ZmqSocket::Kind::kDealer);
    asked_ = false;
    deadline_ = now + loop_.options_.replay_timeout;
    if (!replay_->connect(tcp_endpoint(spec.host, port + rank_))) asked_ = true;
  }
  if (!asked_) {
    const std::uint64_t from = stream.wanted().value_or(0);
    std::string number(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) number[i] = static_cast<char>(from >> (56 - 8 * i));
    if (replay_->send({std::string_view(), number})) {
      asked_ = true;
      stream.replay_begun();
      deadline_ = now + loop_.options_.replay_timeout;
    } else if (stream.may_wait()) {
      deadline_ = now + loop_.options_.replay_timeout;
    }
  }
  if (now >= deadline_) fail_replay(now);
}

KvEventFeed::Status KvEventFeed::Loop::Publisher::status() const {
  Status status;
  status.replica = member_.index;
  status.rank = rank_;
  status.trust = member_.gone || member_.crowded_out ? Trust::kNone : trust();
  status.why = member_.gone          ? "the replica cannot be reached"
               : member_.crowded_out ? "the index has no room for it"
                                     : why();
  status.faults = link_ ? link_->faults() : faults_;
  status.next = stream.next();
  status.blocks = stream.blocks().blocks();
  status.table_bytes = stream.blocks().bytes();
  status.block_tokens = stream.blocks().engine_block_tokens();
  status.delay_s = delay_s_;
  status.batches = stream.counts();
  status.events = stream.blocks().counts();
  return status;
}

void KvEventFeed::Loop::run() {
  while (!stopping_) {
    run_tasks();
    wait();
    const TimePoint now = clock_.now();
    if (now >= next_tick_) {
      next_tick_ = now + kTick;
      tick();
    }
    for (const auto& [index, member] : members_) {
      if (std::exchange(member->touched, false)) tell_trust(*member);
      if (std::exchange(member->has_told, false)) {
        router_.with([&](Router& router) { router.events_heard(member->index); });
      }
    }
    if (now >= next_show_ && changed_) {
      next_show_ = now + kShow;
      show();
    }
  }
  members_.clear();
  bound_monitors_.clear();
  bound_.clear();
}

void KvEventFeed::Loop::run_tasks() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t taken = ::read(wake_, &count, sizeof(count));
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const std::function<void()>& task : tasks) task();
}

// Waits for messages or tasks, and takes what has come.
void KvEventFeed::Loop::wait() {
  std::vector<zmq_pollitem_t> items;
  std::vector<std::function<void()>> takers;
  const auto watch = [&](void* socket, std::function<void()> taker) {
    if (socket == nullptr) return;
    items.push_back({socket, 0, ZMQ_POLLIN, 0});
    takers.push_back(std::move(taker));
  };
  for (std::size_t rank = 0; rank < bound_.size(); ++rank) {
    watch(bound_monitors_[rank]->handle(), [this, rank] { take_bound_changes(rank); });
    watch(bound_[rank]->handle(), [this, rank] { take_bound(rank); });
  }
  for (const auto& [index, member] : members_) {
    for (const auto& rank : member->ranks) {
      if (const KvEventLink* const link = rank->link()) {
        watch(link->events(), [&publisher = *rank] { publisher.take_changes(); });
        watch(link->messages(), [&publisher = *rank] { publisher.take_published(); });
      }
      watch(rank->replay(), [&publisher = *rank] { publisher.take_replayed(); });
    }
  }
  items.push_back({nullptr, wake_, ZMQ_POLLIN, 0});
  const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(kTick);
  if (zmq_poll(items.data(), static_cast<int>(items.size()), timeout.count()) <= 0) return;
  for (std::size_t i = 0; i < takers.size(); ++i) {
    if ((items[i].revents & ZMQ_POLLIN) != 0) takers[i]();
  }
}

// Connections of engines to us.
void KvEventFeed::Loop::take_bound_changes(std::size_t offset) {
  ZmqMonitor::Event event{};
  while (bound_monitors_[offset]->next(event)) {
    if (event.type != ZmqMonitor::Event::Type::kLost) continue;
    for (const auto& [index, member] : members_) {
      for (const auto& rank : member->ranks) rank->ended(event.descriptor);
      std::erase_if(member->early, [&](const auto& one) { return one.second == event.descriptor; });
    }
  }
}

// Messages of engines that connect to us.
void KvEventFeed::Loop::take_bound(std::size_t offset) {
  int connection = -1;
  for (int i = 0; i < kMessagesInARow && bound_[offset]->receive(frames_, &connection); ++i) {
    Member* const member = frames_.size() == 3 ? member_of(frames_[0]) : nullptr;
    if (member == nullptr) {
      stray(frames_.empty() ? std::string() : frames_[0]);
      continue;
    }
    const auto rank = batch_rank(frames_[2]).value_or(static_cast<std::int64_t>(offset));
    if (rank < 0 || rank >= options_.ranks) {
      strays_.fetch_add(1, std::memory_order_relaxed);
      if (!std::exchange(member->odd_rank, true)) {
        log_warning("cache events of " + member->spec->url + " of rank " + std::to_string(rank) +
                    " are left out: kv_events.ranks is " + std::to_string(options_.ranks));
      }
      continue;
    }
    const auto index = static_cast<std::uint16_t>(rank);
    if (member->has_world) {
      publisher(*member, index).published_on(connection, frames_);
    } else {
      member->early[index] = connection;
    }
  }
}

KvEventFeed::Loop::Publisher& KvEventFeed::Loop::publisher(Member& member, std::uint16_t rank) {
  while (member.ranks.size() <= rank) {
    const auto next = static_cast<std::uint16_t>(member.ranks.size());
    member.ranks.push_back(std::make_unique<Publisher>(*this, member, next));
  }
  return *member.ranks[rank];
}

void KvEventFeed::Loop::stray(const std::string& topic) {
  strays_.fetch_add(1, std::memory_order_relaxed);
  if (topics_.size() >= kMostTopics || !topics_.emplace(topic, kNoReplica).second) return;
  log_warning("cache events with the topic '" + topic.substr(0, 200) +
              "' belong to no replica; see docs/kv_events.md for how topics name them");
}

KvEventFeed::Loop::Member* KvEventFeed::Loop::member_of(const std::string& topic) {
  const auto known = topics_.find(topic);
  if (known != topics_.end()) {
    const auto member = members_.find(known->second);
    return member == members_.end() ? nullptr : member->second.get();
  }
  Member* const found = find_member(topic);
  if (found != nullptr && topics_.size() < kMostTopics) topics_.emplace(topic, found->index);
  return found;
}

// By the topic that the replica is configured with; by its HOST:PORT or, where no other has it, its
// host as a part of the topic; and a single replica needs no name.
KvEventFeed::Loop::Member* KvEventFeed::Loop::find_member(const std::string& topic) {
  const auto only = [&](const auto& fits) -> Member* {
    Member* found = nullptr;
    for (const auto& [index, member] : members_) {
      if (member->spec->kv_events_port != 0 || !fits(*member->spec)) continue;
      if (found != nullptr) return nullptr;
      found = member.get();
    }
    return found;
  };
  if (Member* const named = only([&](const ReplicaSpec& spec) {
        return !spec.kv_topic.empty() && spec.kv_topic == topic;
      })) {
    return named;
  }
  const auto unnamed = [](const ReplicaSpec& spec) { return spec.kv_topic.empty(); };
  if (Member* const at = only([&](const ReplicaSpec& spec) {
        return unnamed(spec) && has_part(topic, authority_of(spec.host, spec.port));
      })) {
    return at;
  }
  if (Member* const on = only(
          [&](const ReplicaSpec& spec) { return unnamed(spec) && has_part(topic, spec.host); })) {
    return on;
  }
  return members_.size() == 1 ? only(unnamed) : nullptr;
}

void KvEventFeed::Loop::follow(const Targets& targets) {
  follow_targets(members_, *this, targets, [this](ReplicaIndex index) {
    router_.with([&](Router& router) { router.engine_caches().forget(index); });
  });
  topics_.clear();
  next_look_ = TimePoint{};
  changed_ = true;
}

void KvEventFeed::Loop::engine_said(ReplicaIndex replica, std::uint64_t blocks,
                                    std::optional<bool> caches) {
  const auto found = members_.find(replica);
  if (found == members_.end()) return;
  Member& member = *found->second;
  member.engine_blocks = blocks / options_.ranks;
  member.caches = caches.value_or(true);
  for (const auto& rank : member.ranks)
    rank->stream.set_engine(member.engine_blocks, member.caches);
  changed_ = true;
}

void KvEventFeed::Loop::gone(ReplicaIndex replica) {
  const auto found = members_.find(replica);
  if (found == members_.end()) return;
  found->second->gone = true;
  changed_ = true;
}

void KvEventFeed::Loop::forgot(ReplicaIndex replica) {
  const auto found = members_.find(replica);
  if (found == members_.end()) return;
  Member& member = *found->second;
  member.gone = false;
  member.told = Trust::kNone;
  member.retell = true;
  changed_ = true;
}

void KvEventFeed::Loop::tick() {
  const TimePoint now = clock_.now();
  if (now >= next_look_) {
    next_look_ = now + kLookAtModels;
    look_at_models();
    look_for_silence();
  }
  for (const auto& [index, member] : members_) {
    if (std::exchange(member->retell, false)) {
      router_.with([&](Router& router) { router.engine_caches().forget_blocks(member->index); });
      member->crowded_out = false;
      for (const auto& rank : member->ranks) rank->stream.revive(*rank);
      member->retell = false;
    }
    for (const auto& rank : member->ranks) rank->tend(now);
    member->touched = true;
  }
}

// What the replica's base model is called in token chains. Nothing until its list is in.
std::optional<std::string> KvEventFeed::Loop::world_of(const Member& member) const {
  const std::optional<ReplicaStatus> status = fleet_.status(member.index);
  if (!status || !status->has_model_list || status->models.empty()) return std::nullopt;
  for (const std::string& model : status->models) {
    std::string name = options_.canonical_model ? options_.canonical_model(model) : std::string();
    if (!name.empty()) return name;
  }
  return status->base_model.empty() ? status->models.front() : status->base_model;
}

// Follows a replica from when its model is known, and anew when that changes.
void KvEventFeed::Loop::look_at_models() {
  for (const auto& [index, member] : members_) {
    const std::optional<std::string> world = world_of(*member);
    if (!world || (member->has_world && member->world == *world)) continue;
    if (member->has_world) {
      router_.with([&](Router& router) { router.engine_caches().forget_blocks(member->index); });
    }
    member->ranks.clear();
    member->world = *world;
    member->has_world = true;
    const bool reached =
        member->spec->kv_events_port != 0 || options_.port != 0 || !options_.bind.empty();
    if (reached) publisher(*member, static_cast<std::uint16_t>(options_.ranks - 1));
    for (const auto& [rank, connection] : std::exchange(member->early, {})) {
      publisher(*member, rank).is_on(connection);
    }
    changed_ = true;
  }
}

// An engine that computes prompts stores blocks and tells of them. One that is not heard doing so
// is not heard at all.
void KvEventFeed::Loop::look_for_silence() {
  const TimePoint now = clock_.now();
  for (const auto& [index, member] : members_) {
    std::uint64_t heard = 0;
    for (const auto& rank : member->ranks) heard += rank->stream.counts().batches;
    const std::uint64_t computed =
        router_.with([&](Router& router) { return router.computed_prompts(member->index); });
    if (heard != member->heard || computed < member->computed) {
      member->heard = heard;
      member->computed = computed;
      member->unheard_since.reset();
    }
    if (computed == member->computed) continue;
    if (!member->unheard_since) member->unheard_since = now;
    if (computed - member->computed < kMostUnheard) continue;
    if (now - *member->unheard_since < options_.longest_silence) continue;
    for (const auto& rank : member->ranks) rank->is_silent();
    member->computed = computed;
    member->unheard_since.reset();
    changed_ = true;
  }
}

void KvEventFeed::Loop::tell_trust(Member& member) {
  const Trust trust = member.trust();
  if (trust != member.told) {
    member.told = trust;
    router_.with([&](Router& router) { router.engine_caches().set_trust(member.index, trust); });
    changed_ = true;
  }
  const TimePoint now = clock_.now();
  for (std::size_t rank = 0; rank < member.ranks.size(); ++rank) {
    Publisher& publisher = *member.ranks[rank];
    const Trust now_trust = publisher.trust();
    const bool steady = now_trust == Trust::kTrusted || now_trust == Trust::kGap;
    if (!steady || now_trust == publisher.logged_trust || now - publisher.logged < kQuiet) continue;
    publisher.logged = now;
    publisher.logged_trust = now_trust;
    const std::string who =
        "cache events of " + member.spec->url + " rank " + std::to_string(rank) + ": ";
    if (now_trust == Trust::kTrusted) {
      log_info(who + "trusted");
    } else {
      log_warning(who + std::string(publisher.why()));
    }
  }
}

void KvEventFeed::Loop::show() {
  std::vector<Status> all;
  for (const auto& [index, member] : members_) {
    for (const auto& rank : member->ranks) all.push_back(rank->status());
  }
  changed_ = false;
  const std::lock_guard lock(mutex_);
  shown_.swap(all);
}

KvEventFeed::KvEventFeed(Fleet& fleet, SharedRouter& router, const TokenChain& chain,
                         Options options)
    : loop_(std::make_unique<Loop>(fleet, router, chain, std::move(options))) {}

KvEventFeed::~KvEventFeed() = default;

Result<void> KvEventFeed::start() {
  return loop_->start();
}

std::string KvEventFeed::bound_endpoint(std::uint16_t rank) const {
  return loop_->bound_endpoint(rank);
}

void KvEventFeed::follow(const Targets& targets) {
  loop_->post([loop = loop_.get(), targets] { loop->follow(targets); });
}

void KvEventFeed::engine_said(ReplicaIndex replica, std::uint64_t blocks,
                              std::optional<bool> caches) {
  loop_->post([=, loop = loop_.get()] { loop->engine_said(replica, blocks, caches); });
}

void KvEventFeed::gone(ReplicaIndex replica) {
  loop_->post([=, loop = loop_.get()] { loop->gone(replica); });
}

void KvEventFeed::forgot(ReplicaIndex replica) {
  loop_->post([=, loop = loop_.get()] { loop->forgot(replica); });
}

std::vector<KvEventFeed::Status> KvEventFeed::status() const {
  return loop_->status();
}

std::uint64_t KvEventFeed::strays() const {
  return loop_->strays();
}

}  // namespace pointsman
