// Connections cut, reset, half-closed, split and left silent after every single byte of an
// exchange.

#include <string>
#include <vector>

#include "support/plain_message.h"
#include "support/proxy_test.h"
#include "support/stepped_proxy.h"

namespace pointsman::test {
namespace {

enum class Way { kClose, kReset, kHalfClose };
constexpr Way kAllWays[] = {Way::kClose, Way::kReset, Way::kHalfClose};

void leave(StepSocket& socket, Way way) {
  switch (way) {
    case Way::kClose:
      return socket.close();
    case Way::kReset:
      return socket.reset();
    case Way::kHalfClose:
      return socket.shut_write();
  }
}

// What goes out for `request` and what may come back, with the body that a client then has.
struct Answer {
  std::string bytes;
  std::string body;
  bool until_close = false;
};

std::vector<Answer> answers() {
  const std::string event = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
  const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n";
  return {{"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nX-A: b\r\n\r\n{\"whole\":\"1\"}",
           "{\"whole\":\"1\"}"},
          {chunked + "\r\n5;a=b\r\n{\"a\":\r\n2\r\n1}\r\n0\r\nX-T: v\r\n\r\n", "{\"a\":1}"},
          {chunked + "Content-Type: text/event-stream\r\n\r\n2f\r\n" + event +
               "\r\ne\r\ndata: [DONE]\n\n\r\n" + "0\r\n\r\n",
           event + "data: [DONE]\n\n"},
          {"HTTP/1.1 200 OK\r\nX-A: b\r\n\r\n{\"until\":\"close\"}", "{\"until\":\"close\"}", true},
          {"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: "
           "2\r\n\r\n{}",
           "{}"}};
}

const std::string kRequest =
    "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 13\r\nX-Request-Id: "
    "r1\r\n\r\n"
    "{\"model\":\"m\"}";
const std::string kChunkedRequest =
    "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    "6;a=b\r\n{\"mode\r\n7\r\nl\":\"m\"}\r\n0\r\nX-T: v\r\n\r\n";

class Cut : public ::testing::Test {
 protected:
  // A rig lasts for many exchanges: what one leaves behind, the next would show.
  void TearDown() override {
    EXPECT_TRUE(proxy_.until([&] { return proxy_.connections() == 0; }));
    EXPECT_EQ(proxy_.in_flight(), 0);
    EXPECT_EQ(proxy_.held_bytes(), 0);
  }
  // The replica's side of the exchange, once it has the whole request. Ejections and kept
  // connections of the exchanges before are over by then.
  StepSocket asked(StepSocket& client, const std::string& request) {
    proxy_.advance(std::chrono::minutes(10));
    proxy_.fleet().probe_result(replica_, {ProbeResult::Kind::kReady, ""});
    proxy_.fleet().tick();
    client = proxy_.client();
    EXPECT_EQ(client.send(request), request.size());
    StepSocket replica;
    EXPECT_TRUE(proxy_.asked(listener_, replica));
    return replica;
  }
  // Everything that the client gets until its connection is over.
  std::string rest(StepSocket& client) {
    EXPECT_TRUE(proxy_.over(client));
    return client.in();
  }

  StepListener listener_;
  SteppedProxy proxy_;
  ReplicaIndex replica_ = proxy_.add(listener_.port());
};

// The final answer in `bytes`; nothing where it is not whole.
std::optional<PlainMessage> final_answer(std::string_view bytes, bool ended) {
  for (;;) {
    std::optional<PlainMessage> message = read_message(bytes, false, ended);
    if (!message || message->status() >= 200) return message;
    bytes.remove_prefix(message->size);
  }
}

// No answer that its replica did not finish looks like a whole one.
TEST_F(Cut, AnAnswerCutAfterAnyByteIsVisiblyCut) {
  for (const Answer& answer : answers()) {
    const std::size_t head = answer.bytes.rfind("\r\n\r\n", answer.bytes.find("200 OK") + 80) + 4;
    for (const Way way : kAllWays) {
      for (std::size_t size = 0; size <= answer.bytes.size(); ++size) {
        SCOPED_TRACE(answer.bytes.substr(0, size));
        StepSocket client;
        StepSocket replica = asked(client, kRequest);
        replica.send(std::string_view(answer.bytes).substr(0, size));
        proxy_.turn(4);
        leave(replica, way);
        // An answer that is whole leaves the connection open.
        ASSERT_TRUE(proxy_.until([&] {
          client.receive();
          return client.over() || final_answer(client.in(), false);
        }));
        const std::optional<PlainMessage> got = final_answer(client.in(), client.ended());
        const bool whole =
            size == answer.bytes.size() && (!answer.until_close || way != Way::kReset);
        const bool may_end_here = answer.until_close && size >= head && way != Way::kReset;
        if (whole) {
          ASSERT_TRUE(got.has_value());
          EXPECT_EQ(got->status(), 200);
          EXPECT_EQ(got->body, answer.body);
        } else if (got && got->status() == 200) {
          EXPECT_TRUE(may_end_here) << client.in();
        } else if (got) {
          EXPECT_EQ(got->status(), 502);
          EXPECT_EQ(got->header("x-request-id"), "r1");
        }
        EXPECT_TRUE(proxy_.until([&] { return proxy_.in_flight() == 0; }));
        if (HasFailure()) return;
      }
    }
  }
}

// Half a request reaches nobody, and leaves nothing behind.
TEST_F(Cut, ARequestCutAfterAnyByteIsForgotten) {
  for (const std::string& request : {kRequest, kChunkedRequest}) {
    for (const Way way : kAllWays) {
      for (std::size_t size = 0; size < request.size(); ++size) {
        StepSocket client = proxy_.client();
        client.send(std::string_view(request).substr(0, size));
        proxy_.turn(4);
        leave(client, way);
        ASSERT_TRUE(proxy_.until([&] { return proxy_.connections() == 0; })) << size;
        ASSERT_FALSE(listener_.accept().open()) << size;
      }
    }
  }
}

TEST_F(Cut, AClientThatLeavesAfterAnyByteOfItsAnswerFreesTheReplica) {
  for (const Answer& answer : answers()) {
    for (const Way way : kAllWays) {
      for (std::size_t size = 0; size < answer.bytes.size(); ++size) {
        StepSocket client;
        StepSocket replica = asked(client, kRequest);
        replica.send(std::string_view(answer.bytes).substr(0, size));
        proxy_.turn(4);
        leave(client, way);
        ASSERT_TRUE(proxy_.over(replica)) << size;
        ASSERT_TRUE(proxy_.until([&] { return proxy_.connections() == 0; }));
        ASSERT_EQ(proxy_.in_flight(), 0);
      }
    }
  }
}

// However the bytes of both come, the request and its answer are the same.
TEST_F(Cut, PiecesAtEveryByteMakeNoDifference) {
  for (const std::string& request : {kRequest, kChunkedRequest}) {
    const std::size_t head = request.find("\r\n\r\n") + 4;
    for (const Answer& answer : answers()) {
      const std::size_t longer = std::max(request.size(), answer.bytes.size());
      for (std::size_t at = 1; at < longer; ++at) {
        proxy_.advance(std::chrono::minutes(10));
        StepSocket client = proxy_.client();
        const std::size_t cut = at % request.size();
        client.send(std::string_view(request).substr(0, cut));
        proxy_.turn(4);
        client.send(std::string_view(request).substr(cut));
        StepSocket replica;
        ASSERT_TRUE(proxy_.asked(listener_, replica));
        ASSERT_THAT(replica.in(), EndsWith("\r\n\r\n" + request.substr(head)));
        const std::size_t answer_cut = at % answer.bytes.size();
        replica.send(std::string_view(answer.bytes).substr(0, answer_cut));
        proxy_.turn(4);
        replica.send(std::string_view(answer.bytes).substr(answer_cut));
        proxy_.turn(4);
        replica.shut_write();
        ASSERT_TRUE(proxy_.until([&] {
          client.receive();
          return final_answer(client.in(), client.ended()).has_value();
        }));
        const std::optional<PlainMessage> got = final_answer(client.in(), client.ended());
        ASSERT_EQ(got->status(), 200) << at;
        ASSERT_EQ(got->body, answer.body) << at;
        client.reset();
      }
    }
  }
}

// Whoever falls silent after any byte is not waited for without end.
TEST_F(Cut, ASilenceAfterAnyByteEnds) {
  for (const std::string& request : {kRequest, kChunkedRequest}) {
    for (std::size_t size = 0; size < request.size(); ++size) {
      StepSocket client = proxy_.client();
      client.send(std::string_view(request).substr(0, size));
      proxy_.turn(4);
      for (int i = 0; i < 3; ++i) proxy_.advance(std::chrono::minutes(2));
      const std::string got = rest(client);
      EXPECT_THAT(got, StartsWith(size == 0 ? "" : "HTTP/1.1 408"));
      EXPECT_EQ(got.empty(), size == 0);
    }
  }
  for (const Answer& answer : answers()) {
    for (std::size_t size = 0; size < answer.bytes.size(); ++size) {
      StepSocket client;
      StepSocket replica = asked(client, kRequest);
      replica.send(std::string_view(answer.bytes).substr(0, size));
      proxy_.turn(4);
      proxy_.advance(std::chrono::hours(2));
      ASSERT_TRUE(proxy_.over(replica)) << size;
      ASSERT_TRUE(proxy_.until([&] {
        client.receive();
        return client.over() || final_answer(client.in(), false);
      }));
      const std::optional<PlainMessage> got = final_answer(client.in(), client.ended());
      EXPECT_EQ(got ? got->status() : 504, 504) << client.in();
    }
  }
}

// A head has its limit in all; a body's are on silence and on its rate: see slow_body_test.cc.
TEST_F(Cut, AHeadThatTricklesIsNotWaitedFor) {
  StepSocket client = proxy_.client();
  for (int i = 0; i < 20; ++i) {
    client.send(std::string_view(kRequest).substr(static_cast<std::size_t>(i), 1));
    proxy_.turn(4);
    proxy_.advance(std::chrono::seconds(1));
  }
  EXPECT_THAT(rest(client), StartsWith("HTTP/1.1 408"));
  // Nor do empty lines before a request keep a connection.
  client = proxy_.client();
  for (int i = 0; i < 20 && !client.over(); ++i) {
    client.send("\r\n");
    proxy_.turn(4);
    proxy_.advance(std::chrono::seconds(1));
    client.receive();
  }
  EXPECT_THAT(rest(client), StartsWith("HTTP/1.1 400"));
}

TEST_F(Cut, ABodyThatTricklesCostsNoReplica) {
  StepSocket client = proxy_.client();
  const std::size_t head = kRequest.find("\r\n\r\n") + 4;
  client.send(kRequest.substr(0, head));
  for (std::size_t at = head; at < kRequest.size(); ++at) {
    proxy_.turn(4);
    proxy_.advance(std::chrono::seconds(4));
    EXPECT_FALSE(listener_.accept().open());
    EXPECT_EQ(proxy_.in_flight(), 0);
    client.send(std::string_view(kRequest).substr(at, 1));
  }
  EXPECT_TRUE(proxy_.until([&] { return proxy_.in_flight() == 1; }));
  client.reset();
}

// A machine that slept: the clock is hours ahead all at once.
TEST_F(Cut, AClockThatJumpsForwardEndsWhatHasWaitedAndNothingIsLeft) {
  StepSocket client;
  StepSocket replica = asked(client, kRequest);
  StepSocket idle = proxy_.client();
  proxy_.turn(4);
  proxy_.advance(std::chrono::hours(24 * 30));
  EXPECT_TRUE(proxy_.over(replica));
  EXPECT_EQ(rest(idle), "");
  EXPECT_TRUE(proxy_.told(client));
  EXPECT_THAT(client.in(), StartsWith("HTTP/1.1 504"));
  // It serves on.
  StepSocket next;
  StepSocket again = asked(next, kRequest);
  again.send(answers()[0].bytes);
  EXPECT_TRUE(proxy_.told(next));
  EXPECT_THAT(next.in(), StartsWith("HTTP/1.1 200"));
  next.reset();
  client.reset();
}

}  // namespace
}  // namespace pointsman::test
