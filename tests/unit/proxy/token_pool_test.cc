#include "proxy/token_pool.h"

#include <atomic>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/byte_model.h"

namespace pointsman::test {
namespace {

std::shared_ptr<TokenJob> job(const PromptModel& model, std::string text,
                              std::function<void(const std::shared_ptr<TokenJob>&)> done) {
  auto made = std::make_shared<TokenJob>();
  made->prompt.model = &model;
  made->prompt.exact_bytes = text.size();
  made->prompt.texts.push_back(std::move(text));
  made->done = std::move(done);
  return made;
}

// Keeps the first prompt that is encoded until it is told to go on.
struct HeldFirst {
  explicit HeldFirst(ByteModel& model) {
    model.before_encode = [this] {
      if (!first.exchange(false)) return;
      at_work.count_down();
      go_on.wait();
    };
  }

  std::latch go_on{1};
  std::latch at_work{1};
  std::atomic<bool> first{true};
};

class TokenPoolTest : public testing::Test {
 protected:
  ByteModel* model_ = new ByteModel;
  std::unique_ptr<PromptModels> models_ = byte_models(std::unique_ptr<ByteModel>(model_));
};

TEST_F(TokenPoolTest, MakesWhatPromptTokensMakes) {
  PromptText expected;
  expected.model = model_;
  expected.texts.emplace_back(1000, 'a');
  expected.exact_bytes = 1000;
  PromptTokens tokens(models_->cache(), 3, 16);
  tokens.run(expected);

  TokenPool pool(*models_, {.secret = 3});
  std::promise<std::vector<BlockHash>> made;
  ASSERT_TRUE(pool.submit(job(*model_, std::string(1000, 'a'),
                              [&](const auto& done) { made.set_value(done->prompt.blocks); })));
  EXPECT_EQ(made.get_future().get(), expected.blocks);
}

TEST_F(TokenPoolTest, ThreadsGiveAndThreadsTake) {
  constexpr int kThreads = 4;
  constexpr int kEach = 200;
  std::atomic<int> done{0};
  std::atomic<int> taken{0};
  {
    TokenPool pool(*models_, {.threads = 3, .max_jobs = 100'000});
    std::vector<std::thread> givers;
    for (int t = 0; t < kThreads; ++t) {
      givers.emplace_back([&, t] {
        for (int i = 0; i < kEach; ++i) {
          const std::string text(100 + static_cast<std::size_t>((t * i) % 50), 'x');
          if (pool.submit(job(*model_, text, [&](const auto&) { ++done; }))) ++taken;
        }
      });
    }
    for (std::thread& giver : givers) giver.join();
    while (done < taken) std::this_thread::yield();
  }
  EXPECT_EQ(taken, kThreads * kEach);
  EXPECT_EQ(done, taken);
}

TEST_F(TokenPoolTest, WhatWaitsIsBoundedInNumberAndInBytes) {
  HeldFirst held(*model_);
  std::atomic<int> done{0};
  const auto count = [&](const auto&) { ++done; };
  TokenPool pool(*models_, {.max_jobs = 3, .max_bytes = 1000});
  ASSERT_TRUE(pool.submit(job(*model_, "first", count)));
  held.at_work.wait();
  EXPECT_TRUE(pool.submit(job(*model_, std::string(5000, 'l'), count))) << "one may be longer";
  EXPECT_FALSE(pool.submit(job(*model_, std::string(10, 's'), count))) << "its bytes fill it";
  held.go_on.count_down();
  while (done < 2) std::this_thread::yield();
  EXPECT_TRUE(pool.submit(job(*model_, "again", count)));
  while (done < 3) std::this_thread::yield();
}

TEST_F(TokenPoolTest, ACancelledJobIsNotMade) {
  HeldFirst held(*model_);
  std::promise<void> last;
  TokenPool pool(*models_, {});
  ASSERT_TRUE(pool.submit(job(*model_, "first", [](const auto&) {})));
  held.at_work.wait();
  const auto cancelled = job(*model_, "second", [](const auto&) { FAIL(); });
  ASSERT_TRUE(pool.submit(cancelled));
  cancelled->cancelled = true;
  ASSERT_TRUE(pool.submit(job(*model_, "third", [&](const auto&) { last.set_value(); })));
  held.go_on.count_down();
  last.get_future().wait();
}

TEST_F(TokenPoolTest, StopsWithWorkWaiting) {
  std::atomic<int> done{0};
  TokenPool pool(*models_, {});
  for (int i = 0; i < 100; ++i) {
    static_cast<void>(
        pool.submit(job(*model_, std::string(20'000, 'x'), [&](const auto&) { ++done; })));
  }
  pool.stop();
  EXPECT_LE(done, 100);
  EXPECT_FALSE(pool.submit(job(*model_, "late", [](const auto&) {})));
}

}  // namespace
}  // namespace pointsman::test
