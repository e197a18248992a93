#include "experiments/report.h"

#include <limits>

#include <gtest/gtest.h>

namespace pointsman::sim {
namespace {

Report sample() {
  Report report;
  report.experiment = "theory";
  report.title = "Queues";
  report.seeds = 3;
  report.scenario.set("queues", 4'000).set("laws", Record().set("service", "exponential"));
  report.rows.push_back(Record()
                            .set("policy", "a,\"b\"")
                            .set("mean_s", Estimate{0.1, 0.05, 0.2})
                            .set("closed", true)
                            .set("series", number_list({1, 2.5})));
  report.rows.push_back(
      Record().set("policy", "c").set("extra", std::numeric_limits<double>::quiet_NaN()));
  report.tables = {{"", {{"policy", "policy"}, {"mean_s", "mean, s", 2}}}};
  report.notes = {"A note."};
  return report;
}

TEST(Report, JsonKeepsTheOrderOfKeysAndOneRowALine) {
  EXPECT_EQ(report_json(sample()),
            "{\"experiment\":\"theory\",\"title\":\"Queues\",\"seeds\":3,\"first_seed\":1,\n"
            "\"scenario\":{\"queues\":4000,\"laws\":{\"service\":\"exponential\"}},\n"
            "\"rows\":[\n"
            "{\"policy\":\"a,\\\"b\\\"\",\"mean_s\":0.1,\"mean_s_ci95\":[0.05,0.2],\"closed\":true,"
            "\"series\":[1,2.5]},\n"
            "{\"policy\":\"c\",\"extra\":null}\n"
            "],\n\"definitions\":{\"policy\":\"the policy's preset\"},\n\"tables\":[\n"
            "{\"title\":\"\",\"first\":0,\"rows\":2,\"columns\":["
            "{\"key\":\"policy\",\"title\":\"policy\",\"digits\":0,\"scale\":1},"
            "{\"key\":\"mean_s\",\"title\":\"mean, s\",\"digits\":2,\"scale\":1}]}\n"
            "],\n\"notes\":[\"A note.\"]}\n");
}

TEST(Report, CsvHasTheUnionOfColumnsAndQuotes) {
  EXPECT_EQ(report_csv(sample()),
            "policy,mean_s,mean_s_ci95_low,mean_s_ci95_high,closed,extra\n"
            "\"a,\"\"b\"\"\",0.1,0.05,0.2,true,\n"
            "c,,,,,\n");
}

TEST(Report, CsvHasBothColumnsOfAnIntervalThatIsNotKnown) {
  Report report;
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  report.rows.push_back(Record().set("x", Estimate{2, kUnknown, kUnknown}).set_unknown("y"));
  EXPECT_EQ(report_csv(report), "x,x_ci95_low,x_ci95_high,y,y_ci95_low,y_ci95_high\n2,,,,,\n");
}

TEST(Report, ControlCharactersOfNamesDoNotReachTheTerminal) {
  Report report;
  report.title = "a\x1b[2Jb";
  report.rows.push_back(Record().set("arm", "one\ntwo\x07").set("name", "ä\xC2\x9B"));
  report.tables = {{"", {{"arm", "arm"}, {"name", "name"}}}};
  report.notes = {"x\ty"};
  EXPECT_EQ(report_text(report),
            "a\\x1b[2Jb\n\n"
            "arm           name\n"
            "one\\ntwo\\x07  ä\\x9b\n"
            "\nx\\ty\n");
}

TEST(Report, CountsOneAsOne) {
  EXPECT_EQ(counted(1, "replica"), "1 replica");
  EXPECT_EQ(counted(0, "seed"), "0 seeds");
}

TEST(Report, TextShowsIntervalsInBrackets) {
  EXPECT_EQ(report_text(sample()),
            "Queues\n\n"
            "policy            mean, s\n"
            "a,\"b\"   0.10 [0.05, 0.20]\n"
            "c                       -\n"
            "\nA note.\n");
}

TEST(Report, TablesShareOutTheRowsUnlessOneShowsThemAgain) {
  Report report;
  report.title = "T";
  for (const int i : {1, 2, 3}) report.rows.push_back(Record().set("a", i).set("b", 10 * i));
  report.tables = {{"one", {{"a", "a"}}, 1}, {"two", {{"a", "a"}}, 2}, {"", {{"b", "b"}}, 0, true}};
  EXPECT_EQ(report_text(report), "T\n\none\na\n1\n\ntwo\na\n2\n3\n\n b\n20\n30\n");
}

TEST(Report, NumbersReadBackAsTheSameDouble) {
  Report report;
  const double third = 1.0 / 3;
  report.rows.push_back(Record().set("x", third).set("y", 1e300).set("z", 5e-324));
  const std::string json = report_json(report);
  EXPECT_NE(json.find("\"x\":0.3333333333333333,"), std::string::npos) << json;
  EXPECT_EQ(std::stod("0.3333333333333333"), third);
  EXPECT_NE(json.find("\"y\":1e+300,\"z\":5e-324}"), std::string::npos) << json;
}

TEST(Record, SetReplacesInPlace) {
  Record record;
  record.set("a", 1).set("b", 2).set("a", 3);
  ASSERT_EQ(record.entries().size(), 2U);
  EXPECT_EQ(record.entries()[0].key, "a");
  EXPECT_DOUBLE_EQ(record.number("a"), 3);
  EXPECT_DOUBLE_EQ(record.number("none", 7), 7);
}

TEST(Record, ReadsAnEstimateBack) {
  const Record record = Record().set("x", Estimate{2, 1, 4});
  EXPECT_EQ(record.estimate("x"), (Estimate{2, 1, 4}));
}

}  // namespace
}  // namespace pointsman::sim
