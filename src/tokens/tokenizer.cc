#include "tokens/tokenizer.h"

#include <utility>

#include "tokens/leaf.h"

namespace pointsman {

void Tokenizer::FreeLeaf::operator()(Leaf* leaf) const {
  const leaf::Unseen unseen;
  pm_tokenizer_free(reinterpret_cast<pm_tokenizer*>(leaf));
}

Tokenizer::Tokenizer(Tokenizer&& other) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&& other) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  const leaf::Unseen unseen;
  std::string why;
  pm_tokenizer* leaf = pm_tokenizer_load(path.data(), path.size(), leaf::take_text, &why);
  if (leaf == nullptr) return Error{ErrorKind::kInternal, std::move(why)};
  Tokenizer tokenizer;
  tokenizer.leaf_.reset(reinterpret_cast<Leaf*>(leaf));
  tokenizer.vocabulary_size_ = pm_tokenizer_vocabulary_size(leaf);
  pm_tokenizer_around(leaf, leaf::take_ids, &tokenizer.before_, &tokenizer.after_);
  return tokenizer;
}

Result<void> Tokenizer::encode(std::string_view text, bool special,
                               std::vector<std::uint32_t>& ids) const {
  const leaf::Unseen unseen;
  std::string why;
  const pm_status status =
      pm_tokenizer_encode(reinterpret_cast<const pm_tokenizer*>(leaf_.get()), text.data(),
                          text.size(), special, leaf::take_ids, &ids, leaf::take_text, &why);
  if (status != PM_OK) return leaf::error(status, std::move(why));
  return {};
}

void Tokenizer::find_cuts(std::string_view text, std::vector<std::size_t>& cuts) const {
  const leaf::Unseen unseen;
  cuts.clear();
  pm_tokenizer_cuts(reinterpret_cast<const pm_tokenizer*>(leaf_.get()), text.data(), text.size(),
                    leaf::take_offset, &cuts);
}

}  // namespace pointsman
