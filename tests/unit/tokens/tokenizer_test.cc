// The vectors are what vLLM's /tokenize returned for the tiny model of tests/data/tokens.

#include "tokens/tokenizer.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "support/model_folder.h"
#include "support/token_vectors.h"

namespace pointsman {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Ids = std::vector<std::uint32_t>;

const std::string kTinyModel = std::string(POINTSMAN_TEST_DATA) + "/tokens";

class TokenizerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!token_ids_built()) GTEST_SKIP() << "this build has no token ids";
  }

  static Tokenizer tiny() {
    Result<Tokenizer> tokenizer = Tokenizer::load(kTinyModel);
    if (!tokenizer) throw std::runtime_error(tokenizer.error().message);
    return std::move(*tokenizer);
  }

  static Ids encode(const Tokenizer& tokenizer, std::string_view text, bool special = false) {
    Ids ids;
    const Result<void> done = tokenizer.encode(text, special, ids);
    EXPECT_TRUE(done.ok()) << done.error().message;
    return ids;
  }

  static std::string load_error(const std::string& path) {
    const Result<Tokenizer> tokenizer = Tokenizer::load(path);
    return tokenizer ? "loaded" : tokenizer.error().message;
  }
};

TEST(TokenizerOfAnyBuild, SaysWhyThereAreNoTokenIds) {
  const Result<Tokenizer> tokenizer = Tokenizer::load(kTinyModel);
  EXPECT_EQ(tokenizer.ok(), token_ids_built());
  if (!tokenizer) {
    EXPECT_THAT(tokenizer.error().message, HasSubstr("Rust toolchain"));
  }
}

TEST_F(TokenizerTest, GivesTheIdsThatTheEngineGives) {
  const Tokenizer tokenizer = tiny();
  const TokenVectors vectors = token_vectors();
  ASSERT_EQ(vectors.texts.size(), 102U);
  for (const TextVector& vector : vectors.texts) {
    EXPECT_EQ(encode(tokenizer, vector.text, true), vector.ids) << vector.text;
  }
  for (const ChatVector& vector : vectors.chats) {
    EXPECT_EQ(encode(tokenizer, vector.rendered), vector.ids) << vector.rendered;
  }
  EXPECT_EQ(tokenizer.vocabulary_size(), 2048U);
}

TEST_F(TokenizerTest, AppendsAndLeavesIdsAloneWhenItFails) {
  const Tokenizer tokenizer = tiny();
  Ids ids{7};
  ASSERT_TRUE(tokenizer.encode("<|im_end|>", false, ids));
  EXPECT_THAT(ids, ElementsAre(7, 3));
  const Result<void> broken = tokenizer.encode("a\xff", false, ids);
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().kind, ErrorKind::kClient);
  EXPECT_THAT(broken.error().message, HasSubstr("not UTF-8 at byte 1"));
  EXPECT_THAT(ids, ElementsAre(7, 3));
  EXPECT_THAT(encode(tokenizer, ""), IsEmpty());
}

TEST_F(TokenizerTest, PiecesBetweenCutsHaveTheIdsOfTheWhole) {
  const Tokenizer tokenizer = tiny();
  const std::vector<std::string> words{
      "<|im_start|>", "<|im_end|>", "<|tool|>", "<|im_", "|>",    " ",      "\n",   "user", "é",
      "e\u0301",      "路",         "  ",       "1234",  "don't", "\u00a0", "\r\n", "<",    "😀"};
  Rng rng(5);
  for (int round = 0; round < 2'000; ++round) {
    std::string text;
    for (std::uint64_t word = rng() % 24; word > 0; --word) text += words[rng() % words.size()];
    std::vector<std::size_t> cuts{99};
    tokenizer.find_cuts(text, cuts);
    cuts.push_back(text.size());
    Ids joined;
    std::size_t begin = 0;
    for (const std::size_t end : cuts) {
      ASSERT_TRUE(begin < end || text.empty()) << text;
      ASSERT_TRUE(
          tokenizer.encode(std::string_view(text).substr(begin, end - begin), false, joined));
      begin = end;
    }
    EXPECT_EQ(joined, encode(tokenizer, text)) << text;
  }
}

