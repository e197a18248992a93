#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "features/prompt_model.h"
#include "tokens/chat_template.h"
#include "tokens/tokenizer.h"

namespace pointsman {

// A model as its folder describes it. Header-only: whoever uses it links tokens/ as well, which
// everyone else does without.
class LoadedPromptModel final : public PromptModel {
 public:
  // Reads the tokenizer and, where there is one, the chat template at `path`: a model's folder or a
  // tokenizer.json. `problem`: set where there is no template of use, and why; the model then
  // serves plain prompts alone. Takes up to a second.
  static Result<std::unique_ptr<const PromptModel>> load(const std::string& path,
                                                         std::string& problem) {
    Result<Tokenizer> tokenizer = Tokenizer::load(path);
    if (!tokenizer) return tokenizer.error();
    std::optional<ChatTemplate> chat;
    if (path.ends_with(".json")) {
      problem = "a tokenizer.json alone has no chat template";
    } else if (Result<ChatTemplate> loaded = ChatTemplate::load(path); loaded) {
      chat.emplace(std::move(*loaded));
    } else {
      problem = loaded.error().message;
    }
    return std::unique_ptr<const PromptModel>(
        std::make_unique<LoadedPromptModel>(std::move(*tokenizer), std::move(chat)));
  }

  LoadedPromptModel(Tokenizer tokenizer, std::optional<ChatTemplate> chat)
      : tokenizer_(std::move(tokenizer)), chat_(std::move(chat)) {}

  [[nodiscard]] bool has_template() const override { return chat_.has_value(); }
  [[nodiscard]] Result<RenderedChat> render(const ChatPrompt& prompt) const override {
    if (!chat_) return Error{ErrorKind::kInternal, "the model has no chat template"};
    return chat_->render(prompt);
  }
  void find_cuts(std::string_view text, std::vector<std::size_t>& cuts) const override {
    tokenizer_.find_cuts(text, cuts);
  }
  [[nodiscard]] Result<void> encode(std::string_view piece,
                                    std::vector<std::uint32_t>& ids) const override {
    return tokenizer_.encode(piece, /*special=*/false, ids);
  }
  [[nodiscard]] std::span<const std::uint32_t> ids_before() const override {
    return tokenizer_.ids_before();
  }
  [[nodiscard]] std::span<const std::uint32_t> ids_after() const override {
    return tokenizer_.ids_after();
  }

 private:
  Tokenizer tokenizer_;
  std::optional<ChatTemplate> chat_;
};

}  // namespace pointsman
