#pragma once

#include <string>
#include <string_view>

namespace pointsman {

// The text as one line that a terminal only shows: control characters (C0, DEL, and the C1 ones of
// UTF-8), which may move its cursor, come as escapes, "\n" or "\x1b". Everything else stays.
[[nodiscard]] std::string printable(std::string_view text);
// Likewise of several lines: their ends stay.
[[nodiscard]] std::string printable_lines(std::string_view text);

}  // namespace pointsman