TEST_F(TokenizerTest, CutsAreOnBothSidesOfSpecialTokens) {
  const Tokenizer tokenizer = tiny();
  std::vector<std::size_t> cuts;
  tokenizer.find_cuts("<|im_start|>user\nhi<|im_end|>\n", cuts);
  EXPECT_THAT(cuts, ElementsAre(12, 19, 29));
  tokenizer.find_cuts("no special token", cuts);
  EXPECT_THAT(cuts, IsEmpty());
}

TEST_F(TokenizerTest, ServesSeveralThreadsAtOnce) {
  const Tokenizer tokenizer = tiny();
  const TokenVectors vectors = token_vectors();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      Ids ids;
      for (const TextVector& vector : vectors.texts) {
        ids.clear();
        ASSERT_TRUE(tokenizer.encode(vector.text, true, ids));
        ASSERT_EQ(ids, vector.ids);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(TokenizerTest, PutsAroundATextWhatThePostProcessorSays) {
  const ModelFolder folder;
  std::string definition = test_data("tokens/tokenizer.json");
  const std::string none = R"("post_processor": null)";
  const std::string both = R"("post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}},
                 {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
      "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
      "special_tokens": {
        "<|im_start|>": {"id": "<|im_start|>", "ids": [2], "tokens": ["<|im_start|>"]},
        "<|im_end|>": {"id": "<|im_end|>", "ids": [3], "tokens": ["<|im_end|>"]}}})";
  const std::size_t at = definition.find(none);
  ASSERT_NE(at, std::string::npos);
  definition.replace(at, none.size(), both);
  folder.write("tokenizer.json", definition);
  const Result<Tokenizer> tokenizer = Tokenizer::load(folder.path());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_THAT(tokenizer->ids_before(), ElementsAre(2));
  EXPECT_THAT(tokenizer->ids_after(), ElementsAre(3));
  EXPECT_THAT(encode(*tokenizer, "<|tool|>", true), ElementsAre(2, 4, 3));
  EXPECT_THAT(encode(*tokenizer, "<|tool|>", false), ElementsAre(4));
  EXPECT_THAT(encode(*tokenizer, "", true), ElementsAre(2, 3));
}

// What the pattern means: a word takes the space before it, the rest of a run of spaces is a word.
// The vocabulary has one entry for each word that is expected, and single bytes for all others.
TEST_F(TokenizerTest, CutsWordsByPatternsOfAnyKind) {
  const auto ids_with = [](const std::string& pattern, std::string_view text) {
    const ModelFolder folder;
    folder.write("tokenizer.json",
                 R"({"version": "1.0", "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": ")" +
                     pattern +
                     R"("}, "behavior": "Isolated", "invert": false},
        "model": {"type": "BPE", "unk_token": "?", "fuse_unk": true, "ignore_merges": true,
                  "merges": [], "vocab": {"?": 0, "a": 1, "b": 2, " ": 3, "  ": 4, " b": 5,
                                          "ab": 6, "1": 7, "\n": 8, " \n": 9}}})");
    const Result<Tokenizer> tokenizer = Tokenizer::load(folder.path());
    EXPECT_TRUE(tokenizer) << tokenizer.error().message;
    return tokenizer ? encode(*tokenizer, text) : Ids{};
  };
  const std::string customary = R"( ?[a-z]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";
  EXPECT_THAT(ids_with(customary, "ab   b"), ElementsAre(6, 4, 5));
  EXPECT_THAT(ids_with(customary, "a  "), ElementsAre(1, 4));
  EXPECT_THAT(ids_with(customary, "a \n  b 1"), ElementsAre(1, 9, 3, 5, 3, 7));
  EXPECT_THAT(ids_with("[0-9]", "ab1ab"), ElementsAre(6, 7, 6));
  EXPECT_THAT(ids_with("(?<=a)b|1", "ab1 b"), ElementsAre(1, 2, 7, 5));  // by backtracking
}

TEST_F(TokenizerTest, KnowsTheTokensThatTheConfigurationAdds) {
  const ModelFolder folder;
  folder.write("tokenizer.json", test_data("tokens/tokenizer.json"));
  folder.write("tokenizer_config.json",
               R"({"added_tokens_decoder": {"2048": {"content": "<|new|>", "special": true}}})");
  const Result<Tokenizer> tokenizer = Tokenizer::load(folder.path());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_THAT(encode(*tokenizer, "<|new|><|tool|>"), ElementsAre(2048, 4));
  EXPECT_EQ(tokenizer->vocabulary_size(), 2049U);
}

