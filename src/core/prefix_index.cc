#include "core/prefix_index.h"

#include <algorithm>

#include "core/dense_pool.h"
#include "core/prefix_nodes.h"

namespace pointsman {
namespace {

constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

constexpr std::uint16_t session_mark(std::uint64_t session) {
  return static_cast<std::uint16_t>(mix(session) >> 48);
}

// How many leading hashes agree. Chain hashes that agree somewhere agree everywhere before.
std::size_t common(const BlockHash* a, const BlockHash* b, std::size_t length) {
  if (a[length - 1] == b[length - 1]) return length;
  std::size_t same = 0;
  std::size_t differ = length - 1;
  while (same < differ) {
    const std::size_t middle = (same + differ) / 2;
    if (a[middle] == b[middle]) {
      same = middle + 1;
    } else {
      differ = middle;
    }
  }
  return same;
}

}  // namespace

class PrefixIndex::Tree {
 public:
  explicit Tree(const Options& options) : max_bytes_(options.max_bytes), nodes_(options.seed) {
    path_.reserve(kMaxPath);
  }

  void match(std::span<const BlockHash> chain, std::uint64_t session, PrefixMatches& out) {
    out.clear();
    walk(chain);
    const std::uint16_t mark = session_mark(session);
    for (const Step& step : path_) {
      const PrefixNode& node = nodes_[step.node];
      const std::size_t shared =
          node.session == mark ? std::min<std::size_t>(node.shared, step.matched) : step.matched;
      out.shared_blocks += static_cast<std::uint32_t>(shared);
      if (shared < step.matched) break;
    }
    begin_marks();
    // From the deepest node up: a holder's first appearance is its longest match. Whoever holds a
    // node holds something of every node above, so a node with no more holders than were found
    // already has no new one.
    for (std::size_t i = path_.size(); i-- > 0;) {
      const Step& step = path_[i];
      const PrefixNode& node = nodes_[step.node];
      if (node.holders == out.holders.size()) continue;
      const auto look = [&](const Extent& extent) {
        if (!first_mark(extent.replica)) return;
        out.holders.push_back(
            {extent.replica, step.start + std::min<std::uint32_t>(extent.length, step.matched)});
      };
      look(node.extent);
      for (std::uint32_t next = node.further; next != kNone; next = further_[next].next) {
        if (node.holders == out.holders.size()) break;
        look(further_[next].extent);
      }
    }
  }

  void insert(std::span<const BlockHash> chain, std::uint64_t session, ReplicaIndex replica) {
    walk(bounded(chain));
    insert_matched(chain, session, replica);
  }

  // The chain's path has been walked.
  void insert_matched(std::span<const BlockHash> chain, std::uint64_t session,
                      ReplicaIndex replica) {
    chain = bounded(chain);
    if (chain.empty() || replica >= kMaxReplicas) return;
    if (grow_holders(replica) || path_end() > chain.size()) walk(chain);
    find_extents(replica);
    while (!fits(chain.size())) {
      if (!evict_some()) return;
      // Evicting renumbers nodes, and may have taken some of the path's.
      walk(chain);
      find_extents(replica);
    }
    ++clock_;
    add(chain, session_mark(session), replica);
    for (std::size_t i = path_.size(); i-- > 0;) touch(path_[i].extent);
    trim_to_capacity(replica);
  }

  void forget(ReplicaIndex replica) {
    if (replica >= holders_.size()) return;
    Holder& holder = holders_[replica];
    while (holder.oldest != kNone) shorten(holder.oldest, 0);
    holder.capacity = 0;
  }

  void set_capacity(ReplicaIndex replica, std::uint64_t blocks) {
    if (replica >= kMaxReplicas) return;
    grow_holders(replica);
    holders_[replica].capacity = blocks;
    trim_to_capacity(replica);
  }

