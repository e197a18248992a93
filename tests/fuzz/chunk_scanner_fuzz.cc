// Any bytes as a chunked body: the same answer whole, byte by byte, and cut in two.

#include <cstdint>
#include <string>
#include <string_view>

#include "http/chunk_scanner.h"
#include "http/head_writer.h"
#include "support/fuzz_check.h"

namespace pointsman {
namespace {

using test::check;

struct Outcome {
  std::string payload;
  std::size_t consumed = 0;
  bool done = false;
  bool bad = false;
  bool operator==(const Outcome&) const = default;
};

Outcome scan(std::string_view body, std::size_t piece) {
  ChunkScanner scanner;
  Outcome outcome;
  while (!body.empty()) {
    const std::string copy(body.substr(0, piece));
    const std::size_t taken =
        scanner.feed(copy, [&](std::string_view run) { outcome.payload += run; });
    check(taken <= copy.size());
    outcome.consumed += taken;
    if (taken < copy.size()) break;
    body.remove_prefix(copy.size());
  }
  outcome.done = scanner.done();
  outcome.bad = scanner.bad();
  check(!(outcome.done && outcome.bad));
  check(scanner.payload_bytes() == outcome.payload.size());
  return outcome;
}

}  // namespace
}  // namespace pointsman

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pointsman;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const Outcome whole = scan(body, size + 1);
  check(scan(body, 1) == whole);
  check(scan(body, size / 2 + 1) == whole);
  if (whole.done) {
    // The payload in frames of our own reads back as the same payload.
    std::string framed;
    append_chunk(framed, whole.payload);
    framed += "0\r\n\r\n";
    const Outcome again = scan(framed, framed.size());
    check(again.done && again.payload == whole.payload);
  }
  return 0;
}
