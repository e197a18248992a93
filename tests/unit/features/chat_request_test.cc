#include "features/chat_request.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "features/multipart_model.h"
#include "features/session_key.h"
#include "support/test_data.h"

namespace pointsman {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr Needs kAll{.blocks = true, .session = true};

RequestFacts read(const std::string& body, Needs needs = kAll, Api api = Api::kChat,
                  std::string_view header = "") {
  ChatRequestReader reader({});
  RequestFacts facts;
  reader.read(api, body, body.size(), header, needs, facts);
  return facts;
}

std::size_t shared_blocks(const RequestFacts& a, const RequestFacts& b) {
  std::size_t n = 0;
  while (n < a.blocks.size() && n < b.blocks.size() && a.blocks[n] == b.blocks[n]) ++n;
  return n;
}

std::string repeat(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

std::string chat(const std::string& messages, const std::string& more = "") {
  return R"({"model":"m1","messages":[)" + messages + "]" + more + "}";
}

std::string message(const std::string& role, const std::string& text) {
  return R"({"role":")" + role + R"(","content":")" + text + R"("})";
}

TEST(ChatRequest, ReadsWhatIsAlwaysRead) {
  const RequestFacts facts = read(
      R"({"messages":[],"stream":true,"max_tokens":5,"model":"org/m\u00e9","priority":-3})", {});
  EXPECT_TRUE(facts.parsed);
  EXPECT_EQ(facts.model_field, RequestFacts::Model::kNamed);
  EXPECT_EQ(facts.model, "org/m\xc3\xa9");
  EXPECT_TRUE(facts.stream);
  EXPECT_EQ(facts.max_output_tokens, 5U);
  EXPECT_EQ(facts.priority, -3);
  EXPECT_THAT(facts.blocks, IsEmpty());
  EXPECT_EQ(facts.session_key, 0U);
  EXPECT_FALSE(facts.stored);
}

TEST(ChatRequest, TheLastOfDuplicateKeysCounts) {
  const RequestFacts facts = read(
      R"({"model":"a","stream":true,"max_tokens":1,"model":"b","stream":false,"max_tokens":2})");
  EXPECT_EQ(facts.model, "b");
  EXPECT_FALSE(facts.stream);
  EXPECT_EQ(facts.max_output_tokens, 2U);
  EXPECT_EQ(read(R"({"model":"a","model":null})").model_field, RequestFacts::Model::kNull);

  const RequestFacts last = read(chat("", R"(,"messages":[)" + message("user", "x") + "]"));
  EXPECT_EQ(last.session_key, read(chat(message("user", "x"))).session_key);
}

TEST(ChatRequest, KeysMayBeWrittenWithEscapes) {
  EXPECT_EQ(read(R"({"\u006dodel":"a"})").model, "a");
}

TEST(ChatRequest, LimitsAreReadInTheOrderOfTheIssue) {
  EXPECT_EQ(
      read(R"({"max_tokens":1,"max_output_tokens":2,"max_completion_tokens":3})").max_output_tokens,
      3U);
  EXPECT_EQ(read(R"({"max_tokens":1,"max_output_tokens":2})").max_output_tokens, 2U);
  EXPECT_EQ(read(R"({"max_completion_tokens":null,"max_tokens":1})").max_output_tokens, 1U);
  EXPECT_EQ(read(R"({"max_tokens":4000.0})").max_output_tokens, 4000U);
  EXPECT_EQ(read(R"({"max_tokens":1e30})").max_output_tokens, UINT32_MAX);
  for (const char* odd : {"-5", "\"7\"", "[7]", "{}", "true", "null"}) {
    EXPECT_EQ(read(R"({"max_tokens":)" + std::string(odd) + "}").max_output_tokens, 0U) << odd;
  }
}

TEST(ChatRequest, TheModelFieldIsToldApart) {
  using Model = RequestFacts::Model;
  EXPECT_EQ(read("{}").model_field, Model::kAbsent);
  EXPECT_EQ(read(R"({"model":null})").model_field, Model::kNull);
  EXPECT_EQ(read(R"({"model":7})").model_field, Model::kOther);
  EXPECT_EQ(read(R"({"model":""})").model_field, Model::kNamed);
  EXPECT_EQ(read(R"({"model":" m1 "})").model, " m1 ");
}

TEST(ChatRequest, WhatIsNoJsonObjectIsNotParsed) {
  for (const char* body : {"", " ", "[]", "\"x\"", "7", "null", "{", "{\"a\"", "{\"a\":",
                           "not json", "\xff\xfe", "{\"a\":\"\xff\"}", "}", "{\"model\":\"m\",}"}) {
    EXPECT_FALSE(read(body).parsed) << body;
  }
  EXPECT_FALSE(read(test_data("vllm/37-err-bad-json.request.http")).parsed);
}

// D51
TEST(ChatRequest, UnknownFieldsDoNoHarm) {
  const RequestFacts facts = read(test_data("api/unknown-fields.json"));
  EXPECT_TRUE(facts.parsed);
  EXPECT_EQ(facts.model, "m1");
  EXPECT_EQ(facts.priority, -3);
}

TEST(ChatRequest, PromptTokensAreEstimatedWhateverIsNeeded) {
  const std::string body = chat(message("user", std::string(4000, 'x')));
  const RequestFacts plain = read(body, {});
  const RequestFacts full = read(body);
  EXPECT_NEAR(plain.prompt_tokens, 1000, 10);
  EXPECT_EQ(plain.prompt_tokens, full.prompt_tokens);
  EXPECT_GE(full.prompt_tokens, full.blocks.size() * full.block_tokens);
  // A picture does not count by the length of its bytes.
  const std::string picture = R"({"model":"m","messages":[{"role":"user","content":[{"type":)"
                              R"("image_url","image_url":{"url":"data:image/png;base64,)" +
                              std::string(400'000, 'A') + R"("}}]}]})";
  EXPECT_LT(read(picture, {}).prompt_tokens, 1000U);
}

TEST(ChatRequest, AFollowUpTurnSharesTheBlocksOfTheTurnBefore) {
  const std::string first = message("system", repeat("Be brief. ", 50)) + "," +
                            message("user", repeat("A long question? ", 50));
  const std::string second =
      first + "," + message("assistant", "An answer.") + "," + message("user", "And?");
  const RequestFacts a = read(chat(first));
  const RequestFacts b = read(chat(second));
  EXPECT_THAT(a.blocks, SizeIs(testing::Ge(20U)));
  EXPECT_EQ(shared_blocks(a, b), a.blocks.size());
  EXPECT_EQ(a.session_key, b.session_key);
  EXPECT_NE(a.session_key, 0U);
}

TEST(ChatRequest, ToolsStandBeforeTheMessagesWhereverTheyAreWritten) {
  const std::string messages = R"("messages":[)" + message("user", repeat("question ", 50)) + "]";
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  const RequestFacts before = read(R"({"model":"m",)" + tools + "," + messages + "}");
  const RequestFacts behind = read("{" + messages + "," + tools + R"(,"model":"m"})");
  EXPECT_EQ(before.blocks, behind.blocks);
  EXPECT_EQ(before.session_key, behind.session_key);
  const RequestFacts without = read(R"({"model":"m",)" + messages + "}");
  EXPECT_EQ(shared_blocks(before, without), 0U);
}

TEST(ChatRequest, EqualTextsInDifferentPiecesAreDifferent) {
  EXPECT_NE(read(chat(message("user", "ab") + "," + message("user", "c"))).session_key,
            read(chat(message("user", "a") + "," + message("user", "bc"))).session_key);
  const std::string text = repeat("x", 100);
  EXPECT_NE(read(chat(message("user", text))).blocks, read(chat(message("tool", text))).blocks);
}

TEST(ChatRequest, TheSpellingOfTextDoesNotMatter) {
  const RequestFacts raw = read(chat(message("user", repeat("\xc3\xa9/", 60))));
  const RequestFacts escaped = read(chat(message("user", repeat("\\u00e9\\/", 60))));
  EXPECT_THAT(raw.blocks, SizeIs(2));
  EXPECT_EQ(raw.blocks, escaped.blocks);
}

TEST(ChatRequest, CacheMarksThatMoveBetweenTurnsDoNotCount) {
  const std::string text = repeat("instruction ", 40);
  const std::string plain =
      R"({"role":"user","content":[{"type":"text","text":")" + text + R"("}]})";
  const std::string marked = R"({"role":"user","content":[{"type":"text","text":")" + text +
                             R"(","cache_control":{"type":"ephemeral"}}]})";
  EXPECT_EQ(read(chat(plain)).blocks, read(chat(marked)).blocks);
}

