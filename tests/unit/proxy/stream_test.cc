// Streams of events: what is held back, what is never changed, and how they are cut.

#include <algorithm>
#include <atomic>
#include <semaphore>
#include <string>

#include "http/chunk_scanner.h"
#include "http/head_writer.h"
#include "support/proxy_test.h"
#include "support/stepped_proxy.h"
#include "support/test_data.h"

namespace pointsman::test {
namespace {

// The data of a chunked body.
std::string unchunk(std::string_view framed) {
  std::string data;
  ChunkScanner scanner;
  scanner.feed(framed, [&](std::string_view piece) { data += piece; });
  EXPECT_TRUE(scanner.done());
  return data;
}

class Stream : public ::testing::Test {
 protected:
  void start(FakeReplica::Serve serve, ProxyOptions options = {}) {
    rig_ = std::make_unique<ProxyRig>(std::move(options));
    replica_ = std::make_unique<FakeReplica>(std::move(serve));
    index_ = rig_->add(replica_->port());
    rig_->start();
    client_ = std::make_unique<RawClient>(rig_->port());
  }
  void TearDown() override {
    EXPECT_TRUE(ProxyRig::eventually([&] { return rig_->in_flight(index_) == 0; }));
    rig_->stop();
  }
  std::unique_ptr<ProxyRig> rig_;
  std::unique_ptr<FakeReplica> replica_;
  ReplicaIndex index_ = 0;
  std::unique_ptr<RawClient> client_;
};

// Cases D11, D12, D14: comments, metadata and named events arrive byte for byte.
TEST_F(Stream, BytesAreNeverChanged) {
  for (const char* name :
       {"streaming/comments.sse", "streaming/meta-only.sse", "streaming/named-events.sse"}) {
    const std::string events = test_data(name);
    start([&](FakeConnection& connection) {
      connection.read_request();
      connection.begin_stream();
      for (std::size_t at = 0; at < events.size(); at += 7) {
        connection.send_chunk(events.substr(at, 7));
      }
      connection.end_stream();
    });
    client_->send(post("/v1/messages", kStream));
    client_->read_until("\r\n\r\n");
    EXPECT_EQ(unchunk(client_->read_until("\r\n0\r\n\r\n")), events) << name;
    EXPECT_TRUE(ProxyRig::eventually([&] { return rig_->in_flight(index_) == 0; }));
    rig_->stop();
  }
  start([](FakeConnection&) {});
}

// Case D13: characters cut by chunks.
TEST_F(Stream, PiecesOfCharactersPassUnread) {
  const std::string first = "data: {\"choices\":[{\"delta\":{\"content\":\"Z\xc3";
  const std::string second = "\xbcrich\"}}]}\n\n";
  start([&](FakeConnection& connection) {
    connection.read_request();
    connection.begin_stream();
    connection.send_chunk(first);
    connection.send_chunk(second);
    connection.end_stream();
  });
  client_->send(post("/v1/chat/completions", kStream));
  client_->read_until("\r\n\r\n");
  EXPECT_EQ(unchunk(client_->read_until("\r\n0\r\n\r\n")), first + second);
}

// Case D16.
TEST_F(Stream, AnErrorInsteadOfAStreamComesAsItIs) {
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.send_json(R"({"error":{"message":"too long"}})", 400);
    connection.read_to_end();
  });
  client_->send(post("/v1/chat/completions", kStream));
  const std::string answer = client_->read_answer();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(answer, EndsWith(R"({"error":{"message":"too long"}})"));
}

