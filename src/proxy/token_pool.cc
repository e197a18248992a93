#include "proxy/token_pool.h"

#include <utility>

namespace pointsman {
namespace {

std::size_t bytes_of(const PromptText& prompt) {
  std::size_t bytes = prompt.messages.size() + prompt.tools.size() + prompt.variables.size();
  for (const std::string& text : prompt.texts) bytes += text.size();
  return bytes;
}

}  // namespace

TokenPool::TokenPool(PromptModels& models, const Options& options)
    : models_(models), options_(options) {
  for (std::size_t i = 0; i < options.threads; ++i) threads_.emplace_back([this] { work(); });
}

TokenPool::~TokenPool() {
  stop();
}

bool TokenPool::submit(std::shared_ptr<TokenJob> job) {
  const std::size_t bytes = bytes_of(job->prompt);
  {
    const std::lock_guard lock(mutex_);
    const std::size_t most = options_.max_bytes * threads_.size();
    // One prompt may always wait, however long it is.
    const bool full = waiting_.size() >= options_.max_jobs ||
                      (!waiting_.empty() && waiting_bytes_ + bytes > most);
    if (stopped_ || full) return false;
    waiting_bytes_ += bytes;
    waiting_.push_back(std::move(job));
  }
  wake_.notify_one();
  return true;
}

void TokenPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    waiting_.clear();
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void TokenPool::work() {
  PromptTokens tokens(models_.cache(), options_.secret, options_.block_ids);
  while (true) {
    std::shared_ptr<TokenJob> job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
      if (stopped_) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
      waiting_bytes_ -= bytes_of(job->prompt);
    }
    if (job->cancelled.load(std::memory_order_relaxed)) continue;
    tokens.run(job->prompt);
    job->done(job);
  }
}

}  // namespace pointsman
