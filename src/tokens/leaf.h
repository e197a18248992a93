#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "rust/pointsman_tokens.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define POINTSMAN_TOKENS_TSAN 1
extern "C" {  // of its runtime, which has no header for them
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif
#endif

// How the results of rust/pointsman_tokens.h come into C++. For this folder alone.
namespace pointsman::leaf {

// The library is not built for ThreadSanitizer, which therefore sees its memory but not its locks.
// While this lives, it does not look.
struct Unseen {
#ifdef POINTSMAN_TOKENS_TSAN
  Unseen() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Unseen() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  Unseen() {}   // NOLINT(modernize-use-equals-default): a use of it is not "unused"
  ~Unseen() {}  // NOLINT(modernize-use-equals-default)
#endif
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
};

extern "C" inline void take_text(void* target, const char* text, std::size_t size) noexcept {
  static_cast<std::string*>(target)->append(text, size);
}

extern "C" inline void take_ids(void* target, const std::uint32_t* ids,
                                std::size_t count) noexcept {
  auto& all = *static_cast<std::vector<std::uint32_t>*>(target);
  all.insert(all.end(), ids, ids + count);
}

extern "C" inline void take_offset(void* target, std::size_t offset) noexcept {
  static_cast<std::vector<std::size_t>*>(target)->push_back(offset);
}

inline Error error(pm_status status, std::string why) {
  return {status == PM_BAD_INPUT ? ErrorKind::kClient : ErrorKind::kInternal, std::move(why)};
}

}  // namespace pointsman::leaf