TEST_F(Stream, TheHeadWaitsForTheFirstByte) {
  std::promise<void> go;
  std::promise<void> head_sent;
  start([&](FakeConnection& connection) {
    connection.read_request();
    connection.begin_stream();
    head_sent.set_value();
    go.get_future().wait();
    connection.send_chunk(kToken);
    connection.end_stream();
    connection.read_to_end();
  });
  client_->send(post("/v1/chat/completions", kStream));
  head_sent.get_future().wait();
  EXPECT_EQ(rig_->sum([](auto& shard) { return shard.ttft.value().count(); }), 0);
  go.set_value();
  EXPECT_THAT(client_->read_until("\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  client_->read_until("\r\n0\r\n\r\n");
}

TEST_F(Stream, TheHeadIsNotHeldForEver) {
  std::promise<void> go;
  ProxyOptions options;
  options.timeouts.head_hold = milliseconds(100);
  start(
      [&](FakeConnection& connection) {
        connection.read_request();
        connection.begin_stream();
        go.get_future().wait();
        connection.send_chunk(kToken);
        connection.end_stream();
        connection.read_to_end();
      },
      options);
  client_->send(post("/v1/chat/completions", kStream));
  EXPECT_THAT(client_->read_until("\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  go.set_value();
  EXPECT_THAT(unchunk(client_->read_until("\r\n0\r\n\r\n")), kToken);
}

// Case D19.
TEST_F(Stream, AnEmptyStreamIsAVisibleErrorWhereNobodyElseIsLeft) {
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.begin_stream();
    connection.end_stream();
    connection.read_to_end();
  });
  client_->send(post("/v1/chat/completions", kStream));
  EXPECT_THAT(client_->read_answer(), StartsWith("HTTP/1.1 502"));
}

// The head has gone out after its time; an end without an event is still no good one.
TEST_F(Stream, AnEmptyStreamIsVisiblyCutWhereItsHeadHasGoneOut) {
  std::promise<void> go;
  ProxyOptions options;
  options.timeouts.head_hold = milliseconds(50);
  start(
      [&](FakeConnection& connection) {
        connection.read_request();
        connection.begin_stream();
        go.get_future().wait();
        connection.end_stream();
        connection.read_to_end();
      },
      options);
  client_->send(post("/v1/chat/completions", kStream));
  EXPECT_THAT(client_->read_until("\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  go.set_value();
  EXPECT_EQ(client_->read_to_end(), "");
}

// Case D18, after some events.
TEST_F(Stream, ACutAtAChunkBoundaryEndsWithAnErrorEvent) {
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.begin_stream();
    connection.send_chunk(kToken);
    connection.reset();
  });
  client_->send(post("/v1/chat/completions", kStream));
  const std::string answer = client_->read_to_end();
  EXPECT_THAT(answer, HasSubstr("data: {\"error\":"));
  EXPECT_THAT(answer, Not(HasSubstr("[DONE]")));
  EXPECT_THAT(answer, Not(HasSubstr("\r\n0\r\n\r\n")));
}

TEST_F(Stream, ACutWithinAChunkIsJustCut) {
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.begin_stream();
    connection.send_chunk(kToken);
    connection.send("40\r\ndata: {\"cho");
    connection.close();
  });
  client_->send(post("/v1/chat/completions", kStream));
  const std::string answer = client_->read_to_end();
  EXPECT_THAT(answer, EndsWith("40\r\ndata: {\"cho"));
}

TEST_F(Stream, AnErrorEventIsInThePathsOwnForm) {
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.begin_stream();
    connection.send_chunk(
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\"}\n\n");
    connection.close();
  });
  client_->send(post("/v1/messages", kStream));
  EXPECT_THAT(client_->read_to_end(), HasSubstr("event: error\ndata: {\"type\":\"error\""));
}

TEST_F(Stream, ACompressedStreamIsPassedOnUnreadAndCutWithoutWords) {
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.send(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"
        "Transfer-Encoding: chunked\r\n\r\n");
    connection.send_chunk("\x1f\x8b\x08");
    connection.close();
  });
  client_->send(post("/v1/chat/completions", kStream));
  EXPECT_THAT(client_->read_to_end(), EndsWith("3\r\n\x1f\x8b\x08\r\n"));
}

TEST_F(Stream, ACutBodyUntilCloseIsReset) {
  start(
      [](FakeConnection& connection) {
        connection.read_request();
        connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nabc");
        connection.read_until("never");
      },
      [] {
        ProxyOptions options;
        options.timeouts.gap = milliseconds(100);
        return options;
      }());
  client_->send(post("/v1/chat/completions", kStream));
  client_->read_to_end();
  EXPECT_EQ(client_->last_error().value(), ECONNRESET);
}

TEST_F(Stream, AClientOfHttp10GetsEventsUntilTheClose) {
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.begin_stream();
    connection.send_chunk(kToken);
    connection.send_chunk("data: [DONE]\n\n");
    connection.end_stream();
    connection.read_to_end();
  });
  const std::string body = kStream;
  client_->send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_THAT(client_->read_to_end(),
              EndsWith("\r\n\r\n" + std::string(kToken) + "data: [DONE]\n\n"));
}