  [[nodiscard]] std::size_t bytes() const {
    return sizeof(Tree) + nodes_.bytes() + further_.bytes() + holders_.capacity() * sizeof(Holder) +
           marks_.capacity() * sizeof(marks_[0]) + path_.capacity() * sizeof(Step);
  }
  [[nodiscard]] std::uint64_t blocks() const { return blocks_; }
  [[nodiscard]] std::uint64_t blocks(ReplicaIndex replica) const {
    return replica < holders_.size() ? holders_[replica].blocks : 0;
  }
  [[nodiscard]] std::uint64_t evicted_blocks() const { return evicted_blocks_; }

  [[nodiscard]] bool consistent() const;

 private:
  struct Holder {
    ExtentRef newest = kNone;
    ExtentRef oldest = kNone;
    std::uint64_t blocks = 0;
    std::uint64_t capacity = 0;
  };

  // A node on the way along a chain.
  struct Step {
    NodeId node;
    std::uint32_t start;       // blocks of the chain before the node
    std::uint32_t matched;     // blocks of the node's run that the chain shares, > 0
    ExtentRef extent = kNone;  // of the replica that is being inserted
  };

  Extent& at(ExtentRef ref) {
    return (ref & 1) != 0 ? further_[ref >> 1].extent : nodes_[ref >> 1].extent;
  }
  const Extent& at(ExtentRef ref) const { return const_cast<Tree*>(this)->at(ref); }
  NodeId node_of(ExtentRef ref) const {
    return (ref & 1) != 0 ? further_[ref >> 1].node : ref >> 1;
  }

  template <typename Visit>
  void for_each_extent(NodeId id, Visit&& visit) const {
    visit(id << 1);
    for (std::uint32_t i = nodes_[id].further; i != kNone; i = further_[i].next) {
      visit(i << 1 | 1);
    }
  }

  void begin_marks() {
    if (++mark_ == 0) {  // wrapped: old marks would look new
      std::fill(marks_.begin(), marks_.end(), 0U);
      mark_ = 1;
    }
  }
  bool first_mark(ReplicaIndex replica) {
    if (marks_[replica] == mark_) return false;
    marks_[replica] = mark_;
    return true;
  }

  // Returns whether anything had to go for it.
  bool grow_holders(ReplicaIndex replica) {
    if (replica < holders_.size()) return false;
    holders_.resize(replica + 1);
    marks_.resize(replica + 1);
    bool evicted = false;
    while (bytes() > max_bytes_ && evict_some()) evicted = true;
    return evicted;
  }

  // As much of a chain as an empty index has room for: a run takes at most 14 bytes a block while
  // it grows.
  [[nodiscard]] std::span<const BlockHash> bounded(std::span<const BlockHash> chain) const {
    return chain.first(std::min(chain.size(), max_bytes_ / 64));
  }

  // --- Walking

  void walk(std::span<const BlockHash> chain) {
    path_.clear();
    std::size_t at_block = 0;
    while (at_block < chain.size() && path_.size() < kMaxPath) {
      const NodeId id = nodes_.find(chain[at_block]);
      if (id == kNone) return;
      const PrefixNode& node = nodes_[id];
      const std::size_t behind = at_block + node.length;
      if (behind < chain.size()) nodes_.expect(chain[behind]);
      const std::size_t matched =
          common(node.hashes(), chain.data() + at_block,
                 std::min<std::size_t>(node.length, chain.size() - at_block));
      path_.push_back(
          {id, static_cast<std::uint32_t>(at_block), static_cast<std::uint32_t>(matched)});
      at_block += matched;
    }
  }

  // Fills in the replica's extents along the path. Found ones move to the front of their node's
  // list: who sent here last is likely to send here next.
  void find_extents(ReplicaIndex replica) {
    for (Step& step : path_) {
      PrefixNode& node = nodes_[step.node];
      if (node.extent.replica == replica) {
        step.extent = step.node << 1;
        continue;
      }
      std::uint32_t* link = &node.further;
      while (*link != kNone && further_[*link].extent.replica != replica) {
        link = &further_[*link].next;
      }
      if (*link == kNone) continue;
      const std::uint32_t found = *link;
      *link = further_[found].next;
      further_[found].next = node.further;
      node.further = found;
      step.extent = found << 1 | 1;
    }
  }

