#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokens/chat_template.h"

namespace pointsman {

// What turns the prompts of one model into token ids as its engine does.
//
// Thread-safe: all calls are const and may run at the same time.
class PromptModel {
 public:
  PromptModel() = default;
  virtual ~PromptModel() = default;
  PromptModel(const PromptModel&) = delete;
  PromptModel& operator=(const PromptModel&) = delete;

  // Whether the model has a chat template; without, render() fails.
  [[nodiscard]] virtual bool has_template() const = 0;
  // Messages to text; see ChatTemplate::render().
  [[nodiscard]] virtual Result<RenderedChat> render(const ChatPrompt& prompt) const = 0;
  // Replaces `cuts` by the offsets at which `text` may be cut so that the ids of the pieces are
  // those of the whole; see Tokenizer::find_cuts().
  virtual void find_cuts(std::string_view text, std::vector<std::size_t>& cuts) const = 0;
  // Appends the ids of a piece, without anything around it; see Tokenizer::encode().
  [[nodiscard]] virtual Result<void> encode(std::string_view piece,
                                            std::vector<std::uint32_t>& ids) const = 0;
  // What the model puts around a plain prompt (a <bos>, say).
  [[nodiscard]] virtual std::span<const std::uint32_t> ids_before() const = 0;
  [[nodiscard]] virtual std::span<const std::uint32_t> ids_after() const = 0;
};

}  // namespace pointsman
