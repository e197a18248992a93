#include "signals/engine_metrics.h"

#include <cmath>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

namespace pointsman {
namespace {

std::string file(const std::string& name) {
  std::ifstream stream(std::string(POINTSMAN_TEST_DATA "/signals/") + name, std::ios::binary);
  EXPECT_TRUE(stream.good()) << name;
  return {std::istreambuf_iterator<char>(stream), {}};
}

EngineReading read(const std::string& page) {
  static const EngineMetrics metrics;
  return metrics.read(page);
}

// Case D21.
TEST(EngineMetrics, OldAndNewNamesGiveTheSameReading) {
  for (const char* name : {"old-names.prom", "new-names.prom"}) {
    const EngineReading reading = read(file(name));
    EXPECT_EQ(reading.engine, "vllm") << name;
    EXPECT_EQ(reading.running, 5) << name;
    EXPECT_EQ(reading.waiting, 2) << name;
    EXPECT_FLOAT_EQ(reading.kv_usage, 0.41F) << name;
    EXPECT_EQ(reading.prefix_queries, 900) << name;
    EXPECT_EQ(reading.prefix_hits, 600) << name;
    EXPECT_FLOAT_EQ(reading.prefix_hit_rate, 600.0F / 900.0F) << name;
  }
}

// Case D22: sums, and the largest KV usage.
TEST(EngineMetrics, SeveralRanksAreSummedAndTheFullestCounts) {
  const EngineReading reading = read(file("two-engines.prom"));
  EXPECT_EQ(reading.running, 9);
  EXPECT_EQ(reading.waiting, 7);
  EXPECT_FLOAT_EQ(reading.kv_usage, 0.92F);
}

TEST(EngineMetrics, ReadsAVllmPageAsCaptured) {
  const EngineReading reading = read(file("vllm-under-load.prom"));
  EXPECT_EQ(reading.engine, "vllm");
  EXPECT_EQ(reading.running, 8);
  EXPECT_EQ(reading.waiting, 4);
  EXPECT_FLOAT_EQ(reading.kv_usage, 64.0F / 127.0F);
  EXPECT_EQ(reading.prefix_queries, 12681);
  EXPECT_EQ(reading.prefix_hits, 1280);
  EXPECT_EQ(reading.block_tokens, 32U);
  EXPECT_EQ(reading.kv_capacity_tokens, 4096U);
  EXPECT_EQ(reading.awake, true);
  EXPECT_TRUE(std::isnan(reading.queued_tokens));
  EXPECT_EQ(reading.source[static_cast<std::size_t>(EngineSignal::kKvUsage)],
            "vllm:kv_cache_usage_perc");
}

TEST(EngineMetrics, ReadsALlamaCppPageAsCaptured) {
  const EngineReading reading = read(file("llama-cpp-under-load.prom"));
  EXPECT_EQ(reading.engine, "llama.cpp");
  EXPECT_EQ(reading.running, 4);
  EXPECT_EQ(reading.waiting, 3);
  EXPECT_TRUE(std::isnan(reading.kv_usage));
  // Its prompt_tokens_total leaves the cached ones out.
  EXPECT_EQ(reading.prefix_hits, 722);
  EXPECT_EQ(reading.prefix_queries, 722 + 2438);
  EXPECT_FLOAT_EQ(reading.prefix_hit_rate, 722.0F / 3160.0F);
  EXPECT_EQ(reading.kv_capacity_tokens, 0U);
  EXPECT_EQ(reading.awake, std::nullopt);
}

TEST(EngineMetrics, ReadsTheOtherEnginesByTheirDocumentedNames) {
  const EngineReading sglang = read(
      "sglang:num_running_reqs{model_name=\"m\",tp_rank=\"0\"} 3\n"
      "sglang:num_queue_reqs{model_name=\"m\"} 1\n"
      "sglang:token_usage{model_name=\"m\"} 0.28\n"
      "sglang:cache_hit_rate{model_name=\"m\"} 0.5\n"
      "sglang:cache_config_info{page_size=\"64\",num_pages=\"1000\"} 1\n");
  EXPECT_EQ(sglang.engine, "sglang");
  EXPECT_EQ(sglang.running, 3);
  EXPECT_EQ(sglang.waiting, 1);
  EXPECT_FLOAT_EQ(sglang.kv_usage, 0.28F);
  EXPECT_FLOAT_EQ(sglang.prefix_hit_rate, 0.5F);
  EXPECT_EQ(sglang.block_tokens, 64U);
  EXPECT_EQ(sglang.kv_capacity_tokens, 64'000U);

  const EngineReading newer_sglang = read(
      "sglang:num_running_reqs 3\nsglang:page_size 16\nsglang:num_pages 10\n"
      "sglang:cache_config_info{page_size=\"64\",num_pages=\"1000\"} 1\n");
  EXPECT_EQ(newer_sglang.block_tokens, 16U);
  EXPECT_EQ(newer_sglang.kv_capacity_tokens, 160U);

  const EngineReading trtllm = read(
      "trtllm_num_requests_running 7\ntrtllm_num_requests_waiting 2\n"
      "trtllm_kv_cache_utilization 0.9\ntrtllm_kv_cache_tokens_per_block 32\n"
      "trtllm_kv_cache_max_blocks 100\n");
  EXPECT_EQ(trtllm.engine, "trtllm");
  EXPECT_EQ(trtllm.running, 7);
  EXPECT_EQ(trtllm.waiting, 2);
  EXPECT_FLOAT_EQ(trtllm.kv_usage, 0.9F);
  EXPECT_EQ(trtllm.kv_capacity_tokens, 3200U);

  const EngineReading triton = read(
      "nv_trt_llm_request_metrics{model=\"m\",request_type=\"waiting\",version=\"1\"} 4\n"
      "nv_trt_llm_request_metrics{model=\"m\",request_type=\"scheduled\",version=\"1\"} 6\n"
      "nv_trt_llm_request_metrics{model=\"m\",request_type=\"max\",version=\"1\"} 512\n"
      "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} 0.25\n"
      "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\"} 64\n"
      "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"} 10\n"
      "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\"} 3\n");
  EXPECT_EQ(triton.engine, "triton");
  EXPECT_EQ(triton.waiting, 4);
  EXPECT_EQ(triton.running, 6);
  EXPECT_FLOAT_EQ(triton.kv_usage, 0.25F);
  EXPECT_EQ(triton.kv_capacity_tokens, 640U);

  const EngineReading lmdeploy = read(
      "lmdeploy:num_requests_running 2\nlmdeploy:num_requests_waiting 0\n"
      "lmdeploy:gpu_cache_usage_perc 0.1\n");
  EXPECT_EQ(lmdeploy.engine, "lmdeploy");
  EXPECT_EQ(lmdeploy.waiting, 0);

  const EngineReading tgi = read("tgi_queue_size 5\ntgi_batch_current_size 11\n");
  EXPECT_EQ(tgi.engine, "tgi");
  EXPECT_EQ(tgi.waiting, 5);
  EXPECT_EQ(tgi.running, 11);
  EXPECT_TRUE(std::isnan(tgi.kv_usage));
}

TEST(EngineMetrics, WhereOldAndNewNameAreBothThereTheNewOneCounts) {
  const EngineReading reading =
      read("vllm:gpu_cache_usage_perc 0.9\nvllm:kv_cache_usage_perc 0.4\n");
  EXPECT_FLOAT_EQ(reading.kv_usage, 0.4F);
}

TEST(EngineMetrics, TensorParallelRanksAreNotCountedTwice) {
  const EngineReading reading = read(
      "sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"0\"} 3\n"
      "sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"1\"} 3\n"
      "sglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"0\"} 4\n"
      "sglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"1\"} 4\n");
  EXPECT_EQ(reading.running, 7);
}

TEST(EngineMetrics, CapacityIsSummedOverRanksAndComputedWhereItIsNotSaid) {
  EXPECT_EQ(
      read("vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"100\"} 1\n"
           "vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"100\"} 1\n")
          .kv_capacity_tokens,
      3200U);
  const EngineReading none =
      read("vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1\n");
  EXPECT_EQ(none.kv_capacity_tokens, 0U);
  EXPECT_EQ(none.block_tokens, 16U);
}

TEST(EngineMetrics, TheCacheOfVllmIsAsItsConfigurationSays) {
  const EngineReading on = read(
      "vllm:cache_config_info{enable_prefix_caching=\"True\",engine=\"0\",num_gpu_blocks=\"100\"} "
      "1\n"
      "vllm:cache_config_info{enable_prefix_caching=\"True\",engine=\"1\",num_gpu_blocks=\"100\"} "
      "1\n");
  EXPECT_EQ(on.kv_blocks, 200U);
  EXPECT_EQ(on.prefix_caching, true);
  const EngineReading off =
      read("vllm:cache_config_info{enable_prefix_caching=\"False\",num_gpu_blocks=\"None\"} 1\n");
  EXPECT_EQ(off.kv_blocks, 0U);
  EXPECT_EQ(off.prefix_caching, false);
  EXPECT_FALSE(read("vllm:num_requests_running 1\n").prefix_caching.has_value());
  EXPECT_EQ(read("sglang:num_pages 512\nsglang:page_size 64\n").kv_blocks, 512U);
}

TEST(EngineMetrics, ASleepingRankMakesTheReplicaAsleep) {
  EXPECT_EQ(read("vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} 0\n"
                 "vllm:engine_sleep_state{engine=\"0\",sleep_state=\"weights_offloaded\"} 1\n")
                .awake,
            false);
  EXPECT_EQ(read("vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} 1\n"
                 "vllm:engine_sleep_state{engine=\"1\",sleep_state=\"awake\"} 0\n")
                .awake,
            false);
}

// Case D24 and its neighbours: what is absent or no number is unknown, never zero.
TEST(EngineMetrics, AbsentAndUnusableValuesAreUnknown) {
  const EngineReading none = read("some_other_program_queue 7\n");
  EXPECT_EQ(none.engine, "");
  EXPECT_FALSE(none.any_load());
  EXPECT_TRUE(std::isnan(none.waiting));
  const EngineReading unusable = read(
      "vllm:num_requests_waiting +Inf\nvllm:num_requests_running NaN\n"
      "vllm:kv_cache_usage_perc 41\nvllm:gpu_prefix_cache_hit_rate -1\n");
  EXPECT_FALSE(unusable.any_load());
  EXPECT_TRUE(std::isnan(unusable.prefix_hit_rate));
  const EngineReading one_of_two = read(
      "vllm:num_requests_running{engine=\"0\"} NaN\nvllm:num_requests_running{engine=\"1\"} 2\n");
  EXPECT_EQ(one_of_two.running, 2);
}

TEST(EngineMetrics, AKnownNameWithAValueThatCannotBeIsTold) {
  const EngineReading percent = read("vllm:num_requests_running 1\nvllm:kv_cache_usage_perc 41\n");
  EXPECT_EQ(percent.implausible, "vllm:kv_cache_usage_perc");
  EXPECT_EQ(percent.implausible_value, 41);
  const EngineReading negative = read("sglang:token_usage -0.5\n");
  EXPECT_EQ(negative.implausible, "sglang:token_usage");
  EXPECT_EQ(negative.implausible_value, -0.5);
  EXPECT_EQ(read("vllm:kv_cache_usage_perc NaN\n").implausible, "") << "says that it is unknown";
  EXPECT_EQ(read("vllm:kv_cache_usage_perc 0.41\n").implausible, "");
  EXPECT_EQ(read("vllm:kv_cache_usage_perc 0.4\nvllm:gpu_cache_usage_perc 41\n").implausible, "")
      << "the signal is known";
}

TEST(EngineMetrics, NamesOfOnesOwnGoFirst) {
  const EngineMetrics metrics({{EngineSignal::kWaiting, "my_queue{kind=\"slow\", zone = a}"},
                               {EngineSignal::kQueuedTokens, "my_tokens"},
                               {EngineSignal::kPrefixHitRate, "my_rate"}});
  const EngineReading reading = metrics.read(
      "my_queue{zone=\"a\",kind=\"slow\"} 8\nmy_queue{zone=\"a\",kind=\"fast\"} 99\n"
      "my_queue{kind=\"slow\"} 99\nmy_tokens 1234\nmy_rate 0.25\n"
      "vllm:num_requests_waiting 2\nvllm:num_requests_running 1\n"
      "vllm:prefix_cache_queries_total 10\nvllm:prefix_cache_hits_total 10\n");
  EXPECT_EQ(reading.engine, "vllm");
  EXPECT_EQ(reading.waiting, 8);
  EXPECT_EQ(reading.running, 1);
  EXPECT_EQ(reading.queued_tokens, 1234);
  EXPECT_FLOAT_EQ(reading.prefix_hit_rate, 0.25F);
  EXPECT_EQ(reading.source[static_cast<std::size_t>(EngineSignal::kWaiting)], "my_queue");
}

TEST(EngineMetrics, SelectorsAreCheckedWithAReason) {
  for (const char* good : {"a", "a:b_c", "a{}", "a{b=c}", "a{b=\"c,d\",e=f}", " a { b = c } "}) {
    EXPECT_TRUE(EngineMetrics::check(good).ok()) << good;
  }
  for (const char* bad : {"", "1a", "a b", "a{b}", "a{b=\"c}", "a{b=c", "a{=c}", "a{b=\"c\"d}"}) {
    EXPECT_FALSE(EngineMetrics::check(bad).ok()) << bad;
  }
}

TEST(EngineMetrics, EverySignalHasANameThatIsFoundAgain) {
  for (std::size_t i = 0; i < kEngineSignals; ++i) {
    const auto signal = static_cast<EngineSignal>(i);
    EXPECT_EQ(engine_signal(name_of(signal)), signal);
  }
  EXPECT_EQ(engine_signal("no_such"), std::nullopt);
}

}  // namespace
}  // namespace pointsman
