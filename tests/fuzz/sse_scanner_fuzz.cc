// Any bytes as an event stream: the same events whole, byte by byte, and cut in two; and the same
// as a reading line by line gives.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/sse_scanner.h"
#include "support/fuzz_check.h"

namespace pointsman {
namespace {

constexpr std::size_t kMaxEvent = 64;

using test::check;

using Events = std::vector<std::pair<std::string, std::string>>;

Events scan(std::string_view stream, std::size_t piece, std::size_t max) {
  SseScanner scanner(max);
  Events events;
  while (!stream.empty()) {
    const std::string copy(stream.substr(0, piece));
    scanner.feed(copy, [&](const SseEvent& event) { events.emplace_back(event.name, event.data); });
    stream.remove_prefix(copy.size());
  }
  return events;
}

// The standard's rules, written down again without any care for speed or memory.
Events read_plainly(std::string_view stream) {
  if (stream.starts_with("\xef\xbb\xbf")) stream.remove_prefix(3);
  std::vector<std::string> lines(1);
  for (std::size_t i = 0; i < stream.size(); ++i) {
    if (stream[i] == '\r' || stream[i] == '\n') {
      if (stream[i] == '\r' && i + 1 < stream.size() && stream[i + 1] == '\n') ++i;
      lines.emplace_back();
    } else {
      lines.back() += stream[i];
    }
  }
  lines.pop_back();  // without its end a line does not count
  Events events;
  std::string name;
  std::string data;
  for (const std::string& line : lines) {
    if (line.empty()) {
      if (!data.empty()) events.emplace_back(name, data.substr(0, data.size() - 1));
      name.clear();
      data.clear();
      continue;
    }
    const std::size_t colon = line.find(':');
    const std::string field = line.substr(0, colon);
    std::string value = colon == std::string::npos ? "" : line.substr(colon + 1);
    if (value.starts_with(' ')) value.erase(0, 1);
    if (field == "data") data += value + "\n";
    if (field == "event") name = value.substr(0, 256);
  }
  return events;
}

}  // namespace
}  // namespace pointsman

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pointsman;
  const std::string_view stream(reinterpret_cast<const char*>(data), size);
  const Events small = scan(stream, size + 1, kMaxEvent);
  check(scan(stream, 1, kMaxEvent) == small);
  check(scan(stream, size / 2 + 1, kMaxEvent) == small);
  const Events all = scan(stream, size + 1, size + 1);
  check(scan(stream, 3, size + 1) == all);
  check(read_plainly(stream) == all);
  return 0;
}
