#include "net/http_server.h"

#include <atomic>
#include <future>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/raw_client.h"
#include "support/served.h"

namespace pointsman {
namespace {

using test::RawClient;
using test::Served;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Says back what it was asked.
void echo(HttpRequest request, HttpResponse response) {
  response.send(200, "text/plain",
                request.method + " " + request.path + " [" + request.query + "] " + request.body);
}

TEST(HttpServer, AnswersSeveralRequestsOnOneConnection) {
  Served served(&echo);
  RawClient client(served.port());
  client.send("GET /a?x=1 HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(client.read_answer(),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\n"
            "GET /a [x=1] ");
  client.send("POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody");
  EXPECT_THAT(client.read_answer(), EndsWith("POST /b [] body"));
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  Served served(&echo);
  RawClient client(served.port());
  std::string all;
  for (int i = 0; i < 20; ++i) {
    all += "POST /" + std::to_string(i) + " HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi";
  }
  client.send(all);
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(client.read_answer(), EndsWith("POST /" + std::to_string(i) + " [] hi"));
  }
}

TEST(HttpServer, TakesChunkedBodiesHoweverTheyAreCut) {
  Served served(&echo);
  const std::string request =
      "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\nA;ext=1\r\n0123456789\r\n0\r\nX-Trailer: t\r\n\r\n";
  RawClient client(served.port());
  for (std::size_t cut = 1; cut < request.size(); cut += 7) {
    client.send(request.substr(0, cut));
    client.send(request.substr(cut));
    EXPECT_THAT(client.read_answer(), EndsWith("POST /c [] abc0123456789"));
  }
}

TEST(HttpServer, RefusesMalformedHeadsAndChunksAndCloses) {
  Served served(&echo);
  for (const char* request :
       {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3g\r\nabc\r\n0\r\n\r\n",
        "nonsense\r\n\r\n"}) {
    RawClient client(served.port());
    client.send(request);
    const std::string answer = client.read_to_end();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 ")) << request;
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  }
}

TEST(HttpServer, BodyOverTheLimitIs413EvenWhileTheClientStillSends) {
  HttpServer::Options options;
  options.max_body = 1000;
  Served served(&echo, options);
  RawClient lengthy(served.port());
  lengthy.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n" +
               std::string(300'000, 'x'));
  const std::string answer = lengthy.read_to_end();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(answer, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(answer, EndsWith(R"({"error":{"message":"the body is larger than this server takes",)"
                               R"("type":"invalid_request_error","param":null,"code":null}})"));
  RawClient chunky(served.port());
  chunky.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" +
              std::string(1001, 'x') + "\r\n0\r\n\r\n");
  EXPECT_THAT(chunky.read_to_end(), StartsWith("HTTP/1.1 413 "));
}

TEST(HttpServer, InvitesABodyThatIsAnnouncedWithExpect) {
  Served served(&echo);
  RawClient client(served.port());
  client.send("POST /e HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ok");
  EXPECT_THAT(client.read_answer(), EndsWith("POST /e [] ok"));
}

TEST(HttpServer, HeadGetsTheLengthAndNoBody) {
  Served served(&echo);
  RawClient client(served.port());
  client.send("HEAD /h HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.read_to_end(),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 11\r\n"
            "Connection: close\r\n\r\n");
}

TEST(HttpServer, StreamsInChunksAndUntilCloseForOldClients) {
  Served served([](const HttpRequest&, const HttpResponse& response) {
    response.begin(200, "text/event-stream");
    response.write("data: 1\n\n");
    response.write("data: 2\n\n");
    response.end();
  });
  RawClient client(served.port());
  client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(client.read_until("0\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
            "\r\n9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n");
  RawClient old(served.port());
  old.send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.read_to_end(),
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
            "data: 1\n\ndata: 2\n\n");
}

TEST(HttpServer, AnswersLaterAndWithExtraHeaders) {
  Served* self = nullptr;
  Served served([&self](const HttpRequest&, const HttpResponse& response) {
    self->reactor().post([response] { response.send(503, "", "", {{"Retry-After", "1"}}); });
  });
  self = &served;
  RawClient client(served.port());
  client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(client.read_answer(),
            "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n");
}

TEST(HttpServer, AnAnswerThatIsForgottenBecomesA500) {
  Served served([](const HttpRequest&, const HttpResponse&) {});
  RawClient client(served.port());
  client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_THAT(client.read_answer(), StartsWith("HTTP/1.1 500 "));
}

// Both a closed and a half-closed client are gone, as at the engines.
TEST(HttpServer, TellsTheHandlerOnceThatTheClientHasGone) {
  for (const bool half : {false, true}) {
    std::promise<void> asked;
    std::promise<void> told;
    std::atomic<int> times{0};
    Served served([&](const HttpRequest&, const HttpResponse& response) {
      response.begin(200, "text/event-stream");
      response.on_gone([&, response] {
        EXPECT_TRUE(response.gone());
        EXPECT_TRUE(response.write("nothing listens any more"));
        if (++times == 1) told.set_value();
      });
      asked.set_value();
    });
    RawClient client(served.port());
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    asked.get_future().wait();
    half ? client.shut_write() : client.close();
    told.get_future().wait();
    EXPECT_EQ(times, 1);
    EXPECT_EQ(served.on_thread([&] { return served.server().connections(); }), 0U);
  }
}

TEST(HttpServer, AClientThatReadsNothingHoldsTheWriterBack) {
  constexpr std::size_t kTotal = 32 * 1024 * 1024;
  std::size_t written = 0;
  std::size_t most_unsent = 0;
  HttpServer::Options options;
  Served served(
      [&](const HttpRequest&, const HttpResponse& response) {
        response.begin(200, "text/plain");
        const auto pump = [&, response] {
          const std::string piece(16'000, 'p');
          while (written < kTotal) {
            written += piece.size();
            const bool more = response.write(piece);
            most_unsent = std::max(most_unsent, response.unsent());
            if (!more) return;
          }
          response.end();
        };
        response.on_drained(pump);
        pump();
      },
      options);
  RawClient client(served.port());
  client.send("GET / HTTP/1.0\r\n\r\n");
  client.read_until("\r\n\r\n");
  EXPECT_LT(served.on_thread([&] { return written; }), kTotal);
  const std::size_t received = client.read_to_end().size();
  EXPECT_EQ(received, served.on_thread([&] { return written; }));
  EXPECT_GE(received, kTotal);
  EXPECT_LE(most_unsent, options.high_water + 20'000);
}

TEST(HttpServer, FaultsOnDemand) {
  Served served([](const HttpRequest& request, const HttpResponse& response) {
    if (request.path == "/reset") return response.reset();
    response.write_raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort");
    response.close();
  });
  RawClient reset(served.port());
  reset.send("GET /reset HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(reset.read_to_end(), "");
  EXPECT_EQ(reset.last_error(), std::errc::connection_reset);
  RawClient cut(served.port());
  cut.send("GET /cut HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_THAT(cut.read_to_end(), EndsWith("short"));
}

TEST(HttpServer, CuttingAllResetsEveryConnectionAndRefusesNewOnes) {
  std::promise<void> asked;
  std::vector<HttpResponse> held;
  Served served([&](const HttpRequest&, const HttpResponse& response) {
    held.push_back(response);
    asked.set_value();
  });
  RawClient busy(served.port());
  busy.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  asked.get_future().wait();
  served.on_thread([&] { served.server().cut_all(); });
  EXPECT_EQ(busy.read_to_end(), "");
  EXPECT_EQ(busy.last_error(), std::errc::connection_reset);
  asio::io_context io;
  asio::ip::tcp::socket socket(io);
  std::error_code error;
  socket.connect({asio::ip::address_v4::loopback(), served.port()}, error);
  EXPECT_EQ(error, asio::error::connection_refused);
  served.on_thread([&] { held.clear(); });
}

TEST(HttpServer, StopListeningClosesIdleConnectionsAndFinishesBusyOnes) {
  std::promise<HttpResponse> asked;
  Served served([&](const HttpRequest& request, const HttpResponse& response) {
    if (request.path == "/idle") return response.send(200, "text/plain", "ok");
    asked.set_value(response);
  });
  RawClient idle(served.port());
  idle.send("GET /idle HTTP/1.1\r\nHost: h\r\n\r\n");
  idle.read_answer();
  RawClient busy(served.port());
  busy.send("GET /busy HTTP/1.1\r\nHost: h\r\n\r\n");
  HttpResponse response = asked.get_future().get();
  served.on_thread([&] { served.server().stop_listening(); });
  EXPECT_EQ(idle.read_to_end(), "");
  served.on_thread([&] {
    response.send(200, "text/plain", "done");
    response = HttpResponse();
  });
  const std::string answer = busy.read_to_end();
  EXPECT_THAT(answer, HasSubstr("Connection: close"));
  EXPECT_THAT(answer, EndsWith("done"));
}

TEST(HttpServer, SilentConnectionsAreClosed) {
  HttpServer::Options options;
  options.head_timeout = std::chrono::milliseconds(50);
  options.body_gap = std::chrono::milliseconds(50);
  options.keep_alive_timeout = std::chrono::milliseconds(50);
  Served served(&echo, options);
  RawClient half_head(served.port());
  half_head.send("GET / HT");
  EXPECT_THAT(half_head.read_to_end(), StartsWith("HTTP/1.1 408 "));
  RawClient half_body(served.port());
  half_body.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nabc");
  EXPECT_THAT(half_body.read_to_end(), StartsWith("HTTP/1.1 408 "));
  RawClient idle(served.port());
  idle.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_THAT(idle.read_to_end(), Not(HasSubstr("408")));
}

TEST(HttpServer, SaysWhyItCannotListen) {
  Served served(&echo);
  Reactor reactor;
  HttpServer second(reactor, {}, &echo);
  const Result<void> result = second.listen("127.0.0.1", served.port());
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, HasSubstr(std::to_string(served.port())));
  EXPECT_FALSE(second.listen("not-an-address", 0).ok());
}

}  // namespace
}  // namespace pointsman
