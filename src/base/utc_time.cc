#include "base/utc_time.h"

#include <charconv>
#include <cstdint>
#include <system_error>

namespace pointsman {
namespace {

using std::chrono::sys_seconds;

// Down to the point that the milliseconds follow.
std::string second_text(sys_seconds second) {
  const auto day = std::chrono::floor<std::chrono::days>(second);
  const std::chrono::year_month_day date{day};
  const std::chrono::hh_mm_ss time{second - day};
  std::string text = std::to_string(static_cast<int>(date.year()));
  const auto two = [&text](char before, auto number) {
    text += before;
    text += static_cast<char>('0' + number / 10);
    text += static_cast<char>('0' + number % 10);
  };
  two('-', static_cast<unsigned>(date.month()));
  two('-', static_cast<unsigned>(date.day()));
  two('T', time.hours().count());
  two(':', time.minutes().count());
  two(':', time.seconds().count());
  text += '.';
  return text;
}

// All of the text, as a number of its kind.
template <typename Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

void append_utc_time(std::string& out, std::chrono::system_clock::time_point at) {
  thread_local sys_seconds cached_second{};
  thread_local std::string cached_text;
  const auto second = std::chrono::floor<std::chrono::seconds>(at);
  if (second != cached_second || cached_text.empty()) {
    cached_second = second;
    cached_text = second_text(second);
  }
  out += cached_text;
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(at - second).count();
  out += static_cast<char>('0' + milliseconds / 100);
  out += static_cast<char>('0' + milliseconds / 10 % 10);
  out += static_cast<char>('0' + milliseconds % 10);
  out += 'Z';
}

std::optional<double> read_utc_time(std::string_view text) {
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[13] != ':' || text[16] != ':') {
    return std::nullopt;
  }
  const std::size_t zone = text.find_first_of("+Z", 19);
  if (zone != std::string_view::npos) text = text.substr(0, zone);
  const auto year = number<int>(text.substr(0, 4));
  const auto month = number<unsigned>(text.substr(5, 2));
  const auto day = number<unsigned>(text.substr(8, 2));
  const auto hour = number<unsigned>(text.substr(11, 2));
  const auto minute = number<unsigned>(text.substr(14, 2));
  const auto second = number<double>(text.substr(17));
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  if (*hour > 23 || *minute > 59 || !(*second >= 0 && *second < 61)) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(*month),
                                         std::chrono::day(*day)};
  if (!date.ok()) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(days) * 86'400 + *hour * 3'600 + *minute * 60 + *second;
}

}  // namespace pointsman
