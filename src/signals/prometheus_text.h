#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace pointsman {

// Reading the Prometheus text format (0.0.4; what OpenMetrics adds to sample lines is accepted).
//
// An engine's page has some 60 kB, of which a router wants a dozen lines. So the scanner takes the
// name of each line, asks whether it is wanted, and goes to the next line if not; only wanted lines
// are read whole. A line that is not well-formed is skipped, never the rest of the page. Values may
// be NaN or infinite: whether that is a reading is the caller's matter. Time stamps are ignored:
// the router goes by when it asked.
//
// No allocation but in label(). Pure. About 10 µs for a page of 60 kB.

// One sample line. The views lie in the page.
struct PrometheusSample {
  std::string_view name;
  std::string_view labels;  // between the braces, checked to be well-formed; empty: none
  double value = 0;

  // The value of a label with its escapes undone; nothing where there is no such label.
  [[nodiscard]] std::optional<std::string> label(std::string_view label_name) const;
  // Whether the label is there with that value. No allocation.
  [[nodiscard]] bool label_is(std::string_view label_name, std::string_view wanted) const;
};

// The metric name that a line begins with; empty for comments, empty lines and what is no sample.
std::string_view prometheus_name(std::string_view line);

// Reads one whole line; `name` is what prometheus_name() gave for it. Nothing where it is not
// well-formed.
std::optional<PrometheusSample> parse_prometheus_line(std::string_view line, std::string_view name);

// Calls sample(const PrometheusSample&) for each well-formed line whose name is wanted(name).
// Returns how many wanted lines were not well-formed.
template <typename Wanted, typename OnSample>
std::size_t scan_prometheus(std::string_view page, Wanted&& wanted, OnSample&& sample) {
  std::size_t bad = 0;
  while (!page.empty()) {
    const std::size_t end = page.find('\n');
    const std::string_view line = page.substr(0, end);
    page = end == std::string_view::npos ? std::string_view() : page.substr(end + 1);
    const std::string_view name = prometheus_name(line);
    if (name.empty() || !wanted(name)) continue;
    if (const std::optional<PrometheusSample> parsed = parse_prometheus_line(line, name)) {
      sample(*parsed);
    } else {
      ++bad;
    }
  }
  return bad;
}

}  // namespace pointsman