// D39
TEST(ChatRequest, TokenIdsMakeBlocksOfSixteen) {
  const auto ids = [](int count, int last) {
    std::string list = "0";
    for (int i = 1; i < count; ++i) list += "," + std::to_string(i == count - 1 ? last : i);
    return list;
  };
  const auto prompt = [](const std::string& list) {
    return R"({"model":"m1","prompt":[)" + list + "]}";
  };
  const RequestFacts a = read(prompt(ids(40, 39)), kAll, Api::kCompletions);
  EXPECT_EQ(a.prompt_tokens, 40U);
  EXPECT_EQ(a.block_tokens, 16U);
  EXPECT_THAT(a.blocks, SizeIs(2));
  const RequestFacts b = read(prompt(ids(32, 7)), kAll, Api::kCompletions);
  EXPECT_EQ(shared_blocks(a, b), 1U);
  EXPECT_NE(a.session_key, b.session_key);
  // A batch is placed by its first prompt, and counted whole.
  const RequestFacts batch = read(prompt("[" + ids(40, 39) + "],[1,2,3]"), kAll, Api::kCompletions);
  EXPECT_EQ(batch.blocks, a.blocks);
  EXPECT_EQ(batch.prompt_tokens, 43U);
  EXPECT_EQ(batch.chain_tokens, 40U);

  const RequestFacts one = read(test_data("affinity/token-ids.json"), kAll, Api::kCompletions);
  EXPECT_EQ(one.prompt_tokens, 5U);
  EXPECT_NE(one.session_key, 0U);
  EXPECT_EQ(read(test_data("affinity/token-ids.json"), kAll, Api::kCompletions).session_key,
            one.session_key);
  const RequestFacts two =
      read(test_data("affinity/token-ids-batch.json"), kAll, Api::kCompletions);
  EXPECT_EQ(two.prompt_tokens, 6U);
  EXPECT_NE(two.session_key, one.session_key);
}

