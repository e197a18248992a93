// What a build without a fit Rust toolchain has in place of the library in rust/: every load fails
// and says why, so nothing else is ever called.

#include <cstdlib>
#include <string_view>

#include "rust/pointsman_tokens.h"
#include "tokens/tokenizer.h"

namespace {

constexpr std::string_view kReason =
    "this build has no token ids: it was made without a Rust toolchain of version " POINTSMAN_RUST
    " or newer";

}  // namespace

bool pointsman::token_ids_built() {
  return false;
}

pm_tokenizer* pm_tokenizer_load(const char* /*path*/, size_t /*path_size*/,
                                pm_take_text* take_error, void* error) {
  take_error(error, kReason.data(), kReason.size());
  return nullptr;
}

void pm_tokenizer_free(pm_tokenizer* /*tokenizer*/) {}

uint32_t pm_tokenizer_vocabulary_size(const pm_tokenizer* /*tokenizer*/) {
  std::abort();
}

void pm_tokenizer_around(const pm_tokenizer* /*tokenizer*/, pm_take_ids* /*take_ids*/,
                         void* /*before*/, void* /*after*/) {
  std::abort();
}

pm_status pm_tokenizer_encode(const pm_tokenizer* /*tokenizer*/, const char* /*text*/,
                              size_t /*size*/, bool /*special*/, pm_take_ids* /*take_ids*/,
                              void* /*ids*/, pm_take_text* /*take_error*/, void* /*error*/) {
  std::abort();
}

void pm_tokenizer_cuts(const pm_tokenizer* /*tokenizer*/, const char* /*text*/, size_t /*size*/,
                       pm_take_offset* /*take_offset*/, void* /*offsets*/) {
  std::abort();
}

pm_template* pm_template_load(const char* /*folder*/, size_t /*folder_size*/,
                              pm_take_text* take_error, void* error) {
  take_error(error, kReason.data(), kReason.size());
  return nullptr;
}

void pm_template_free(pm_template* /*chat_template*/) {}

pm_status pm_template_render(const pm_template* /*chat_template*/, const pm_chat* /*chat*/,
                             pm_take_text* /*take_text*/, void* /*text*/, size_t* /*exact_bytes*/,
                             pm_take_text* /*take_error*/, void* /*error*/) {
  std::abort();
}
