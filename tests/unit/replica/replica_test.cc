#include "replica/replica.h"

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/raw_client.h"
#include "support/served_replica.h"

namespace pointsman {
namespace {

using test::RawClient;
using test::ServedReplica;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr std::string_view kChat = "/v1/chat/completions";
constexpr std::string_view kCompletions = "/v1/completions";

std::string post(std::string_view path, std::string_view body, std::string_view headers = "") {
  std::string request = "POST ";
  request.append(path).append(" HTTP/1.1\r\nHost: h\r\n").append(headers);
  request.append("Content-Length: ").append(std::to_string(body.size()));
  return request.append("\r\n\r\n").append(body);
}

std::string get(std::string_view path) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: h\r\n\r\n";
}

std::string ask(ServedReplica& replica, const std::string& request) {
  RawClient client(replica.port());
  client.send(request);
  return client.read_answer();
}

std::string chat(std::string_view content, std::string_view more) {
  return R"({"model":"sim","messages":[{"role":"user","content":")" + std::string(content) +
         "\"}]," + std::string(more) + "}";
}

// The chunks of a streamed answer, from after its head to the end of the body.
std::vector<std::string> read_chunks(RawClient& client) {
  std::vector<std::string> chunks;
  for (;;) {
    const std::string size = client.read_until("\r\n");
    if (size.empty()) return chunks;
    const std::size_t length = std::stoul(size, nullptr, 16);
    std::string chunk = client.read_exactly(length + 2);
    if (length == 0) return chunks;
    chunk.resize(length);
    chunks.push_back(std::move(chunk));
  }
}

// Waits for something that another thread brings about, at most ten seconds.
template <typename Condition>
bool eventually(Condition&& condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(Replica, AnswersAChatWithExactlyTheTokensAskedFor) {
  ServedReplica replica;
  const std::string answer = ask(replica, post(kChat, chat("hi", R"("max_tokens":5)")));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr(R"("object":"chat.completion","created":)"));
  EXPECT_THAT(answer, HasSubstr(R"("finish_reason":"length")"));
  // <|user|>, hi, <|end|>, <|assistant|>: 3 + 1 + 2 + 4 tokens of 4 bytes.
  EXPECT_THAT(answer, HasSubstr(R"("usage":{"prompt_tokens":10,"total_tokens":15,)"
                                R"("completion_tokens":5,)"
                                R"("prompt_tokens_details":{"cached_tokens":0}})"));
}

TEST(Replica, StreamsTheRoleThenOneEventPerTokenThenUsageAndDone) {
  ServedReplica replica;
  RawClient client(replica.port());
  client.send(post(kChat, chat("hi", R"("max_tokens":3,"stream":true,)"
                                     R"("stream_options":{"include_usage":true})")));
  EXPECT_THAT(client.read_until("\r\n\r\n"),
              HasSubstr("Content-Type: text/event-stream; charset=utf-8\r\n"));
  const std::vector<std::string> chunks = read_chunks(client);
  ASSERT_THAT(chunks, SizeIs(6));
  for (const std::string& chunk : chunks) {
    EXPECT_THAT(chunk, StartsWith("data: "));
    EXPECT_THAT(chunk, EndsWith("\n\n"));
  }
  EXPECT_THAT(chunks[0], HasSubstr(R"("delta":{"role":"assistant","content":""})"));
  EXPECT_THAT(chunks[1], HasSubstr(R"("finish_reason":null)"));
  EXPECT_THAT(chunks[3], HasSubstr(R"("finish_reason":"length")"));
  EXPECT_THAT(chunks[4], HasSubstr(R"("choices":[],"usage":{"prompt_tokens":10,)"));
  EXPECT_EQ(chunks[5], "data: [DONE]\n\n");
}

