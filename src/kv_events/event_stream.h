#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "kv_events/engine_blocks.h"
#include "kv_events/event_batch.h"

namespace pointsman {

// One publisher of cache events (a replica's data-parallel rank) as a sequence of numbered batches.
//
// A publisher counts its batches from 0 and keeps the last ones (10,000 in vLLM and SGLang) for
// whoever asks to have them replayed. From the numbers alone:
//   next in order        applied
//   seen before          ignored
//   too high             batches were missed: they are asked for, and what comes meanwhile waits
//   lower, and not seen  the engine has restarted: what it held is forgotten
//
// On first contact all is asked for, from 0. Later a replay is asked for from the last batch that
// was seen: only if that comes back with the same bytes has the engine not restarted in between,
// for a new one may have counted past the old one's numbers by then. Where the beginning of what
// was missed is no longer kept, or there is nobody to ask, the batches are lost: since they may
// have been removals, all that is known is forgotten, and what comes from then on is true but not
// all there is (kGap). It is all there is again
//   - after AllBlocksCleared, or a restart;
//   - once the blocks that are known to be there make up nine tenths of the engine's cache. Blocks
//     that were there all the time and never left can be no more than the rest. (A number of
//     blocks gone through the cache would prove nothing: what is used again and again stays, and
//     no event is sent for a use.)
//
// An engine whose events do not fit together (more than one block in twenty behind an unknown
// parent, or under a hash that stood for another prefix, as SGLang's did before 0.5.4) is not
// trusted either.
//
// No clock, no I/O: a host moves the messages and does the asking. Not thread-safe.
class EventStream {
 public:
  struct Options {
    bool can_replay = true;  // there is somebody to ask
    // What may wait for the end of a replay; beyond it, it is dropped and asked for again.
    std::size_t max_waiting_batches = 10'000;
    std::size_t max_waiting_bytes = std::size_t{16} << 20;
    EngineBlocks::Options blocks;
  };

  // `chain` and `budget` outlive it. `world`: see EngineBlocks.
  EventStream(const TokenChain& chain, TableBudget& budget, std::string_view world,
              const Options& options);

  // The engine's own word on its configuration. 0: unknown number of blocks.
  void set_engine(std::uint64_t gpu_blocks, bool caches);

  // --- messages ---------------------------------------------------------------------------------
  // Numbers from here on are no batches': no engine counts so far in a century.
  static constexpr std::uint64_t kMostBatches = std::uint64_t{1} << 53;

  // A batch that was just published, with a number below kMostBatches.
  void published(std::uint64_t number, std::string_view payload, CacheChanges& changes);

  // From which number on batches shall be asked for; nothing: none are missed. Stays until the
  // replay has begun.
  [[nodiscard]] std::optional<std::uint64_t> wanted() const {
    return asked_ ? std::nullopt : wanted_;
  }
  // Whether nothing suffers if the asking takes time: nothing has been heard yet.
  [[nodiscard]] bool may_wait() const { return !heard_ && waiting_.empty(); }
  [[nodiscard]] bool replaying() const { return asked_; }

  void replay_begun() {
    asked_ = true;
    first_answer_ = true;
  }
  // The next batch of the replay. False: it is none, so that what comes is no replay.
  [[nodiscard]] bool replayed(std::uint64_t number, std::string_view payload,
                              CacheChanges& changes);
  void replay_ended(CacheChanges& changes);
  // No answer, or none to the end.
  void replay_failed(CacheChanges& changes);

  // The replica was away and is back, and whoever keeps the changes has forgotten it. Tells all
  // that is known once more, and makes sure of it.
  void revive(CacheChanges& changes);

  // The connection was lost and is there again: batches may have been missed, or be another
  // engine's. Makes sure of what is known: by a replay or, where there is none, by the next batch.
  void reconnected();

  // After a replay that failed: forgets all that is known, and asks for everything once more.
  void ask_anew(CacheChanges& changes);

  // --- state ------------------------------------------------------------------------------------
  [[nodiscard]] Trust trust() const;
  // Why it is no better, for a person; empty where it is the best.
  [[nodiscard]] std::string_view why() const;

  struct Counts {
    std::uint64_t batches = 0;     // applied
    std::uint64_t duplicates = 0;  // ignored
    std::uint64_t gaps = 0;        // batches were found missing
    std::uint64_t replays = 0;     // that ended
    std::uint64_t losses = 0;      // batches were missed for good
    std::uint64_t restarts = 0;
    std::uint64_t undecodable = 0;  // batches and events that could not be read
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] const EngineBlocks& blocks() const { return blocks_; }
  // When the last batch was made, by the engine's clock: Unix seconds; 0: none yet.
  [[nodiscard]] double last_time() const { return last_time_; }
  [[nodiscard]] std::uint64_t next() const { return next_; }

 private:
  struct Waiting {
    std::uint64_t number;
    std::string payload;
  };
  static constexpr std::size_t kRemembered = 16;
  static constexpr int kMostReplays = 3;  // one after the other, without a batch between them

  [[nodiscard]] bool seen(std::uint64_t number, std::uint64_t digest) const;
  [[nodiscard]] bool may_ask() const {
    return options_.can_replay && replays_in_a_row_ < kMostReplays;
  }
  void ask();
  // Takes a batch in its turn; false where it has to wait for a replay.
  bool take(std::uint64_t number, std::string_view payload, CacheChanges& changes);
  void wait(std::uint64_t number, std::string_view payload);
  void take_waiting(CacheChanges& changes);
  void apply(std::uint64_t number, std::uint64_t digest, bool readable, CacheChanges& changes);
  void lose(CacheChanges& changes);
  void restart(CacheChanges& changes);
  void judge();

  const Options options_;
  EngineBlocks blocks_;
  EventBatch batch_;  // scratch: the one that is applied
  std::uint64_t engine_blocks_ = 0;
  bool caches_ = true;

  bool heard_ = false;      // there was a batch, or a replay that said that there was none
  std::uint64_t next_ = 0;  // the number that is to come
  std::optional<std::uint64_t> last_published_;       // of those that were not replayed
  std::array<std::uint64_t, kRemembered> digests_{};  // of the last batches, by number
  bool complete_ = false;                             // all that is held is known
  bool unverified_ = false;  // the replica was away, and nothing has shown that it is the same

  std::optional<std::uint64_t> wanted_;
  bool asked_ = false;
  bool first_answer_ = false;
  bool other_engine_ = false;  // the replay is of an engine that has restarted
  int replays_in_a_row_ = 0;
  std::deque<Waiting> waiting_;
  std::size_t waiting_bytes_ = 0;

  // Blocks since the last judgement, and what it was.
  std::uint64_t judged_blocks_ = 0;
  std::uint64_t judged_faults_ = 0;
  bool inconsistent_ = false;

  double last_time_ = 0;
  Counts counts_;
};

}  // namespace pointsman
