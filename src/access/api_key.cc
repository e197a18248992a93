#include "access/api_key.h"

#include <memory>

#include <openssl/evp.h>
#include <openssl/rand.h>

#include "base/ascii.h"

namespace pointsman {
namespace {

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

}  // namespace

KeyHash hash_of_key(std::string_view key) {
  // One context for each thread, and the algorithm looked up once: both cost more than the hash.
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  thread_local const std::unique_ptr<EVP_MD_CTX, FreeContext> context(EVP_MD_CTX_new());
  KeyHash hash{};
  unsigned size = 0;
  const bool made = algorithm != nullptr && context &&
                    EVP_DigestInit_ex2(context.get(), algorithm, nullptr) == 1 &&
                    EVP_DigestUpdate(context.get(), key.data(), key.size()) == 1 &&
                    EVP_DigestFinal_ex(context.get(), hash.data(), &size) == 1;
  // No line of a key file can be all zeros, so that a failure lets nobody in.
  return made && size == hash.size() ? hash : KeyHash{};
}

std::string to_hex(const KeyHash& hash) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : hash) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string make_key() {
  constexpr char kCharacters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::array<std::uint8_t, 33> bits{};  // 264 bits are 44 characters of six; the last is not used
  if (RAND_bytes(bits.data(), static_cast<int>(bits.size())) != 1) return {};
  std::string key = "pm-";
  for (std::size_t i = 0; i < bits.size(); i += 3) {
    const unsigned three = static_cast<unsigned>(bits[i]) << 16 |
                           static_cast<unsigned>(bits[i + 1]) << 8 | bits[i + 2];
    for (const unsigned shift : {18U, 12U, 6U, 0U}) key += kCharacters[three >> shift & 63];
  }
  key.pop_back();
  return key;
}

std::string_view bearer_token(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (!istarts_with(authorization, kScheme)) return {};
  return trim(authorization.substr(kScheme.size()));
}

}  // namespace pointsman