TEST(Replica, SendsTheHeadOfAStreamBeforePrefill) {
  ReplicaOptions options;
  options.speed = 1e-3;  // the first token is more than ten seconds away
  ServedReplica replica(options);
  RawClient client(replica.port());
  client.send(post(kChat, chat("hi", R"("max_tokens":3,"stream":true)")));
  EXPECT_THAT(client.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST(Replica, CompletionsTakeBatchesAndIds) {
  ServedReplica replica;
  const std::string ids =
      ask(replica, post(kCompletions, R"({"model":"sim","prompt":[5,6,7],"max_tokens":2})"));
  EXPECT_THAT(ids, HasSubstr(R"("object":"text_completion")"));
  EXPECT_THAT(ids, HasSubstr(R"("prompt_tokens":3,"total_tokens":5)"));
  const std::string batch =
      ask(replica, post(kCompletions, R"({"prompt":["abcd","abcdefgh"],"max_tokens":2})"));
  EXPECT_THAT(batch, HasSubstr(R"({"index":1,"text":)"));
  EXPECT_THAT(batch, HasSubstr(R"("prompt_tokens":3,"total_tokens":7)"));
}

TEST(Replica, TheSecondTurnFindsTheFirstInTheCache) {
  ServedReplica replica;
  const std::string text(400, 'x');  // 100 tokens
  const std::string first = ask(replica, post(kChat, chat(text, R"("max_tokens":30)")));
  const std::size_t from = first.find(R"("content":")") + 11;
  const std::string said = first.substr(from, first.find('"', from) - from);
  EXPECT_THAT(said, SizeIs(120));
  const std::string second =
      ask(replica, post(kChat, R"({"messages":[{"role":"user","content":")" + text +
                                   R"("},{"role":"assistant","content":")" + said +
                                   R"("},{"role":"user","content":"more"}],"max_tokens":1})"));
  // The first prompt has 3 + 100 + 2 + 4 tokens, the answer 30 of which the last has no KV entry:
  // 138 tokens, eight full blocks.
  EXPECT_THAT(second, HasSubstr(R"("cached_tokens":128)"));
  EXPECT_THAT(ask(replica, get("/metrics")),
              HasSubstr("vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"sim\"} 128.0\n"));
}

TEST(Replica, SameAnswerToTheSamePrompt) {
  ServedReplica replica;
  const std::string request = post(kCompletions, R"({"prompt":"abcd","request_id":"r"})");
  const auto text = [](const std::string& answer) {
    return answer.substr(answer.find(R"("text":)"));
  };
  const std::string first = text(ask(replica, request));
  EXPECT_EQ(text(ask(replica, request)), first);
  EXPECT_THAT(first, HasSubstr(R"("finish_reason":"stop")"));
}

TEST(Replica, MinTokensIsWhereTheModelStops) {
  ServedReplica replica;
  const std::string answer =
      ask(replica, post(kCompletions, R"({"prompt":"a","max_tokens":100,"min_tokens":7})"));
  EXPECT_THAT(answer, HasSubstr(R"("completion_tokens":7)"));
  EXPECT_THAT(answer, HasSubstr(R"("finish_reason":"stop")"));
}

TEST(Replica, RequestIdsBecomeBodyIdsAndAreReturnedOnlyWhereTold) {
  ServedReplica quiet;
  const std::string request =
      post(kChat, chat("hi", R"("max_tokens":1)"), "X-Request-Id: abc-123\r\n");
  const std::string answer = ask(quiet, request);
  EXPECT_THAT(answer, HasSubstr(R"({"id":"chatcmpl-abc-123")"));
  EXPECT_THAT(answer, Not(HasSubstr("x-request-id")));
  ReplicaOptions options = ServedReplica::fast_options();
  options.request_id_headers = true;
  ServedReplica echoing(options);
  EXPECT_THAT(ask(echoing, request), HasSubstr("x-request-id: abc-123\r\n"));
}

TEST(Replica, ReportsLoadInOrcaFormOnWholeAnswersOnly) {
  ServedReplica replica;
  const std::string header = "Endpoint-Load-Metrics-Format: text\r\n";
  EXPECT_THAT(ask(replica, post(kChat, chat("hi", R"("max_tokens":1)"), header)),
              HasSubstr("endpoint-load-metrics: TEXT named_metrics.num_requests_waiting=0.0"));
  EXPECT_THAT(ask(replica, post(kChat, chat("hi", R"("max_tokens":1,"stream":true)"), header)),
              Not(HasSubstr("endpoint-load-metrics")));
}

TEST(Replica, RefusesAsVllmDoes) {
  ServedReplica replica;
  EXPECT_THAT(
      ask(replica, post(kChat, R"({"model":"nope","messages":[]})")),
      AllOf(StartsWith("HTTP/1.1 404 "),
            EndsWith(R"({"error":{"message":"The model `nope` does not exist. Valid aliases: )"
                     R"(sim.","type":"NotFoundError","param":"model","code":404}})")));
  EXPECT_THAT(ask(replica, post(kChat, "hello")), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask(replica, post(kChat, chat("hi", R"("max_tokens":999999)"))),
              HasSubstr("cannot be greater than max_model_len=131072"));
  EXPECT_THAT(
      ask(replica, post(kCompletions, R"({"prompt":")" + std::string(600'000, 'x') + R"("})")),
      HasSubstr(R"("param":"input_tokens")"));
  EXPECT_THAT(ask(replica, get(kChat)), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(ask(replica, get("/nope")), EndsWith(R"({"detail":"Not Found"})"));
  EXPECT_EQ(replica.stats().in_flight, 0U);
}