// vLLM reads no cache for the sake of a prompt's log probabilities.
TEST(ChatRequest, PromptLogprobsAreComputedAnew) {
  const auto computes_all = [](const std::string& more, Api api = Api::kCompletions) {
    const std::string prompt =
        api == Api::kCompletions ? R"("prompt":"x")" : R"("messages":[{"role":"user"}])";
    return read("{" + prompt + more + "}", kAll, api).computes_all;
  };
  EXPECT_TRUE(computes_all(R"(,"prompt_logprobs":1)"));
  EXPECT_TRUE(computes_all(R"(,"prompt_logprobs":0)"));
  EXPECT_FALSE(computes_all(R"(,"prompt_logprobs":null)"));
  EXPECT_TRUE(computes_all(R"(,"echo":true,"logprobs":0)"));
  EXPECT_FALSE(computes_all(R"(,"echo":true)"));
  EXPECT_FALSE(computes_all(R"(,"logprobs":5)"));
  EXPECT_TRUE(computes_all(R"(,"echo":true)", Api::kChat));
  EXPECT_FALSE(computes_all(R"(,"logprobs":true,"top_logprobs":5)", Api::kChat));
}

// D40
TEST(ChatRequest, PicturesCountFromWhereTheyStand) {
  const auto with_more_text = [](std::string body) {
    body.replace(body.find("And list"), 0, repeat("Look closely. ", 20));
    return body;
  };
  const RequestFacts a = read(with_more_text(test_data("affinity/image-a.json")));
  const RequestFacts b = read(with_more_text(test_data("affinity/image-b.json")));
  EXPECT_EQ(shared_blocks(a, b), 640U / 64);  // 640 bytes of text before the picture
  EXPECT_EQ(a.blocks.size(), b.blocks.size());
  EXPECT_GT(a.blocks.size(), 12U);
  EXPECT_NE(a.session_key, b.session_key);
  EXPECT_EQ(read(with_more_text(test_data("affinity/image-a.json"))).blocks, a.blocks);
}

// D41
TEST(ChatRequest, TheSamePromptInThreeWorldsHasThreeKeys) {
  const std::string prompt = R"(,"prompt":")" + repeat("p", 200) + "\"";
  const RequestFacts base = read(R"({"model":"base")" + prompt + "}", kAll, Api::kCompletions);
  const RequestFacts adapter =
      read(R"({"model":"base-adapter-7")" + prompt + "}", kAll, Api::kCompletions);
  const RequestFacts salted =
      read(R"({"model":"base")" + prompt + R"(,"cache_salt":"tenant-2"})", kAll, Api::kCompletions);
  EXPECT_EQ(shared_blocks(base, adapter), 0U);
  EXPECT_EQ(shared_blocks(base, salted), 0U);
  EXPECT_EQ(shared_blocks(adapter, salted), 0U);
  EXPECT_NE(base.session_key, adapter.session_key);
  EXPECT_NE(base.session_key, salted.session_key);
}

