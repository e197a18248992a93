#include "sim/virtual_engine.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "support/plain_engine.h"

namespace pointsman::sim {
namespace {

using testing_support::any_of;

TimePoint to_time_point(EngineTime time) {
  return TimePoint{std::chrono::ceil<Duration>(time)};
}
EngineTime to_engine_time(TimePoint at) {
  return std::min(at.time_since_epoch(), std::chrono::floor<Duration>(EngineTime::max()));
}

// Steps an engine one by one, by the same rule: a step begins when the one before ends.
class SteppedEngine {
 public:
  explicit SteppedEngine(const EngineConfig& config) : engine(config) {}

  void submit(const EngineRequest& request, TimePoint now) {
    if (!engine.in_step()) end_ = std::max(end_, to_engine_time(now));
    engine.submit(request);
  }
  void clear(TimePoint now) {
    engine.clear();
    end_ = to_engine_time(now);
  }

  std::vector<EngineReport> advance(TimePoint until) {
    std::vector<EngineReport> reports;
    for (;;) {
      if (!engine.in_step()) {
        const std::optional<EngineTime> took = engine.begin_step();
        if (!took) return reports;
        end_ += *took;
      }
      if (end_ > to_engine_time(until)) return reports;
      for (const EngineEvent& event : engine.finish_step()) {
        const TimePoint at = to_time_point(end_);
        if (event.kind == EngineEventKind::kFinished) {
          reports.push_back({EngineReportKind::kFinished, event.request, at, event.cached});
        } else if (event.token == 0) {
          reports.push_back({EngineReportKind::kFirstToken, event.request, at, event.cached});
        }
      }
    }
  }

  EngineModel engine;

