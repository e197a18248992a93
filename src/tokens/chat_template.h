#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pointsman {

// The members of a chat request that its prompt is made of, as the JSON texts that the client sent.
struct ChatPrompt {
  std::string_view messages{};   // an array
  std::string_view tools{};      // an array; empty: none
  std::string_view variables{};  // "chat_template_kwargs", an object; empty: none
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

// The text of a prompt.
struct RenderedChat {
  std::string text;
  // Up to here `text` is what the engine sees. Less than its size if the messages have a picture, a
  // sound or the like, which only the engine can turn into tokens.
  std::size_t exact_bytes = 0;
};

// Messages to the text of a prompt, by the Jinja template that a model's folder brings along and
// with what engines do to messages before they give them to it: content parts are joined where the
// template wants text, arguments of tool calls are parsed.
//
// A template is foreign code and requests fill it: its steps and the size of what it writes are
// bounded, and it reaches no file, no environment and no clock but strftime_now.
//
// Thread-safe: all calls on a loaded template are const and may run at the same time.
class ChatTemplate {
 public:
  // The template of the model in `folder`: chat_template.jinja, else chat_template.json, else
  // "chat_template" in tokenizer_config.json. Errors (kInternal: the configuration is at fault, no
  // request) name the file, the line in it and what is wrong.
  static Result<ChatTemplate> load(const std::string& folder);

  ChatTemplate(ChatTemplate&& other) noexcept;
  ChatTemplate& operator=(ChatTemplate&& other) noexcept;
  ~ChatTemplate();

  // Fails with kClient if the messages are not what the template takes (it raises, or they are no
  // JSON array), with kInternal if it goes beyond its bounds.
  [[nodiscard]] Result<RenderedChat> render(const ChatPrompt& prompt) const;

 private:
  struct Leaf;  // what the library holds
  struct FreeLeaf {
    void operator()(Leaf* leaf) const;
  };

  ChatTemplate() = default;

  std::unique_ptr<Leaf, FreeLeaf> leaf_;
};

}  // namespace pointsman
