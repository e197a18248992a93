#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "features/prompt_models.h"
#include "features/prompt_tokens.h"

namespace pointsman {

class Exchange;

// A prompt that is too long to be turned into token ids between two events of a reactor.
struct TokenJob {
  PromptText prompt;
  std::atomic<bool> cancelled{false};  // nobody waits for it any more
  Exchange* waiter = nullptr;          // of its reactor's thread alone; null: nobody
  // Called on the pool's thread when the prompt is done; not for a cancelled one.
  std::function<void(const std::shared_ptr<TokenJob>&)> done;
};

// Threads that turn long prompts into token ids, for all reactors of a process. What waits is
// bounded in number and in bytes: a request is better placed by an estimate now than by its ids in
// a second.
class TokenPool {
 public:
  struct Options {
    std::size_t threads = 1;
    std::size_t max_jobs = 256;                    // waiting
    std::size_t max_bytes = std::size_t{4} << 20;  // of them, per thread
    std::uint64_t secret = 1;                      // of the chains
    std::uint32_t block_ids = 16;
  };

  // `models` outlives the pool.
  TokenPool(PromptModels& models, const Options& options);
  // As stop().
  ~TokenPool();

  // Any thread. False: too much waits already, and nothing was taken.
  [[nodiscard]] bool submit(std::shared_ptr<TokenJob> job);
  // Ends the threads after the prompts that they are at; what waits is dropped.
  void stop();

 private:
  void work();

  PromptModels& models_;
  const Options options_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<TokenJob>> waiting_;
  std::size_t waiting_bytes_ = 0;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace pointsman
