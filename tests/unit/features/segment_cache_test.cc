#include "features/segment_cache.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace pointsman {
namespace {

SegmentCache::Ids ids(std::uint32_t id, std::size_t count = 1) {
  return std::make_shared<const std::vector<std::uint32_t>>(count, id);
}

TEST(SegmentCache, FindsWhatWasPut) {
  SegmentCache cache(1 << 20, 7);
  const int owner = 0;
  const SegmentCache::Key key = cache.key(&owner, "some text");
  EXPECT_EQ(cache.find(key), nullptr);
  cache.put(key, ids(5, 3));
  ASSERT_NE(cache.find(key), nullptr);
  EXPECT_EQ(*cache.find(key), (std::vector<std::uint32_t>{5, 5, 5}));
}

TEST(SegmentCache, PiecesOfOtherModelsAndOtherTextsAreOthers) {
  SegmentCache cache(1 << 20, 7);
  const int one = 0;
  const int two = 0;
  EXPECT_FALSE(cache.key(&one, "text") == cache.key(&two, "text"));
  EXPECT_FALSE(cache.key(&one, "text") == cache.key(&one, "texT"));
  EXPECT_TRUE(cache.key(&one, "text") == cache.key(&one, std::string("text")));
  SegmentCache other(1 << 20, 8);
  EXPECT_FALSE(cache.key(&one, "text") == other.key(&one, "text")) << "the secret differs";
}

TEST(SegmentCache, StaysWithinItsBytesAndKeepsWhatIsUsed) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  SegmentCache cache(kBytes, 7);
  const int owner = 0;
  const SegmentCache::Key used = cache.key(&owner, "used");
  cache.put(used, ids(1));
  for (int i = 0; i < 50'000; ++i) {
    cache.put(cache.key(&owner, std::to_string(i)), ids(2, 100));
    ASSERT_LE(cache.bytes(), kBytes);
    ASSERT_NE(cache.find(used), nullptr) << i;
  }
  EXPECT_GT(cache.bytes(), kBytes / 2);
  EXPECT_EQ(cache.find(cache.key(&owner, "0")), nullptr);
  EXPECT_NE(cache.find(cache.key(&owner, "49999")), nullptr);
}

TEST(SegmentCache, APieceOfASizeThatWouldClearMuchOfItIsNotKept) {
  SegmentCache cache(1 << 20, 7);
  const int owner = 0;
  const SegmentCache::Key key = cache.key(&owner, "long");
  cache.put(key, ids(1, 100'000));
  EXPECT_EQ(cache.find(key), nullptr);
  EXPECT_EQ(cache.bytes(), 0U);
}

TEST(SegmentCache, ThreadsShareIt) {
  SegmentCache cache(256 << 10, 7);
  const int owner = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, &owner, t] {
      for (std::uint32_t i = 0; i < 5'000; ++i) {
        const std::uint32_t piece = (i * 7 + static_cast<std::uint32_t>(t)) % 500;
        const SegmentCache::Key key = cache.key(&owner, std::to_string(piece));
        const SegmentCache::Ids found = cache.find(key);
        if (found == nullptr) {
          cache.put(key, ids(piece, 20));
        } else {
          EXPECT_EQ(found->front(), piece);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(cache.bytes(), std::size_t{256} << 10);
}

}  // namespace
}  // namespace pointsman
