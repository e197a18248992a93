// What vLLM 0.32 published while it served known requests, replayed byte for byte: what the
// requests leave in the cache, and what the engine then says of its hits.

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include "kv_events/event_decoder.h"
#include "kv_events/event_stream.h"
#include "support/held_keys.h"
#include "support/test_data.h"

namespace pointsman {
namespace {

using test::HeldKeys;
using Json = simdjson::dom::element;
using Tokens = std::vector<std::uint32_t>;

constexpr std::uint32_t kBlock = 32;  // the captured engines' block size

std::string from_hex(std::string_view hex) {
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    int value = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, value, 16);
    out += static_cast<char>(value);
  }
  return out;
}

std::uint64_t number_of(std::string_view frame) {
  std::uint64_t number = 0;
  for (const char c : frame) number = (number << 8) | static_cast<std::uint8_t>(c);
  return number;
}

Tokens tokens_of(const Json& list) {
  Tokens tokens;
  simdjson::dom::array items;
  if (list.get(items) != simdjson::SUCCESS) return tokens;
  for (const Json item : items) tokens.push_back(static_cast<std::uint32_t>(item.get_uint64()));
  return tokens;
}

struct Captured {
  explicit Captured(const std::string& file) : text(test_data("vllm/kv-events/" + file)) {
    EXPECT_EQ(parser.parse(text).get(root), simdjson::SUCCESS);
  }
  simdjson::padded_string text;
  simdjson::dom::parser parser;
  Json root;
};

// One prompt of a case, with what the engine answered.
struct Asked {
  Tokens prompt;
  Tokens output;
  std::string salt;
  std::uint64_t cached_tokens = 0;
};

std::vector<Asked> asked_of(const Json& entry) {
  std::vector<Asked> all;
  Json choices;
  if (entry["response"]["choices"].get(choices) != simdjson::SUCCESS) return all;
  std::string_view salt;
  if (entry["request"]["body"]["cache_salt"].get(salt) != simdjson::SUCCESS) salt = "";
  Json prompts;
  const bool named = entry["request"]["body"]["prompt"].get(prompts) == simdjson::SUCCESS;
  for (const Json choice : choices.get_array()) {
    Asked asked;
    asked.salt = salt;
    Json ids;
    if (choice["prompt_token_ids"].get(ids) == simdjson::SUCCESS) asked.prompt = tokens_of(ids);
    if (asked.prompt.empty() &&
        entry["response"]["prompt_token_ids"].get(ids) == simdjson::SUCCESS) {
      asked.prompt = tokens_of(ids);
    }
    if (asked.prompt.empty() && named) asked.prompt = tokens_of(prompts.at(all.size()));
    if (choice["token_ids"].get(ids) == simdjson::SUCCESS) asked.output = tokens_of(ids);
    std::uint64_t cached = 0;
    if (entry["response"]["usage"]["prompt_tokens_details"]["cached_tokens"].get(cached) ==
        simdjson::SUCCESS) {
      asked.cached_tokens = cached;
    }
    all.push_back(asked);
  }
  return all;
}

class CapturedStream : public ::testing::Test {
 protected:
  [[nodiscard]] std::vector<BlockHash> chain(const Tokens& tokens, std::string_view salt) const {
    std::vector<BlockHash> keys;
    chain_.extend_blocks(chain_.start("tiny", salt), 0, tokens, 16, keys);
    return keys;
  }

  TokenChain chain_{5};
  TableBudget budget_;
  HeldKeys held_;
  EventStream::Options options_ = [] {
    EventStream::Options options;
    options.can_replay = false;
    return options;
  }();
  EventStream stream_{chain_, budget_, "tiny", options_};
};

class CapturedEvents : public CapturedStream, public ::testing::WithParamInterface<const char*> {};

TEST_P(CapturedEvents, GiveTheBlocksThatTheRequestsImply) {
  const Captured captured(GetParam());
  std::size_t compared = 0;
  bool cleared_soon = false;  // the clearing is told with the next request's events
  for (const Json entry : captured.root["cases"].get_array()) {
    const std::string_view name = entry["case"].get_string();
    const std::vector<Asked> asked = asked_of(entry);
    if (asked.empty()) {
      cleared_soon = true;
    } else if (asked.size() == 1 && !cleared_soon) {
      // The engine finds whole blocks, and computes at least the last token.
      const Tokens& prompt = asked[0].prompt;
      const std::size_t keys = held_.leading(chain(prompt, asked[0].salt));
      const std::size_t found = std::min(keys * 16, prompt.size() - 1) / kBlock * kBlock;
      EXPECT_EQ(found, asked[0].cached_tokens) << name;
      ++compared;
    }
    for (const Json event : entry["events"].get_array()) {
      cleared_soon = false;
      const Json frames = event["frames_hex"];
      const std::string payload = from_hex(frames.at(2).get_string());
      stream_.published(number_of(from_hex(frames.at(1).get_string())), payload, held_);
    }
    // All whole blocks of which every token was computed; the last output token never is.
    for (const Asked& one : asked) {
      Tokens computed = one.prompt;
      if (!one.output.empty()) {
        computed.insert(computed.end(), one.output.begin(), one.output.end() - 1);
      }
      computed.resize(computed.size() / kBlock * kBlock);
      EXPECT_EQ(held_.leading(chain(computed, one.salt)), computed.size() / 16) << name;
    }
  }
  EXPECT_GT(compared, 9U);
  EXPECT_EQ(stream_.counts().undecodable, 0U);
  EXPECT_EQ(stream_.blocks().counts().unplaced, 0U);
  EXPECT_EQ(stream_.blocks().counts().conflicts, 0U);
  EXPECT_EQ(stream_.trust(), Trust::kTrusted);
  // After the clearing there is the last request alone.
  EXPECT_EQ(stream_.blocks().gpu_blocks(), 2U);
  EXPECT_EQ(held_.all().size(), 4U);
}

