#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>

#include "core/options.h"
#include "core/stage.h"
#include "policies/draw.h"

namespace pointsman {

// Names one candidate: the home of the request's session by rendezvous hashing, so that every
// router names the same and only a leaving replica's own sessions move. A request without a session
// key goes by the beginning of its prompt.
//
// Release valve: while the home is saturated, others are drawn in its place. The cold cache is
// accepted; the session comes home afterwards, since nothing is remembered.
class SessionHome final : public Sampler {
 public:
  static constexpr std::string_view kType = "session_home";
  static constexpr std::string_view kSummary =
      "the session's home by rendezvous hashing; others while the home is saturated (release "
      "valve)";

  struct Options {
    std::uint32_t choices = 2;

    static constexpr auto fields() {
      return std::tuple{
          Field{"choices", &Options::choices, 1U, 16U,
                "replicas drawn by chance and compared when the valve opens"},
      };
    }
  };

  explicit SessionHome(const Options& options) : options_(options) {}

  // The blocks tell how much of each prompt is cached at home, and so how much work waits there:
  // that is what opens the valve.
  [[nodiscard]] Needs needs() const override { return {.blocks = true, .session = true}; }
  void sample(Context& context, Candidates& candidates) override;

 private:
  Options options_;
  Draw draw_;
};

}  // namespace pointsman
