#include "signals/prometheus_text.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pointsman {
namespace {

using ::testing::ElementsAre;

std::string file(const std::string& name) {
  std::ifstream stream(std::string(POINTSMAN_TEST_DATA "/signals/") + name, std::ios::binary);
  EXPECT_TRUE(stream.good()) << name;
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<PrometheusSample> all(std::string_view page, std::size_t* bad = nullptr) {
  std::vector<PrometheusSample> samples;
  const std::size_t count = scan_prometheus(
      page, [](std::string_view) { return true; },
      [&](const PrometheusSample& sample) { samples.push_back(sample); });
  if (bad != nullptr) *bad = count;
  return samples;
}

// Case D23: the expected values are those of exposition.expected.json beside the page.
TEST(PrometheusText, ReadsTheFormatAsItIsWrittenDown) {
  const std::string page = file("exposition.prom");
  std::size_t bad = 0;
  const std::vector<PrometheusSample> samples = all(page, &bad);
  EXPECT_EQ(bad, 0U);
  std::vector<std::string> names;
  for (const PrometheusSample& sample : samples) names.emplace_back(sample.name);
  ASSERT_THAT(names, ElementsAre("queue_depth", "bare_value", "with_time", "never_seen", "limit",
                                 "floor", "lat_bucket", "lat_bucket", "spaced"));
  EXPECT_EQ(samples[0].value, 15.0);
  EXPECT_EQ(samples[0].label("path"), "C:\\models\\a");
  EXPECT_EQ(samples[0].label("note"), "say \"hi\"\nthere");
  EXPECT_TRUE(samples[0].label_is("note", "say \"hi\"\nthere"));
  EXPECT_FALSE(samples[0].label_is("note", "say \"hi\"\nthere!"));
  EXPECT_FALSE(samples[0].label_is("note", "say"));
  EXPECT_EQ(samples[0].label("absent"), std::nullopt);
  EXPECT_EQ(samples[1].value, 3);
  EXPECT_EQ(samples[2].value, 4);
  EXPECT_TRUE(std::isnan(samples[3].value));
  EXPECT_EQ(samples[4].value, HUGE_VAL);
  EXPECT_EQ(samples[5].value, -HUGE_VAL);
  EXPECT_EQ(samples[6].label("le"), "0.5");
  EXPECT_EQ(samples[6].value, 8);
  EXPECT_EQ(samples[7].label("le"), "+Inf");
  EXPECT_EQ(samples[7].value, 9);
  EXPECT_EQ(samples[8].label("a"), "b");
  EXPECT_EQ(samples[8].value, 6);
}

TEST(PrometheusText, ABadLineIsSkippedAndCountedAlone) {
  for (const char* line : {"x",
                           "x{",
                           "x{} ",
                           "x{a} 1",
                           "x{a=} 1",
                           "x{a=b} 1",
                           "x{a=\"b} 1",
                           "x{a=\"b\\\"} 1",
                           "x{a=\"b\" c=\"d\"} 1",
                           "x{,a=\"b\"} 1",
                           "x{a=\"b\"}} 1",
                           "x 1 2 3",
                           "x 1 later",
                           "x one",
                           "x ++1",
                           "x 0x10",
                           "x 1e",
                           "x{a:b=\"c\"} 1",
                           "x 1e999",
                           "x-y 1"}) {
    const std::string page = "before 1\n" + std::string(line) + "\nafter 2\n";
    std::size_t bad = 0;
    const std::vector<PrometheusSample> samples = all(page, &bad);
    EXPECT_EQ(samples.size(), 2U) << line;
    EXPECT_EQ(bad, 1U) << line;
  }
}

TEST(PrometheusText, AcceptsWhatProducersReallySend) {
  struct Row {
    const char* line;
    double value;
  };
  for (const Row& row :
       {Row{"x{} 1", 1}, Row{"x{a=\"}\"} 2", 2}, Row{"x{a=\"b\",} 3\r", 3}, Row{"x\t4", 4},
        Row{"x +5", 5}, Row{"x -6.5e-1", -0.65}, Row{"x{a=\"#\"} 7 1700000000.123", 7},
        Row{"x 8 -1", 8}, Row{"x_bucket{le=\"1\"} 9 # {trace=\"t\"} 0.5 1700000000", 9},
        Row{"x{a=\"\\q\"} 10", 10}, Row{"x{_a1=\"\"}11", 11}}) {
    const std::vector<PrometheusSample> samples = all(row.line);
    ASSERT_EQ(samples.size(), 1U) << row.line;
    EXPECT_EQ(samples[0].value, row.value) << row.line;
  }
}

TEST(PrometheusText, OnlyWantedLinesAreRead) {
  const std::string page = "a 1\nb{broken 2\na{x=\"y\"} 3\nab 4\n";
  std::vector<double> values;
  const std::size_t bad = scan_prometheus(
      page, [](std::string_view name) { return name == "a"; },
      [&](const PrometheusSample& sample) { values.push_back(sample.value); });
  EXPECT_EQ(bad, 0U);
  EXPECT_THAT(values, ElementsAre(1, 3));
}

TEST(PrometheusText, ReadsEveryLineOfCapturedPages) {
  for (const char* name : {"vllm-under-load.prom", "llama-cpp-under-load.prom"}) {
    const std::string page = file(name);
    std::size_t bad = 0;
    const std::vector<PrometheusSample> samples = all(page, &bad);
    EXPECT_EQ(bad, 0U) << name;
    std::size_t expected = 0;
    for (std::size_t at = 0; at < page.size(); at = page.find('\n', at) + 1) {
      if (page[at] != '#' && page[at] != '\n') ++expected;
      if (page.find('\n', at) == std::string::npos) break;
    }
    EXPECT_EQ(samples.size(), expected) << name;
  }
}

}  // namespace
}  // namespace pointsman
