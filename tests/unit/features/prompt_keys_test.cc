// Keys of generated prompts against what an engine would cache together: two prompts share blocks
// up to where an engine would see them differ, and not one block further.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "features/chat_request.h"

namespace pointsman {
namespace {

constexpr std::uint32_t kBlockIds = 16;
constexpr std::size_t kBlockBytes = 64;

std::size_t below(Rng& rng, std::size_t n) {
  return static_cast<std::size_t>(rng() % n);
}

std::string pick(Rng& rng, const std::vector<std::string>& from) {
  return from[below(rng, from.size())];
}

// Where prompts share a cache at all.
struct World {
  std::string model;  // or adapter
  std::string salt;

  friend bool operator==(const World&, const World&) = default;
};

World any_world(Rng& rng) {
  return {pick(rng, {"base", "base", "base", "base-adapter-7", "other"}),
          pick(rng, {"", "", "", "tenant-2"})};
}

std::vector<BlockHash> blocks_of(Api api, const std::string& body, std::uint32_t* exact = nullptr) {
  ChatRequestReader reader({.block_bytes = kBlockBytes, .block_ids = kBlockIds});
  RequestFacts facts;
  reader.read(api, body, body.size(), "", {.blocks = true}, facts);
  EXPECT_TRUE(facts.parsed) << body;
  if (exact != nullptr) *exact = facts.exact_blocks;
  return facts.blocks;
}

std::size_t shared(const std::vector<BlockHash>& a, const std::vector<BlockHash>& b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(end.first - a.begin());
}

// Not one of the blocks may be found elsewhere than at its own place.
bool any_shared_from(const std::vector<BlockHash>& a, const std::vector<BlockHash>& b,
                     std::size_t from) {
  return std::any_of(a.begin() + static_cast<std::ptrdiff_t>(from), a.end(),
                     [&](BlockHash key) { return std::find(b.begin(), b.end(), key) != b.end(); });
}

// The fields of an object in any order, with white space between them.
std::string object(Rng& rng, std::vector<std::string> fields) {
  for (std::size_t i = fields.size(); i > 1; --i) std::swap(fields[i - 1], fields[below(rng, i)]);
  std::string out = "{";
  for (const std::string& field : fields) {
    if (out.size() > 1) out += below(rng, 2) == 0 ? "," : " ,\n ";
    out += field;
  }
  return out + "}";
}

void add_world(const World& world, std::vector<std::string>& fields) {
  fields.push_back(R"("model":")" + world.model + '"');
  if (!world.salt.empty()) fields.push_back(R"("cache_salt":")" + world.salt + '"');
}

// --- token ids -----------------------------------------------------------------------------------

struct IdPrompt {
  World world;
  std::vector<std::uint32_t> ids;
  std::vector<std::uint32_t> further;  // a second prompt of the same request
};

IdPrompt any_ids(Rng& rng, const std::vector<std::uint32_t>& stem) {
  IdPrompt prompt{.world = any_world(rng), .ids = {}, .further = {}};
  prompt.ids.assign(stem.begin(), stem.begin() + static_cast<std::ptrdiff_t>(below(rng, 100)));
  for (std::size_t n = below(rng, 60); n > 0; --n) {
    prompt.ids.push_back(static_cast<std::uint32_t>(below(rng, 3)));
  }
  if (prompt.ids.empty()) prompt.ids.push_back(0);
  if (below(rng, 3) == 0) prompt.further = {1, 2, 3};
  return prompt;
}

std::string list(Rng& rng, const std::vector<std::uint32_t>& ids) {
  std::string out = "[";
  for (const std::uint32_t id : ids) {
    if (out.size() > 1) out += below(rng, 4) == 0 ? ", " : ",";
    out += std::to_string(id);
  }
  return out + "]";
}

std::string body_of(Rng& rng, const IdPrompt& prompt) {
  std::string ids = list(rng, prompt.ids);
  if (!prompt.further.empty()) {
    ids = "[" + ids + "," + list(rng, prompt.further) + "]";
  } else if (below(rng, 4) == 0) {
    ids = "[" + ids + "]";  // a batch of one
  }
  std::vector<std::string> fields = {R"("prompt":)" + ids, R"("max_tokens":4)"};
  add_world(prompt.world, fields);
  return object(rng, fields);
}

TEST(PromptKeys, IdsShareAsManyBlocksAsTheirCommonBeginningHas) {
  Rng rng(5);
  std::vector<std::uint32_t> stem(100);
  for (std::uint32_t& id : stem) id = static_cast<std::uint32_t>(below(rng, 150'000));
  for (int round = 0; round < 3000; ++round) {
    const IdPrompt a = any_ids(rng, stem);
    const IdPrompt b = any_ids(rng, stem);
    const std::vector<BlockHash> keys_a = blocks_of(Api::kCompletions, body_of(rng, a));
    const std::vector<BlockHash> keys_b = blocks_of(Api::kCompletions, body_of(rng, b));
    ASSERT_EQ(keys_a.size(), a.ids.size() / kBlockIds);
    const auto end = std::mismatch(a.ids.begin(), a.ids.end(), b.ids.begin(), b.ids.end());
    const auto common = static_cast<std::size_t>(end.first - a.ids.begin());
    const std::size_t expected = a.world == b.world ? common / kBlockIds : 0;
    ASSERT_EQ(shared(keys_a, keys_b), expected);
    ASSERT_FALSE(any_shared_from(keys_a, keys_b, expected));
  }
}

TEST(PromptKeys, TheOrderOfABatchDecidesWhichPromptPlacesIt) {
  Rng rng(6);
  const std::vector<std::uint32_t> one(40, 1);
  const std::vector<std::uint32_t> two(40, 2);
  const auto keys = [&](const std::vector<std::uint32_t>& first,
                        const std::vector<std::uint32_t>& second) {
    return blocks_of(Api::kCompletions,
                     body_of(rng, {.world = {"m", ""}, .ids = first, .further = second}));
  };
  EXPECT_EQ(keys(one, two), keys(one, {}));
  EXPECT_EQ(keys(two, one), keys(two, {}));
  EXPECT_EQ(shared(keys(one, two), keys(two, one)), 0U);
}

TEST(PromptKeys, AllBlocksOfIdsAreExactAndNoneOfTextIs) {
  Rng rng(7);
  std::uint32_t exact = 0;
  const IdPrompt ids{.world = {"m", ""}, .ids = std::vector<std::uint32_t>(50, 7), .further = {}};
  EXPECT_EQ(blocks_of(Api::kCompletions, body_of(rng, ids), &exact).size(), 3U);
  EXPECT_EQ(exact, 3U);
  const std::string text = R"({"model":"m","prompt":")" + std::string(640, 'x') + "\"}";
  EXPECT_GE(blocks_of(Api::kCompletions, text, &exact).size(), 10U);
  EXPECT_EQ(exact, 0U);
}

// The engines' side of a chain comes from the events' token ids and from this start.
TEST(PromptKeys, BlocksOfIdsAreThoseOfTheTokenChain) {
  ChatRequestReader reader({.block_ids = 4, .chain_secret = 99});
  RequestFacts facts;
  const std::string body = R"({"model":"m","cache_salt":"s","prompt":[9,8,7,6,5,4,3,2,1]})";
  reader.read(Api::kCompletions, body, body.size(), "", {.blocks = true}, facts);
  const TokenChain chain(99);
  const std::vector<std::uint32_t> ids = {9, 8, 7, 6, 5, 4, 3, 2};
  const BlockHash first = chain.extend(chain.start("m", "s"), std::span(ids).first(4));
  EXPECT_EQ(facts.blocks,
            (std::vector<BlockHash>{first, chain.extend(first, std::span(ids).last(4))}));
}

// --- chats ---------------------------------------------------------------------------------------

struct Part {
  bool picture = false;
  std::string text;  // or which picture
};

struct Turn {
  std::string role;
  std::vector<Part> parts;
};

struct Chat {
  World world;
  std::string tools;
  std::vector<Turn> turns;
};

Chat any_chat(Rng& rng) {
  Chat chat{.world = any_world(rng), .tools = {}, .turns = {}};
  if (below(rng, 3) == 0) {
    chat.tools = pick(rng, {R"([{"type":"function","function":{"name":"f"}}])",
                            R"([{"type":"function","function":{"name":"g"}}])"});
  }
  for (std::size_t turns = 1 + below(rng, 3); turns > 0; --turns) {
    Turn turn{.role = pick(rng, {"user", "assistant", "system"}), .parts = {}};
    for (std::size_t parts = 1 + below(rng, 3); parts > 0; --parts) {
      if (below(rng, 4) == 0) {
        turn.parts.push_back({true, pick(rng, {"AAAA", "BBBB"})});
      } else {
        turn.parts.push_back({false, std::string(below(rng, 120), pick(rng, {"x", "y"})[0])});
      }
    }
    chat.turns.push_back(turn);
  }
  return chat;
}

std::string body_of(Rng& rng, const Chat& chat) {
  std::string messages;
  for (const Turn& turn : chat.turns) {
    std::string parts;
    for (const Part& part : turn.parts) {
      if (!parts.empty()) parts += ",";
      if (part.picture) {
        parts +=
            object(rng, {R"("type":"image_url")",
                         R"("image_url":{"url":"data:image/png;base64,)" + part.text + R"("})"});
        continue;
      }
      std::string text = part.text;
      if (below(rng, 3) == 0 && !text.empty()) {
        // The first character as an escape.
        text = (text[0] == 'x' ? "\\u0078" : "\\u0079") + text.substr(1);
      }
      std::vector<std::string> fields = {R"("type":"text")", R"("text":")" + text + '"'};
      if (below(rng, 4) == 0) fields.emplace_back(R"("cache_control":{"type":"ephemeral"})");
      parts += object(rng, fields);
    }
    if (!messages.empty()) messages += below(rng, 2) == 0 ? "," : " , ";
    // The order of a message's fields is kept: engines see it, in templates that print messages.
    messages += R"({"role":")" + turn.role + R"(","content":[)" + parts + "]}";
  }
  std::vector<std::string> fields = {R"("messages":[)" + messages + "]", R"("temperature":0.5)"};
  if (!chat.tools.empty()) fields.push_back(R"("tools":)" + chat.tools);
  add_world(chat.world, fields);
  return object(rng, fields);
}

// What an engine sees, one unit for each byte of text, each beginning of a piece and each picture.
std::vector<std::string> seen(const Chat& chat) {
  std::vector<std::string> units = {"tools"};
  const auto add = [&units](const std::string& text) {
    for (const char c : text) units.emplace_back(1, c);
  };
  add(chat.tools);
  for (const Turn& turn : chat.turns) {
    units.emplace_back("message");
    add(turn.role);
    for (const Part& part : turn.parts) {
      units.emplace_back("part");
      if (part.picture) {
        units.push_back("picture " + part.text);
      } else {
        add(part.text);
      }
    }
  }
  return units;
}

TEST(PromptKeys, ChatsShareWhatAnEngineWouldAndNothingBehindIt) {
  Rng rng(8);
  int shared_something = 0;
  for (int round = 0; round < 3000; ++round) {
    const Chat a = any_chat(rng);
    Chat b = any_chat(rng);
    if (below(rng, 2) == 0) {
      // The same conversation, perhaps gone on or changed at one place.
      b = a;
      const std::size_t change = below(rng, 5);
      if (change == 0) b.turns.push_back({"user", {{false, std::string(70, 'z')}}});
      if (change == 1) b.turns.back().parts.back().text += "B";
      if (change == 2) b.tools = R"([{"type":"function","function":{"name":"h"}}])";
      if (change == 3) b.world = any_world(rng);
    }
    const std::vector<BlockHash> keys_a = blocks_of(Api::kChat, body_of(rng, a));
    const std::vector<BlockHash> keys_b = blocks_of(Api::kChat, body_of(rng, b));
    const std::size_t both = shared(keys_a, keys_b);
    ASSERT_FALSE(any_shared_from(keys_a, keys_b, both));
    if (!(a.world == b.world)) {
      ASSERT_EQ(both, 0U);
      continue;
    }
    const std::vector<std::string> seen_a = seen(a);
    const std::vector<std::string> seen_b = seen(b);
    const auto end = std::mismatch(seen_a.begin(), seen_a.end(), seen_b.begin(), seen_b.end());
    const auto common = static_cast<std::size_t>(end.first - seen_a.begin());
    std::size_t text = 0;
    std::size_t marks = 0;  // what pieces' beginnings and pictures may take at most, in bytes
    for (std::size_t i = 0; i < common; ++i) {
      if (seen_a[i].size() == 1) {
        ++text;
      } else {
        marks += seen_a[i].starts_with("picture") ? 20 : 6;
      }
    }
    ASSERT_LE(both * kBlockBytes, text + marks + 6);
    ASSERT_GE(both, std::min({text / kBlockBytes, keys_a.size(), keys_b.size()}));
    if (seen_a == seen_b) {
      ASSERT_EQ(keys_a, keys_b);
    }
    if (both > 0) ++shared_something;
  }
  EXPECT_GT(shared_something, 300);
}

}  // namespace
}  // namespace pointsman
