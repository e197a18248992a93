#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "core/features.h"
#include "core/holder_table.h"
#include "core/prefix_index.h"
#include "core/recent_drops.h"
#include "core/replica.h"

namespace pointsman {

// How far what is known of a replica's cache can be relied on.
enum class Trust : std::uint8_t {
  kNone,       // it tells no events, or what it holds was never known in whole
  kReplaying,  // past events are being asked for
  kGap,        // events were missed and cannot be had again
  kTrusted,    // what is known is what it holds
};

constexpr std::string_view label(Trust trust) {
  switch (trust) {
    case Trust::kNone:
      return "none";
    case Trust::kReplaying:
      return "replaying";
    case Trust::kGap:
      return "gap";
    case Trust::kTrusted:
      return "trusted";
  }
  return "none";
}

// Where an engine keeps a block.
enum class Tier : std::uint8_t { kGpu, kCpu, kDisk };
inline constexpr std::size_t kTiers = 3;

// One cache of an engine: a data-parallel rank's blocks in one tier.
struct EngineCache {
  ReplicaIndex replica = 0;
  std::uint16_t rank = 0;
  Tier tier = Tier::kGpu;
};

// Which replica's engine holds which blocks, by the engines' own word (their KV cache events). Keys
// are those of core/token_chain.h, so text without token ids is never found here.
//
// What is answered is exact: how many of a prompt's leading blocks an engine holds, and never one
// behind the first that it lacks. A rank's blocks are normally closed: whoever holds a block holds
// all before it, since engines evict tails first. While that is known of a rank its length is
// bisected; otherwise the prompt's blocks are looked up one after the other.
//
// The tables (core/holder_table.h) have 16 bytes for a block however many ranks hold it, up to 64
// ranks to a table. With what they keep free it is at most 20.5 bytes per block and replica in any
// shape, and a fraction of it where replicas hold the same (docs/decisions/0005-engine-caches.md).
// bytes() never exceeds Options::max_bytes: the replica that asks for more loses its blocks and its
// trust.
//
// Time: all calls are in proportion to the blocks given and pause for no rehash; a cleared rank's
// blocks are forgotten at once and swept out little by little, by later calls.
//
// Not thread-safe: its host's lock guards it, as it does the router that it belongs to.
class EngineCaches {
 public:
  struct Options {
    std::size_t max_bytes = std::size_t{256} << 20;
    // A host's secret, as for PrefixIndex. Answers do not depend on it.
    std::uint64_t seed = 1;
    // What a cached block is worth, by tier, from 0 to 1: what it saves of its computation.
    std::array<double, kTiers> worth = {1.0, 0.7, 0.3};
    // A request that was sent to a trusted replica counts as cached there for at least so long and
    // at most twice as long: until the engine's own word has had time to come. From a block on that
    // the engine drops after the request was sent, its word stands at once. Later requests do not
    // prolong it where the engine tells of no block at all.
    Duration sent_life = std::chrono::seconds(3);
  };

  // Most ranks of one replica.
  static constexpr std::uint16_t kMaxRanks = 256;

  explicit EngineCaches(const Options& options);
  EngineCaches(EngineCaches&&) noexcept = default;
  EngineCaches& operator=(EngineCaches&&) noexcept = default;

  // --- What the engines say. Replicas and ranks beyond their limits are left out.

  // The cache now holds `blocks`, consecutive ones of a chain; `before` is the block before the
  // first of them, nothing where they begin a prompt. Blocks that it holds already are held once,
  // and appended to `again`. False: there was no room. Then the replica's blocks are forgotten, it
  // is not trusted, and what else it stores is passed over (false again) until forget_blocks().
  bool store(const EngineCache& cache, std::optional<BlockHash> before,
             std::span<const BlockHash> blocks, std::vector<BlockHash>* again = nullptr);

  // The cache no longer holds `blocks`; those that it does not hold are passed over. `tails`: after
  // this call the rank holds nothing behind any of them, in whatever tier. Without it answers are
  // as exact, but slower from now on (see above).
  void remove(const EngineCache& cache, std::span<const BlockHash> blocks, bool tails);

  // A rank's caches are empty, of all tiers. What was just sent to its replica is not expected any
  // more.
  void clear(ReplicaIndex replica, std::uint16_t rank);

  // All the replica's caches are empty, as after its engine's restart. Its trust stays.
  void forget_blocks(ReplicaIndex replica);

  // The replica left: likewise, and its trust is kNone.
  void forget(ReplicaIndex replica);

  void set_trust(ReplicaIndex replica, Trust trust);
  [[nodiscard]] Trust trust(ReplicaIndex replica) const;
  [[nodiscard]] bool trusted(ReplicaIndex replica) const {
    return trust(replica) == Trust::kTrusted;
  }
  // Whether any replica is.
  [[nodiscard]] bool any_trusted() const { return trusted_ > 0; }

  // --- What the router asks.

  struct Match {
    ReplicaIndex replica;
    std::uint32_t blocks;  // leading blocks by their worth, rounded down
    std::uint32_t length;  // leading blocks held, > 0; not below `blocks`
  };

  // The trusted replicas that hold leading blocks of `chain`, or were just sent them, each once and
  // in no order; of a replica's ranks the best one. Does not allocate once `out` is warm.
  void match(std::span<const BlockHash> chain, TimePoint now, std::vector<Match>& out);

