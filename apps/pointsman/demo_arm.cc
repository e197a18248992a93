#include "demo_arm.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "child_process.h"
#include "net/reactor.h"
#include "net/run_on.h"
#include "replica/replica.h"

namespace pointsman {
namespace {

constexpr std::size_t kReplicas = 8;
constexpr std::size_t kUsers = 150;
constexpr Duration kLookInterval = std::chrono::milliseconds(100);
constexpr Duration kRouterStart = std::chrono::seconds(20);

// The eight replicas, on one thread of their own.
class DemoFleet {
 public:
  explicit DemoFleet(double speed) {
    on_thread([this, speed] {
      for (std::size_t i = 0; i < kReplicas; ++i) {
        ReplicaOptions options;
        options.engine = demo_engine();
        options.speed = speed;
        replicas_.push_back(std::make_unique<Replica>(thread_.reactor(), options));
        const Result<void> listening = replicas_.back()->listen("127.0.0.1", 0);
        if (!listening) error_ = listening.error();
      }
      return 0;
    });
  }
  ~DemoFleet() { thread_.join(); }
  DemoFleet(const DemoFleet&) = delete;
  DemoFleet& operator=(const DemoFleet&) = delete;

  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  [[nodiscard]] std::string url(std::size_t i) const {
    return "http://127.0.0.1:" + std::to_string(replicas_[i]->port());
  }

  // Sums over all replicas.
  [[nodiscard]] sim::EngineState state() {
    return on_thread([this] {
      sim::EngineState sum;
      for (const auto& replica : replicas_) {
        const sim::EngineState one = replica->engine_state();
        sum.prefix_queries += one.prefix_queries;
        sum.prefix_hits += one.prefix_hits;
        sum.preemptions += one.preemptions;
        sum.busy += one.busy;
      }
      return sum;
    });
  }
  [[nodiscard]] Duration lateness() {
    return on_thread([this] {
      Duration worst{};
      for (const auto& replica : replicas_) {
        worst = std::max(worst, replica->driver().mean_lateness());
      }
      return worst;
    });
  }

 private:
  template <typename Task>
  auto on_thread(Task&& task) -> decltype(task()) {
    return run_on(thread_.reactor(), std::forward<Task>(task));
  }

  ReactorThread thread_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::optional<Error> error_;
};

std::string pool_text(const char* name, const char* purpose, const DemoFleet& fleet,
                      std::size_t from, std::size_t to) {
  std::string text =
      std::string("  - name: ") + name + "\n    purpose: " + purpose + "\n    replicas:\n";
  for (std::size_t i = from; i < to; ++i) text.append("      - ").append(fleet.url(i)).append("\n");
  return text;
}

std::string router_config(const DemoArm& arm, const DemoOptions& options, const DemoFleet& fleet) {
  // A report each second of engine time.
  const int interval_ms = std::max(10, static_cast<int>(1'000 / options.speed));
  std::string text =
      "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nthreads: 1\nseed: " + std::to_string(options.seed) +
      "\npolicy: {preset: " + arm.preset + "}\nsignals: {interval: " + std::to_string(interval_ms) +
      "ms}\npools:\n";
  if (!arm.segregated) return text + pool_text("general", "general", fleet, 0, kReplicas);
  return text + pool_text("general", "general", fleet, 0, kReplicas - 2) +
         pool_text("long-context", "long_context", fleet, kReplicas - 2, kReplicas - 1) +
         pool_text("long-generation", "long_generation", fleet, kReplicas - 1, kReplicas);
}

// Where the router listens, from what it prints.
std::optional<asio::ip::tcp::endpoint> read_endpoint(ChildProcess& router) {
  static constexpr std::string_view kBefore = "listening on http://127.0.0.1:";
  const auto limit = std::chrono::steady_clock::now() + kRouterStart;
  while (std::chrono::steady_clock::now() < limit) {
    const std::optional<std::string> line = router.read_line(kRouterStart);
    if (!line) return std::nullopt;
    if (!line->starts_with(kBefore)) continue;
    std::uint16_t port = 0;
    std::from_chars(line->data() + kBefore.size(), line->data() + line->size(), port);
    return asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), port);
  }
  return std::nullopt;
}

std::string last_lines(const std::string& path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  return text.size() <= 2'000 ? text : text.substr(text.size() - 2'000);
}

}  // namespace

