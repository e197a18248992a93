#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pointsman {

// What the answers' usage has taught about each model: how many bytes of prompt text make a token,
// and how long answers are. For prompts that are not turned into ids, and for answers that nobody
// has seen yet.
//
// Bytes per token are a ratio of two decayed sums, so that long prompts, where an error costs most,
// weigh most. The length of answers is a histogram by half powers of two, of which old samples
// fade. An answer that ends at its client's limit only says that it would have been at least so
// long; such samples enter as censored ones by the product-limit estimator (E. L. Kaplan, P. Meier,
// Nonparametric estimation from incomplete observations, 1958), so that many small limits do not
// make answers without a limit look short.
//
// Names of models come from requests that a replica has answered. Whoever reaches a replica that
// takes any name could invent them, so only kModels are told apart; all further ones share a place.
//
// Thread-safe without locks: all state is in relaxed atomics. Where two threads learn at the same
// moment one sample may count less, which no mean notices. Reading takes some 10 ns.
class ModelEstimates {
 public:
  static constexpr std::size_t kModels = 64;
  // What a ratio may be; the configuration's own range.
  static constexpr double kLeastBytesPerToken = 0.5;
  static constexpr double kMostBytesPerToken = 64;

  // `bytes_per_token`: taken until something has been learnt.
  explicit ModelEstimates(double bytes_per_token);

  [[nodiscard]] double bytes_per_token(std::string_view model) const;
  // The mean of min(length of an answer, limit), in tokens. limit 0: none was given. 0: nothing has
  // been learnt.
  [[nodiscard]] std::uint32_t expected_output(std::string_view model, std::uint32_t limit) const;

  // A prompt of so many bytes of text had so many tokens.
  void learn_prompt(std::string_view model, std::uint64_t bytes, std::uint32_t tokens);
  // An answer had so many tokens; its limit as for expected_output().
  void learn_output(std::string_view model, std::uint32_t tokens, std::uint32_t limit);

 private:
  static constexpr std::size_t kBuckets = 41;  // [2^(k/2), 2^((k+1)/2)); the last: all above 2^20

  struct Sums {
    float bytes;
    float tokens;
  };
  static_assert(std::atomic<Sums>::is_always_lock_free);

  struct Entry {
    std::atomic<std::uint64_t> key{0};  // hash of the name; 0: free
    std::atomic<Sums> prompt{Sums{}};
    std::atomic<std::uint32_t> samples{0};  // of answers
    std::array<std::atomic<std::uint32_t>, kBuckets> ended{};
    std::array<std::atomic<std::uint32_t>, kBuckets> cut{};  // by their limits
    // Mean of min(length, 2^(k/2)); made anew from the histogram after some samples.
    std::array<std::atomic<float>, kBuckets + 1> mean{};
  };

  [[nodiscard]] const Entry& find(std::string_view model) const;
  [[nodiscard]] Entry& make(std::string_view model);
  static void settle(Entry& entry);
  static void fade(Entry& entry);

  const double bytes_per_token_;
  std::array<Entry, kModels + 1> entries_;  // open addressing; the last is for all further models
};

}  // namespace pointsman
