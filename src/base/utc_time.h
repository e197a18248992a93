#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace pointsman {

// Appends "2026-01-31T12:34:56.007Z". The part down to the second is made once a second and thread.
void append_utc_time(std::string& out, std::chrono::system_clock::time_point at);

// Seconds since 1970 of such a time, or of one as others write it: "2023-11-16 18:15:46.6805900",
// perhaps with +00:00 behind. Other zones are not converted. Nothing where it is no time.
[[nodiscard]] std::optional<double> read_utc_time(std::string_view text);

}  // namespace pointsman
