// Any bytes as the body of a request and as an answer. Reading must be safe; what a policy does not
// need must not change the rest; and the facts of valid JSON (another parser says which is) must
// not depend on what lies behind the body.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <simdjson.h>

#include "features/answer_reader.h"
#include "features/chat_request.h"
#include "features/multipart_model.h"
#include "support/byte_model.h"
#include "support/fuzz_check.h"

namespace pointsman {
namespace {

using test::check;

// What is read of a body that is none may depend on how far its reader has to look.
bool is_json_object(std::string_view body) {
  static simdjson::dom::parser strict;
  simdjson::dom::object object;
  return strict.parse(body.data(), body.size()).get(object) == simdjson::SUCCESS;
}

void fuzz_request(Api api, std::string_view body) {
  static ChatRequestReader reader({});
  constexpr Needs kAll{.blocks = true, .session = true};
  RequestFacts copied;
  reader.read(api, body, body.size(), "", kAll, copied);

  std::string padded(body);
  padded.append(ChatRequestReader::kPadding, '}');
  RequestFacts in_place;
  reader.read(api, std::string_view(padded).substr(0, body.size()), padded.size(), "", kAll,
              in_place);
  if (is_json_object(body)) {
    check(in_place.parsed && copied.parsed && in_place.model == copied.model);
    check(in_place.blocks == copied.blocks && in_place.session_key == copied.session_key);
    check(in_place.prompt_tokens == copied.prompt_tokens);
  }
  check(copied.blocks.size() * copied.block_tokens <= copied.prompt_tokens);

  RequestFacts basics;
  reader.read(api, body, body.size(), "", {}, basics);
  check(basics.parsed == copied.parsed && basics.model == copied.model);
  check(basics.stream == copied.stream);
  check(basics.max_output_tokens == copied.max_output_tokens);
  check(basics.blocks.empty());
  check(basics.session_key == 0 || basics.session_key == copied.session_key);

  RequestFacts partial;
  reader.read_partial(api, body, "h", kAll, partial);
  check(!partial.parsed && partial.session_key != 0);
}

// The same body for a model with a tokenizer.
void fuzz_prompt_ids(Api api, std::string_view body) {
  static const std::unique_ptr<PromptModels> models =
      test::byte_models(std::make_unique<test::ByteModel>());
  static ChatRequestReader reader({}, {.models = models.get()});
  static ChatRequestReader plain({});
  constexpr Needs kAll{.blocks = true, .session = true};
  RequestFacts facts;
  reader.read(api, body, body.size(), "", kAll, facts);
  const std::uint64_t session_key = facts.session_key;
  if (facts.ids_pending) {
    PromptText prompt = reader.take_pending();
    PromptTokens tokens(models->cache(), 1, 16);
    tokens.run(prompt);
    if (prompt.failure.empty()) reader.adopt(prompt, api, body, body.size(), facts);
  }
  check(facts.exact_blocks <= facts.blocks.size());
  if (facts.exact_tokens) check(facts.exact_blocks * facts.block_tokens <= facts.prompt_tokens);
  reader.read_as_text(api, body, body.size(), "", kAll, "busy", facts);
  if (!is_json_object(body)) return;
  RequestFacts text;
  plain.read(api, body, body.size(), "", kAll, text);
  check(facts.parsed && text.parsed && facts.model == text.model);
  check(facts.session_key == session_key);
  check(facts.blocks.size() == text.blocks.size() && facts.prompt_tokens == text.prompt_tokens);
  // A model's other names, and none at all, have the world of its first one, and so other hashes.
  if (models->find(facts.model).world != facts.model) return;
  check(facts.session_key == text.session_key && facts.blocks == text.blocks);
}

void fuzz_answer(Api api, std::string_view body) {
  static AnswerReader reader;
  AnswerFacts facts;
  reader.event(api, "", body, facts);
  reader.plain(api, body.substr(0, body.size() / 2), body.substr(body.size() / 3), facts);
  PlainAnswer answer;
  answer.feed(body);
  reader.plain(api, answer.beginning(), answer.end(), facts);
}

}  // namespace
}  // namespace pointsman

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pointsman;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const Api api : {Api::kChat, Api::kCompletions, Api::kResponses, Api::kMessages}) {
    fuzz_request(api, body);
    fuzz_prompt_ids(api, body);
    fuzz_answer(api, body);
  }
  multipart_model("multipart/form-data; boundary=sep-7", body);
  multipart_model(body, "--b\r\n\r\n\r\n--b--");
  return 0;
}