TEST(Replica, AFullQueueIs503WhileHealthStaysGood) {
  ReplicaOptions options = ServedReplica::fast_options();
  options.speed = 1e-3;
  options.engine.max_num_seqs = 1;
  options.max_num_queued_reqs = 1;
  ServedReplica replica(options);
  RawClient running(replica.port());
  running.send(post(kChat, chat("a", R"("max_tokens":5,"stream":true)")));
  running.read_until("\r\n\r\n");
  RawClient waiting(replica.port());
  waiting.send(post(kChat, chat("b", R"("max_tokens":5,"stream":true)")));
  waiting.read_until("\r\n\r\n");
  EXPECT_THAT(ask(replica, post(kChat, chat("c", R"("max_tokens":5)"))),
              AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr(R"("type":"Service Unavailable")"),
                    Not(HasSubstr("Retry-After"))));
  EXPECT_THAT(ask(replica, get("/health")), StartsWith("HTTP/1.1 200 "));
  const std::string metrics = ask(replica, get("/metrics"));
  EXPECT_THAT(metrics, HasSubstr("vllm:num_requests_running{engine=\"0\",model_name=\"sim\"} 1.0"));
  EXPECT_THAT(metrics, HasSubstr("vllm:num_requests_waiting{engine=\"0\",model_name=\"sim\"} 1.0"));
}

// An engine twenty times as fast as real time counts its own seconds, and takes a twentieth of
// them.
TEST(Replica, SpeedScalesRealTimeAndNotTheEnginesOwn) {
  ReplicaOptions options;
  options.speed = 20;
  ServedReplica replica(options);
  const auto started = std::chrono::steady_clock::now();
  EXPECT_THAT(ask(replica, post(kChat, chat("a", R"("max_tokens":200)"))),
              StartsWith("HTTP/1.1 200 "));
  const double took_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  const std::string metrics = ask(replica, get("/metrics"));
  constexpr std::string_view kName = "vllm:e2e_request_latency_seconds_sum{";
  const std::size_t at = metrics.find(' ', metrics.find(kName));
  ASSERT_NE(metrics.find(kName), std::string::npos);
  const double engine_s = std::stod(metrics.substr(at));
  // 200 steps, none shorter than its fixed part and the reading of the weights.
  EXPECT_GE(engine_s, 200 * (options.engine.step_s + options.engine.weights_s));
  EXPECT_GE(took_s, engine_s / 20 * 0.99);
  EXPECT_LT(took_s, engine_s);
}

TEST(Replica, AClientThatLeavesFreesTheEngine) {
  ReplicaOptions options = ServedReplica::fast_options();
  options.speed = 1;
  ServedReplica replica(options);
  RawClient leaving(replica.port());
  leaving.send(post(kChat, chat("a", R"("max_tokens":4000,"stream":true)")));
  leaving.read_until("\"role\"");
  RawClient half_closing(replica.port());
  half_closing.send(post(kChat, chat("b", R"("max_tokens":4000)")));
  EXPECT_TRUE(eventually([&] { return replica.stats().in_flight == 2; }));
  leaving.close();
  half_closing.shut_write();
  EXPECT_TRUE(eventually([&] { return replica.stats().cancelled == 2; }));
  EXPECT_EQ(replica.stats().in_flight, 0U);
  const sim::EngineState state = replica.with([](Replica& r) { return r.engine_state(); });
  EXPECT_EQ(state.running + state.waiting, 0U);
  EXPECT_EQ(state.kv_usage, 0.0);
  EXPECT_THAT(half_closing.read_to_end(), IsEmpty());
}

TEST(Replica, StreamIntervalJoinsTokensAfterTheFirst) {
  ReplicaOptions options = ServedReplica::fast_options();
  options.stream_interval = 4;
  ServedReplica replica(options);
  RawClient client(replica.port());
  client.send(post(kCompletions, R"({"prompt":"a","max_tokens":10,"stream":true})"));
  client.read_until("\r\n\r\n");
  // Tokens 0, 1-4, 5-8, 9, and the end.
  EXPECT_THAT(read_chunks(client), SizeIs(5));
}

TEST(Replica, ListsItsModelAndCountsTokens) {
  ServedReplica replica;
  EXPECT_THAT(ask(replica, get("/v1/models")),
              HasSubstr(R"({"object":"list","data":[{"id":"sim","object":"model")"));
  EXPECT_THAT(ask(replica, post("/tokenize", R"({"prompt":"abcdefgh"})")),
              EndsWith(R"({"count":2,"max_model_len":131072,)"
                       R"("tokens":[1684234849,1751606885],"token_strs":null})"));
}

