// Requests and answers through the data plane, plain and streamed.

#include <string>

#include "support/proxy_test.h"

namespace pointsman::test {
namespace {

TEST(Relay, PassesARequestAndItsAnswerOn) {
  std::promise<std::string> seen;
  FakeReplica replica([&](FakeConnection& connection) {
    seen.set_value(connection.read_request());
    connection.send_json(R"({"id":"r1"})");
    connection.read_to_end();
  });
  ProxyRig rig;
  const ReplicaIndex index = rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions?x=1", kChat, "X-Vendor: yes\r\n"));
  const std::string answer = client.read_answer();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 Some\r\n"));
  EXPECT_THAT(answer, HasSubstr("X-Request-Id: "));
  EXPECT_THAT(answer, EndsWith(R"({"id":"r1"})"));
  const std::string request = seen.get_future().get();
  EXPECT_THAT(request, StartsWith("POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: 127.0.0.1:"));
  EXPECT_THAT(request, HasSubstr("X-Vendor: yes\r\n"));
  EXPECT_THAT(request, HasSubstr("X-Request-Id: "));
  EXPECT_THAT(request, EndsWith(kChat));
  EXPECT_TRUE(ProxyRig::eventually([&] { return rig.in_flight(index) == 0; }));
  rig.stop();
}

TEST(Relay, ServesManyRequestsOverOneConnectionToTheReplica) {
  FakeReplica replica([&](FakeConnection& connection) {
    while (!connection.read_request().empty()) connection.send_json("{}");
  });
  ProxyRig rig;
  rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  for (int i = 0; i < 20; ++i) {
    client.send(post("/v1/chat/completions", kChat));
    EXPECT_THAT(client.read_answer(), EndsWith("{}"));
  }
  EXPECT_EQ(replica.accepted(), 1);
  rig.stop();
}

TEST(Relay, SendsEachEventOnWhenItComes) {
  std::promise<void> first_seen;
  FakeReplica replica([&](FakeConnection& connection) {
    connection.read_request();
    connection.begin_stream();
    connection.send_chunk(kToken);
    first_seen.get_future().wait();
    connection.send_chunk("data: [DONE]\n\n");
    connection.end_stream();
    connection.read_to_end();
  });
  ProxyRig rig;
  const ReplicaIndex index = rig.add(replica.port());
  rig.start();
  RawClient client(rig.port());
  client.send(post("/v1/chat/completions", kStream));
  EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr("Transfer-Encoding: chunked"));
  EXPECT_THAT(client.read_until("\n\n\r\n"), HasSubstr(kToken));
  first_seen.set_value();
  EXPECT_THAT(client.read_until("\r\n0\r\n\r\n"), HasSubstr("[DONE]"));
  EXPECT_TRUE(ProxyRig::eventually([&] { return rig.in_flight(index) == 0; }));
  EXPECT_EQ(rig.sum([](auto& shard) { return shard.ttft.value().count(); }), 1);
  rig.stop();
}

TEST(Relay, AnswersOnTheDataPortByItself) {
  ProxyRig rig;
  rig.start();
  RawClient client(rig.port());
  client.send(get("/healthz"));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 200"));
  client.send(get("/readyz"));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 503"));
  client.send(get("/metrics"));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 404"));
  client.send(get("/v1/../metrics"));
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 400"));
  client.send(post("/v1/chat/completions", kChat));
  const std::string answer = client.read_answer();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(answer, HasSubstr("Retry-After: "));
  EXPECT_THAT(answer, HasSubstr("X-Pointsman-Error: no_replica"));
  rig.stop();
}

}  // namespace
}  // namespace pointsman::test
