#include "kv_events/event_decoder.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/event_payload.h"

namespace pointsman {
namespace {

using test::Pack;
using test::packed;
using test::packed_batch;
using test::packed_cleared;
using test::packed_removed;
using test::StoredEvent;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Type = KvEvent::Type;

std::vector<std::uint32_t> tokens(std::uint32_t from, std::size_t count) {
  std::vector<std::uint32_t> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = from + static_cast<std::uint32_t>(i);
  return out;
}

TEST(EventDecoder, MapsInAnyOrderAndWithUnknownKeys) {
  Pack event;
  event.map(8).text("later").array(2).whole(1).map(1).text("x").nil();
  event.text("token_ids").array(2).whole(7).whole(8);
  event.text("block_size").whole(2).text("parent_block_hash").whole(5);
  event.text("block_hashes").array(1).whole(6).text("medium").text("CPU");
  event.text("session_id").text("s").text("type").text("BlockStored");
  EventBatch batch;
  const std::string bytes = packed_batch({event.bytes()}, 12.25);
  ASSERT_TRUE(decode_event_batch(bytes, batch));
  EXPECT_EQ(batch.time, 12.25);
  EXPECT_EQ(batch.rank, 0);
  ASSERT_EQ(batch.events.size(), 1U);
  const KvEvent& stored = batch.events[0];
  EXPECT_EQ(stored.type, Type::kStored);
  EXPECT_THAT(stored.blocks, ElementsAre(6));
  EXPECT_THAT(stored.tokens, ElementsAre(7, 8));
  EXPECT_EQ(stored.parent, 5U);
  EXPECT_EQ(stored.medium, "CPU");
  EXPECT_EQ(stored.block_tokens, 2U);
  EXPECT_FALSE(stored.has_lora);
  EXPECT_EQ(batch.unreadable, 0U);
}

// SGLang: the shortest form, without medium, with hashes as signed numbers, and no rank.
TEST(EventDecoder, ShortArraysWithSignedHashes) {
  Pack payload;
  payload.array(2).real(3).array(3);
  payload.array(6)
      .text("BlockStored")
      .array(1)
      .negative(-2)
      .negative(-3)
      .array(1)
      .whole(9)
      .whole(1);
  payload.nil();
  payload.array(2).text("BlockRemoved").array(1).negative(-2);
  payload.array(1).text("AllBlocksCleared");
  EventBatch batch;
  const std::string bytes = payload.bytes();
  ASSERT_TRUE(decode_event_batch(bytes, batch));
  ASSERT_EQ(batch.events.size(), 3U);
  EXPECT_THAT(batch.events[0].blocks, ElementsAre(~std::uint64_t{1}));
  EXPECT_EQ(batch.events[0].parent, ~std::uint64_t{2});
  EXPECT_EQ(batch.events[0].medium, "");
  EXPECT_THAT(batch.events[1].blocks, ElementsAre(~std::uint64_t{1}));
  EXPECT_EQ(batch.events[2].type, Type::kCleared);
  EXPECT_FALSE(batch.rank.has_value());
}

TEST(EventDecoder, LongArraysKeepWhatIsKnown) {
  Pack event;
  event.array(14).text("BlockStored").array(1).whole(1).nil().array(1).whole(4).whole(1);
  event.whole(3).text("DISK").text("ad1").array(1).array(1).text("ad1").whole(2);
  event.text("full_attention").nil().text("later").map(0);
  EventBatch batch;
  const std::string bytes = packed_batch({event.bytes(), packed_cleared()});
  ASSERT_TRUE(decode_event_batch(bytes, batch));
  ASSERT_EQ(batch.events.size(), 2U);
  const KvEvent& stored = batch.events[0];
  EXPECT_TRUE(stored.has_lora);
  EXPECT_EQ(stored.lora, "ad1");
  EXPECT_EQ(stored.group, 2);
  EXPECT_EQ(stored.spec_kind, "full_attention");
  EXPECT_EQ(stored.medium, "DISK");
  ASSERT_EQ(stored.extras.size(), 1U);
  EXPECT_EQ(stored.extras[0].bare[0], "ad1");
}

TEST(EventDecoder, ABatchMayBeAMap) {
  Pack payload;
  payload.map(3).text("events").array(1).raw(packed_cleared());
  payload.text("data_parallel_rank").whole(3).text("ts").real(8);
  EventBatch batch;
  const std::string bytes = payload.bytes();
  ASSERT_TRUE(decode_event_batch(bytes, batch));
  EXPECT_EQ(batch.rank, 3);
  EXPECT_EQ(batch.time, 8);
  EXPECT_EQ(batch.events.size(), 1U);
}

TEST(EventDecoder, TheRankIsFoundWithoutTheEvents) {
  EXPECT_EQ(batch_rank(packed_batch({packed_cleared(), packed_removed({1})})), 0);
  Pack map;
  map.map(2).text("events").array(1).raw(packed_cleared()).text("data_parallel_rank").whole(5);
  EXPECT_EQ(batch_rank(map.bytes()), 5);
  EXPECT_FALSE(batch_rank(Pack().array(2).real(1).array(0).bytes()).has_value());
  EXPECT_FALSE(batch_rank(Pack().array(3).real(1).array(0).nil().bytes()).has_value());
  EXPECT_FALSE(batch_rank("\x93").has_value());
}

// An engine publishes the last 64 bits of a digest, or all of its bytes.
TEST(EventDecoder, HashesAsBytesAreThoseAsNumbers) {
  Pack event;
  event.map(2).text("type").text("BlockRemoved").text("block_hashes").array(2);
  event.binary(std::string(24, '\xAA') + std::string("\x3D\xF5\x0D\x9C\x60\xF3\xA9\x23"));
  event.binary(std::string("\x01\x02"));
  EventBatch batch;
  const std::string bytes = packed_batch({event.bytes()});
  ASSERT_TRUE(decode_event_batch(bytes, batch));
  EXPECT_THAT(batch.events.at(0).blocks, ElementsAre(4464489570900355363U, 258U));
}

TEST(EventDecoder, ExtraKeysWithAndWithoutTags) {
  Pack extras;
  extras.array(5).nil();
  extras.array(2).array(2).text("cache_salt").text("s").array(3).text("lora").text("l").text("/p");
  extras.array(1).text("bare");
  extras.array(3).text("one").text("two").text("three");
  extras.array(1).array(2).text("image-hash").whole(4);
  StoredEvent event{.blocks = {1, 2, 3, 4, 5}, .parent = {}, .tokens = tokens(0, 5)};
  event.block_tokens = 1;
  event.extras = extras.bytes();
  EventBatch batch;
  const std::string payload = packed_batch({packed(event)});
  ASSERT_TRUE(decode_event_batch(payload, batch));
  const std::span<const BlockExtras> read = batch.events.at(0).extras;
  ASSERT_EQ(read.size(), 5U);
  EXPECT_TRUE(read[0].none());
  EXPECT_EQ(read[1].salt, "s");
  EXPECT_EQ(read[1].lora, "l");
  EXPECT_FALSE(read[1].other);
  EXPECT_EQ(read[2].bare_count, 1);
  EXPECT_EQ(read[2].bare[0], "bare");
  EXPECT_TRUE(read[3].other);
  EXPECT_TRUE(read[4].other);
}

TEST(EventDecoder, UnknownEventsArePassedOverAndSenselessOnesCounted) {
  const std::string unknown = Pack().array(2).text("BlockTransferred").array(1).whole(1).bytes();
  StoredEvent too_few{.blocks = {1, 2}, .parent = {}, .tokens = tokens(0, 31)};
  const std::string no_blocks = Pack().map(1).text("type").text("BlockRemoved").bytes();
  const std::string pairs = Pack()
                                .map(4)
                                .text("type")
                                .text("BlockStored")
                                .text("block_hashes")
                                .array(1)
                                .whole(1)
                                .text("token_ids")
                                .array(1)
                                .array(2)
                                .whole(1)
                                .whole(2)
                                .text("block_size")
                                .whole(1)
                                .bytes();
  const std::string no_event = Pack().whole(3).bytes();
  const std::string real_hash =
      Pack().map(2).text("type").text("BlockRemoved").text("block_hashes").array(1).real(1).bytes();
  EventBatch batch;
  ASSERT_TRUE(decode_event_batch(packed_batch({unknown, packed(too_few), no_blocks, pairs, no_event,
                                               real_hash, packed_removed({9})}),
                                 batch));
  ASSERT_EQ(batch.events.size(), 1U);
  EXPECT_THAT(batch.events[0].blocks, ElementsAre(9));
  EXPECT_THAT(batch.events[0].tokens, IsEmpty());
  EXPECT_EQ(batch.unreadable, 5U);
}

TEST(EventDecoder, WhatIsNoBatchIsRefused) {
  EventBatch batch;
  EXPECT_FALSE(decode_event_batch("", batch));
  EXPECT_FALSE(decode_event_batch("\xC1", batch));
  EXPECT_FALSE(decode_event_batch(Pack().whole(1).bytes(), batch));
  EXPECT_FALSE(decode_event_batch(Pack().array(1).real(1).bytes(), batch));
  const std::string whole =
      packed_batch({packed({.blocks = {1}, .parent = 7, .tokens = tokens(0, 16)})});
  ASSERT_TRUE(decode_event_batch(whole, batch));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(decode_event_batch(whole.substr(0, size), batch)) << size;
  }
}

// A head that claims four thousand million token ids takes no memory for them.
TEST(EventDecoder, CountsAreNotBelieved) {
  for (const char* const field : {"token_ids", "block_hashes", "extra_keys"}) {
    Pack event;
    event.map(2).text("type").text("BlockStored").text(field).array(0xFFFF'FFFF).whole(1);
    EventBatch batch;
    EXPECT_FALSE(decode_event_batch(packed_batch({event.bytes()}), batch));
    EXPECT_LT(batch.tokens.capacity(), 1000U);
  }
}

}  // namespace
}  // namespace pointsman
