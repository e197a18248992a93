#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pointsman {

// Whether this build turns text into token ids: it was made with a Rust toolchain that is recent
// enough. Without, Tokenizer::load and ChatTemplate::load answer with an error that says so.
[[nodiscard]] bool token_ids_built();

// Text to token ids, as the engine does it that loaded the same Hugging Face tokenizer.json: byte
// pair encoding (byte-level or with byte fallback), Unigram and WordPiece.
//
// Thread-safe: all calls on a loaded tokenizer are const and may run at the same time. Nothing that
// is encoded makes it grow without bound. Loading takes up to a second and is for start-up.
class Tokenizer {
 public:
  // `path` is a tokenizer.json or the folder of a model that has one. Errors (kInternal: the
  // configuration is at fault, no request) name the file and what is wrong with it.
  static Result<Tokenizer> load(const std::string& path);

  Tokenizer(Tokenizer&& other) noexcept;
  Tokenizer& operator=(Tokenizer&& other) noexcept;
  ~Tokenizer();

  // Appends the ids of `text` to `ids`, which keeps its capacity from call to call.
  // `special`: with what the model puts around a text by itself (a <bos>, say). Engines do so for
  // plain prompts and not for rendered chats, whose template has written it.
  // Fails with kClient if `text` is not UTF-8, with kInternal where the library refuses it; `ids`
  // is then as it was.
  //
  // Costs about 0.2 µs a token of English. A text that holds no white space costs more, up to the
  // logarithm of its length per byte: bound what comes from outside.
  Result<void> encode(std::string_view text, bool special, std::vector<std::uint32_t>& ids) const;

  // Replaces `cuts` by the offsets at which `text` may be cut, rising, none of them 0 or its size:
  // the ids of the pieces, encoded one by one without `special`, are in a row those of the whole.
  // They lie before and after each special token (<|im_end|>, say), of which a rendered chat has
  // two or more a message. A tokenizer that gives no such promise has no cuts.
  void find_cuts(std::string_view text, std::vector<std::size_t>& cuts) const;

  // What `special` puts before and after a text.
  [[nodiscard]] std::span<const std::uint32_t> ids_before() const { return before_; }
  [[nodiscard]] std::span<const std::uint32_t> ids_after() const { return after_; }

  // One more than the largest id.
  [[nodiscard]] std::uint32_t vocabulary_size() const { return vocabulary_size_; }

 private:
  struct Leaf;  // what the library holds
  struct FreeLeaf {
    void operator()(Leaf* leaf) const;
  };

  Tokenizer() = default;

  std::unique_ptr<Leaf, FreeLeaf> leaf_;
  std::vector<std::uint32_t> before_;
  std::vector<std::uint32_t> after_;
  std::uint32_t vocabulary_size_ = 0;
};

}  // namespace pointsman