TEST_F(TokenizerTest, ErrorsNameTheFileAndWhatIsWrong) {
  const ModelFolder folder;
  const std::string file = folder.path() + "/tokenizer.json";
  EXPECT_THAT(load_error(folder.path()), HasSubstr(file + ": No such file"));
  folder.write("tokenizer.json", R"({"model": )");
  EXPECT_THAT(load_error(file), AllOf(HasSubstr(file), HasSubstr("line 1")));
  folder.write("tokenizer.json", "[]");
  EXPECT_THAT(load_error(file), AllOf(HasSubstr(file), HasSubstr("object")));
  folder.write("tokenizer.json", R"({"model": {"type": "Sorcery", "vocab": {}}})");
  EXPECT_THAT(load_error(file), AllOf(HasSubstr(file), HasSubstr("model type")));
  folder.write("tokenizer.json", std::string(300'000, '['));
  EXPECT_THAT(load_error(file), AllOf(HasSubstr(file), HasSubstr("recursion")));
  folder.write("tokenizer.json", test_data("tokens/tokenizer.json"));
  folder.write("tokenizer_config.json", "{");
  EXPECT_THAT(load_error(file), HasSubstr("tokenizer_config.json"));
}

// The library makes a table as long as the largest id, and would ask for gigabytes.
TEST_F(TokenizerTest, RefusesIdsFarBeyondTheNumberOfEntries) {
  const std::string whole = test_data("tokens/tokenizer.json");
  const std::string vocabulary = R"("vocab": {)";
  const std::string added = R"("added_tokens": [)";
  for (const char* const id :
       {"1048576", "2000000000", "4294967295", "99999999999999999999", "1e12"}) {
    const ModelFolder folder;
    const std::string file = folder.path() + "/tokenizer.json";
    std::string definition = whole;
    ASSERT_NE(definition.find(vocabulary), std::string::npos);
    definition.insert(definition.find(vocabulary) + vocabulary.size(),
                      "\"weird\": " + std::string(id) + ",");
    folder.write("tokenizer.json", definition);
    EXPECT_THAT(load_error(file), AllOf(HasSubstr("\"weird\" is too large"), HasSubstr("1048576")));
    definition = whole;
    ASSERT_NE(definition.find(added), std::string::npos);
    definition.insert(definition.find(added) + added.size(),
                      R"({"content": "odd", "single_word": false, "lstrip": false, "rstrip": false,
                          "normalized": false, "special": true, "id": )" +
                          std::string(id) + "},");
    folder.write("tokenizer.json", definition);
    EXPECT_THAT(load_error(file), HasSubstr("\"odd\" is too large"));
  }
  const ModelFolder folder;
  folder.write("tokenizer.json", whole);
  folder.write("tokenizer_config.json",
               R"({"added_tokens_decoder": {"4294967295": {"content": "<|far|>"}}})");
  EXPECT_THAT(load_error(folder.path()), HasSubstr("\"<|far|>\" is too large"));
}

TEST_F(TokenizerTest, ReadsFilesAlone) {
  EXPECT_THAT(load_error("/dev/zero"), HasSubstr("/dev/zero: is not a file"));
}

// What Unicode has got since the oldest tables that engines have is put in order by some alone.
TEST_F(TokenizerTest, RefusesCharactersThatVersionsOfUnicodeTreatDifferently) {
  const Tokenizer tokenizer = tiny();
  Ids ids;
  for (const std::string_view text : {"a\u0898", "a\u088F", "a\U0001E4EC", "a\U000323B0"}) {
    const Result<void> done = tokenizer.encode(text, false, ids);
    ASSERT_FALSE(done) << text;
    EXPECT_EQ(done.error().kind, ErrorKind::kClient);
    EXPECT_THAT(done.error().message, AllOf(HasSubstr("U+"), HasSubstr("at byte 1")));
    EXPECT_TRUE(ids.empty());
  }
  EXPECT_FALSE(encode(tokenizer, "e\u0301 路由器 😀 🤩").empty());
}

TEST_F(TokenizerTest, LongTextsWithoutSpacesTakeNoQuadraticTime) {
  const Tokenizer tokenizer = tiny();
  for (const std::string_view piece : {"a", " ", "路", "\n", "'", "1", "\u0301"}) {
    std::string text;
    while (text.size() < 200'000) text += piece;
    EXPECT_GT(encode(tokenizer, text).size(), 100U);
  }
}

}  // namespace
}  // namespace pointsman