TEST(Replica, MetricsHaveTheCacheConfigurationAndHistograms) {
  ServedReplica replica;
  ask(replica, post(kChat, chat("hi", R"("max_tokens":2)")));
  const std::string metrics = ask(replica, get("/metrics"));
  EXPECT_THAT(metrics, HasSubstr(R"(block_size="16")"));
  EXPECT_THAT(metrics, HasSubstr(R"(num_gpu_blocks="26000")"));
  EXPECT_THAT(metrics, HasSubstr("vllm:time_to_first_token_seconds_count{engine=\"0\","
                                 "model_name=\"sim\"} 1.0\n"));
  EXPECT_THAT(metrics, HasSubstr("vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"sim\"} 0.0"));
}

TEST(ReplicaFaults, AnswerInsteadOfTheEngineAndAreThenOver) {
  ServedReplica replica;
  replica.add_fault({.status = 503, .body = "busy", .headers = {{"Retry-After", "1"}}});
  const std::string request = post(kChat, chat("hi", R"("max_tokens":1)"));
  EXPECT_THAT(ask(replica, request), AllOf(StartsWith("HTTP/1.1 503 "),
                                           HasSubstr("Retry-After: 1\r\n"), EndsWith("busy")));
  EXPECT_THAT(ask(replica, request), StartsWith("HTTP/1.1 200 "));
}

TEST(ReplicaFaults, BreakOffBeforeAndAfterTheHead) {
  ServedReplica replica;
  const std::string stream = post(kChat, chat("hi", R"("max_tokens":3,"stream":true)"));
  replica.add_fault({.before_head = true});
  RawClient closed(replica.port());
  closed.send(stream);
  EXPECT_THAT(closed.read_to_end(), IsEmpty());
  replica.add_fault({.before_head = true, .then = FaultEnd::kReset});
  RawClient reset(replica.port());
  reset.send(stream);
  EXPECT_THAT(reset.read_to_end(), IsEmpty());
  EXPECT_EQ(reset.last_error(), std::errc::connection_reset);
  replica.add_fault({.after_head = true});
  RawClient headed(replica.port());
  headed.send(stream);
  EXPECT_THAT(headed.read_to_end(), EndsWith("\r\n\r\n"));
  EXPECT_EQ(replica.stats().in_flight, 0U);
}

TEST(ReplicaFaults, CutAStreamAfterSoManyEvents) {
  ServedReplica replica;
  const std::string stream = post(kChat, chat("hi", R"("max_tokens":30,"stream":true)"));
  replica.add_fault({.after_events = 3});
  RawClient between(replica.port());
  between.send(stream);
  between.read_until("\r\n\r\n");
  EXPECT_THAT(read_chunks(between), SizeIs(3));
  EXPECT_THAT(between.read_to_end(), IsEmpty());
  replica.add_fault({.after_events = 3, .in_event = true});
  RawClient inside(replica.port());
  inside.send(stream);
  EXPECT_THAT(inside.read_to_end(), Not(EndsWith("\r\n")));
  EXPECT_TRUE(eventually([&] { return replica.stats().in_flight == 0; }));
}

TEST(ReplicaFaults, HangUntilTheClientLeaves) {
  ServedReplica replica;
  replica.add_fault({.after_events = 2, .then = FaultEnd::kHang});
  RawClient client(replica.port());
  client.send(post(kChat, chat("hi", R"("max_tokens":30,"stream":true)")));
  client.read_until("\n\n");
  client.read_until("\n\n");
  EXPECT_EQ(replica.stats().in_flight, 1U);
  client.close();
  EXPECT_TRUE(eventually([&] { return replica.stats().cancelled == 1; }));
  EXPECT_EQ(replica.stats().in_flight, 0U);
}

TEST(ReplicaFaults, SendRawBytesInPieces) {
  ServedReplica replica;
  const std::string raw = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: ping\n\n";
  replica.add_fault({.path = "/v1/messages",
                     .raw = raw,
                     .piece_bytes = 10,
                     .piece_interval = std::chrono::milliseconds(1)});
  RawClient client(replica.port());
  client.send(post("/v1/messages", "{}"));
  EXPECT_EQ(client.read_to_end(), raw);
}

