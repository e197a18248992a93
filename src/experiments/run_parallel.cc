#include "experiments/run_parallel.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

namespace pointsman::sim {

void for_each_parallel(std::size_t count, int jobs, const std::function<void(std::size_t)>& task,
                       const std::function<void(std::size_t)>& done) {
  std::mutex mutex;
  std::size_t next = 0;
  std::size_t ended = 0;
  std::size_t first_thrown = count;
  std::exception_ptr thrown;

  const auto work = [&] {
    std::unique_lock lock(mutex);
    while (next < count && thrown == nullptr) {
      const std::size_t i = next++;
      lock.unlock();
      std::exception_ptr caught;
      try {
        task(i);
      } catch (...) {
        caught = std::current_exception();
      }
      lock.lock();
      if (caught != nullptr) {
        if (i < first_thrown) {
          first_thrown = i;
          thrown = caught;
        }
        continue;
      }
      ++ended;
      if (done) done(ended);
    }
  };

  const int wanted = jobs > 0 ? jobs : static_cast<int>(std::thread::hardware_concurrency());
  // The caller works too, so that one job needs no thread.
  const std::size_t helping =
      std::min(static_cast<std::size_t>(std::max(1, wanted)), std::max<std::size_t>(count, 1)) - 1;
  {
    std::vector<std::jthread> threads;
    threads.reserve(helping);
    for (std::size_t i = 0; i < helping; ++i) threads.emplace_back(work);
    work();
  }
  if (thrown != nullptr) std::rethrow_exception(thrown);
}

}  // namespace pointsman::sim
