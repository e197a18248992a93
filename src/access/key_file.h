#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "access/api_key.h"
#include "base/result.h"

namespace pointsman {

// One line of a key file.
struct KeyLine {
  std::string name;              // 1 to 64 of [A-Za-z0-9._@-]
  KeyHash hash{};                // of the key
  std::uint32_t concurrent = 0;  // requests at a time; 0: as the configuration says
};

// Most keys of one file. Each request is compared with all of them, at about 3 ns each.
inline constexpr std::size_t kMaxKeys = 10'000;

// A key file: one key a line, as
//
//   NAME:SHA256[:concurrent=N]
//
// where SHA256 is what `sha256sum` prints for the key. Empty lines and lines that begin with # are
// comments. Several lines may have one name: the keys of one client, as while it changes from one
// to the next. They count together, so their `concurrent` must be the same.
//
// The error names the file and the line; never the line's text, since a key may have been put
// there by mistake.
Result<std::vector<KeyLine>> parse_key_file(std::string_view text, const std::string& file);

// Reads and parses it.
Result<std::vector<KeyLine>> read_key_file(const std::string& file);

// The line of a key, without its line end.
std::string key_line(const std::string& name, const KeyHash& hash, std::uint32_t concurrent);

bool is_key_name(std::string_view name);

}  // namespace pointsman
