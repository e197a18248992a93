#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/api.h"
#include "core/features.h"
#include "features/prompt_content.h"
#include "features/request_facts.h"

namespace pointsman {

struct FeatureOptions {
  std::uint32_t block_bytes = 64;  // text of one prefix block; a quarter as many ids
  double bytes_per_token = 4;      // for estimates

  // Tokens of one block of text.
  [[nodiscard]] std::uint32_t block_tokens() const {
    return static_cast<std::uint32_t>(std::max(1.0, block_bytes / bytes_per_token));
  }
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
// One reader per thread; calls do not depend on each other. About 1 µs for a body of 1 KB and
// 30 µs for one of 100 KB with blocks.
class ChatRequestReader {
 public:
  // Bytes behind a body that must be readable (they are never written).
  static constexpr std::size_t kPadding = 64;
  // Of a body that is not whole, so much of its beginning is looked at.
  static constexpr std::size_t kMaxPartial = std::size_t{1} << 20;

  explicit ChatRequestReader(const FeatureOptions& options);
  ~ChatRequestReader();

  // Reads a whole body. `capacity`: bytes that may be read from body.data(); with less than
  // kPadding behind the body it is copied. `session_header`: the value of the first configured
  // session header that the request carries; may be empty.
  void read(Api api, std::string_view body, std::size_t capacity, std::string_view session_header,
            Needs needs, RequestFacts& facts);

  // Reads what can be known of a body of which only the beginning is here. parsed is false.
  void read_partial(Api api, std::string_view beginning, std::string_view session_header,
                    Needs needs, RequestFacts& facts);

  // A request whose body is no JSON or absent: only the header counts.
  void read_none(std::string_view session_header, RequestFacts& facts) const;

 private:
  struct Json;  // keeps simdjson out of this header

  void read_object(Api api, std::string_view body, std::size_t capacity,
                   std::string_view session_header, Needs needs, RequestFacts& facts);

  FeatureOptions options_;
  PromptContent content_;
  std::string copy_;
  std::unique_ptr<Json> json_;
};

}  // namespace pointsman
