#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace pointsman {

// How many tokens a prompt has, counted while it is read. Text is estimated from its bytes (about
// four to a token in English text for the vocabularies in use), ids are exact.
class TokenCount {
 public:
  // Pictures, sounds and files: engines use from some dozens to some thousands of tokens each.
  static constexpr std::uint64_t kPerMedium = 512;

  void add_bytes(std::uint64_t bytes) { bytes_ += bytes; }
  void add_ids(std::uint64_t ids) { ids_ += ids; }
  void add_medium() { media_ += kPerMedium; }

  [[nodiscard]] std::uint64_t media_tokens() const { return media_; }
  // Nothing is estimated.
  [[nodiscard]] bool of_ids_alone() const { return ids_ > 0 && bytes_ + media_ == 0; }
  // The bytes of a prompt that is of text alone, else 0: what it teaches of bytes per token.
  [[nodiscard]] std::uint64_t bytes_alone() const { return ids_ + media_ == 0 ? bytes_ : 0; }

  // Rounded up, so that a prompt never has fewer tokens than its whole blocks.
  [[nodiscard]] std::uint32_t tokens(double bytes_per_token) const {
    const double text = static_cast<double>(bytes_) / bytes_per_token;
    const auto whole = static_cast<std::uint64_t>(text);
    const std::uint64_t total = ids_ + media_ + whole + (static_cast<double>(whole) < text ? 1 : 0);
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(total, std::numeric_limits<std::uint32_t>::max()));
  }

 private:
  std::uint64_t bytes_ = 0;
  std::uint64_t ids_ = 0;
  std::uint64_t media_ = 0;  // tokens
};

}  // namespace pointsman