  // --- Room

  [[nodiscard]] std::size_t path_end() const {
    return path_.empty() ? 0 : path_.back().start + path_.back().matched;
  }

  // Whether the chain, whose path has been walked, can be added within the limit.
  [[nodiscard]] bool fits(std::size_t chain_length) const {
    std::size_t nodes = 0;
    std::size_t extents = 0;
    std::size_t runs = 0;
    for (const Step& step : path_) {
      const PrefixNode& node = nodes_[step.node];
      if (step.extent == kNone) {
        ++extents;
      } else if (at(step.extent).length > step.matched) {
        ++nodes;
        extents += node.holders;
        runs += PrefixNodes::run_bytes(step.matched) +
                PrefixNodes::run_bytes(node.length - step.matched);
      }
    }
    const std::size_t rest = chain_length - path_end();
    if (rest > 0) {
      nodes += rest / PrefixNodes::kMaxRun + 1;
      runs += PrefixNodes::run_bytes(PrefixNodes::kMaxRun) * (rest / PrefixNodes::kMaxRun) +
              PrefixNodes::run_bytes(rest % PrefixNodes::kMaxRun);
      if (!path_.empty()) {
        runs += PrefixNodes::run_bytes(
            std::min(PrefixNodes::kMaxRun, nodes_[path_.back().node].length + rest));
      }
    }
    return bytes() + runs + nodes_.growth(nodes) + further_.growth(extents) <= max_bytes_;
  }

  // Drops the globally oldest extents, some at once so that the walk is not repeated for each.
  // Returns whether there was one.
  bool evict_some() {
    const std::size_t before = bytes();
    bool any = false;
    for (int i = 0; i < 64 && bytes() + 4'096 > before; ++i) {
      const ExtentRef oldest = oldest_extent();
      if (oldest == kNone) break;
      any = true;
      evicted_blocks_ += at(oldest).length;
      shorten(oldest, 0);
    }
    return any;
  }

  [[nodiscard]] std::uint32_t age(ExtentRef ref) const { return clock_ - at(ref).stamp; }

  // The oldest of the holders' oldest extents. Other holders' only get younger relative to the
  // victim's, so the search is repeated only when the victim has become younger than the second
  // was.
  ExtentRef oldest_extent() {
    if (victim_ < holders_.size()) {
      const ExtentRef oldest = holders_[victim_].oldest;
      if (oldest != kNone && age(oldest) >= clock_ - second_stamp_) return oldest;
    }
    victim_ = kNoReplica;
    std::uint32_t oldest_age = 0;
    std::uint32_t second_age = 0;
    for (ReplicaIndex replica = 0; replica < holders_.size(); ++replica) {
      const ExtentRef oldest = holders_[replica].oldest;
      if (oldest == kNone) continue;
      const std::uint32_t its_age = age(oldest);
      if (victim_ == kNoReplica || its_age > oldest_age) {
        second_age = oldest_age;
        oldest_age = its_age;
        victim_ = replica;
      } else {
        second_age = std::max(second_age, its_age);
      }
    }
    second_stamp_ = clock_ - second_age;
    return victim_ == kNoReplica ? kNone : holders_[victim_].oldest;
  }

  void trim_to_capacity(ReplicaIndex replica) {
    Holder& holder = holders_[replica];
    if (holder.capacity == 0) return;
    while (holder.blocks > holder.capacity) {
      const std::uint64_t length = at(holder.oldest).length;
      const std::uint64_t dropped = std::min(length, holder.blocks - holder.capacity);
      evicted_blocks_ += dropped;
      shorten(holder.oldest, static_cast<std::size_t>(length - dropped));
    }
  }