// D42
TEST(ChatRequest, CharactersOfManyBytesDoNoHarm) {
  const auto body = [](const std::string& text) {
    return R"({"model":"m1","prompt":")" + text + "\"}";
  };
  // As in the case file: composed and decomposed letters, CJK, joined emoji, NUL, a lone surrogate.
  const std::vector<std::string> units = {
      "\\u00e9", "e\\u0301", "\\u6f22\\u5b57", "\\ud83d\\udc69\\u200d", "a", "\\u0000x", "\\ud83d"};
  std::vector<RequestFacts> all;
  for (const std::string& unit : units) {
    all.push_back(read(body(repeat(unit, 400)), kAll, Api::kCompletions));
    EXPECT_TRUE(all.back().parsed) << unit;
    EXPECT_GT(all.back().blocks.size(), 5U) << unit;
    EXPECT_EQ(read(body(repeat(unit, 400)), kAll, Api::kCompletions).blocks, all.back().blocks);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_EQ(shared_blocks(all[i], all[j]), 0U);
  }
  EXPECT_TRUE(read(test_data("affinity/characters.json")).parsed);
}

TEST(ChatRequest, SessionSourcesHaveTheDocumentedOrder) {
  const std::string all = R"({"messages":[{"role":"user","content":"x"}],"user":"u",)"
                          R"("conversation":{"id":"c"},"prompt_cache_key":"k"})";
  const SessionSources none{};
  EXPECT_EQ(session_key(none), 0U);
  EXPECT_EQ(read(all, kAll, Api::kChat, "h").session_key,
            session_key({.header = "h", .prompt_cache_key = "", .conversation = "", .user = ""}));
  EXPECT_EQ(read(all).session_key,
            session_key({.header = "", .prompt_cache_key = "k", .conversation = "", .user = ""}));
  EXPECT_EQ(read(R"({"user":"u","conversation":"c"})").session_key,
            session_key({.header = "", .prompt_cache_key = "", .conversation = "c", .user = ""}));
  EXPECT_EQ(read(R"({"user":"u","conversation":null,"prompt_cache_key":""})").session_key,
            session_key({.header = "", .prompt_cache_key = "", .conversation = "", .user = "u"}));
  EXPECT_NE(read(R"({"user":"x"})").session_key, read(R"({"prompt_cache_key":"x"})").session_key);
}

TEST(ChatRequest, TheContentKeyIsOfSystemAndFirstUserMessage) {
  const auto key = [](const std::string& messages) { return read(chat(messages)).session_key; };
  const std::string start = message("system", "s") + "," + message("user", "one");
  EXPECT_EQ(key(start),
            key(start + "," + message("assistant", "a") + "," + message("user", "two")));
  EXPECT_NE(key(start), key(message("system", "t") + "," + message("user", "one")));
  EXPECT_NE(key(start), key(message("system", "s") + "," + message("user", "two")));
  EXPECT_NE(key(start), key(message("user", "one")));
  EXPECT_EQ(read("{}").session_key, 0U);
  // Other fields may stand before the role.
  EXPECT_EQ(read(R"({"messages":[{"content":"x","role":"user"},{"role":"user","content":"y"}]})")
                .session_key,
            read(R"({"messages":[{"content":"x","role":"user"}]})").session_key);
}

TEST(ChatRequest, TheKeyOfAPromptIsOfItsBeginning) {
  const auto key = [](const std::string& prompt, Api api) {
    return read(R"({"prompt":")" + prompt + "\"}", {.blocks = false, .session = true}, api)
        .session_key;
  };
  const std::string start = repeat("x", 1024);
  EXPECT_EQ(key(start + "a", Api::kCompletions), key(start + "b", Api::kCompletions));
  EXPECT_NE(key("a" + start, Api::kCompletions), key("b" + start, Api::kCompletions));
}

