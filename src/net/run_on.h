#pragma once

#include <future>
#include <utility>

#include "net/reactor.h"

namespace pointsman {

// Runs `task` on the reactor's thread, waits for it, and returns what it returns. Never to be
// called on that thread, nor once the reactor has stopped.
template <typename Task>
auto run_on(Reactor& reactor, Task&& task) -> decltype(task()) {
  std::packaged_task<decltype(task())()> packaged(std::forward<Task>(task));
  auto result = packaged.get_future();
  reactor.post([&packaged] { packaged(); });
  return result.get();
}

}  // namespace pointsman
