#include "net/http_client.h"

#include <future>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/certificates.h"
#include "support/no_descriptors.h"
#include "support/served.h"
#include "support/tls_listener.h"

namespace pointsman {
namespace {

using test::Served;
using Outcome = HttpGetResult::Outcome;

class HttpGetTest : public ::testing::Test {
 protected:
  HttpGetResult get(HttpGetRequest request) {
    std::promise<HttpGetResult> promise;
    std::unique_ptr<HttpGet> get;
    thread_.reactor().post([&] {
      get = std::make_unique<HttpGet>(thread_.reactor(), resolver_);
      get->start(std::move(request),
                 [&](HttpGetResult result) { promise.set_value(std::move(result)); });
    });
    HttpGetResult result = promise.get_future().get();
    std::promise<void> gone;
    thread_.reactor().post([&] {
      get.reset();
      gone.set_value();
    });
    gone.get_future().wait();
    return result;
  }

  HttpGetResult get(std::uint16_t port, std::string target = "/",
                    Duration timeout = std::chrono::seconds(5)) {
    HttpGetRequest request;
    request.host = "127.0.0.1";
    request.port = port;
    request.target = std::move(target);
    request.timeout = timeout;
    request.max_body = 100'000;
    return get(std::move(request));
  }

  ReactorThread thread_;
  Resolver resolver_;
};

TEST_F(HttpGetTest, AsksByTls) {
  const test::Certificate certificate = test::make_certificate({});
  test::CertificateFolder folder;
  folder.write("own", certificate);
  TlsClient::Options options;
  options.files.ca = folder.path("own.crt");
  const std::shared_ptr<TlsClient> client = *TlsClient::load(options);
  test::TlsListener server(certificate, [](test::TlsSocket& connection) {
    const std::string head = connection.read_until("\r\n\r\n");
    const bool whole = head.starts_with("GET /whole ");
    connection.send("HTTP/1.1 200 OK\r\n\r\nbody");
    if (whole) connection.end();
  });
  HttpGetRequest request;
  request.host = "127.0.0.1";
  request.port = server.port();
  request.target = "/whole";
  request.tls = client;
  request.tls_name = "localhost";
  const HttpGetResult whole = get(request);
  EXPECT_TRUE(whole.answered(200)) << whole.detail;
  EXPECT_EQ(whole.body, "body");
  // Its end delimits the body, and was not announced.
  request.target = "/cut";
  EXPECT_EQ(get(request).outcome, Outcome::kBroken);
  request.tls_name = "models.test";
  const HttpGetResult misnamed = get(request);
  EXPECT_EQ(misnamed.outcome, Outcome::kUnreachable);
  EXPECT_EQ(misnamed.detail, "TLS: hostname mismatch");

  // One GET after the other to the same server goes on with its session.
  request.target = "/whole";
  request.tls_name = "localhost";
  const int before = server.resumed();
  std::unique_ptr<HttpGet> next;
  for (int i = 0; i < 3; ++i) {
    std::promise<HttpGetResult> promise;
    thread_.reactor().post([&] {
      if (next == nullptr) next = std::make_unique<HttpGet>(thread_.reactor(), resolver_);
      next->start(request, [&](HttpGetResult result) { promise.set_value(std::move(result)); });
    });
    EXPECT_TRUE(promise.get_future().get().answered(200));
  }
  std::promise<void> gone;
  thread_.reactor().post([&] {
    next.reset();
    gone.set_value();
  });
  gone.get_future().wait();
  EXPECT_EQ(server.resumed(), before + 2);
}

TEST_F(HttpGetTest, BringsStatusTypeAndBodyInEveryFraming) {
  Served served([](const HttpRequest& request, const HttpResponse& response) {
    if (request.path == "/length") return response.send(200, "text/plain", "body");
    if (request.path == "/missing") return response.send(404, "application/json", "{}");
    if (request.path == "/none") return response.send(204, "", "");
    if (request.path == "/chunked") {
      response.begin(200, "text/plain");
      response.write("bo");
      response.write("dy");
      return response.end();
    }
    response.write_raw("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\n\r\nbody");
    response.close();
  });
  for (const char* path : {"/length", "/chunked", "/until-close"}) {
    const HttpGetResult result = get(served.port(), path);
    EXPECT_TRUE(result.answered(200)) << path << " " << result.detail;
    EXPECT_EQ(result.body, "body") << path;
  }
  EXPECT_EQ(get(served.port(), "/length").content_type, "text/plain");
  EXPECT_TRUE(get(served.port(), "/missing").answered(404));
  EXPECT_TRUE(get(served.port(), "/none").answered(204));
}

TEST_F(HttpGetTest, SendsTheHostAndTheKey) {
  Served served([](const HttpRequest& request, const HttpResponse& response) {
    response.send(
        200, "text/plain",
        std::string(request.header("host")) + "|" + std::string(request.header("authorization")));
  });
  HttpGetRequest request;
  request.host = "127.0.0.1";
  request.port = served.port();
  EXPECT_EQ(get(request).body, "127.0.0.1:" + std::to_string(served.port()) + "|");
  request.authority = "replica.example";
  request.bearer = "secret";
  EXPECT_EQ(get(request).body, "replica.example|Bearer secret");
}

TEST_F(HttpGetTest, TellsTheWaysToFailApart) {
  std::vector<HttpResponse> held;
  Served served([&held](const HttpRequest& request, const HttpResponse& response) {
    if (request.path == "/reset") return response.reset();
    if (request.path == "/close") return response.close();
    if (request.path == "/cut") {
      response.write_raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort");
      return response.close();
    }
    if (request.path == "/garbage") {
      response.write_raw("SSH-2.0-OpenSSH\r\n\r\n");
      return response.close();
    }
    if (request.path == "/large") return response.send(200, "", std::string(100'001, 'x'));
    if (request.path == "/large-chunks") {
      response.begin(200, "");
      response.write(std::string(100'001, 'x'));
    }
    if (request.path == "/midway") response.begin(200, "text/plain");
    held.push_back(response);
  });
  const std::uint16_t port = served.port();
  const Duration soon = std::chrono::milliseconds(100);
  EXPECT_EQ(get(port, "/reset").outcome, Outcome::kReset);
  EXPECT_EQ(get(port, "/close").outcome, Outcome::kClosed);
  EXPECT_EQ(get(port, "/cut").outcome, Outcome::kBroken);
  EXPECT_EQ(get(port, "/garbage").outcome, Outcome::kBroken);
  EXPECT_EQ(get(port, "/large").outcome, Outcome::kTooLarge);
  EXPECT_EQ(get(port, "/large-chunks").outcome, Outcome::kTooLarge);
  EXPECT_EQ(get(port, "/silent", soon).outcome, Outcome::kTimedOut);
  EXPECT_EQ(get(port, "/midway", soon).outcome, Outcome::kTimedOutMidway);
  served.on_thread([&] {
    held.clear();
    served.server().cut_all();
  });
  EXPECT_EQ(get(port).outcome, Outcome::kRefused);
  HttpGetRequest unknown;
  unknown.host = "no-such-name.invalid";
  EXPECT_EQ(get(unknown).outcome, Outcome::kUnresolved);
}

TEST_F(HttpGetTest, ALackOfDescriptorsIsItsOwn) {
  if (test::NoDescriptorsLeft::kBreaksTheSanitizer) GTEST_SKIP();
  Served served(
      [](const HttpRequest&, const HttpResponse& response) { response.send(200, "", ""); });
  {
    const test::NoDescriptorsLeft none;
    EXPECT_EQ(get(served.port()).outcome, Outcome::kOwnLack);
  }
  EXPECT_TRUE(get(served.port()).answered(200));
}

TEST_F(HttpGetTest, ACancelledGetStaysSilent) {
  std::promise<void> asked;
  std::promise<void> left;
  Served served([&](const HttpRequest&, const HttpResponse& response) {
    response.on_gone([&left, response] { left.set_value(); });
    asked.set_value();
  });
  std::unique_ptr<HttpGet> get;
  thread_.reactor().post([&] {
    get = std::make_unique<HttpGet>(thread_.reactor(), resolver_);
    HttpGetRequest request;
    request.host = "127.0.0.1";
    request.port = served.port();
    get->start(request, [](const HttpGetResult&) { ADD_FAILURE(); });
  });
  asked.get_future().wait();
  std::promise<void> gone;
  thread_.reactor().post([&] {
    EXPECT_TRUE(get->running());
    get.reset();
    gone.set_value();
  });
  gone.get_future().wait();
  left.get_future().wait();
}

}  // namespace
}  // namespace pointsman
