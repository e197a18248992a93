#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pointsman {

// The decoded path that routing decides on, or nothing where the path can be read in two ways and
// is answered with 400: a `.` or `..` segment, an empty segment (`//`), an encoded slash, a
// backslash, an encoded control character, a broken escape. A single slash at the end is kept.
//
// `raw` is the path of a request target, without its query. The result lies in `raw` where nothing
// was encoded, else in `scratch`. The bytes sent to a replica are always the raw ones.
std::optional<std::string_view> routing_path(std::string_view raw, std::string& scratch);

}  // namespace pointsman
