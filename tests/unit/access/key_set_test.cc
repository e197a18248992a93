#include "access/key_set.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace pointsman {
namespace {

KeyLine line(const std::string& name, const std::string& key, std::uint32_t concurrent = 0) {
  return {.name = name, .hash = hash_of_key(key), .concurrent = concurrent};
}

std::string name_of(const KeySet& keys, const std::string& key) {
  const auto* const use = keys.find(hash_of_key(key));
  return use == nullptr ? "none" : (*use)->name();
}

TEST(KeySet, FindsEveryKeyAndNoOther) {
  std::vector<KeyLine> lines;
  for (int i = 0; i < 1000; ++i) lines.push_back(line("n" + std::to_string(i), std::to_string(i)));
  const KeySet keys(lines, 0, nullptr);
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(name_of(keys, std::to_string(i)), "n" + std::to_string(i));
  EXPECT_EQ(name_of(keys, "1000"), "none");
  EXPECT_EQ(name_of(keys, ""), "none");
  EXPECT_EQ(keys.find(KeyHash{}), nullptr);
}

// A hash that differs in one bit, wherever, is another key.
TEST(KeySet, ComparesEveryBit) {
  const KeySet keys({line("a", "one")}, 0, nullptr);
  for (std::size_t bit = 0; bit < 256; ++bit) {
    KeyHash hash = hash_of_key("one");
    hash[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    EXPECT_EQ(keys.find(hash), nullptr) << bit;
  }
}

TEST(KeySet, KeysOfOneNameCountTogether) {
  const KeySet keys({line("a", "old", 1), line("b", "other", 1), line("a", "new", 1)}, 0, nullptr);
  EXPECT_EQ(keys.size(), 3U);
  ASSERT_EQ(keys.uses().size(), 2U);
  const KeyLease one(*keys.find(hash_of_key("old")));
  EXPECT_TRUE(one.held());
  EXPECT_FALSE(KeyLease(*keys.find(hash_of_key("new"))).held());
  EXPECT_TRUE(KeyLease(*keys.find(hash_of_key("other"))).held());
  EXPECT_EQ(keys.uses()[0]->refused(), 1U);
}

TEST(KeySet, TheLineGoesBeforeTheDefault) {
  const KeySet keys({line("a", "one"), line("b", "two", 9)}, 4, nullptr);
  EXPECT_EQ(keys.uses()[0]->limit(), 4U);
  EXPECT_EQ(keys.uses()[1]->limit(), 9U);
}

TEST(KeySet, ANameKeepsItsCountsInTheNextSet) {
  auto before =
      std::make_unique<KeySet>(std::vector{line("a", "one", 1), line("b", "two")}, 0, nullptr);
  KeyLease lease(*before->find(hash_of_key("one")));
  const KeySet after({line("a", "new", 2)}, 0, before.get());
  before.reset();
  EXPECT_EQ(name_of(after, "one"), "none");
  EXPECT_EQ(after.uses()[0]->running(), 1U);
  EXPECT_EQ(after.uses()[0]->limit(), 2U);
  lease.give_back();
  EXPECT_EQ(after.uses()[0]->running(), 0U);
}

TEST(KeyLease, IsGivenBackOnce) {
  const auto use = std::make_shared<KeyUse>("a", 2);
  {
    KeyLease one(use);
    KeyLease other(use);
    EXPECT_EQ(use->running(), 2U);
    KeyLease moved(std::move(one));
    EXPECT_TRUE(moved.held());
    moved.give_back();
    moved.give_back();
    EXPECT_EQ(use->running(), 1U);
    EXPECT_EQ(moved.name(), "a");
    other = KeyLease();
    EXPECT_EQ(use->running(), 0U);
  }
  EXPECT_EQ(use->running(), 0U);
  EXPECT_EQ(use->requests(), 2U);
}

// Threads that hammer on one key never have more under way than its limit, and whoever is refused
// is so since that many really ran.
TEST(KeyUse, IsExactForManyThreads) {
  constexpr std::uint32_t kLimit = 3;
  constexpr int kThreads = 8;
  constexpr int kTurns = 20'000;
  const auto use = std::make_shared<KeyUse>("a", kLimit);
  std::atomic<std::uint32_t> inside{0};
  std::atomic<std::uint32_t> most{0};
  std::atomic<std::uint64_t> entered{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < kTurns; ++turn) {
        KeyLease lease(use);
        if (!lease.held()) continue;
        const std::uint32_t now = inside.fetch_add(1) + 1;
        std::uint32_t seen = most.load();
        while (now > seen && !most.compare_exchange_weak(seen, now)) {
        }
        entered.fetch_add(1);
        inside.fetch_sub(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most.load(), kLimit);
  EXPECT_EQ(use->running(), 0U);
  EXPECT_EQ(use->requests(), entered.load());
  EXPECT_EQ(use->requests() + use->refused(), std::uint64_t{kThreads} * kTurns);
}

// As many threads as the limit, each with one request at a time: nobody is ever refused.
TEST(KeyUse, RefusesNobodyWithinTheLimit) {
  constexpr int kThreads = 4;
  const auto use = std::make_shared<KeyUse>("a", kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 20'000; ++turn) KeyLease(use).give_back();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(use->refused(), 0U);
}

}  // namespace
}  // namespace pointsman
