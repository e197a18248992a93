#include "replica/metrics_page.h"

#include <algorithm>
#include <cstdio>

#include "base/json_text.h"

namespace pointsman {
namespace {

// As Python prints a float: with a point, the shortest digits that matter here.
std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.12g", value);
  std::string out = text;
  if (out.find_first_of(".en") == std::string::npos) out.append(".0");
  return out;
}

// The exposition format escapes label values as JSON does, in the cases that occur here.
std::string model_label(std::string_view model) {
  return "model_name=" + json_string(model);
}

class Page {
 public:
  explicit Page(std::string_view model) : labels_(R"(engine="0",)" + model_label(model)) {}

  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    out_.append("# HELP ").append(name).append(" ").append(help).append("\n");
    out_.append("# TYPE ").append(name).append(" ").append(type).append("\n");
  }
  void sample(double value, std::string_view more_labels = {}) {
    out_.append(name_).append("{").append(labels_);
    if (!more_labels.empty()) out_.append(",").append(more_labels);
    out_.append("} ").append(number(value)).append("\n");
  }
  void gauge(std::string_view name, std::string_view help, double value) {
    family(name, "gauge", help);
    sample(value);
  }
  void counter(std::string_view name, std::string_view help, std::uint64_t value) {
    family(name, "counter", help);
    sample(static_cast<double>(value));
  }
  std::string& text() { return out_; }

 private:
  std::string labels_;
  std::string name_;
  std::string out_;
};

}  // namespace

void TimeHistogram::add(double seconds) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), seconds) - bounds_.begin();
  ++counts_[static_cast<std::size_t>(at)];
  sum_ += seconds;
}

void TimeHistogram::append(std::string& out, std::string_view name, std::string_view help,
                           std::string_view model) const {
  const std::string label = model_label(model);
  out.append("# HELP ").append(name).append(" ").append(help).append("\n# TYPE ");
  out.append(name).append(" histogram\n");
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    out.append(name).append(R"(_bucket{engine="0",le=")");
    out.append(i < bounds_.size() ? number(bounds_[i]) : "+Inf");
    out.append("\",").append(label).append("} ");
    out.append(number(static_cast<double>(total))).append("\n");
  }
  out.append(name).append(R"(_count{engine="0",)").append(label).append("} ");
  out.append(number(static_cast<double>(total))).append("\n");
  out.append(name).append(R"(_sum{engine="0",)").append(label).append("} ");
  out.append(number(sum_)).append("\n");
}

std::string metrics_page(std::string_view model, const sim::EngineConfig& config,
                         const sim::EngineState& state, const ReplicaCounts& counts, bool awake) {
  Page page(model);
  page.gauge("vllm:num_requests_running", "Number of requests in model execution batches.",
             static_cast<double>(state.running));
  page.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.",
             static_cast<double>(state.waiting));
  page.family("vllm:num_requests_waiting_by_reason", "gauge",
              "Number of waiting requests by reason.");
  page.sample(static_cast<double>(state.waiting), R"(reason="capacity")");
  page.sample(0, R"(reason="deferred")");
  page.family("vllm:engine_sleep_state", "gauge",
              "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is "
              "awake.");
  page.sample(awake ? 1 : 0, R"(sleep_state="awake")");
  page.sample(awake ? 0 : 1, R"(sleep_state="weights_offloaded")");
  page.sample(0, R"(sleep_state="discard_all")");
  page.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.",
             state.kv_usage);
  page.counter("vllm:prefix_cache_queries_total",
               "Prefix cache queries, in terms of number of queried tokens.", state.prefix_queries);
  page.counter("vllm:prefix_cache_hits_total",
               "Prefix cache hits, in terms of number of cached tokens.", state.prefix_hits);
  page.counter("vllm:num_preemptions_total", "Cumulative number of preemption from the engine.",
               state.preemptions);
  page.counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.",
               counts.prompt_tokens);
  page.counter("vllm:prompt_tokens_cached_total",
               "Number of cached prompt tokens (local + external).", counts.cached_tokens);
  page.counter("vllm:generation_tokens_total", "Number of generation tokens processed.",
               state.generated_tokens);
  page.family("vllm:request_success_total", "counter", "Count of successfully processed requests.");
  page.sample(static_cast<double>(counts.finished_stop), R"(finished_reason="stop")");
  page.sample(static_cast<double>(counts.finished_length), R"(finished_reason="length")");
  page.family("vllm:admission_rejections_total", "counter",
              "Number of admission attempts rejected by a queue limit, by reason.");
  page.sample(static_cast<double>(counts.rejected), R"(reason="max_num_queued_reqs")");
  page.family("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig");
  const std::string blocks = std::to_string(config.blocks);
  page.sample(1, R"(block_size=")" + std::to_string(sim::kBlockTokens) +
                     R"(",enable_prefix_caching=")" + (config.prefix_caching ? "True" : "False") +
                     R"(",kv_cache_size_tokens=")" + std::to_string(config.capacity_tokens()) +
                     R"(",num_gpu_blocks=")" + blocks + R"(",num_gpu_blocks_override="None")");
  counts.ttft.append(page.text(), "vllm:time_to_first_token_seconds",
                     "Histogram of time to first token in seconds.", model);
  counts.itl.append(page.text(), "vllm:inter_token_latency_seconds",
                    "Histogram of inter-token latency in seconds.", model);
  counts.e2e.append(page.text(), "vllm:e2e_request_latency_seconds",
                    "Histogram of e2e request latency in seconds.", model);
  return std::move(page.text());
}

}  // namespace pointsman