TEST(ReplicaFaults, DelayAndBodyWithoutLength) {
  ServedReplica replica;
  replica.add_fault(
      {.delay = std::chrono::milliseconds(1), .body = "until the end", .no_content_length = true});
  RawClient client(replica.port());
  client.send(get("/v1/models"));
  EXPECT_THAT(client.read_to_end(),
              AllOf(EndsWith("\r\n\r\nuntil the end"), Not(HasSubstr("Content-Length"))));
}

TEST(ReplicaFaults, AreAddedOverHttpAndShowInTheCounts) {
  ServedReplica replica;
  EXPECT_THAT(ask(replica, post("/fault", R"({"status": 500, "count": 0})")),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(ask(replica, post("/fault", R"({"sttus": 500})")), StartsWith("HTTP/1.1 400 "));
  const std::string request = post(kChat, "{\"x\": 1.0}", "X-Odd: A  b\r\n");
  EXPECT_THAT(ask(replica, request), StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(ask(replica, "DELETE /fault HTTP/1.1\r\nHost: h\r\n\r\n"),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(ask(replica, get("/debug/requests")),
              AllOf(HasSubstr(R"("received":1,)"), HasSubstr(R"("faults":1,)")));
  EXPECT_THAT(ask(replica, get("/debug/last")),
              EndsWith("POST /v1/chat/completions\r\nHost: h\r\nX-Odd: A  b\r\n"
                       "Content-Length: 10\r\n\r\n{\"x\": 1.0}"));
}

TEST(ReplicaFaults, ProbesAndScrapesMeetOnlyFaultsThatNameThem) {
  ServedReplica replica;
  replica.add_fault({.count = 0, .status = 500});
  EXPECT_THAT(ask(replica, get("/health")), StartsWith("HTTP/1.1 200 "));
  replica.add_fault({.path = "/health", .delay = std::chrono::milliseconds(1), .status = 503});
  replica.add_fault({.path = "/metrics", .delay = std::chrono::milliseconds(1)});
  EXPECT_THAT(ask(replica, get("/health")), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(ask(replica, get("/health")), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(ask(replica, get("/metrics")), HasSubstr("vllm:num_requests_running"));
  EXPECT_EQ(replica.stats().received, 0U);
  EXPECT_EQ(replica.stats().in_flight, 0U);
}

TEST(ReplicaState, RefusesNewConnectionsForAWhile) {
  ServedReplica replica;
  ask(replica, post("/state", R"({"refuse_s": 0.05})"));
  const auto connects = [&] {
    asio::io_context io;
    asio::ip::tcp::socket socket(io);
    std::error_code error;
    socket.connect({asio::ip::address_v4::loopback(), replica.port()}, error);
    return !error;
  };
  EXPECT_TRUE(eventually([&] { return !connects(); }));
  EXPECT_TRUE(eventually(connects));
}

TEST(ReplicaState, HealthAndSleep) {
  ServedReplica replica;
  ask(replica, post("/state", R"({"health_status": 503})"));
  EXPECT_THAT(ask(replica, get("/health")), StartsWith("HTTP/1.1 503 "));
  ask(replica, post("/state", R"({"health_status": 200, "asleep": true})"));
  EXPECT_THAT(ask(replica, get("/metrics")), HasSubstr(R"(sleep_state="awake"} 0.0)"));
  RawClient hanging(replica.port());
  hanging.send(post(kChat, chat("hi", R"("max_tokens":1)")));
  EXPECT_TRUE(eventually([&] { return replica.stats().in_flight == 1; }));
  ask(replica, post("/state", R"({"asleep": false})"));
  EXPECT_THAT(hanging.read_answer(), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(ask(replica, post("/state", R"({"helth": 1})")), StartsWith("HTTP/1.1 400 "));
}

TEST(ReplicaState, KillResetsEveryConnection) {
  ServedReplica replica;
  RawClient client(replica.port());
  client.send(post(kChat, chat("hi", R"("max_tokens":4000,"stream":true)")));
  client.read_until("\"role\"");
  replica.with([](Replica& r) { r.kill(); });
  client.read_to_end();
  EXPECT_EQ(client.last_error(), std::errc::connection_reset);
}

TEST(Replica, WhatRunsWhenItEndsIsCutAndNotAnswered) {
  std::optional<ServedReplica> replica(std::in_place);
  RawClient client(replica->port());
  client.send(post(kChat, chat("hi", R"("max_tokens":4000)")));
  ASSERT_TRUE(eventually(
      [&] { return replica->with([](const Replica& r) { return r.stats().in_flight; }) == 1; }));
  replica.reset();
  EXPECT_EQ(client.read_to_end(), "");
  EXPECT_EQ(client.last_error(), std::errc::connection_reset);
}

}  // namespace
}  // namespace pointsman
