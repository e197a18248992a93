#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "experiments/measured_requests.h"
#include "sim/engine_config.h"

namespace pointsman::sim {

// A prompt's computation, as far as its cost goes.
struct PrefillWork {
  double tokens = 0;  // not found in the cache
  double pairs = 0;   // of query and context
};

// The time to first token of a request whose prefill met no other one.
struct PrefillSample {
  std::size_t request = 0;  // its place among the measured requests
  double ttft = 0;
  PrefillWork work;
  double others = 0;   // requests that decoded meanwhile
  double context = 0;  // and the tokens that they had read again at each step
};

// The time per further token of a request.
struct DecodeSample {
  std::size_t request = 0;
  double itl = 0;
  double steps = 0;
  double sequences = 0;               // that decoded meanwhile, this one included: their mean
  double context = 0;                 // tokens of all of them: the mean
  std::vector<PrefillWork> prefills;  // of others, in steps that this request's tokens waited for
};

struct EngineSamples {
  std::vector<PrefillSample> prefills;
  std::vector<DecodeSample> decodes;
  std::uint64_t crowded = 0;   // requests whose prefill met another one
  std::uint64_t too_long = 0;  // prompts that one step cannot take
  double most_others = 0;      // decoding beside a prefill that is used
};

// What the requests say of the engine's steps: who was there while whose tokens came. A prefill is
// used where no other one overlapped it, the prompt went into one step of `max_batched` tokens, and
// as few requests decoded beside it as leaves three hundred samples (none, else up to 16).
[[nodiscard]] EngineSamples engine_samples(std::span<const MeasuredRequest> requests,
                                           std::uint32_t max_batched);

// What a log can say of an engine.
struct EngineFit {
  EngineConfig config;    // its constants; its limits are not fitted
  double overhead_s = 0;  // of the time to first token, outside of steps
  // Whether the samples tell the constant at all; else it is the one of EngineConfig.
  bool step_told = false;  // and with it weights_s and overhead_s: apart from each other
  bool token_told = false;
  bool attention_told = false;
  bool context_told = false;
  bool sequence_told = false;

  [[nodiscard]] double predict_ttft(const PrefillSample& sample) const;
  [[nodiscard]] double predict_itl(const DecodeSample& sample) const;
};

// Fits the step's cost (sim/step_cost.h) to samples. With w = max(tw, tc · tokens):
//
//   TTFT = overhead + t0 + tseq + w + tc·ra·pairs, and for each of the others tseq and tkv·context,
//          and half a step of theirs until the request's own begins
//   ITL  = t0 + tw + tseq·sequences + tkv·context + what prefills in the same steps took beyond tw
//
// Both are linear but for the bend of w, which is searched; each needs constants that the other
// tells, so they are solved in turns. Nothing where the samples are too few.
[[nodiscard]] std::optional<EngineFit> fit_engine(std::span<const PrefillSample> prefills,
                                                  std::span<const DecodeSample> decodes);

}  // namespace pointsman::sim