  // --- Adding. Nothing here removes a node or an extent, so that ids stay valid.

  void add(std::span<const BlockHash> chain, std::uint16_t session, ReplicaIndex replica) {
    const std::size_t known = path_.size();
    for (std::size_t i = 0; i < known; ++i) {
      Step& step = path_[i];
      PrefixNode& node = nodes_[step.node];
      const auto matched = static_cast<std::uint16_t>(step.matched);
      // Hashes that collide may lead a path twice through one node, which this has parted
      // meanwhile.
      if (matched > node.length) {
        path_.resize(i);
        return;
      }
      if (node.session != session) node.shared = std::max(node.shared, matched);
      if (step.extent == kNone) {
        // In the same case the extent may have been added by an earlier step.
        const bool added =
            node.further != kNone && further_[node.further].extent.replica == replica;
        step.extent = added ? node.further << 1 | 1 : add_extent(step.node, replica);
      }
      if (at(step.extent).length > matched) {
        // Only the first part is touched: the rest ages on its own.
        split(step.node, matched);
      }
      lengthen(step.extent, matched);
    }
    std::size_t at_block = path_end();
    if (at_block == chain.size() || known == kMaxPath) return;
    if (known > 0) at_block += append(path_.back(), chain.subspan(at_block), session);
    while (at_block < chain.size() && path_.size() < kMaxPath) {
      const auto part =
          chain.subspan(at_block, std::min(PrefixNodes::kMaxRun, chain.size() - at_block));
      const NodeId id = nodes_.add(part);
      nodes_[id].session = session;
      path_.push_back({id, static_cast<std::uint32_t>(at_block),
                       static_cast<std::uint32_t>(part.size()), add_extent(id, replica)});
      lengthen(path_.back().extent, part.size());
      at_block += part.size();
    }
  }

  // Continues the run of the last node, if the chain passed all of it. Returns how many blocks.
  std::size_t append(const Step& last, std::span<const BlockHash> rest, std::uint16_t session) {
    PrefixNode& node = nodes_[last.node];
    if (last.matched != node.length || node.length == PrefixNodes::kMaxRun) return 0;
    const std::size_t before = node.length;
    const std::size_t count = std::min(rest.size(), PrefixNodes::kMaxRun - before);
    nodes_.append(last.node, rest.first(count));
    // All before was seen under this key too (see add()), so one key stands for the new rest.
    node.session = session;
    lengthen(last.extent, before + count);
    return count;
  }

  // A new extent of length 0, the replica's most recent.
  ExtentRef add_extent(NodeId id, ReplicaIndex replica) {
    const ExtentRef ref = place_extent(
        id, {.stamp = clock_, .replica = static_cast<std::uint16_t>(replica), .length = 0});
    link_behind(kNone, ref);
    return ref;
  }

  // Makes room for one more extent of a node; in nobody's list yet.
  ExtentRef place_extent(NodeId id, const Extent& extent) {
    PrefixNode& node = nodes_[id];
    if (++node.holders == 1) {
      node.extent = extent;
      return id << 1;
    }
    node.further = further_.push({extent, id, node.further});
    return node.further << 1 | 1;
  }

  void lengthen(ExtentRef ref, std::size_t length) {
    Extent& extent = at(ref);
    const std::size_t more = length - extent.length;
    extent.length = static_cast<std::uint16_t>(length);
    holders_[extent.replica].blocks += more;
    blocks_ += more;
  }

