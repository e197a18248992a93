// What answers teach of tokens, and what is shown of how right that was.

#include <string>

#include "support/proxy_test.h"

namespace pointsman::test {
namespace {

std::string chat_of(std::size_t bytes) {
  return R"({"model":"m1","messages":[{"role":"user","content":")" + std::string(bytes, 'x') +
         R"("}]})";
}

TEST(TokenEstimates, AnswersTeachHowManyBytesMakeAToken) {
  FakeReplica replica([&](FakeConnection& connection) {
    while (!connection.read_request().empty()) {
      connection.send_json(R"({"id":"r","usage":{"prompt_tokens":2000,"completion_tokens":7}})");
    }
  });
  ProxyRig rig;
  rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  const auto prompts = [&] {
    return rig.sum([](ProxyMetrics::Shard& shard) { return shard.prompts_by_text.tokens.value(); });
  };
  const auto error = [&] {
    return rig.sum([](ProxyMetrics::Shard& shard) { return shard.prompts_by_text.error.value(); });
  };
  const auto ask = [&](std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      client.send(post("/v1/chat/completions", chat_of(4000)));
      client.read_answer();
    }
  };
  ask(1);
  ASSERT_TRUE(ProxyRig::eventually([&] { return prompts() == 2000; }));
  EXPECT_NEAR(static_cast<double>(error()), 1000, 20) << "4000 bytes are taken for 1000 tokens";
  ask(30);
  ASSERT_TRUE(ProxyRig::eventually([&] { return prompts() == 31 * 2000; }));
  const std::uint64_t learning = error();
  ask(10);
  ASSERT_TRUE(ProxyRig::eventually([&] { return prompts() == 41 * 2000; }));
  EXPECT_LT(error() - learning, 10 * 2000 / 20) << "within 5 % by now";
  const std::uint64_t outputs =
      rig.sum([](ProxyMetrics::Shard& shard) { return shard.outputs.tokens.value(); });
  EXPECT_EQ(outputs, 40U * 7) << "of the first answer nothing was expected";
  rig.stop();
}

TEST(TokenEstimates, PromptsOfIdsAreCountedExactly) {
  FakeReplica replica([&](FakeConnection& connection) {
    while (!connection.read_request().empty()) {
      connection.send_json(R"({"id":"r","usage":{"prompt_tokens":5,"completion_tokens":1}})");
    }
  });
  ProxyRig rig;
  rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/completions", R"({"model":"m1","prompt":[151644,872,198,9707,151645]})"));
  client.read_answer();
  ASSERT_TRUE(ProxyRig::eventually([&] {
    return rig.sum(
               [](ProxyMetrics::Shard& shard) { return shard.prompts_by_ids.tokens.value(); }) == 5;
  }));
  EXPECT_EQ(rig.sum([](ProxyMetrics::Shard& shard) { return shard.prompts_by_ids.error.value(); }),
            0U);
  rig.stop();
}

}  // namespace
}  // namespace pointsman::test
