// The vectors are what vLLM's /tokenize returned for the tiny model of tests/data/tokens. What else
// is expected of messages are vLLM's rules (chat_utils.py), and of text what CPython 3.11 prints.

#include "tokens/chat_template.h"

#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/model_folder.h"
#include "support/token_vectors.h"
#include "tokens/tokenizer.h"

namespace pointsman {
namespace {

using ::testing::HasSubstr;

const std::string kTinyModel = std::string(POINTSMAN_TEST_DATA) + "/tokens";

class ChatTemplateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!token_ids_built()) GTEST_SKIP() << "this build has no token ids";
  }

  // The template of a model's folder that has nothing else.
  static Result<ChatTemplate> of(const std::string& source) {
    const ModelFolder folder;
    folder.write("chat_template.jinja", source);
    return ChatTemplate::load(folder.path());
  }

  static Result<RenderedChat> render(const std::string& source, std::string_view messages) {
    const Result<ChatTemplate> chat_template = of(source);
    if (!chat_template) return chat_template.error();
    return chat_template->render({.messages = messages});
  }
};

TEST_F(ChatTemplateTest, GivesTheIdsThatTheEngineGives) {
  const Result<ChatTemplate> chat_template = ChatTemplate::load(kTinyModel);
  const Result<Tokenizer> tokenizer = Tokenizer::load(kTinyModel);
  ASSERT_TRUE(chat_template && tokenizer);
  const TokenVectors vectors = token_vectors();
  ASSERT_EQ(vectors.chats.size(), 28U);
  for (const ChatVector& vector : vectors.chats) {
    const Result<RenderedChat> chat =
        chat_template->render({.messages = vector.messages,
                               .tools = vector.tools,
                               .add_generation_prompt = vector.add_generation_prompt});
    ASSERT_TRUE(chat) << chat.error().message;
    EXPECT_EQ(chat->exact_bytes, chat->text.size());
    std::vector<std::uint32_t> ids;
    ASSERT_TRUE(tokenizer->encode(chat->text, false, ids));
    EXPECT_EQ(ids, vector.ids) << vector.messages << "\n" << chat->text << vector.rendered;
  }
}

TEST_F(ChatTemplateTest, WhatTheTemplateRaisesIsTheClientsError) {
  const Result<ChatTemplate> chat_template = ChatTemplate::load(kTinyModel);
  ASSERT_TRUE(chat_template);
  const Result<RenderedChat> chat =
      chat_template->render({.messages = R"([{"role": "alien", "content": "Hi"}])"});
  ASSERT_FALSE(chat);
  EXPECT_EQ(chat.error().kind, ErrorKind::kClient);
  EXPECT_EQ(chat.error().message, "unknown role: alien");  // as vLLM answers
}

TEST_F(ChatTemplateTest, WhatIsNoChatIsTheClientsError) {
  for (const std::string_view messages :
       {"", "{}", "[1]", "[", R"([{"content": "no role"}])", R"([{"role": "user", "content": 1}])",
        R"([{"role": "user", "content": [{"type": "smell"}]}])", "[{\"role\": \"\xff\"}]"}) {
    const Result<RenderedChat> chat = render("{{ messages }}", messages);
    ASSERT_FALSE(chat) << messages;
    EXPECT_EQ(chat.error().kind, ErrorKind::kClient) << chat.error().message;
  }
}

TEST_F(ChatTemplateTest, VariablesOfTheRequestReachTheTemplate) {
  const Result<ChatTemplate> chat_template = of("{{ enable_thinking }} {{ n }} {{ absent }}.");
  ASSERT_TRUE(chat_template);
  const Result<RenderedChat> chat = chat_template->render(
      {.messages = "[]",
       .variables = R"({"enable_thinking": false, "n": 12345678901234567890123})"});
  ASSERT_TRUE(chat) << chat.error().message;
  EXPECT_EQ(chat->text, "False 12345678901234567890123 .");
}