 private:
  EngineTime end_{};
};

auto as_tuple(const EngineReport& r) {
  return std::tuple(r.kind, r.request, r.at.time_since_epoch().count(), r.cached);
}

auto as_tuple(const EngineState& s) {
  return std::tuple(s.running, s.waiting, s.kv_usage, s.prefix_queries, s.prefix_hits,
                    s.preemptions, s.steps, s.generated_tokens,
                    static_cast<std::int64_t>(s.busy.count()));
}

template <typename Items>
auto as_tuples(const Items& items) {
  std::vector<decltype(as_tuple(*items.begin()))> tuples;
  for (const auto& item : items) tuples.push_back(as_tuple(item));
  return tuples;
}

// A random engine, and what happens to it.
struct Scenario {
  EngineConfig config;
  double requests_per_s = 1;
  std::uint32_t mean_output = 100;
  std::uint32_t conversations = 10;
  bool system_prompts = false;
};

Scenario random_scenario(Rng& rng) {
  Scenario scenario;
  const auto draw = [&](std::uint32_t low, std::uint32_t high) {
    return static_cast<std::uint32_t>(low + rng.below(high - low + 1));
  };
  scenario.config.blocks = draw(60, 600);
  scenario.config.max_num_batched_tokens = draw(1, 4) == 1 ? draw(4, 40) : draw(100, 1'000);
  scenario.config.max_num_seqs = draw(1, 24);
  scenario.config.step_s = 0.001 * draw(0, 5);
  scenario.config.weights_s = 0.001 * draw(1, 20);
  scenario.config.token_s = 1e-6 * draw(10, 3'000);
  scenario.config.context_s = 1e-9 * draw(0, 10'000);
  scenario.config.sequence_s = 1e-6 * draw(0, 100);
  scenario.config.attention_ratio = 1e-5 * draw(0, 10);
  scenario.requests_per_s = 0.2 * draw(1, 40);
  scenario.mean_output = draw(1, 400);
  scenario.conversations = draw(1, 40);
  scenario.system_prompts = draw(0, 1) == 1;
  return scenario;
}

class Both {
 public:
  explicit Both(const EngineConfig& config) : fast_(config), single_(config) {}

  // Everything up to and including `now`, compared.
  void advance(TimePoint now) {
    const std::vector<EngineReport> wanted = single_.advance(now);
    std::vector<EngineReport> got;
    while (const std::optional<TimePoint> next = fast_.next_event()) {
      if (*next > now) break;
      const auto reports = fast_.advance(*next);
      for (const EngineReport& report : reports) {
        EXPECT_EQ(report.at, *next);
        got.push_back(report);
      }
    }
    const auto rest = fast_.advance(now);
    EXPECT_TRUE(rest.empty());
    ASSERT_EQ(as_tuples(got), as_tuples(wanted));
    for (const EngineReport& report : got) {
      if (report.kind == EngineReportKind::kFinished) open_.erase(report.request);
    }
    ASSERT_EQ(as_tuple(fast_.state(now)), as_tuple(single_.engine.state()));
    now_ = now;
  }

  void submit(const EngineRequest& request) {
    fast_.submit(request, now_);
    single_.submit(request, now_);
    open_.insert({request.id, request.prompt_tokens});
  }

  void cancel_one(Rng& rng) {
    if (open_.empty()) return;
    const RequestId id = any_of(open_, rng);
    EXPECT_TRUE(fast_.cancel(id, now_));
    EXPECT_TRUE(single_.engine.cancel(id));
    open_.erase(id);
  }

  void crash() {
    fast_.clear(now_);
    single_.clear(now_);
    open_.clear();
  }

  void slow_down(double factor) {
    fast_.slow_down(factor, now_);
    single_.engine.slow_down(factor);
  }

  void look_up(std::span<const ChainRun> chain) {
    EXPECT_EQ(fast_.cached_blocks(chain, now_), single_.engine.cached_blocks(chain));
  }

  [[nodiscard]] const std::map<RequestId, std::uint32_t>& open() const { return open_; }
  [[nodiscard]] VirtualEngine& fast() { return fast_; }
  [[nodiscard]] TimePoint now() const { return now_; }

 private:
  VirtualEngine fast_;
  SteppedEngine single_;
  std::map<RequestId, std::uint32_t> open_;
  TimePoint now_{};
};

// Prompts that continue one of a few conversations, behind one of two system prompts or none.
struct Text {
  std::vector<ChainRun> chain;
  std::uint32_t prompt = 1;
  std::uint32_t output = 1;
};

Text random_text(Rng& rng, const Scenario& scenario, std::vector<std::uint32_t>& lengths) {
  const std::uint64_t conversation = rng.below(scenario.conversations);
  std::uint32_t& length = lengths[conversation];
  const std::uint32_t system =
      scenario.system_prompts ? static_cast<std::uint32_t>(2 + 3 * (conversation % 2)) : 0;
  Text text;
  text.output = static_cast<std::uint32_t>(1 + rng.below(2 * scenario.mean_output));
  const auto room = static_cast<std::uint32_t>(scenario.config.capacity_tokens());
  text.output = std::min(text.output, room / 3);
  text.prompt = length + system * kBlockTokens + static_cast<std::uint32_t>(1 + rng.below(300));
  if (text.prompt + text.output > room) {
    length = 0;
    text.prompt = std::min(room / 3, system * kBlockTokens + 40);
  }
  const std::uint32_t blocks = (text.prompt + text.output) / kBlockTokens;
  if (system > 0 && blocks > 0) {
    text.chain.push_back({1'000 + conversation % 2, std::min(system, blocks)});
  }
  if (blocks > system) text.chain.push_back({1 + conversation, blocks - system});
  // Now and then two requests of one conversation are under way at once.
  if (rng.below(6) > 0) length = text.prompt + text.output - system * kBlockTokens;
  return text;
}

TEST(VirtualEngine, EqualsSingleStepsToThePicosecond) {
  std::uint64_t preemptions = 0;
  std::uint64_t steps = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const Scenario scenario = random_scenario(rng);
    std::vector<std::uint32_t> lengths(scenario.conversations, 0);
    Both both(scenario.config);
    TimePoint now{};
    for (RequestId id = 1; id <= 150; ++id) {
      const double pause = -std::log(1.0 - rng.unit()) / scenario.requests_per_s;
      now += from_seconds(rng.below(10) == 0 ? 20 * pause : pause);
      // Readings between the arrivals.
      for (std::uint64_t polls = rng.below(3); polls > 0; --polls) {
        const Duration left = now - both.now();
        ASSERT_NO_FATAL_FAILURE(
            both.advance(both.now() + Duration(static_cast<std::int64_t>(rng.below(
                                          static_cast<std::uint64_t>(left.count()) + 1)))));
      }
      ASSERT_NO_FATAL_FAILURE(both.advance(now));
      const Text text = random_text(rng, scenario, lengths);
      both.submit({id, text.prompt, text.output, text.chain});
      if (rng.below(20) == 0) both.cancel_one(rng);
      if (rng.below(70) == 0) both.crash();
      if (rng.below(40) == 0) both.slow_down(1 + rng.unit());
      if (rng.below(3) == 0) both.look_up(text.chain);
    }
    while (const std::optional<TimePoint> next = both.fast().next_event()) {
      ASSERT_NO_FATAL_FAILURE(both.advance(*next));
    }
    EXPECT_TRUE(both.open().empty());
    EXPECT_EQ(both.fast().engine().kv().referenced(), 0U);
    preemptions += both.fast().state(both.now()).preemptions;
    steps += both.fast().state(both.now()).steps;
  }
  EXPECT_GT(preemptions, 500U);
  EXPECT_GT(steps, 50'000U);
}

// Fifty tokens of a prompt take less than the weights.
EngineConfig plain_engine() {
  return testing_support::plain_engine(0.0001);
}

TimePoint at(double seconds) {
  return TimePoint{std::chrono::round<Duration>(std::chrono::duration<double>(seconds))};
}

TEST(VirtualEngine, OneRequestTakesTheSumOfItsSteps) {
  VirtualEngine engine(plain_engine());
  engine.submit({.id = 7, .prompt_tokens = 50, .output_tokens = 1'001, .chain = {}}, at(3));
  // 50 tokens cost less than the weights; then a thousand decodes over 50, 51, … 1,049 tokens.
  const double first = 3 + 0.001 + 0.010 + 0.0001;
  const double last = first + 1'000 * 0.0111 + 1e-6 * (50 + 1'049) * 1'000 / 2;
  EXPECT_EQ(engine.next_event(), at(first));
  const auto early = engine.advance(at(first));
  ASSERT_EQ(early.size(), 1U);
  EXPECT_EQ(early[0].kind, EngineReportKind::kFirstToken);
  EXPECT_EQ(early[0].request, 7U);
  EXPECT_EQ(early[0].at, at(first));
  EXPECT_EQ(engine.next_event(), at(last));
  // Halfway, the readings are those of the step under way: 500 or so of the decodes are done.
  EXPECT_TRUE(engine.advance(at(9)).empty());
  const EngineState state = engine.state(at(9));
  EXPECT_EQ(state.running, 1U);
  EXPECT_NEAR(static_cast<double>(state.steps), 525, 10);
  EXPECT_EQ(state.generated_tokens, state.steps - 1);
  const auto late = engine.advance(TimePoint::max());
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0].kind, EngineReportKind::kFinished);
  EXPECT_EQ(late[0].at, at(last));
  EXPECT_EQ(engine.next_event(), std::nullopt);
}

TEST(VirtualEngine, ARequestWaitsForTheStepUnderWay) {
  VirtualEngine engine(plain_engine());
  engine.submit({.id = 1, .prompt_tokens = 50, .output_tokens = 1'000, .chain = {}}, at(0));
  static_cast<void>(engine.advance(at(1)));
  const std::uint64_t begun = engine.state(at(1)).steps;
  engine.submit({.id = 2, .prompt_tokens = 10, .output_tokens = 1, .chain = {}}, at(1));
  std::vector<EngineReport> reports;
  while (reports.empty()) {
    const TimePoint next = engine.next_event().value();
    for (const EngineReport& report : engine.advance(next)) reports.push_back(report);
  }
  EXPECT_EQ(reports[0].request, 2U);
  // The rest of one step, and the next one.
  EXPECT_GT(reports[0].at, at(1 + 0.0111));
  EXPECT_LT(reports[0].at, at(1 + 2 * 0.0115));
  EXPECT_EQ(engine.state(reports[0].at).steps, begun + 2);
}

TEST(VirtualEngine, ACrashLosesRequestsAndCache) {
  VirtualEngine engine(plain_engine());
  const ChainRun run{.id = 5, .blocks = 3};
  const EngineRequest request{
      .id = 1, .prompt_tokens = 50, .output_tokens = 10, .chain = std::span(&run, 1)};
  engine.submit(request, at(0));
  static_cast<void>(engine.advance(at(0.05)));
  EXPECT_EQ(engine.cached_blocks(request.chain, at(0.05)), 3U);
  engine.clear(at(0.05));
  EXPECT_EQ(engine.next_event(), std::nullopt);
  EXPECT_EQ(engine.cached_blocks(request.chain, at(0.05)), 0U);
  engine.submit(request, at(1));
  const auto reports = engine.advance(at(2));
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_EQ(reports[0].at, at(1.0111));
  EXPECT_EQ(reports[0].cached, 0U);
}

TEST(VirtualEngine, BusyIsTheTimeThatHasPassedInSteps) {
  VirtualEngine engine(plain_engine());
  const auto busy = [&](double now) {
    static_cast<void>(engine.advance(at(now)));
    return seconds_of(engine.busy(at(now)));
  };
  EXPECT_EQ(busy(3), 0);
  engine.submit({.id = 1, .prompt_tokens = 50, .output_tokens = 101, .chain = {}}, at(3));
  // In the first step, within the decodes, and after the last one.
  EXPECT_NEAR(busy(3.004), 0.004, 1e-9);
  EXPECT_NEAR(busy(3.5), 0.5, 1e-9);
  const double whole = 101 * 0.0111 + 1e-6 * (50 + 149) * 100 / 2;
  EXPECT_NEAR(busy(10), whole, 1e-9);
  // What a crash cuts off has not passed.
  engine.submit({.id = 2, .prompt_tokens = 50, .output_tokens = 101, .chain = {}}, at(10));
  EXPECT_NEAR(busy(10.25), whole + 0.25, 1e-9);
  engine.clear(at(10.25));
  EXPECT_NEAR(busy(20), whole + 0.25, 1e-9);
}

TEST(VirtualEngine, ASlowerEngineTakesSoManyTimesAsLong) {
  for (const double factor : {0.5, 3.0}) {
    VirtualEngine engine(plain_engine());
    engine.slow_down(factor, at(0));
    engine.submit({.id = 1, .prompt_tokens = 50, .output_tokens = 1, .chain = {}}, at(0));
    EXPECT_EQ(engine.next_event(), at(0.0111 * factor));
  }
}

TEST(VirtualEngine, NotesWhatItsCacheGainsAndLosesWhenTheStepBegins) {
  EngineConfig config = plain_engine();
  config.blocks = 10;
  VirtualEngine engine(config);
  engine.note_kv_changes();
  const ChainRun run{.id = 5, .blocks = 4};
  engine.submit({.id = 1, .prompt_tokens = 40, .output_tokens = 24, .chain = std::span(&run, 1)},
                at(0));
  static_cast<void>(engine.advance(at(0.001)));  // in the prefill
  EXPECT_THAT(engine.take_kv_changes(), testing::ElementsAre(KvChange{at(0), {5, 2}}));
  static_cast<void>(engine.advance(at(1)));
  // 63 of 64 tokens have KV entries: the third block was filled by decodes.
  const std::span<const KvChange> decoded = engine.take_kv_changes();
  ASSERT_FALSE(decoded.empty());
  EXPECT_EQ(decoded.back().run, (ChainRun{5, 3}));
  EXPECT_LT(decoded.back().at, at(1));
  engine.submit({.id = 2, .prompt_tokens = 90, .output_tokens = 50, .chain = {}}, at(1));
  static_cast<void>(engine.advance(at(10)));
  const std::span<const KvChange> lost = engine.take_kv_changes();
  ASSERT_FALSE(lost.empty());
  EXPECT_EQ(lost.back().run, (ChainRun{5, 1}));
  EXPECT_TRUE(engine.take_kv_changes().empty()) << "told once";
}

TEST(VirtualEngine, EachChunkOfALongPromptIsNotedWhenItsStepBegins) {
  EngineConfig config = plain_engine();
  config.max_num_batched_tokens = 32;
  VirtualEngine engine(config);
  engine.note_kv_changes();
  const ChainRun run{.id = 5, .blocks = 6};
  engine.submit({.id = 1, .prompt_tokens = 96, .output_tokens = 1, .chain = std::span(&run, 1)},
                at(2));
  const std::span<const EngineReport> reports = engine.advance(at(10));
  ASSERT_EQ(reports.size(), 2U);
  const std::span<const KvChange> changes = engine.take_kv_changes();
  ASSERT_EQ(changes.size(), 3U);
  for (std::uint32_t chunk = 0; chunk < 3; ++chunk) {
    EXPECT_EQ(changes[chunk].run, (ChainRun{5, 2 * (chunk + 1)}));
  }
  EXPECT_EQ(changes[0].at, at(2));
  EXPECT_LT(changes[1].at, changes[2].at);
  EXPECT_LT(changes[2].at, reports[0].at) << "before the first token";
}

TEST(VirtualEngine, WorksWheneverThereIsWork) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const Scenario scenario = random_scenario(rng);
    std::vector<std::uint32_t> lengths(scenario.conversations, 0);
    VirtualEngine engine(scenario.config);
    std::map<RequestId, std::uint32_t> prompts;  // of requests that have not ended
    Duration busy{};                             // time with such requests
    TimePoint since{};
    TimePoint now{};
    std::uint64_t periods = 0;
    std::uint64_t hits = 0;
    const auto run_until = [&](TimePoint until) {
      for (const EngineReport& report : engine.advance(until)) {
        if (report.kind == EngineReportKind::kFirstToken) {
          hits += report.cached;
          EXPECT_LE(report.cached, (prompts.at(report.request) - 1) / kBlockTokens * kBlockTokens);
          continue;
        }
        prompts.erase(report.request);
        if (!prompts.empty()) continue;
        busy += report.at - since;
        ++periods;
      }
      const EngineState state = engine.state(until);
      EXPECT_EQ(state.running + state.waiting, prompts.size());
      EXPECT_TRUE(state.waiting == 0 || state.running > 0);
    };
    for (RequestId id = 1; id <= 100; ++id) {
      now += from_seconds(-std::log(1.0 - rng.unit()) / scenario.requests_per_s);
      run_until(now);
      const Text text = random_text(rng, scenario, lengths);
      if (prompts.empty()) since = now;
      prompts.emplace(id, text.prompt);
      engine.submit({id, text.prompt, text.output, text.chain}, now);
    }
    run_until(TimePoint::max());
    EXPECT_TRUE(prompts.empty());
    const EngineState end = engine.state(now);
    // Each busy period was rounded up to the next nanosecond.
    EXPECT_TRUE(end.busy <= busy);
    EXPECT_TRUE(end.busy >= busy - Duration(static_cast<std::int64_t>(periods)));
    EXPECT_EQ(end.prefix_hits, hits);
    EXPECT_EQ(engine.engine().kv().referenced(), 0U);
  }
}

// Picoseconds in 64 bits end after 106 days.
TEST(VirtualEngine, CountsYearsWithoutRounding) {
  EngineConfig config;
  config.blocks = 100'000;
  config.max_num_batched_tokens = 16;
  config.step_s = 10;
  config.weights_s = 0;
  config.token_s = 1e-9;
  config.context_s = 0;
  config.sequence_s = 0;
  config.attention_ratio = 0;
  VirtualEngine engine(config);
  const auto step = std::chrono::seconds(10) + std::chrono::nanoseconds(1);
  TimePoint now{std::chrono::hours(1)};
  for (int life = 0; life < 3; ++life) {
    constexpr std::uint32_t kSteps = 1'500'000;  // 174 days
    const TimePoint end = now + kSteps * step;
    engine.submit({.id = 1, .prompt_tokens = 1, .output_tokens = kSteps, .chain = {}}, now);
    std::vector<EngineReport> reports;
    while (const std::optional<TimePoint> next = engine.next_event()) {
      for (const EngineReport& report : engine.advance(*next)) reports.push_back(report);
    }
    ASSERT_EQ(reports.size(), 2U);
    EXPECT_EQ(reports[0].at, now + step);
    EXPECT_EQ(reports[1].at, end);
    now = end + std::chrono::hours(100'000);
    (void)engine.advance(now);
    const EngineTotal busy = std::chrono::duration_cast<EngineTotal>(step) * kSteps * (life + 1);
    EXPECT_TRUE(engine.state(now).busy == busy);
  }
}

}  // namespace
}  // namespace pointsman::sim