sim::EngineConfig demo_engine() {
  return sim::find_engine_preset("ref70")->config;
}

// The reference workload `ref70` with shorter answers (a token costs the demo's machine more than
// a simulated GPU) and with more documents, so that a few thousand requests show what they do.
sim::WorkloadSpec demo_workload() {
  sim::WorkloadSpec spec;
  spec.first_prompt = {.median = 4'000, .sigma = 0.25};
  spec.follow_up = {.median = 770, .sigma = 0.7};
  spec.output = {.median = 120, .sigma = 1.0, .high = 1'500};
  spec.turns_mean = 2.5;
  spec.turns_sigma = 0.4;
  spec.document_share = 0.012;
  spec.document_low = 33'000;
  spec.document_high = 80'000;
  spec.long_generation_share = 0.005;
  spec.long_generation = {.median = 2'500, .sigma = 0.3, .low = 500, .high = 4'000};
  spec.think_s = 5;
  return spec;
}

Result<DemoResult> run_demo_arm(const DemoArm& arm, const DemoOptions& options,
                                const std::string& folder, const DemoProgress& progress,
                                const std::function<bool()>& interrupted) {
  DemoFleet fleet(options.speed);
  if (fleet.error()) return *fleet.error();
  const std::string config = folder + "/" + arm.name + ".yaml";
  const std::string log = folder + "/" + arm.name + ".log";
  std::ofstream(config) << router_config(arm, options, fleet);
  Result<ChildProcess> router = ChildProcess::start({"serve", "-c", config}, log);
  if (!router) return router.error();
  const std::optional<asio::ip::tcp::endpoint> endpoint = read_endpoint(*router);
  if (!endpoint) {
    return Error{ErrorKind::kInternal, "the router did not start:\n" + last_lines(log)};
  }

  LoadOptions load_options;
  load_options.targets = {*endpoint};
  load_options.workload = demo_workload();
  load_options.seed = options.seed;
  load_options.users = kUsers;
  load_options.requests = options.requests;
  load_options.warm_up = options.requests / 4;  // a fifth of all
  load_options.speed = options.speed;

  ReactorThread thread;
  LoadGenerator load(thread.reactor(), load_options);
  sim::EngineState before;
  TimePoint measured_from{};
  load.on_measuring([&] {
    before = fleet.state();
    measured_from = thread.reactor().now();
  });
  std::promise<LoadResult> promise;
  std::future<LoadResult> done = promise.get_future();
  thread.reactor().post(
      [&] { load.start([&](LoadResult result) { promise.set_value(std::move(result)); }); });
  while (done.wait_for(kLookInterval) != std::future_status::ready) {
    progress(load.ended(), load_options.warm_up + load_options.requests);
    if (interrupted()) {
      thread.join();
      return Error{ErrorKind::kCancelled, "interrupted"};
    }
  }
  DemoResult result;
  result.load = done.get();
  const double seconds = to_seconds(thread.reactor().now() - measured_from) * options.speed;
  thread.join();
  const sim::EngineState after = fleet.state();
  const auto queries = static_cast<double>(after.prefix_queries - before.prefix_queries);
  result.hit_rate =
      queries > 0 ? static_cast<double>(after.prefix_hits - before.prefix_hits) / queries : 0;
  result.preemptions = after.preemptions - before.preemptions;
  result.lateness_s = to_seconds(fleet.lateness()) * options.speed;
  result.busy = sim::seconds_of(after.busy - before.busy) / (seconds * kReplicas);
  return result;
}

}  // namespace pointsman
