#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace pointsman::sim {

// Calls `task(i)` for every i in [0, count) on up to `jobs` threads (0: as many as the machine has
// cores), in order of i as threads come free, and returns when all are done. `done(n)` is called
// after each task with the number of tasks ended, by one thread at a time; it may be empty.
//
// Throws what a task threw, of several the one with the smallest i, whatever the schedule: tasks
// after it are not begun, but those before it have been and are waited for.
void for_each_parallel(std::size_t count, int jobs, const std::function<void(std::size_t)>& task,
                       const std::function<void(std::size_t)>& done = {});

// The results of `task(i)` in the order of i, whatever the schedule. A task that can fail returns a
// Result, and its caller finds the first error at the same place for every number of jobs.
template <typename Task>
[[nodiscard]] auto run_parallel(std::size_t count, int jobs, const Task& task,
                                const std::function<void(std::size_t)>& done = {}) {
  using Output = decltype(task(std::size_t{0}));
  std::vector<std::optional<Output>> places(count);
  for_each_parallel(count, jobs, [&](std::size_t i) { places[i].emplace(task(i)); }, done);
  std::vector<Output> values;
  values.reserve(count);
  for (std::optional<Output>& place : places) values.push_back(std::move(*place));
  return values;
}

}  // namespace pointsman::sim
