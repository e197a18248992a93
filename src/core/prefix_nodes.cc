#include "core/prefix_nodes.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace pointsman {
namespace {

// The finaliser of splitmix64.
constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// Room that a run of `length` blocks is given: it grows by an eighth to a quarter, and with the
// allocator's own eight bytes it fills a multiple of sixteen.
constexpr std::size_t run_capacity(std::size_t length) {
  const std::size_t step = std::max<std::size_t>(2, std::bit_floor(length) / 4);
  return std::max<std::size_t>(3, (length + step) / step * step - 1);
}

BlockHash* run_of(PrefixNode& node) {
  return node.length == 1 ? &node.only : node.run;
}

}  // namespace

PrefixNodes::PrefixNodes(std::uint64_t seed) : seed_(seed) {
  for (std::size_t i = 0; i < kFirstBuckets; ++i) buckets_.push(kNone);
}

PrefixNodes::~PrefixNodes() {
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    if (nodes_[id].length > 1) delete[] nodes_[id].run;
  }
}

std::uint32_t PrefixNodes::bucket_of(BlockHash first) const {
  const auto hash = static_cast<std::uint32_t>(mix(first ^ seed_));
  const std::uint32_t bucket = hash & (2 * level_ - 1);
  return bucket < buckets_.size() ? bucket : bucket & (level_ - 1);
}

NodeId PrefixNodes::find(BlockHash first) const {
  NodeId id = buckets_[bucket_of(first)];
  while (id != kNone) {
    const PrefixNode& node = nodes_[id];
    const BlockHash* const hashes = node.hashes();
    // Whoever finds a node looks at its run's last hash next.
    __builtin_prefetch(hashes + node.length - 1);
    if (hashes[0] == first) break;
    id = node.next_in_bucket;
  }
  return id;
}

NodeId PrefixNodes::add(std::span<const BlockHash> run) {
  const NodeId id = nodes_.push({});
  resize_run(nodes_[id], run.size());
  std::copy(run.begin(), run.end(), run_of(nodes_[id]));
  enter(id);
  return id;
}

void PrefixNodes::append(NodeId id, std::span<const BlockHash> more) {
  PrefixNode& node = nodes_[id];
  const std::size_t before = node.length;
  resize_run(node, before + more.size());
  std::copy(more.begin(), more.end(), run_of(node) + before);
}

void PrefixNodes::cut(NodeId id, std::size_t length) {
  resize_run(nodes_[id], length);
}

bool PrefixNodes::remove(NodeId id) {
  PrefixNode& node = nodes_[id];
  link_to(id) = node.next_in_bucket;
  if (node.length > 1) delete[] node.run;
  run_bytes_ -= run_bytes(node.length);
  const NodeId last = nodes_.size() - 1;
  if (id != last) {
    link_to(last) = id;
    node = nodes_[last];
  }
  nodes_.pop();
  return id != last;
}

void PrefixNodes::enter(NodeId id) {
  // A bucket for each node: fewer would cost a search in vain, which every new prompt ends with, a
  // second node to look at, and each one is two waits for memory.
  if (nodes_.size() > buckets_.size()) grow_table();
  std::uint32_t& bucket = buckets_[bucket_of(nodes_[id].hashes()[0])];
  nodes_[id].next_in_bucket = bucket;
  bucket = id;
}

// Adds a bucket and divides between the two the nodes of the one that it comes from.
void PrefixNodes::grow_table() {
  NodeId id = std::exchange(buckets_[buckets_.size() - level_], kNone);
  buckets_.push(kNone);
  while (id != kNone) {
    const NodeId next = nodes_[id].next_in_bucket;
    std::uint32_t& bucket = buckets_[bucket_of(nodes_[id].hashes()[0])];
    nodes_[id].next_in_bucket = bucket;
    bucket = id;
    id = next;
  }
  if (buckets_.size() == 2 * level_) level_ *= 2;
}

// The link that leads to a node in the table.
std::uint32_t& PrefixNodes::link_to(NodeId id) {
  std::uint32_t* link = &buckets_[bucket_of(nodes_[id].hashes()[0])];
  while (*link != id) link = &nodes_[*link].next_in_bucket;
  return *link;
}

std::size_t PrefixNodes::run_bytes(std::size_t length) {
  return length <= 1 ? 0 : run_capacity(length) * sizeof(BlockHash) + 8;
}

// Sets a run's length and keeps the hashes that both lengths have.
void PrefixNodes::resize_run(PrefixNode& node, std::size_t length) {
  const std::size_t before = node.length;
  node.length = static_cast<std::uint16_t>(length);
  if (run_bytes(before) == run_bytes(length)) return;
  BlockHash* const old = before > 1 ? node.run : nullptr;
  const BlockHash first = old == nullptr ? node.only : old[0];
  if (length == 1) {
    node.only = first;
  } else {
    node.run = new BlockHash[run_capacity(length)];
    node.run[0] = first;
    if (old != nullptr) std::copy_n(old, std::min(before, length), node.run);
  }
  delete[] old;
  run_bytes_ += run_bytes(length) - run_bytes(before);
}

bool PrefixNodes::consistent() const {
  std::size_t runs = 0;
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    const PrefixNode& node = nodes_[id];
    if (node.length == 0 || node.length > kMaxRun || node.shared > node.length) return false;
    if (find(node.hashes()[0]) != id) return false;
    runs += run_bytes(node.length);
  }
  return runs == run_bytes_;
}

}  // namespace pointsman
