#include "core/session_ring.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include <xxhash.h>

namespace pointsman {
namespace {

// The finaliser of splitmix64: every input bit changes every output bit with probability one half.
constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// In (0, 1), both ends excluded: 52 bits and a half, which a double holds exactly.
double unit(std::uint64_t hash) {
  return (static_cast<double>(static_cast<std::int64_t>(hash >> 12)) + 0.5) * 0x1.0p-52;
}

// "<identity>_<i>" in decimal.
class PointName {
 public:
  explicit PointName(std::uint64_t identity) {
    char* end = std::to_chars(text_.data(), text_.data() + text_.size(), identity).ptr;
    *end++ = '_';
    prefix_ = static_cast<std::size_t>(end - text_.data());
  }
  std::uint64_t hash(std::size_t i) {
    const char* end = std::to_chars(text_.data() + prefix_, text_.data() + text_.size(), i).ptr;
    return XXH64(text_.data(), static_cast<std::size_t>(end - text_.data()), 0);
  }
  // Without the number.
  std::uint64_t hash_of_identity(std::uint64_t seed) const {
    return XXH64(text_.data(), prefix_ - 1, seed);
  }

 private:
  std::array<char, 48> text_;
  std::size_t prefix_;
};

}  // namespace

std::size_t rendezvous(std::uint64_t key, std::span<const ReplicaIndex> candidates,
                       std::span<const Replica> replicas, std::span<ReplicaIndex> order) {
  if (order.empty()) return 0;
  // The scores that `order` stands for, in the same places.
  std::array<double, kRendezvousOrder> best;
  const std::size_t wanted = std::min(order.size(), kRendezvousOrder);
  std::size_t count = 0;
  for (const ReplicaIndex candidate : candidates) {
    const Replica& replica = replicas[candidate];
    const double h = unit(mix(key + replica.identity * 0x9e3779b97f4a7c15ULL));
    // -w / ln(h) is at most w / (1 - h), since -ln(h) >= 1 - h. It spares nearly all logarithms.
    if (count == wanted && replica.weight < best[count - 1] * (1 - h)) continue;
    const double score = -replica.weight / std::log(h);
    std::size_t place = count;
    // Equal scores (two replicas of one identity) keep the order of the index.
    while (place > 0 && (score > best[place - 1] ||
                         (score == best[place - 1] && candidate < order[place - 1]))) {
      --place;
    }
    if (place == wanted) continue;
    if (count < wanted) ++count;
    for (std::size_t i = count - 1; i > place; --i) {
      best[i] = best[i - 1];
      order[i] = order[i - 1];
    }
    best[place] = score;
    order[place] = candidate;
  }
  return count;
}

namespace ring_detail {

void Members::assign(std::span<const ReplicaIndex> candidates, std::span<const Replica> replicas) {
  list_.clear();
  for (const ReplicaIndex candidate : candidates) {
    const Replica& replica = replicas[candidate];
    list_.push_back({replica.identity, replica.weight, candidate});
  }
  std::sort(list_.begin(), list_.end(), [](const Member& a, const Member& b) {
    return std::pair(a.identity, a.replica) < std::pair(b.identity, b.replica);
  });
  visited_.assign(list_.size(), 0);
  walk_ = 0;
}

}  // namespace ring_detail

void HashRing::build(std::span<const ReplicaIndex> candidates, std::span<const Replica> replicas) {
  members_.assign(candidates, replicas);
  points_.clear();
  slots_.clear();
  const auto& members = members_.list();
  if (members.empty()) return;

  double total = 0;
  double lightest = members[0].weight;
  for (const auto& member : members) {
    total += member.weight;
    lightest = std::min(lightest, member.weight);
  }
  const double lightest_share = lightest / total;
  const double scale =
      std::min(std::ceil(lightest_share * static_cast<double>(kMinPoints)) / lightest_share,
               static_cast<double>(kMaxPoints));

  std::vector<std::pair<std::uint64_t, std::uint16_t>> points;
  points.reserve(static_cast<std::size_t>(std::ceil(scale)));
  double target = 0;
  for (std::size_t slot = 0; slot < members.size(); ++slot) {
    target += scale * members[slot].weight / total;
    PointName name(members[slot].identity);
    for (std::size_t i = 0; static_cast<double>(points.size()) < target; ++i) {
      points.emplace_back(name.hash(i), static_cast<std::uint16_t>(slot));
    }
  }
  std::sort(points.begin(), points.end());
  points_.reserve(points.size());
  slots_.reserve(points.size());
  for (const auto& [hash, slot] : points) {
    points_.push_back(hash);
    slots_.push_back(slot);
  }
}

void MaglevTable::build(std::span<const ReplicaIndex> candidates,
                        std::span<const Replica> replicas) {
  constexpr std::uint16_t kFree = 0xffff;
  static_assert(kMaxReplicas < kFree);
  members_.assign(candidates, replicas);
  slots_.clear();
  const auto& members = members_.list();
  if (members.empty()) return;

  struct Turns {
    std::size_t entry;  // the next one it would like
    std::size_t skip;
    double weight;     // of the greatest, (0, 1]
    double taken = 0;  // turns taken, in units of the greatest weight
  };
  double heaviest = 0;
  for (const auto& member : members) heaviest = std::max(heaviest, member.weight);
  std::vector<Turns> turns;
  turns.reserve(members.size());
  for (const auto& member : members) {
    const PointName name(member.identity);
    turns.push_back({static_cast<std::size_t>(name.hash_of_identity(0) % kEntries),
                     static_cast<std::size_t>(name.hash_of_identity(1) % (kEntries - 1)) + 1,
                     member.weight / heaviest});
  }

  slots_.assign(kEntries, kFree);
  std::size_t filled = 0;
  for (std::size_t round = 1; filled < kEntries; ++round) {
    for (std::size_t slot = 0; slot < turns.size() && filled < kEntries; ++slot) {
      Turns& turn = turns[slot];
      if (static_cast<double>(round) * turn.weight < turn.taken) continue;
      turn.taken += 1;
      while (slots_[turn.entry] != kFree) {
        turn.entry += turn.skip;
        if (turn.entry >= kEntries) turn.entry -= kEntries;
      }
      slots_[turn.entry] = static_cast<std::uint16_t>(slot);
      ++filled;
    }
  }
}

std::uint64_t fingerprint(std::span<const ReplicaIndex> candidates,
                          std::span<const Replica> replicas) {
  std::uint64_t sum = candidates.size();
  for (const ReplicaIndex candidate : candidates) {
    const Replica& replica = replicas[candidate];
    // The identity is mixed by itself first, so that no pattern in it can cancel the index.
    sum += mix(mix(replica.identity) + candidate +
               std::rotl(std::bit_cast<std::uint64_t>(replica.weight), 32));
  }
  return sum;
}

}  // namespace pointsman
