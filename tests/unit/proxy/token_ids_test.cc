// Prompts of models with a tokenizer on their way through the data plane: at once, or by the pool
// while the exchange waits.

#include <atomic>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include "support/byte_model.h"
#include "support/proxy_test.h"

namespace pointsman::test {
namespace {

std::string chat_of(std::size_t bytes, char of = 'x') {
  return R"({"model":"m1","messages":[{"role":"user","content":")" + std::string(bytes, of) +
         R"("}]})";
}

class TokenIds : public testing::Test {
 protected:
  void start() {
    rig_.models = models_.get();
    index_ = rig_.add(replica_.port());
    rig_.start();
  }
  void TearDown() override { rig_.stop(); }

  [[nodiscard]] std::uint64_t with_ids() {
    return rig_.sum([](ProxyMetrics::Shard& shard) { return shard.prompts_with_ids.value(); });
  }
  [[nodiscard]] std::uint64_t without_ids(std::string_view why) {
    return rig_.sum([why](ProxyMetrics::Shard& shard) {
      std::uint64_t found = 0;
      shard.prompts_without_ids.for_each([&](std::string_view word, std::uint64_t count) {
        if (word == why) found = count;
      });
      return found;
    });
  }
  [[nodiscard]] std::uint64_t ended_with(std::size_t code) {
    return rig_.sum(
        [code](ProxyMetrics::Shard& shard) { return shard.requests_by_code[code].value(); });
  }

  // Holds whoever encodes until the test lets go.
  void hold_encoding() {
    model_->before_encode = [this] {
      ++at_work_;
      go_on_.wait();
    };
  }
  void let_go() { go_on_.count_down(); }

  std::latch go_on_{1};
  std::atomic<int> at_work_{0};
  ByteModel* model_ = new ByteModel;
  std::unique_ptr<PromptModels> models_ = byte_models(std::unique_ptr<ByteModel>(model_));
  FakeReplica replica_{[](FakeConnection& connection) {
    while (!connection.read_request().empty()) connection.send_json("{}");
  }};
  ProxyRig rig_{{}, "least_work"};
  ReplicaIndex index_ = 0;
};

TEST_F(TokenIds, AShortPromptIsMadeAtOnce) {
  start();
  RawClient client(rig_.port());
  client.send(post("/v1/chat/completions", kChat));
  EXPECT_THAT(client.read_answer(), EndsWith("{}"));
  EXPECT_EQ(with_ids(), 1U);
}

TEST_F(TokenIds, ALongPromptIsMadeByThePoolAndThenSent) {
  start();
  RawClient client(rig_.port());
  for (const std::size_t bytes : {20'000U, 20'000U, 300'000U, 300'000U}) {
    client.send(post("/v1/chat/completions", chat_of(bytes)));
    EXPECT_THAT(client.read_answer(), EndsWith("{}"));
  }
  EXPECT_EQ(with_ids(), 4U);
  EXPECT_LT(model_->encoded_bytes.load(), 325'000U) << "the second of each was known";
}

TEST_F(TokenIds, APromptThatThePoolCannotMakeIsSentByItsText) {
  start();
  RawClient client(rig_.port());
  std::string body = chat_of(200'000);
  body.replace(body.find("user"), 4, "alien");
  client.send(post("/v1/chat/completions", body));
  EXPECT_THAT(client.read_answer(), EndsWith("{}"));
  EXPECT_EQ(without_ids("template"), 1U);
}

TEST_F(TokenIds, ManyAtOnceAllComeThrough) {
  start();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (std::size_t i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<RawClient>(rig_.port()));
    clients.back()->send(
        post("/v1/chat/completions", chat_of(30'000 + 97 * i, static_cast<char>('a' + i))));
  }
  for (const auto& client : clients) EXPECT_THAT(client->read_answer(), EndsWith("{}"));
  EXPECT_EQ(with_ids() + without_ids("late") + without_ids("busy"), 20U);
}

TEST_F(TokenIds, AfterAShortWaitItIsSentByItsText) {
  hold_encoding();
  start();
  RawClient client(rig_.port());
  client.send(post("/v1/chat/completions", chat_of(20'000)));
  EXPECT_THAT(client.read_answer(), EndsWith("{}"));
  EXPECT_EQ(without_ids("late"), 1U);
  let_go();
}

TEST_F(TokenIds, WhatWaitsIsBounded) {
  hold_encoding();
  start();
  RawClient first(rig_.port());
  first.send(post("/v1/chat/completions", chat_of(20'000)));
  ASSERT_TRUE(ProxyRig::eventually([&] { return at_work_ == 1; }));
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<RawClient>(rig_.port()));
    clients.back()->send(post("/v1/chat/completions", chat_of(900'000)));
  }
  for (const auto& client : clients) EXPECT_THAT(client->read_answer(), EndsWith("{}"));
  EXPECT_GE(without_ids("busy") + without_ids("late"), 8U);
  EXPECT_GE(without_ids("busy"), 1U);
  let_go();
}

TEST_F(TokenIds, AClientThatLeavesMeanwhileIsLetGo) {
  hold_encoding();
  start();
  {
    RawClient client(rig_.port());
    client.send(post("/v1/chat/completions", chat_of(20'000)));
    ASSERT_TRUE(ProxyRig::eventually([&] { return at_work_ == 1; }));
    client.close();
  }
  EXPECT_TRUE(ProxyRig::eventually([&] { return ended_with(499) == 1; }));
  let_go();
  RawClient next(rig_.port());
  next.send(post("/v1/chat/completions", kChat));
  EXPECT_THAT(next.read_answer(), EndsWith("{}"));
  EXPECT_TRUE(ProxyRig::eventually([&] { return rig_.in_flight(index_) == 0; }));
}

TEST_F(TokenIds, TheServerMayStopMeanwhile) {
  hold_encoding();
  start();
  RawClient client(rig_.port());
  client.send(post("/v1/chat/completions", chat_of(20'000)));
  ASSERT_TRUE(ProxyRig::eventually([&] { return at_work_ == 1; }));
  std::promise<void> drained;
  rig_.server().drain([&] { drained.set_value(); });
  rig_.server().cut();
  drained.get_future().wait();
  let_go();
}

}  // namespace
}  // namespace pointsman::test
