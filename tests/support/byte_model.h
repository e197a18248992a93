#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "features/prompt_models.h"

namespace pointsman::test {

// A model of which the ids can be told by looking: each byte is its own id, but "<s>" is one
// special token, 256, at which text may be cut. A plain prompt is led by 257. A chat is rendered as
// "<s>" and the messages' JSON as it came; a picture is what stands behind "image_url".
class ByteModel final : public PromptModel {
 public:
  static constexpr std::string_view kSpecial = "<s>";

  [[nodiscard]] bool has_template() const override { return chats_; }
  [[nodiscard]] Result<RenderedChat> render(const ChatPrompt& prompt) const override {
    if (prompt.messages.find("alien") != std::string_view::npos) {
      return Error{ErrorKind::kClient, "unknown role: alien"};
    }
    RenderedChat rendered;
    rendered.text = std::string(kSpecial).append(prompt.tools).append(kSpecial);
    rendered.text.append(prompt.messages).append(prompt.variables);
    if (prompt.add_generation_prompt) rendered.text.append(kSpecial).append("assistant");
    const std::size_t picture = rendered.text.find("image_url");
    rendered.exact_bytes = picture == std::string::npos ? rendered.text.size() : picture;
    return rendered;
  }
  void find_cuts(std::string_view text, std::vector<std::size_t>& cuts) const override {
    cuts.clear();
    for (std::size_t at = text.find(kSpecial); at != std::string_view::npos;
         at = text.find(kSpecial, at + kSpecial.size())) {
      if (at > 0 && (cuts.empty() || cuts.back() != at)) cuts.push_back(at);
      if (at + kSpecial.size() < text.size()) cuts.push_back(at + kSpecial.size());
    }
  }
  [[nodiscard]] Result<void> encode(std::string_view piece,
                                    std::vector<std::uint32_t>& ids) const override {
    if (before_encode) before_encode();
    if (piece.find('\xff') != std::string_view::npos) {
      return Error{ErrorKind::kClient, "not UTF-8"};
    }
    encoded_bytes.fetch_add(piece.size());
    append(piece, ids);
    return {};
  }
  [[nodiscard]] std::span<const std::uint32_t> ids_before() const override { return before_; }
  [[nodiscard]] std::span<const std::uint32_t> ids_after() const override { return {}; }

  // What encode() gives.
  static void append(std::string_view text, std::vector<std::uint32_t>& ids) {
    while (!text.empty()) {
      if (text.starts_with(kSpecial)) {
        ids.push_back(256);
        text.remove_prefix(kSpecial.size());
      } else {
        ids.push_back(static_cast<unsigned char>(text.front()));
        text.remove_prefix(1);
      }
    }
  }

  explicit ByteModel(bool chats = true) : chats_(chats) {}

  // Called first by encode(), on whatever thread.
  std::function<void()> before_encode;
  mutable std::atomic<std::size_t> encoded_bytes{0};

 private:
  const bool chats_;
  const std::vector<std::uint32_t> before_ = {257};
};

// One such model under the names "m1" and "alias", with an adapter "lora". `made`: to look at it.
inline std::unique_ptr<PromptModels> byte_models(std::unique_ptr<ByteModel> model,
                                                 const ByteModel** made = nullptr,
                                                 std::size_t max_prompt_bytes = 1 << 20) {
  if (made != nullptr) *made = model.get();
  std::vector<PromptModels::Entry> entries;
  entries.push_back({.names = {"m1", "alias"},
                     .adapters = {"lora"},
                     .max_prompt_bytes = max_prompt_bytes,
                     .model = std::move(model)});
  return std::make_unique<PromptModels>(std::move(entries), std::size_t{64} << 20, 1);
}

}  // namespace pointsman::test
