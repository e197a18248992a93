#include "signals/orca.h"

#include <charconv>
#include <cmath>

#include "base/ascii.h"

namespace pointsman {
namespace {

constexpr double kMostPlausible = 1e9;

void note(OrcaReading& reading, std::string_view key, double value) {
  if (!std::isfinite(value) || value < 0 || value > kMostPlausible) return;
  const std::size_t dot = key.rfind('.');
  if (dot != std::string_view::npos) key = key.substr(dot + 1);
  if (key == "kv_cache_usage_perc" || key == "kv_cache_utilization") {
    if (value <= 1.0) reading.kv_usage = static_cast<float>(value);
  } else if (key == "num_requests_waiting") {
    reading.waiting = static_cast<float>(value);
  } else if (key == "num_requests_running") {
    reading.running = static_cast<float>(value);
  }
}

// A number at the front of `text`, which is moved behind it.
bool take_number(std::string_view& text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

OrcaReading parse_text(std::string_view pairs) {
  OrcaReading reading;
  for_each_element(pairs, [&](std::string_view pair) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos) return;
    std::string_view number = trim(pair.substr(equals + 1));
    double value = 0;
    if (take_number(number, value) && number.empty()) {
      note(reading, trim(pair.substr(0, equals)), value);
    }
  });
  return reading;
}

OrcaReading parse_json(std::string_view json) {
  OrcaReading reading;
  for (;;) {
    const std::size_t open = json.find('"');
    if (open == std::string_view::npos) return reading;
    const std::size_t close = json.find('"', open + 1);
    if (close == std::string_view::npos) return reading;
    const std::string_view key = json.substr(open + 1, close - open - 1);
    json = trim(json.substr(close + 1));
    if (!json.starts_with(':')) continue;
    json = trim(json.substr(1));
    double value = 0;
    if (take_number(json, value)) note(reading, key, value);
  }
}

}  // namespace

OrcaReading parse_orca(std::string_view header) {
  header = trim(header);
  if (istarts_with(header, "TEXT ")) return parse_text(header.substr(5));
  if (istarts_with(header, "JSON ")) return parse_json(header.substr(5));
  return {};
}

}  // namespace pointsman
