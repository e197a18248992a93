#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "features/json_read.h"
#include "features/request_facts.h"

namespace pointsman {

// The fields that hold a prompt, in the order in which engines put their content together.
enum ContentField : std::uint8_t {
  kSystem,
  kInstructions,
  kTools,
  kMessages,
  kPrompt,
  kInput,
  kQuery,
  kDocuments,
  kTextOne,
  kTextTwo,
  kText,
  kInputs,
  kContentFields,
};

inline constexpr std::array<std::string_view, kContentFields> kContentNames = {
    "system", "instructions", "tools",  "messages", "prompt", "input",
    "query",  "documents",    "text_1", "text_2",   "text",   "inputs"};

// What the pass over the top-level fields of a body finds. Texts are views of the body or of the
// parser's buffer.
struct BodyFields {
  static constexpr int kNone = -1;

  std::optional<std::uint32_t> max_completion_tokens;
  std::optional<std::uint32_t> max_output_tokens;
  std::optional<std::uint32_t> max_tokens;
  std::string_view model;
  std::string_view prompt_cache_key;
  std::string_view conversation;
  std::string_view user;
  std::string_view previous_response_id;
  std::string_view cache_salt;
  bool store = false;
  bool background = false;
  bool echo = false;                           // the prompt is wanted back
  bool logprobs = false;                       // a number of them, or true
  bool prompt_logprobs = false;                // likewise; 0 is a number
  std::array<int, kContentFields> content_at;  // which field of the object it is

  // Of prompts that are to become ids, as they are written: the content fields, and what else goes
  // into a template.
  bool keep_written = false;
  std::array<std::string_view, kContentFields> written;
  std::string_view template_variables;  // chat_template_kwargs
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  std::optional<bool> add_special_tokens;
  bool own_prompt = false;  // the engine makes the prompt in a way that is not known here

  BodyFields() { content_at.fill(kNone); }
};

// One field of a body, the `index`th. False: the document is broken.
bool read_body_field(std::string_view key, json::od::value& value, int index, BodyFields& fields,
                     RequestFacts& facts);

}  // namespace pointsman
