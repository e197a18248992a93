#include "access/key_file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <system_error>

#include "base/ascii.h"

namespace pointsman {
namespace {

constexpr std::size_t kMaxName = 64;
constexpr std::size_t kMaxFile = std::size_t{4} << 20;
constexpr std::uint32_t kMostConcurrent = 1'000'000;
constexpr std::string_view kForm = " (expected: NAME:SHA256 or NAME:SHA256:concurrent=N)";

std::optional<KeyHash> parse_hash(std::string_view text) {
  KeyHash hash{};
  if (text.size() != 2 * hash.size()) return std::nullopt;
  for (std::size_t i = 0; i < hash.size(); ++i) {
    const int high = hex_value(text[2 * i]);
    const int low = hex_value(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    hash[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  // What a hash that could not be made would be.
  if (hash == KeyHash{}) return std::nullopt;
  return hash;
}

Result<KeyLine> parse_line(std::string_view line) {
  const auto wrong = [](const std::string& what) {
    return Error{ErrorKind::kClient, what + std::string(kForm)};
  };
  const std::size_t first = line.find(':');
  if (first == std::string_view::npos) return wrong("has no colon");
  KeyLine key;
  key.name = line.substr(0, first);
  if (!is_key_name(key.name)) {
    return wrong("has no name of 1 to 64 letters, digits and . _ @ - before the colon");
  }
  line.remove_prefix(first + 1);
  const std::size_t second = std::min(line.find(':'), line.size());
  const std::optional<KeyHash> hash = parse_hash(line.substr(0, second));
  if (!hash) return wrong("has no SHA-256 of 64 hexadecimal digits after the name");
  key.hash = *hash;
  if (second == line.size()) return key;
  const std::string_view option = line.substr(second + 1);
  constexpr std::string_view kConcurrent = "concurrent=";
  if (!option.starts_with(kConcurrent)) return wrong("has an unknown option");
  const char* const end = option.data() + option.size();
  const auto read = std::from_chars(option.data() + kConcurrent.size(), end, key.concurrent);
  if (read.ec != std::errc() || read.ptr != end || key.concurrent == 0 ||
      key.concurrent > kMostConcurrent) {
    return wrong("has a `concurrent` that is no number from 1 to 1000000");
  }
  return key;
}

}  // namespace

bool is_key_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
                  c == '_' || c == '@' || c == '-';
         });
}

std::string key_line(const std::string& name, const KeyHash& hash, std::uint32_t concurrent) {
  std::string line = name + ":" + to_hex(hash);
  if (concurrent > 0) line += ":concurrent=" + std::to_string(concurrent);
  return line;
}

Result<std::vector<KeyLine>> parse_key_file(std::string_view text, const std::string& file) {
  std::vector<KeyLine> keys;
  std::set<KeyHash> hashes;
  std::map<std::string, std::uint32_t> limits;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    line = trim(line);
    if (line.empty() || line.front() == '#') continue;
    const auto wrong = [&](const std::string& what) {
      std::string message = file;
      message.append(":").append(std::to_string(number)).append(": ").append(what);
      return Error{ErrorKind::kClient, message};
    };
    Result<KeyLine> key = parse_line(line);
    if (!key) return wrong(key.error().message);
    if (!hashes.insert(key->hash).second) return wrong("has the same key as a line before");
    if (limits.emplace(key->name, key->concurrent).first->second != key->concurrent) {
      return wrong("has another `concurrent` than the line before of the same name");
    }
    if (keys.size() == kMaxKeys) return wrong("is one key more than the 10000 that are allowed");
    keys.push_back(std::move(*key));
  }
  return keys;
}

Result<std::vector<KeyLine>> read_key_file(const std::string& file) {
  const auto cannot = [&file](const std::string& why) {
    return Error{ErrorKind::kClient, file + ": cannot be read: " + why};
  };
  const auto close = [](std::FILE* stream) { std::fclose(stream); };
  const std::unique_ptr<std::FILE, decltype(close)> stream(std::fopen(file.c_str(), "rb"), close);
  if (!stream) return cannot(std::generic_category().message(errno));
  std::string text;
  char part[16 * 1024];
  while (const std::size_t read = std::fread(part, 1, sizeof part, stream.get())) {
    text.append(part, read);
    if (text.size() > kMaxFile) return cannot("it has more than 4 MiB");
  }
  if (std::ferror(stream.get()) != 0) return cannot(std::generic_category().message(errno));
  return parse_key_file(text, file);
}

}  // namespace pointsman