TEST_F(ChatTemplateTest, ContentIsATextOrPartsAsTheTemplateWants) {
  const std::string_view messages = R"([{"role": "user", "content":
      [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "c"}]},
      {"role": "assistant", "content": null}])";
  EXPECT_EQ(render("{% for m in messages %}<{{ m.content }}>{% endfor %}", messages)->text,
            "<a\nb><c><>");
  EXPECT_EQ(render("{% set all = messages[:1] %}{% for m in all %}<{{ m['content'] }}>"
                   "{% for part in m['content'] | list %}{% endfor %}{% endfor %}",
                   messages)
                ->text,
            "<[{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}]>");
}

TEST_F(ChatTemplateTest, ArgumentsOfToolCallsAreObjects) {
  const auto x_of = [](const std::string& arguments) {
    const std::string messages =
        R"([{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f",
            "arguments": )" +
        arguments + "}}]}]";
    const Result<RenderedChat> chat =
        render("{{ messages[0].tool_calls[0].function.arguments.x }}", messages);
    return chat ? chat->text : chat.error().message;
  };
  EXPECT_EQ(x_of(R"("{\"x\": 1.50}")"), "1.5");
  EXPECT_EQ(x_of(R"({"x": true})"), "True");
  EXPECT_EQ(x_of(R"("no JSON")"), "");
  EXPECT_EQ(x_of("null"), "");
}

TEST_F(ChatTemplateTest, ToolsHaveTheMembersOfTheProtocolInItsOrder) {
  const Result<ChatTemplate> chat_template = of("{{ tools | tojson }}");
  ASSERT_TRUE(chat_template);
  const Result<RenderedChat> chat = chat_template->render(
      {.messages = "[]",
       .tools = R"([{"function": {"parameters": {"b": 1, "a": []}, "name": "f", "x": "<'&"}}])"});
  ASSERT_TRUE(chat) << chat.error().message;
  EXPECT_EQ(chat->text, R"([{"type": "function", "function": {"name": "f", "description": null, )"
                        R"("parameters": {"b": 1, "a": []}, "x": "<'&"}}])");
  EXPECT_EQ(chat_template->render({.messages = "[]", .tools = "[]"})->text, "null");
}

TEST_F(ChatTemplateTest, TheLastMessageCanBeContinued) {
  const Result<ChatTemplate> chat_template =
      of("{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}");
  ASSERT_TRUE(chat_template);
  const Result<RenderedChat> chat =
      chat_template->render({.messages = R"([{"role": "user", "content": "ok, "},
                                             {"role": "assistant", "content": "ok, "}])",
                             .continue_final_message = true});
  ASSERT_TRUE(chat) << chat.error().message;
  EXPECT_EQ(chat->text, "<user>ok, </><assistant>ok, ");
}

TEST_F(ChatTemplateTest, NumbersAndTextsAreWrittenAsPythonDoes) {
  const auto written = [](const std::string& value, const std::string& how) {
    const Result<ChatTemplate> chat_template = of("{{ v" + how + " }}");
    const std::string variables = R"({"v": )" + value + "}";
    const Result<RenderedChat> chat =
        chat_template->render({.messages = "[]", .variables = variables});
    return chat ? chat->text : chat.error().message;
  };
  for (const std::string number :
       {"1.0", "0.1", "1e-05", "1.5e-07", "1e+16", "123456789012345.0", "1e+22", "-0.0", "0.0001",
        "1000000000000000.0", "-2.5e-10", "170141183460469231731687303715884105727"}) {
    EXPECT_EQ(written(number, ""), number);
    EXPECT_EQ(written(number, " | tojson"), number);
  }
  const std::string text = R"("it's \"\\\n\u0001\u00e9")";
  EXPECT_EQ(written(text, " | tojson"), "\"it's \\\"\\\\\\n\\u0001\u00e9\"");
  EXPECT_EQ(written(text, " | tojson(ensure_ascii=true)"), R"("it's \"\\\n\u0001\u00e9")");
  EXPECT_EQ(written(R"({"a": [1, null], "b": {}})", " | tojson(indent=2)"),
            "{\n  \"a\": [\n    1,\n    null\n  ],\n  \"b\": {}\n}");
  EXPECT_EQ(written(R"({"b": 1, "a": 2})", " | tojson(separators=(',', ':'), sort_keys=true)"),
            R"({"a":2,"b":1})");
  EXPECT_EQ(written(R"(["it's", null, true, "\n"])", ""), R"(["it's", None, True, '\n'])");
}

TEST_F(ChatTemplateTest, TemplatesHavePythonsMethodsAndGenerationBlocks) {
  EXPECT_EQ(
      render("{{ ' a.b '.strip().split('.')[-1].upper() }}{{ {'k': 1}.items() | list }}", "[]")
          ->text,
      "B[('k', 1)]");
  EXPECT_EQ(render("a\n  {%- generation -%}\n b {% endgeneration %}\nc", "[]")->text, "ab c");
  EXPECT_EQ(render("{% for a in [1, 2, 3] %}{% if a == 2 %}{% continue %}{% endif %}{{ a }}"
                   "{% endfor %}",
                   "[]")
                ->text,
            "13");
  EXPECT_EQ(render("{{ strftime_now('%Y') | length }}", "[]")->text, "4");
}

TEST_F(ChatTemplateTest, TextBeforeAPictureIsExact) {
  const Result<RenderedChat> chat = render(
      "{% for m in messages %}<{{ m.role }}>{% for part in m.content %}"
      "{% if part.type == 'image' %}[picture]{% else %}{{ part.text }}{% endif %}"
      "{% endfor %}{% endfor %}",
      R"([{"role": "user", "content": [{"type": "text", "text": "before"},
          {"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": "after"}]}])");
  ASSERT_TRUE(chat) << chat.error().message;
  EXPECT_EQ(chat->text, "<user>before[picture]after");
  EXPECT_EQ(chat->exact_bytes, std::string("<user>before").size());

  // For templates that take text, engines put what stands for pictures in front of it.
  const Result<RenderedChat> text =
      render("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}",
             R"([{"role": "user", "content": [{"type": "text", "text": "before"},
                 {"type": "image_url", "image_url": {"url": "data:"}}]}])");
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(text->exact_bytes, std::string("<user>").size());
}

