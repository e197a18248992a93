#include "access/api_key.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace pointsman {
namespace {

// FIPS 180-4's own examples (NIST CSRC, "Cryptographic Standards and Guidelines": SHA-256).
TEST(ApiKey, HashesAreThoseOfTheStandard) {
  EXPECT_EQ(to_hex(hash_of_key("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(hash_of_key("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(to_hex(hash_of_key("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(ApiKey, NewKeysAreOf256BitsAndNeverTheSame) {
  std::set<std::string> seen;
  std::set<char> characters;
  for (int i = 0; i < 1000; ++i) {
    const std::string key = make_key();
    ASSERT_EQ(key.size(), 46U);
    ASSERT_TRUE(key.starts_with("pm-"));
    ASSERT_EQ(
        key.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
        std::string::npos);
    characters.insert(key.begin() + 3, key.end());
    EXPECT_TRUE(seen.insert(key).second);
  }
  EXPECT_EQ(characters.size(), 64U);
}

TEST(ApiKey, TheTokenIsWhatFollowsBearer) {
  EXPECT_EQ(bearer_token("Bearer abc"), "abc");
  EXPECT_EQ(bearer_token("bearer  abc "), "abc");
  EXPECT_EQ(bearer_token("BEARER abc"), "abc");
  EXPECT_EQ(bearer_token("Basic abc"), "");
  EXPECT_EQ(bearer_token("Bearer"), "");
  EXPECT_EQ(bearer_token("Bearer "), "");
  EXPECT_EQ(bearer_token("Bearerabc"), "");
  EXPECT_EQ(bearer_token(""), "");
}

}  // namespace
}  // namespace pointsman