  // Parts a node's run after its first `length` blocks, with everybody's extents.
  void split(NodeId id, std::size_t length) {
    PrefixNode& node = nodes_[id];
    const NodeId rest_id = nodes_.add({node.hashes() + length, node.length - length});
    PrefixNode& rest = nodes_[rest_id];
    rest.session = node.session;
    rest.shared =
        static_cast<std::uint16_t>(node.shared - std::min<std::size_t>(node.shared, length));
    node.shared = std::min(node.shared, static_cast<std::uint16_t>(length));
    nodes_.cut(id, length);
    for_each_extent(id, [&](ExtentRef ref) {
      Extent& extent = at(ref);
      if (extent.length <= length) return;
      const auto beyond = static_cast<std::uint16_t>(extent.length - length);
      extent.length = static_cast<std::uint16_t>(length);
      link_behind(
          ref, place_extent(rest_id,
                            {.stamp = extent.stamp, .replica = extent.replica, .length = beyond}));
    });
  }

  // --- Removing. Ids change: the last node and the last further extent move into freed places.

  // Takes the end of an extent; all of it where `length` is 0. Must be a leaf of its holder.
  void shorten(ExtentRef ref, std::size_t length) {
    Extent& extent = at(ref);
    const NodeId id = node_of(ref);
    PrefixNode& node = nodes_[id];
    const std::size_t before = extent.length;
    holders_[extent.replica].blocks -= before - length;
    blocks_ -= before - length;
    extent.length = static_cast<std::uint16_t>(length);
    if (node.holders == 1 && length == 0) {
      unlink(ref);
      remove_node(id);
      return;
    }
    if (before == node.length) {
      std::size_t longest = 0;
      for_each_extent(
          id, [&](ExtentRef other) { longest = std::max<std::size_t>(longest, at(other).length); });
      node.shared = std::min(node.shared, static_cast<std::uint16_t>(longest));
      if (longest < node.length) nodes_.cut(id, longest);
    }
    if (length > 0) return;
    unlink(ref);
    --node.holders;
    if ((ref & 1) != 0) {
      remove_further(ref >> 1);
    } else {
      const std::uint32_t first = node.further;
      extent = further_[first].extent;
      relink(ref);
      remove_further(first);
    }
  }

  void remove_node(NodeId id) {
    if (!nodes_.remove(id)) return;
    relink(id << 1);
    for (std::uint32_t i = nodes_[id].further; i != kNone; i = further_[i].next) {
      further_[i].node = id;
    }
  }

  // Takes a further extent, already out of its holder's list, out of its node's and out of the
  // pool.
  void remove_further(std::uint32_t i) {
    further_link(i) = further_[i].next;
    const std::uint32_t last = further_.size() - 1;
    if (i != last) {
      further_link(last) = i;
      further_[i] = further_[last];
      relink(i << 1 | 1);
    }
    further_.pop();
  }

  std::uint32_t& further_link(std::uint32_t i) {
    std::uint32_t* link = &nodes_[further_[i].node].further;
    while (*link != i) link = &further_[*link].next;
    return *link;
  }

  // An extent was moved to `to`: its neighbours follow.
  void relink(ExtentRef to) {
    const Extent& extent = at(to);
    Holder& holder = holders_[extent.replica];
    (extent.newer == kNone ? holder.newest : at(extent.newer).older) = to;
    (extent.older == kNone ? holder.oldest : at(extent.older).newer) = to;
  }

  // --- Each holder's list

  // Puts an extent next behind `newer`; kNone: first.
  void link_behind(ExtentRef newer, ExtentRef ref) {
    Extent& extent = at(ref);
    Holder& holder = holders_[extent.replica];
    ExtentRef& link = newer == kNone ? holder.newest : at(newer).older;
    extent.newer = newer;
    extent.older = link;
    (link == kNone ? holder.oldest : at(link).newer) = ref;
    link = ref;
  }

  void unlink(ExtentRef ref) {
    const Extent& extent = at(ref);
    Holder& holder = holders_[extent.replica];
    (extent.newer == kNone ? holder.newest : at(extent.newer).older) = extent.older;
    (extent.older == kNone ? holder.oldest : at(extent.older).newer) = extent.newer;
  }

  void touch(ExtentRef ref) {
    at(ref).stamp = clock_;
    if (at(ref).newer == kNone) return;
    unlink(ref);
    link_behind(kNone, ref);
  }

