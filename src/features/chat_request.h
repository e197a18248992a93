#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/api.h"
#include "core/features.h"
#include "core/token_chain.h"
#include "features/model_estimates.h"
#include "features/prompt_content.h"
#include "features/prompt_models.h"
#include "features/prompt_tokens.h"
#include "features/request_facts.h"

namespace pointsman {

struct FeatureOptions {
  std::uint32_t block_bytes = 64;  // text of one prefix block
  std::uint32_t block_ids = 16;    // token ids of one prefix block
  double bytes_per_token = 4;      // for estimates, until learnt
  std::uint64_t chain_secret = 1;  // of the chains of token ids; see core/token_chain.h

  // Tokens of one block of text, by the configured ratio.
  [[nodiscard]] std::uint32_t block_tokens() const { return block_tokens(bytes_per_token); }
  // The same by another ratio. Rounded, so that the error has no preferred sign.
  [[nodiscard]] std::uint32_t block_tokens(double ratio) const {
    return static_cast<std::uint32_t>(std::max(1.0, block_bytes / ratio + 0.5));
  }
};

// What a reader is given of the rest of the process; all of it outlives the reader. Null: not had.
struct ReaderDependencies {
  const ModelEstimates* estimates = nullptr;
  PromptModels* models = nullptr;  // whose prompts become token ids
};

// Reads the JSON bodies of inference requests: chat, completions, responses, messages, and what
// looks like them on other paths.
//
// The body is read where it lies and never changed. Model, stream flag, token limits, the names
// that may make a session key, and the estimate of the prompt's tokens are always read; blocks and
// the content part of the session key only where `needs` asks. Of duplicate keys the last counts,
// as in the engines. Nothing in a body is an error here: what is not understood is left for the
// engine to refuse.
//
// Chats and completions of a model with a tokenizer become token ids where blocks are needed. Only
// what takes well under a millisecond is done at once: a chat beyond kRenderedAtOnce, or a prompt
// of which more than kEncodedAtOnce is new, is left pending, to be made elsewhere.
//
// One reader per thread; calls do not depend on each other. About 1 µs for a body of 1 KB and
// 30 µs for one of 100 KB with blocks.
class ChatRequestReader {
 public:
  // Bytes behind a body that must be readable (they are never written).
  static constexpr std::size_t kPadding = 64;
  // Of a body that is not whole, so much of its beginning is looked at.
  static constexpr std::size_t kMaxPartial = std::size_t{1} << 20;
  // Bytes of JSON, and objects in it (messages, parts, tools); bytes of text.
  static constexpr std::size_t kRenderedAtOnce = std::size_t{128} << 10;
  static constexpr std::size_t kObjectsAtOnce = 256;
  static constexpr std::size_t kEncodedAtOnce = std::size_t{8} << 10;

  explicit ChatRequestReader(const FeatureOptions& options, const ReaderDependencies& deps = {});
  ~ChatRequestReader();

  // Reads a whole body. `capacity`: bytes that may be read from body.data(); with less than
  // kPadding behind the body it is copied. `session_header`: the value of the first configured
  // session header that the request carries; may be empty.
  void read(Api api, std::string_view body, std::size_t capacity, std::string_view session_header,
            Needs needs, RequestFacts& facts);

  // The same, but not by token ids where the prompt is text: `why` is one word, a literal.
  void read_as_text(Api api, std::string_view body, std::size_t capacity,
                    std::string_view session_header, Needs needs, std::string_view why,
                    RequestFacts& facts);

  // Where facts.ids_pending: the prompt as PromptTokens::run() takes it. Once, before the next
  // call.
  [[nodiscard]] PromptText take_pending() { return std::move(prompt_); }
  // It has been made, without a failure: the facts of the same body are completed by it.
  void adopt(PromptText& prompt, Api api, std::string_view body, std::size_t capacity,
             RequestFacts& facts);

  // Reads what can be known of a body of which only the beginning is here. parsed is false.
  void read_partial(Api api, std::string_view beginning, std::string_view session_header,
                    Needs needs, RequestFacts& facts);

  // A request whose body is no JSON or absent: only the header counts.
  void read_none(std::string_view session_header, RequestFacts& facts) const;

 private:
  struct Json;  // keeps simdjson out of this header
  struct Body;

  void pad(std::string_view& body, std::size_t& capacity);
  void give_memory_back();
  void read_body(Api api, std::string_view body, std::size_t capacity,
                 std::string_view session_header, Needs needs, std::string_view why_text,
                 RequestFacts& facts);
  void read_object(Body& body, std::string_view session_header, Needs needs,
                   std::string_view why_text, RequestFacts& facts);
  bool open(Body& body);
  static bool read_fields(Body& body, RequestFacts& facts);
  void visit_content(Body& body, bool session_only);
  void count_content(RequestFacts& facts);
  bool prepare_ids(Body& body, const PromptModels::Entry& entry, std::string_view world,
                   RequestFacts& facts);
  static bool leave_pending(RequestFacts& facts);
  bool read_texts(const Body& body, std::string_view written, PromptText& prompt);
  void take_ids(Body& body, PromptText& prompt, RequestFacts& facts);
  [[nodiscard]] double bytes_per_token(std::string_view model) const;

  FeatureOptions options_;
  ReaderDependencies deps_;
  TokenChain chain_;
  PromptContent content_;
  std::unique_ptr<PromptTokens> tokens_;  // where there are models with a tokenizer
  PromptText prompt_;
  std::string copy_;
  std::unique_ptr<Json> json_;
};

}  // namespace pointsman