TEST_F(ChatTemplateTest, ATemplateThatRunsOrGrowsForEverIsStopped) {
  for (const std::string source :
       {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set n = namespace(s='ab') %}{% for a in range(64) %}{% set n.s = n.s ~ n.s %}"
        "{% endfor %}"}) {
    const Result<RenderedChat> chat = render(source, "[]");
    ASSERT_FALSE(chat) << source;
    EXPECT_EQ(chat.error().kind, ErrorKind::kInternal);
    EXPECT_THAT(chat.error().message, HasSubstr("too many steps"));
  }
}

TEST_F(ChatTemplateTest, ModelsWithAToolTemplateUseItForTools) {
  const ModelFolder folder;
  folder.write("tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "chat_template": [
      {"name": "default", "template": "{{ bos_token }}plain"},
      {"name": "tool_use", "template": "{{ tools[0].function.name }}"}]})");
  const Result<ChatTemplate> chat_template = ChatTemplate::load(folder.path());
  ASSERT_TRUE(chat_template) << chat_template.error().message;
  EXPECT_EQ(chat_template->render({.messages = "[]"})->text, "<s>plain");
  const std::string_view tools = R"([{"type": "function", "function": {"name": "f"}}])";
  EXPECT_EQ(chat_template->render({.messages = "[]", .tools = tools})->text, "f");
}

TEST_F(ChatTemplateTest, LoadErrorsNameThePlace) {
  const ModelFolder folder;
  EXPECT_THAT(ChatTemplate::load(folder.path()).error().message, HasSubstr("no chat template"));
  EXPECT_THAT(of("line one\n{% if %}").error().message, HasSubstr("line 2"));
}

}  // namespace
}  // namespace pointsman
