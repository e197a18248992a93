#include "sim/engine_config.h"

#include <array>

namespace pointsman::sim {
namespace {

constexpr std::array<EnginePreset, 6> kPresets{{
    {"8b_h100",
     "8B model on one H100",
     {.blocks = 26'000,
      .step_s = 0.003,
      .weights_s = 0.0064,
      .token_s = 32e-6,
      .context_s = 52e-9,
      .attention_ratio = 3.3e-5}},
    {"8b_a100",
     "8B model on one A100",
     {.blocks = 26'000,
      .step_s = 0.003,
      .weights_s = 0.0098,
      .token_s = 80e-6,
      .context_s = 80e-9,
      .attention_ratio = 3.3e-5}},
    {"70b_h100x4",
     "70B model on four H100",
     {.blocks = 25'700,
      .step_s = 0.0035,
      .weights_s = 0.015,
      .token_s = 79e-6,
      .context_s = 35e-9,
      .attention_ratio = 1.9e-5}},
    {"70b_a100x4",
     "70B model on four A100",
     {.blocks = 25'000,
      .step_s = 0.0035,
      .weights_s = 0.023,
      .token_s = 226e-6,
      .context_s = 54e-9,
      .attention_ratio = 1.9e-5}},
    {"ref70",
     "reference: about a 70B model in FP8 on four H100",
     {.blocks = 40'000,
      .max_num_seqs = 128,
      .step_s = 0.0035,
      .weights_s = 0.009,
      .token_s = 70e-6,
      .context_s = 30e-9,
      .attention_ratio = 1.9e-5}},
    {"set_a",
     "reference: an 8B model on one A100, optimistic token cost",
     {.blocks = 27'000,
      .step_s = 0.003,
      .weights_s = 0.010,
      .token_s = 47.8e-6,
      .context_s = 80e-9,
      .attention_ratio = 3.3e-5}},
}};

}  // namespace

std::span<const EnginePreset> engine_presets() {
  return kPresets;
}

const EnginePreset* find_engine_preset(std::string_view name) {
  for (const EnginePreset& preset : kPresets) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

}  // namespace pointsman::sim
