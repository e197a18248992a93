#include "sim/decode_group.h"

#include <algorithm>
#include <cassert>

namespace pointsman::sim {

void DecodeGroup::add(std::uint32_t request, std::uint32_t context, std::uint32_t left) {
  assert(in_step_ == 0 && left > 0);
  const std::uint64_t offset = context - done_;
  const std::uint64_t end = done_ + left;
  first_end_ = empty() ? end : std::min(first_end_, end);
  requests_.push_back(request);
  offsets_.push_back(offset);
  ends_.push_back(end);
  offset_sum_ += offset;
  ++residues_[offset % kBlockTokens];
}

void DecodeGroup::remove(std::size_t at) {
  const auto place = static_cast<std::ptrdiff_t>(at);
  const std::uint64_t end = ends_[at];
  offset_sum_ -= offsets_[at];
  --residues_[offsets_[at] % kBlockTokens];
  requests_.erase(requests_.begin() + place);
  offsets_.erase(offsets_.begin() + place);
  ends_.erase(ends_.begin() + place);
  if (end == first_end_ && !empty()) first_end_ = *std::ranges::min_element(ends_);
}

void DecodeGroup::clear() {
  requests_.clear();
  offsets_.clear();
  ends_.clear();
  offset_sum_ = 0;
  residues_.fill(0);
  in_step_ = 0;
}

std::size_t DecodeGroup::find(std::uint32_t request) const {
  const auto found = std::ranges::find(requests_, request);
  return static_cast<std::size_t>(found - requests_.begin());
}

std::size_t DecodeGroup::find_ending(std::size_t from) const {
  if (steps_to_first_end() != 1) return size();
  const auto found =
      std::find(ends_.begin() + static_cast<std::ptrdiff_t>(from), ends_.end(), first_end_);
  return static_cast<std::size_t>(found - ends_.begin());
}

std::uint64_t DecodeGroup::blocks_for_next_step() const {
  // Those whose context is a whole number of blocks.
  return residues_[(0 - done_) % kBlockTokens];
}

std::uint64_t DecodeGroup::blocks_for_further_steps(std::uint32_t count) const {
  std::uint64_t blocks = 0;
  for (std::uint64_t residue = 0; residue < kBlockTokens; ++residue) {
    const std::uint64_t in_block = (residue + done_) % kBlockTokens;
    blocks += residues_[residue] * ((in_block + count) / kBlockTokens);
  }
  return blocks;
}

}  // namespace pointsman::sim
