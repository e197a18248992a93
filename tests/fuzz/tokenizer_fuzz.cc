// Any bytes as a text for the tiny model's tokenizer. What is no UTF-8 is refused, ids are below
// the vocabulary's size, and pieces between cuts have the ids of the whole. (That the ids are right
// is compared with the reference library in tests/integration/test_tokenize.py.)

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/fuzz_check.h"
#include "tokens/tokenizer.h"

namespace pointsman {
namespace {

using test::check;

// None where the build has no token ids.
const Tokenizer* tokenizer() {
  static const Result<Tokenizer> loaded = Tokenizer::load(POINTSMAN_TEST_DATA "/tokens");
  check(loaded.ok() == token_ids_built());
  return loaded ? &*loaded : nullptr;
}

void fuzz(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::uint32_t> ids;
  const bool encoded = tokenizer.encode(text, false, ids).ok();
  check(encoded || ids.empty());
  for (const std::uint32_t id : ids) check(id < tokenizer.vocabulary_size());

  std::vector<std::size_t> cuts;
  tokenizer.find_cuts(text, cuts);
  cuts.push_back(text.size());
  std::vector<std::uint32_t> joined;
  std::size_t begin = 0;
  bool all = true;  // pieces have ids
  for (const std::size_t end : cuts) {
    all = tokenizer.encode(text.substr(begin, end - begin), false, joined).ok() && all;
    begin = end;
  }
  check(all == encoded);
  if (encoded) check(joined == ids);
}

}  // namespace
}  // namespace pointsman

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const pointsman::Tokenizer* tokenizer = pointsman::tokenizer();
  if (tokenizer != nullptr) {
    pointsman::fuzz(*tokenizer, {reinterpret_cast<const char*>(data), size});
  }
  return 0;
}