  std::size_t max_bytes_;
  PrefixNodes nodes_;
  DensePool<FurtherExtent, 256> further_;
  std::vector<Holder> holders_;       // by ReplicaIndex
  std::vector<std::uint32_t> marks_;  // by ReplicaIndex; scratch of match()
  std::uint32_t mark_ = 0;
  std::vector<Step> path_;  // scratch
  std::uint64_t blocks_ = 0;
  std::uint64_t evicted_blocks_ = 0;
  std::uint32_t clock_ = 0;  // inserts, modulo 2^32
  ReplicaIndex victim_ = kNoReplica;
  std::uint32_t second_stamp_ = 0;
};

bool PrefixIndex::Tree::consistent() const {
  if (!nodes_.consistent()) return false;
  std::uint64_t blocks = 0;
  std::size_t extents = 0;
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    const PrefixNode& node = nodes_[id];
    std::size_t holders = 0;
    std::size_t longest = 0;
    bool sound = true;
    for_each_extent(id, [&](ExtentRef ref) {
      const Extent& extent = at(ref);
      const Holder& holder = holders_[extent.replica];
      sound = sound && node_of(ref) == id && extent.length > 0;
      sound = sound && (extent.newer == kNone ? holder.newest : at(extent.newer).older) == ref;
      sound = sound && (extent.older == kNone ? holder.oldest : at(extent.older).newer) == ref;
      sound = sound && (extent.older == kNone || age(extent.older) >= age(ref));
      ++holders;
      longest = std::max<std::size_t>(longest, extent.length);
      blocks += extent.length;
    });
    if (!sound || holders != node.holders || longest != node.length) return false;
    extents += holders;
  }
  std::uint64_t held = 0;
  std::size_t listed = 0;
  for (const Holder& holder : holders_) {
    std::uint64_t sum = 0;
    for (ExtentRef ref = holder.newest; ref != kNone; ref = at(ref).older, ++listed) {
      sum += at(ref).length;
    }
    if (sum != holder.blocks || (holder.capacity != 0 && sum > holder.capacity)) return false;
    held += sum;
  }
  return blocks == blocks_ && held == blocks_ && listed == extents &&
         further_.size() + nodes_.size() == extents;
}

PrefixIndex::PrefixIndex(const Options& options) : tree_(std::make_unique<Tree>(options)) {}
PrefixIndex::~PrefixIndex() = default;
PrefixIndex::PrefixIndex(PrefixIndex&&) noexcept = default;
PrefixIndex& PrefixIndex::operator=(PrefixIndex&&) noexcept = default;

void PrefixIndex::match(std::span<const BlockHash> chain, std::uint64_t session,
                        PrefixMatches& out) const {
  tree_->match(chain, session, out);
}
void PrefixIndex::insert(std::span<const BlockHash> chain, std::uint64_t session,
                         ReplicaIndex replica) {
  tree_->insert(chain, session, replica);
}
void PrefixIndex::insert_matched(std::span<const BlockHash> chain, std::uint64_t session,
                                 ReplicaIndex replica) {
  tree_->insert_matched(chain, session, replica);
}
void PrefixIndex::forget(ReplicaIndex replica) {
  tree_->forget(replica);
}
void PrefixIndex::set_capacity(ReplicaIndex replica, std::uint64_t blocks) {
  tree_->set_capacity(replica, blocks);
}
std::size_t PrefixIndex::bytes() const {
  return tree_->bytes();
}
std::uint64_t PrefixIndex::blocks() const {
  return tree_->blocks();
}
std::uint64_t PrefixIndex::blocks(ReplicaIndex replica) const {
  return tree_->blocks(replica);
}
std::uint64_t PrefixIndex::evicted_blocks() const {
  return tree_->evicted_blocks();
}
bool PrefixIndex::consistent() const {
  return tree_->consistent();
}

}  // namespace pointsman