INSTANTIATE_TEST_SUITE_P(AllHashes, CapturedEvents,
                         ::testing::Values("sha256_cbor-int64-block32-128blocks.json",
                                           "sha256-bytes-block32-default-seed.json",
                                           "xxhash_cbor-int64-block32.json"),
                         [](const auto& test) {
                           const std::string name = test.param;
                           std::string word = name.substr(0, name.find("-block"));
                           std::ranges::replace(word, '-', '_');
                           return word;
                         });

// What the engine's replay socket answered is what it had published.
TEST_F(CapturedStream, AReplayBringsTheSame) {
  const Captured captured("sha256_cbor-int64-block32-128blocks.json");
  for (const Json reply : captured.root["replay"]["from_seq_26"]["reply_frames_hex"].get_array()) {
    const std::uint64_t number = number_of(from_hex(reply.at(2).get_string()));
    if (number == ~std::uint64_t{0}) break;
    stream_.published(number, from_hex(reply.at(3).get_string()), held_);
  }
  EXPECT_EQ(stream_.next(), 28U);
  EXPECT_EQ(held_.all().size(), 4U);
  EXPECT_EQ(stream_.trust(), Trust::kTrusted);
}

TEST_F(CapturedStream, AnAdaptersBlocksAreNotTheBaseModels) {
  const Captured captured("kv-events-base-then-lora.json");
  std::uint64_t number = 0;
  Tokens tokens;
  for (const Json message : captured.root.get_array()) {
    stream_.published(number++, from_hex(message["frames_hex"].at(2).get_string()), held_);
    tokens = tokens_of(message["decoded"].at(1).at(0)["token_ids"]);
  }
  ASSERT_EQ(tokens.size(), kBlock);
  std::vector<BlockHash> adapter;
  chain_.extend_blocks(chain_.start("ad1", ""), 0, tokens, 16, adapter);
  EXPECT_EQ(held_.leading(chain(tokens, "")), 2U);
  EXPECT_EQ(held_.leading(adapter), 2U);
  EXPECT_EQ(held_.all().size(), 4U);
}

// The payloads in the layouts of releases 0.13, 0.16 and 0.20 mean what those of 0.32 mean. Salts
// are told since 0.20 only.
TEST_F(CapturedStream, OlderLayoutsMeanTheSame) {
  const Captured captured("sha256_cbor-int64-block32-128blocks.json");
  const Captured older("older-layouts-reencoded.json");
  std::size_t compared = 0;
  for (const Json vector : older.root["vectors"].get_array()) {
    const std::string_view name = vector["case"].get_string();
    const std::string_view layout = vector["layout"].get_string();
    EventBatch old_batch;
    const std::string old_payload = from_hex(vector["payload_hex"].get_string());
    ASSERT_TRUE(decode_event_batch(old_payload, old_batch)) << name;
    EXPECT_EQ(old_batch.unreadable, 0U);
    bool found = false;
    for (const Json entry : captured.root["cases"].get_array()) {
      if (std::string_view(entry["case"].get_string()) != name) continue;
      for (const Json event : entry["events"].get_array()) {
        const std::string payload = from_hex(event["frames_hex"].at(2).get_string());
        EventBatch batch;
        ASSERT_TRUE(decode_event_batch(payload, batch));
        if (batch.time != old_batch.time) continue;
        found = true;
        ASSERT_EQ(batch.events.size(), old_batch.events.size());
        for (std::size_t i = 0; i < batch.events.size(); ++i) {
          const KvEvent& now = batch.events[i];
          const KvEvent& then = old_batch.events[i];
          EXPECT_EQ(now.type, then.type);
          EXPECT_TRUE(std::ranges::equal(now.blocks, then.blocks));
          EXPECT_TRUE(std::ranges::equal(now.tokens, then.tokens));
          EXPECT_EQ(now.parent, then.parent);
          EXPECT_EQ(now.block_tokens, then.block_tokens);
          EXPECT_EQ(now.medium, then.medium);
          EXPECT_EQ(now.lora, then.lora);
          EXPECT_EQ(now.has_lora, then.has_lora);
          if (layout == "0.20 array") {
            EXPECT_EQ(now.group, then.group);
            EXPECT_EQ(now.extras.size(), then.extras.size());
          }
          ++compared;
        }
      }
    }
    EXPECT_TRUE(found) << name;
  }
  EXPECT_GT(compared, 30U);
}

}  // namespace
}  // namespace pointsman
