#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <simdjson.h>

#include "support/test_data.h"

namespace pointsman {

// What vLLM answered for the tiny model of tests/data/tokens.
struct TextVector {
  std::string text;
  std::vector<std::uint32_t> ids;
};

struct ChatVector {
  std::string messages;  // JSON
  std::string tools;     // JSON; empty: none
  bool add_generation_prompt = false;
  std::string rendered;  // after the tokenizer's normalisation
  std::vector<std::uint32_t> ids;
};

struct TokenVectors {
  std::vector<TextVector> texts;
  std::vector<ChatVector> chats;
};

inline TokenVectors token_vectors() {
  namespace dom = simdjson::dom;
  const auto ids = [](dom::element array) {
    std::vector<std::uint32_t> out;
    for (const std::uint64_t id : dom::array(array)) out.push_back(static_cast<std::uint32_t>(id));
    return out;
  };
  dom::parser parser;
  const std::string text = test_data("tokens/vectors-vllm.json");
  const dom::element root = parser.parse(text);
  TokenVectors vectors;
  for (const dom::element vector : dom::array(root["texts"])) {
    vectors.texts.push_back({std::string(std::string_view(vector["text"])), ids(vector["ids"])});
  }
  for (const dom::element vector : dom::array(root["chats"])) {
    ChatVector& chat = vectors.chats.emplace_back();
    const dom::element request = vector["request"];
    chat.messages = simdjson::minify(request["messages"]);
    dom::element tools;
    if (request["tools"].get(tools) == simdjson::SUCCESS) chat.tools = simdjson::minify(tools);
    chat.add_generation_prompt = request["add_generation_prompt"];
    chat.rendered = std::string_view(vector["rendered"]);
    chat.ids = ids(vector["ids"]);
  }
  return vectors;
}

}  // namespace pointsman