  // A request with `chain` is being sent to `replica`. Does nothing for one that is not trusted.
  void sent(std::span<const BlockHash> chain, ReplicaIndex replica, TimePoint now);

  // --- What people ask.

  [[nodiscard]] std::size_t bytes() const;  // what all of it occupies
  // Blocks that the replica holds, once for each rank and tier.
  [[nodiscard]] std::uint64_t blocks(ReplicaIndex replica) const;
  [[nodiscard]] std::uint64_t blocks() const { return blocks_; }
  // How often a replica lost its trust for want of room.
  [[nodiscard]] std::uint64_t overflows() const { return overflows_; }

  // For tests: whether every internal invariant holds. Linear in the size of all.
  [[nodiscard]] bool consistent() const;

 private:
  static constexpr std::uint32_t kBankUnits = 64;

  // Levels: 0 is the GPU, 1 the GPU or the CPU, 2 any tier.
  using Levels = std::array<std::uint32_t, kTiers>;

  // A data-parallel rank: a bit of a bank.
  struct Unit {
    ReplicaIndex replica = kNoReplica;  // kNoReplica: none
    std::uint16_t rank = 0;
    std::array<std::uint64_t, kTiers> blocks{};
  };

  struct Bank {
    std::array<std::unique_ptr<HolderTable>, kTiers> tiers;  // made when first used
    std::array<Unit, kBankUnits> units;
    HolderTable::Holders live = 0;      // units in use
    HolderTable::Holders trusted = 0;   // of trusted replicas
    HolderTable::Holders leaving = 0;   // given up, to be swept
    HolderTable::Holders sweeping = 0;  // being swept
    // By level: units that may hold a block without the one before it.
    std::array<HolderTable::Holders, kTiers> open{};
    std::size_t tier_count = 1;  // one more than the last tier that has a table

    // Who holds the block at a level or nearer.
    [[nodiscard]] HolderTable::Holders find(BlockHash block, std::size_t level) const;
    void expect(BlockHash block, std::size_t level) const;
  };

  struct ReplicaState {
    Trust trust = Trust::kNone;
    bool shut_out = false;             // lost its blocks for want of room
    std::uint64_t stored_turn = 0;     // the last one in which it told of a block
    std::vector<std::uint32_t> units;  // bank * kBankUnits + bit, by rank of arrival
  };

  // Units whose number of leading blocks lies within a range.
  struct Range {
    std::uint32_t least;
    std::uint32_t most;
    HolderTable::Holders units;
  };

  struct Lately {
    PrefixIndex sent;
    RecentDrops drops;
  };

  ReplicaState* state_of(ReplicaIndex replica);
  [[nodiscard]] std::uint32_t find_unit(const ReplicaState& state, std::uint16_t rank) const;
  std::uint32_t make_unit(ReplicaIndex replica, std::uint16_t rank);
  void drop_unit(std::uint32_t number);
  void drop_units(ReplicaState& state);
  HolderTable& table(Bank& bank, std::size_t tier);
  [[nodiscard]] std::size_t room() const;
  void overflow(ReplicaIndex replica);
  void sweep(std::size_t blocks);
  bool sweep_bank(Bank& bank, std::size_t blocks);

  void measure(const Bank& bank, std::span<const BlockHash> chain, std::size_t level);
  void bisect(const Bank& bank, std::span<const BlockHash> chain, std::size_t level,
              HolderTable::Holders units);
  void walk(const Bank& bank, std::span<const BlockHash> chain, std::size_t level,
            HolderTable::Holders units);
  Match& credit(ReplicaIndex replica, std::uint32_t blocks, std::uint32_t length,
                std::vector<Match>& out);
  void match_sent(std::span<const BlockHash> chain, TimePoint now, std::vector<Match>& out);
  void forget_sent(ReplicaIndex replica);
  [[nodiscard]] bool holds(ReplicaIndex replica, BlockHash block) const;
  [[nodiscard]] std::uint32_t length_sent(const Lately& lately, std::span<const BlockHash> chain,
                                          ReplicaIndex replica);
  void note_drop(ReplicaIndex replica, BlockHash block);
  [[nodiscard]] bool dropped(ReplicaIndex replica, BlockHash block) const;
  void turn(TimePoint now);

  Options options_;
  std::vector<std::unique_ptr<Bank>> banks_;
  std::vector<ReplicaState> replicas_;  // by ReplicaIndex
  std::size_t unit_list_bytes_ = 0;
  std::uint64_t blocks_ = 0;
  std::uint64_t overflows_ = 0;
  std::uint32_t trusted_ = 0;
  bool dirty_ = false;  // some bank has something to sweep

  // What was sent lately, and what was dropped after that, in two generations.
  std::unique_ptr<Lately> now_;
  std::unique_ptr<Lately> before_;
  TimePoint turned_{};
  std::uint64_t turns_ = 0;

  std::array<Levels, kBankUnits> lengths_{};  // scratch of match()
  std::vector<std::uint32_t> place_;          // by ReplicaIndex: in match()'s answer, plus 1
  std::vector<std::uint32_t> near_;           // of match()'s answer: leading blocks on the GPU
  PrefixMatches sent_matches_;                // scratch
};

}  // namespace pointsman