// Comments are bytes of the body: a stream of nothing else that ends well is passed on as it came.
TEST_F(Stream, CommentsAloneAreAWholeStream) {
  start([](FakeConnection& connection) {
    connection.read_request();
    connection.begin_stream();
    connection.send_chunk(": queued\n\n");
    connection.send_chunk(": still queued\n\n");
    connection.end_stream();
    connection.read_to_end();
  });
  client_->send(post("/v1/chat/completions", kStream));
  EXPECT_THAT(client_->read_until("\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(unchunk(client_->read_until("\r\n0\r\n\r\n")), ": queued\n\n: still queued\n\n");
  EXPECT_EQ(rig_->sum([](auto& shard) { return shard.ttft.value().count(); }), 0);
}

// Case D15: limits are on silence, not on the total. The client asks for each event, so that the
// pauses are short however busy the machine is.
TEST_F(Stream, TheWholeMayLastLongerThanAnyLimit) {
  constexpr auto kLimit = milliseconds(300);
  ProxyOptions options;
  options.timeouts.gap = kLimit;
  options.timeouts.first_byte_stream = kLimit;
  std::counting_semaphore<> asked{0};
  std::atomic<bool> enough{false};
  start(
      [&](FakeConnection& connection) {
        connection.read_request();
        connection.begin_stream();
        while (!enough) {
          connection.send_chunk(kToken);
          if (!asked.try_acquire_for(std::chrono::seconds(10))) return;
        }
        connection.end_stream();
        connection.read_to_end();
      },
      options);
  client_->send(post("/v1/chat/completions", kStream));
  EXPECT_THAT(client_->read_until("\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  const auto end = std::chrono::steady_clock::now() + 3 * kLimit;
  const std::string event = "2f\r\n" + std::string(kToken) + "\r\n";
  while (std::chrono::steady_clock::now() < end) {
    ASSERT_EQ(client_->read_exactly(event.size()), event);
    asked.release();
  }
  client_->read_exactly(event.size());
  enough = true;
  asked.release();
  EXPECT_EQ(client_->read_until("0\r\n\r\n"), "0\r\n\r\n");
}

// However a replica frames them: between two reads so much time has gone by, divided by what came.
TEST(EventsThatComeAtOnce, ShareTheTimeSinceTheOneBefore) {
  constexpr std::string_view kEvent =
      "data: {\"choices\":[{\"index\":0,\"text\":\" a\",\"finish_reason\":null}]}\n\n";
  const auto framed = [](std::string_view data) {
    std::string chunk;
    append_chunk(chunk, data);
    return chunk;
  };
  const std::string together = std::string(kEvent) + std::string(kEvent);
  const std::string apart = framed(kEvent) + framed(kEvent);
  for (const std::string& two : {framed(together), apart}) {
    StepListener listener;
    SteppedProxy proxy;
    proxy.add(listener.port());
    StepSocket client = proxy.client();
    StepSocket replica;
    client.send(post("/v1/completions", R"({"prompt":"x","stream":true})"));
    ASSERT_TRUE(proxy.asked(listener, replica));
    replica.send(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        "Transfer-Encoding: chunked\r\n\r\n" +
        framed(kEvent));
    const auto seen = [&](std::size_t events) {
      return proxy.until([&] {
        client.receive();
        std::size_t found = 0;
        for (std::size_t at = 0; (at = client.in().find("data:", at)) != std::string::npos; ++at) {
          ++found;
        }
        return found == events;
      });
    };
    ASSERT_TRUE(seen(1));
    proxy.advance(std::chrono::milliseconds(80));
    replica.send(two);
    ASSERT_TRUE(seen(3));
    const HistogramValue itl = proxy.metrics().itl.value();
    EXPECT_EQ(itl.count(), 2);
    EXPECT_NEAR(itl.sum, 0.08, 1e-9);
    // Both lie in the bucket of 40 ms.
    EXPECT_EQ(std::ranges::count(itl.buckets, 2), 1);
  }
}

}  // namespace
}  // namespace pointsman::test
