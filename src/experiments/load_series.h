#pragma once

#include <cstddef>
#include <vector>

#include "base/time.h"
#include "sim/run_log.h"

namespace pointsman::sim {

// The requests at each replica over time, waiting and running together, from the log of a run.
// Times count from the beginning of the run. For runs without faults: a request is at one replica
// from its arrival to the end of its answer.
class LoadSeries final : public RunLog {
 public:
  explicit LoadSeries(std::size_t replicas) : replicas_(replicas) {}

  void request_finished(const FinishedRequest& request) override;

  // Requests at the replica at `begin`, `begin` + `step`, … before `end`: a list for each replica.
  [[nodiscard]] std::vector<std::vector<double>> sampled(Duration begin, Duration end,
                                                         Duration step) const;

  // Windows of a length follow each other from the beginning of the run, as polls in step do. The
  // two figures below look at those that lie between the first measured arrival and the last, and
  // are 0 where there is none.

  // How much a replica's load moves within a window: its most less its fewest requests, over the
  // mean load of a replica. The mean over windows and replicas.
  [[nodiscard]] double swing(Duration window) const;

  // The share of a window's arrivals that went to the replica which got most of them: the mean over
  // the arrivals of all windows. 1 where all go to one replica; 1/n at best with n replicas, and
  // above it by chance, the more the fewer arrivals a window has.
  [[nodiscard]] double favourite_share(Duration window) const;

 private:
  struct Stay {
    Duration arrived;
    Duration ended;
    ReplicaIndex replica;
  };

  struct Windows {
    Duration begin{};
    std::size_t count = 0;
  };
  [[nodiscard]] Windows windows(Duration length) const;

  std::size_t replicas_;
  std::vector<Stay> stays_;
  Duration first_ = Duration::max();  // measured arrival
  Duration last_ = Duration::min();   // the same
};

}  // namespace pointsman::sim
