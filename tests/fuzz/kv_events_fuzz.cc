// Any bytes as the messages of a publisher: published, lost, replayed, restarted. Following them
// must be safe, take no more memory than allowed, and the changes told must add up to what is held.

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "kv_events/event_decoder.h"
#include "kv_events/event_stream.h"
#include "support/fuzz_check.h"
#include "support/held_keys.h"

// The input is a list of steps: one byte for what happens, one for a number, two for the length of
// the payload that follows.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pointsman;
  using test::check;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  EventBatch batch;
  if (decode_event_batch(rest, batch)) {
    for (const KvEvent& event : batch.events) {
      check(event.extras.empty() || event.extras.size() == event.blocks.size());
      check(event.tokens.size() % std::max<std::size_t>(event.blocks.size(), 1) == 0);
    }
    check(batch.tokens.size() <= size && batch.hashes.size() <= size);
  }
  (void)batch_rank(rest);

  static const TokenChain chain(7);
  TableBudget budget;
  budget.max_bytes = 64 << 10;
  EventStream::Options options;
  options.max_waiting_batches = 8;
  options.max_waiting_bytes = 4'096;
  options.can_replay = !rest.empty() && (rest[0] & 1) != 0;
  test::HeldKeys held;
  {
    EventStream stream(chain, budget, "base", options);
    stream.set_engine(50, true);
    while (rest.size() >= 4) {
      const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(rest[i]); };
      const std::uint8_t step = at(0) % 8;
      const std::uint64_t number = at(1) == 255 ? ~std::uint64_t{1} : at(1);
      const std::size_t length = (std::size_t{at(2)} << 8) | at(3);
      rest.remove_prefix(4);
      const std::string_view payload = rest.substr(0, length);
      rest.remove_prefix(payload.size());
      switch (step) {
        case 0:
        case 1:
          stream.published(number, payload, held);
          break;
        case 2:
          stream.published(stream.next(), payload, held);
          break;
        case 3:
          if (stream.wanted()) stream.replay_begun();
          break;
        case 4:
          if (!stream.replayed(number, payload, held)) stream.replay_failed(held);
          break;
        case 5:
          stream.replay_ended(held);
          break;
        case 6:
          stream.replay_failed(held);
          break;
        default:
          stream.revive(held);
          break;
      }
      check(budget.used <= budget.max_bytes);
      check(stream.blocks().bytes() == budget.used);
      check(stream.blocks().blocks() > 0 || held.all().empty());
      (void)stream.trust();
      (void)stream.why();
    }
  }
  check(budget.used == 0);
  return 0;
}
