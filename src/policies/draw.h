#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/context.h"
#include "core/replica.h"
#include "core/stage.h"

namespace pointsman {

// Draws distinct replicas by chance, each with a probability in proportion to its weight among
// those not drawn yet, and from the unsaturated ones while there are any.
//
// Constant time: candidates are drawn evenly and refused if they are too light, drawn already or
// saturated. Only after too many refusals, that is where few candidates are unsaturated or their
// weights are far apart, all candidates are looked at.
class Draw {
 public:
  enum class From : std::uint8_t { kUnsaturated, kAll };

  // Up to `count` replicas, fewer only where there are no more; empty where all candidates are
  // saturated (and `from` is kUnsaturated). Valid until the next call.
  std::span<const ReplicaIndex> operator()(Context& context,
                                           std::span<const ReplicaIndex> candidates,
                                           std::size_t count, From from);

  // Narrows the candidates to up to `count` unsaturated ones. Where all are saturated all stay, and
  // the reason says so.
  void narrow(Context& context, Candidates& candidates, std::size_t count);

 private:
  bool take(Context& context, ReplicaIndex replica, From from);
  void draw_from_scan(Context& context, std::span<const ReplicaIndex> candidates, std::size_t count,
                      From from);
  void refresh_bound(const Context& context, std::span<const ReplicaIndex> candidates);

  std::vector<ReplicaIndex> drawn_;
  std::vector<ReplicaIndex> rest_;  // scratch of the scan
  // At least the weight of every candidate met so far; looked up anew now and then, so that a heavy
  // replica that left does not go on making the others rare.
  double bound_ = 0;
  std::size_t until_refresh_ = 0;
};

}  // namespace pointsman
