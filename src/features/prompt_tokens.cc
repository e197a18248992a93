#include "features/prompt_tokens.h"

#include <memory>
#include <utility>

namespace pointsman {

bool PromptTokens::render(const ChatPrompt& chat, PromptText& prompt) {
  Result<RenderedChat> rendered = prompt.model->render(chat);
  if (!rendered) {
    // The engine's template refuses these messages as well, or ours cannot make them.
    prompt.failure = "template";
    return false;
  }
  prompt.texts.clear();
  prompt.exact_bytes = std::min(rendered->exact_bytes, rendered->text.size());
  prompt.texts.push_back(std::move(rendered->text));
  prompt.rendered = true;
  return true;
}

void PromptTokens::add_pieces(const PromptModel& model, std::string_view text, bool of_first) {
  model.find_cuts(text, cuts_);
  cuts_.push_back(text.size());
  std::size_t from = 0;
  for (const std::size_t to : cuts_) {
    const std::string_view piece = text.substr(from, to - from);
    from = to;
    if (piece.empty()) continue;
    const SegmentCache::Key key = cache_.key(&model, piece);
    pieces_.push_back({piece, key, cache_.find(key), of_first});
  }
}

std::size_t PromptTokens::look_up(const PromptText& prompt) {
  pieces_.clear();
  bool first = true;
  for (const std::string& text : prompt.texts) {
    const std::string_view whole = text;
    add_pieces(*prompt.model, first ? whole.substr(0, prompt.exact_bytes) : whole, first);
    first = false;
  }
  std::size_t unknown = 0;
  for (const Piece& piece : pieces_) unknown += piece.ids == nullptr ? piece.text.size() : 0;
  return unknown;
}

void PromptTokens::take(PromptText& prompt, std::span<const std::uint32_t> ids, bool of_first) {
  if (of_first) {
    prompt.end = chain_.extend_blocks(prompt.end, prompt.tokens, ids, block_ids_, prompt.blocks);
  }
  prompt.tokens += ids.size();
}

void PromptTokens::encode(PromptText& prompt) {
  const PromptModel& model = *prompt.model;
  prompt.blocks.clear();
  prompt.end = prompt.start;
  prompt.tokens = prompt.first_tokens = prompt.encoded_bytes = prompt.known_bytes = 0;
  if (prompt.special) take(prompt, model.ids_before(), true);
  bool first = true;
  const auto end_of_first = [&] {
    if (!first) return;
    if (prompt.special && !prompt.has_media()) take(prompt, model.ids_after(), true);
    prompt.first_tokens = prompt.tokens;
    first = false;
  };
  for (Piece& piece : pieces_) {
    if (!piece.of_first) end_of_first();
    if (piece.ids == nullptr) {
      ids_.clear();
      if (!model.encode(piece.text, ids_)) {
        prompt.failure = "text";
        break;
      }
      prompt.encoded_bytes += piece.text.size();
      piece.ids = std::make_shared<const std::vector<std::uint32_t>>(ids_.begin(), ids_.end());
      cache_.put(piece.key, piece.ids);
    } else {
      prompt.known_bytes += piece.text.size();
    }
    take(prompt, *piece.ids, piece.of_first);
  }
  end_of_first();
  if (prompt.special) {
    prompt.tokens +=
        (prompt.texts.size() - 1) * (model.ids_before().size() + model.ids_after().size());
  }
  pieces_.clear();
}

void PromptTokens::run(PromptText& prompt) {
  if (!prompt.rendered && !render({.messages = prompt.messages,
                                   .tools = prompt.tools,
                                   .variables = prompt.variables,
                                   .add_generation_prompt = prompt.add_generation_prompt,
                                   .continue_final_message = prompt.continue_final_message},
                                  prompt)) {
    return;
  }
  static_cast<void>(look_up(prompt));
  encode(prompt);
}

}  // namespace pointsman