// 1,024 bytes of text, or 256 ids; not one more and not one less.
TEST(ChatRequest, TheBeginningOfAPromptIs1024BytesOr256Ids) {
  const auto key = [](const std::string& prompt) {
    return read(R"({"prompt":)" + prompt + "}", {.blocks = false, .session = true},
                Api::kCompletions)
        .session_key;
  };
  const auto text = [](int same, const std::string& rest) {
    return '"' + repeat("x", same) + rest + '"';
  };
  EXPECT_EQ(key(text(1024, "a")), key(text(1024, "b")));
  EXPECT_NE(key(text(1023, "a")), key(text(1023, "b")));
  EXPECT_EQ(key("[" + text(1024, "a") + "]"), key("[" + text(1024, "b") + "]"));
  EXPECT_NE(key("[" + text(1023, "a") + "]"), key("[" + text(1023, "b") + "]"));
  EXPECT_EQ(key("[" + text(1023, "a") + "]"), key(text(1023, "a"))) << "a batch of one";
  const auto ids = [](int same, const std::string& rest) {
    return "[" + repeat("7,", same) + rest + "]";
  };
  EXPECT_EQ(key(ids(256, "8")), key(ids(256, "9")));
  EXPECT_NE(key(ids(255, "8")), key(ids(255, "9")));
}

// However many bytes of text make a block, and how many are taken for a token.
TEST(ChatRequest, ABlockOfIdsHasAsManyTokensAsIds) {
  ChatRequestReader reader({.block_bytes = 128, .block_ids = 32, .bytes_per_token = 3});
  RequestFacts facts;
  const auto tokens = [&](const std::string& prompt) {
    const std::string body = R"({"prompt":)" + prompt + "}";
    reader.read(Api::kCompletions, body, body.size(), "", kAll, facts);
    return facts.block_tokens;
  };
  EXPECT_EQ(tokens("[" + repeat("7,", 99) + "7]"), 32U);
  EXPECT_THAT(facts.blocks, SizeIs(100 / 32));
  EXPECT_EQ(tokens("[[" + repeat("7,", 99) + "7],[1]]"), 32U);
  EXPECT_EQ(tokens('"' + repeat("x", 300) + '"'), 43U) << "128 / 3, rounded";
}

TEST(ChatRequest, WhatIsNotNeededIsNotMade) {
  for (const char* body : {R"({"prompt":"p"})", R"({"prompt":[1,2]})", R"({"query":"q"})",
                           R"({"messages":[{"role":"user","content":"x"}]})"}) {
    EXPECT_EQ(read(body, {}).session_key, 0U) << body;
    EXPECT_THAT(read(body, {.blocks = false, .session = true}).blocks, IsEmpty()) << body;
  }
}

TEST(ChatRequest, ResponsesAreReadLikeMessages) {
  const RequestFacts text =
      read(R"({"model":"m","instructions":"s","input":"one"})", kAll, Api::kResponses);
  EXPECT_NE(text.session_key, 0U);
  const RequestFacts items =
      read(R"({"model":"m","instructions":"s","input":[{"role":"user","content":"one"},)"
           R"({"type":"function_call","name":"f","arguments":"{}"},)"
           R"({"role":"user","content":[{"type":"input_text","text":"two"}]}]})",
           kAll, Api::kResponses);
  const RequestFacts first =
      read(R"({"model":"m","instructions":"s","input":[{"role":"user","content":"one"}]})", kAll,
           Api::kResponses);
  EXPECT_EQ(items.session_key, first.session_key);
  EXPECT_TRUE(read(R"({"store":true})").stored);
  EXPECT_TRUE(read(R"({"background":true})").stored);
  EXPECT_FALSE(read(R"({"store":false})").stored);
}

// D56
TEST(ChatRequest, PreviousResponsesArePinned) {
  EXPECT_EQ(read(R"({"previous_response_id":"resp_1"})").response_id, response_key("resp_1"));
  EXPECT_EQ(read(R"({"previous_response_id":null})").response_id, 0U);
  EXPECT_NE(response_key("resp_1"), response_key("resp_2"));
}

TEST(ChatRequest, MessagesApiPutsItsSystemFirst) {
  const RequestFacts a =
      read(R"({"messages":[{"role":"user","content":"q"}],"system":[{"type":"text","text":"s"}]})");
  const RequestFacts b =
      read(R"({"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"q"}]})");
  EXPECT_EQ(a.session_key, b.session_key);
  EXPECT_NE(a.session_key, 0U);
}

