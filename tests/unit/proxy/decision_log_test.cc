// What the decision log is told of a request.

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "support/proxy_test.h"

namespace pointsman::test {
namespace {

class Decisions : public ::testing::Test {
 protected:
  void start(FakeReplica::Serve serve, int replicas = 1) {
    DecisionLogOptions options;
    options.path = path_;
    options.key = "k";
    auto log =
        DecisionLog::open(options, Reactor::steady_clock().now(), std::chrono::system_clock::now());
    ASSERT_TRUE(log.ok()) << log.error().message;
    log_ = std::move(*log);
    rig_.decision_log = log_.get();
    for (int i = 0; i < replicas; ++i) {
      replicas_.push_back(std::make_unique<FakeReplica>(serve));
      rig_.add(replicas_.back()->port());
    }
    rig_.start();
  }
  std::string ask(const std::string& body, const std::string& headers = "") {
    RawClient client(rig_.port());
    client.send(post("/v1/chat/completions", body, headers + "Connection: close\r\n"));
    return client.read_to_end();
  }
  // Behind the first line, once the router has ended.
  std::string lines() {
    rig_.stop();
    log_.reset();
    std::ifstream in(path_);
    std::stringstream text;
    text << in.rdbuf();
    return text.str().substr(text.str().find('\n') + 1);
  }
  ~Decisions() override { std::filesystem::remove(path_); }

  const std::string path_ = testing::TempDir() + "pointsman_decisions_" +
                            testing::UnitTest::GetInstance()->current_test_info()->name();
  std::unique_ptr<DecisionLog> log_;
  std::vector<std::unique_ptr<FakeReplica>> replicas_;
  ProxyRig rig_;
};

// A body of that many bytes of text.
std::string long_stream(std::size_t bytes) {
  return R"({"model":"m1","stream":true,"max_tokens":77,"messages":[{"role":"user","content":")" +
         std::string(bytes, 'q') + R"("}]})";
}

TEST_F(Decisions, AStreamsBlocksAreThereThoughThePolicyNeedsNoneAndItsRequestIsLongGone) {
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.begin_stream();
    for (int i = 0; i < 5; ++i) connection.send_chunk(kToken);
    connection.send_chunk("data: [DONE]\n\n");
    connection.end_stream();
  });
  ask(long_stream(64'000), "x-session-id: person\r\n");
  const std::string text = lines();
  EXPECT_THAT(text, HasSubstr(R"("max_tokens":77,"blocks":1000,"hashes":")"));
  EXPECT_THAT(text, HasSubstr(R"(,"session":")"));
  EXPECT_THAT(text,
              HasSubstr(R"("tries":1,"status":200,"stream":true,"output_events":5,"ttft_ms")"));
  EXPECT_THAT(text, Not(HasSubstr("qq")));
  EXPECT_THAT(text, Not(HasSubstr("person")));
}

TEST_F(Decisions, ARetryHasTheLastReplicaAndTheNumberOfTries) {
  std::atomic<int> tries{0};
  start(
      [&tries](FakeConnection& connection) {
        if (tries++ == 0) return;
        connection.read_request();
        connection.send_json(R"({"usage":{"prompt_tokens":9,"completion_tokens":4}})");
      },
      2);
  EXPECT_THAT(ask(kChat), StartsWith("HTTP/1.1 200"));
  const std::string text = lines();
  EXPECT_THAT(text, HasSubstr(R"(,"reason":"only_one","tries":2,"status":200,"stream":false,)"
                              R"("prompt_tokens":9,"output_tokens":4,"whole_ms":)"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST_F(Decisions, WhereThereIsNoReplicaTheLineSaysSo) {
  start({}, 0);
  EXPECT_THAT(ask(kChat), StartsWith("HTTP/1.1 503"));
  const std::string text = lines();
  EXPECT_THAT(text, HasSubstr(R"("tries":0,"status":503,"error":")"));
  EXPECT_THAT(text, Not(HasSubstr("\"replica\"")));
}

TEST_F(Decisions, WhatTheRouterAnswersWithoutAChoiceHasNoLine) {
  start([](FakeConnection&) {});
  RawClient client(rig_.port());
  client.send(get("/nothing", "Connection: close\r\n"));
  EXPECT_THAT(client.read_to_end(), StartsWith("HTTP/1.1 404"));
  RawClient health(rig_.port());
  health.send(get("/health", "Connection: close\r\n"));
  health.read_to_end();
  EXPECT_EQ(lines(), "");
}

}  // namespace
}  // namespace pointsman::test