TEST(ChatRequest, ABodyInPlaceAndACopiedOneAreReadTheSame) {
  const std::string body = chat(message("user", repeat("in place ", 50)));
  std::string padded = body;
  padded.reserve(body.size() + ChatRequestReader::kPadding);
  ChatRequestReader reader({});
  RequestFacts facts;
  reader.read(Api::kChat, padded, padded.capacity(), "", kAll, facts);
  EXPECT_EQ(facts.blocks, read(body).blocks);
  EXPECT_EQ(facts.session_key, read(body).session_key);
}

TEST(ChatRequest, ABeginningTellsWhatItHolds) {
  const std::string whole = R"({"model":"m1","stream":true,"max_tokens":1234,"messages":[)" +
                            message("user", repeat("word ", 100)) + "," +
                            message("assistant", "tail") + R"(],"user":"u"})";
  const RequestFacts full = read(whole);
  ChatRequestReader reader({});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    RequestFacts facts;
    reader.read_partial(Api::kChat, whole.substr(0, size), "", kAll, facts);
    EXPECT_FALSE(facts.parsed);
    EXPECT_TRUE(facts.model.empty() || facts.model == "m1") << size;
    EXPECT_TRUE(facts.max_output_tokens == 0 || facts.max_output_tokens == 1234) << size;
    EXPECT_EQ(shared_blocks(facts, full), facts.blocks.size()) << size;
  }
  RequestFacts facts;
  reader.read_partial(Api::kChat, whole.substr(0, 300), "", kAll, facts);
  EXPECT_EQ(facts.model, "m1");
  EXPECT_TRUE(facts.stream);
  EXPECT_EQ(facts.max_output_tokens, 1234U);
  EXPECT_THAT(facts.blocks, testing::Not(IsEmpty()));
}

TEST(ChatRequest, CapturedBodiesAreRead) {
  for (const char* name : {"vllm/08-chat", "vllm/09-chat-stream", "vllm/20-completion-token-ids",
                           "vllm/33-chat-priority", "llama.cpp/15-chat-long-cold"}) {
    const std::string bytes = test_data(std::string(name) + ".request.http");
    const RequestFacts facts = read(bytes.substr(bytes.find("\r\n\r\n") + 4));
    EXPECT_TRUE(facts.parsed) << name;
    EXPECT_EQ(facts.model, "tiny") << name;
    EXPECT_GT(facts.prompt_tokens, 0U) << name;
    EXPECT_NE(facts.session_key, 0U) << name;
  }
}

// D53, D54
TEST(MultipartModel, ReadsTheModelPart) {
  const std::string body = test_data("api/transcription.multipart");
  EXPECT_EQ(multipart_model("multipart/form-data; boundary=sep-7", body), "m1");
  EXPECT_EQ(multipart_model("Multipart/Form-Data; charset=x; BOUNDARY=\"sep-7\"", body), "m1");
  EXPECT_EQ(multipart_model("multipart/form-data; boundary=sep-8", body), std::nullopt);
  EXPECT_EQ(multipart_model("multipart/form-data", body), std::nullopt);
  EXPECT_EQ(multipart_model("application/json", body), std::nullopt);
  EXPECT_EQ(multipart_model("multipart/form-data; boundary=sep-7", "not a form"), std::nullopt);
}

TEST(MultipartModel, TakesTheFieldByItsNameOnly) {
  const auto model = [](const std::string& head) -> std::optional<std::string> {
    const std::string body = "--b\r\n" + head + "\r\n\r\nv\r\n--b--\r\n";
    const auto name = multipart_model("multipart/form-data; boundary=b", body);
    return name ? std::optional<std::string>(*name) : std::nullopt;
  };
  EXPECT_EQ(model("content-disposition: form-data; name=model"), "v");
  EXPECT_EQ(model("X: 1\r\nContent-Disposition: form-data; filename=\"f\"; name=\"model\""), "v");
  EXPECT_EQ(model("Content-Disposition: form-data; name=\"model2\""), std::nullopt);
  EXPECT_EQ(model("Content-Disposition: form-data; filename=\"model\""), std::nullopt);
  EXPECT_EQ(model("Content-Disposition: form-data; name=\"model"), std::nullopt);
  EXPECT_EQ(model("X-Name: model"), std::nullopt);
  EXPECT_EQ(multipart_model("multipart/form-data; boundary=b",
                            "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm1 cut"),
            std::nullopt);
}

}  // namespace
}  // namespace pointsman
