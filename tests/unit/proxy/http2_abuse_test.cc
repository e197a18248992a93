// What a client of HTTP/2 may not do for ever, each with its counter.

#include <string>

#include "support/http2_client.h"
#include "support/plain_message.h"
#include "support/proxy_test.h"
#include "support/stepped_proxy.h"

namespace pointsman::test {
namespace {

constexpr std::uint8_t kData = NGHTTP2_DATA;
constexpr std::uint8_t kHeaders = NGHTTP2_HEADERS;
constexpr std::uint8_t kContinuation = NGHTTP2_CONTINUATION;

// A GET of "/v1/files" by the static table of HPACK (RFC 7541, A): method, scheme, path, authority.
const std::string kGet = std::string("\x82\x86\x04\x09/v1/files\x41\x01h", 16);

std::string number(std::uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) {
    out += static_cast<char>(value >> static_cast<unsigned>(shift) & 0xff);
  }
  return out;
}

class Http2Abuse : public ::testing::Test {
 protected:
  void SetUp() override {
    proxy_.add(listener_.port());
    client_.settle();
  }

  // The connection ends with GOAWAY(ENHANCE_YOUR_CALM), counted under `kind`, and nothing stays.
  void expect_ended(std::string_view kind) {
    EXPECT_TRUE(client_.over());
    EXPECT_EQ(client_.goaway(), NGHTTP2_ENHANCE_YOUR_CALM) << kind;
    std::string counted;
    proxy_.metrics().http2_ended.for_each([&](std::string_view word, std::uint64_t count) {
      counted += std::string(word) + "=" + std::to_string(count);
    });
    EXPECT_EQ(counted, std::string(kind) + "=1");
    client_.socket().close();
    EXPECT_TRUE(proxy_.until([&] { return proxy_.connections() == 0; }));
    EXPECT_EQ(proxy_.in_flight(), 0);
    EXPECT_EQ(proxy_.metrics().in_flight.value(), 0);
  }
  void expect_alive() {
    client_.settle();
    EXPECT_FALSE(client_.socket().over());
    EXPECT_FALSE(client_.goaway());
    const std::int32_t id = client_.request(Http2Client::get("/nowhere"));
    EXPECT_TRUE(client_.answered(id));
  }
  // Frames are sent in pieces that the kernel takes, as the proxy works them off.
  void send(const std::string& bytes) {
    client_.send_raw(bytes);
    EXPECT_TRUE(client_.until([&] { return client_.sent() || client_.socket().over(); }));
  }
  template <typename Make>
  void repeat(int count, Make&& make) {
    std::string all;
    for (int i = 0; i < count; ++i) all += make(i);
    send(all);
  }

  StepListener listener_;
  SteppedProxy proxy_;
  Http2Client client_{proxy_};
};

std::string open_and_reset(int i) {
  const auto id = static_cast<std::uint32_t>(2 * i + 1);
  return Http2Client::frame(kHeaders, 0x5, id, kGet) +
         Http2Client::frame(NGHTTP2_RST_STREAM, 0, id, number(NGHTTP2_CANCEL));
}

TEST_F(Http2Abuse, RapidResetIsEnded) {
  repeat(600, open_and_reset);
  expect_ended("rapid_reset");
  // They cost no replica anything.
  EXPECT_FALSE(listener_.accept().open());
}

TEST_F(Http2Abuse, SomeResetsAreNobodysBusiness) {
  repeat(400, open_and_reset);
  client_.settle();
  EXPECT_FALSE(client_.goaway());
  EXPECT_EQ(proxy_.metrics().http2_streams_unanswered.value(), 400U);
  // Time brings more.
  proxy_.advance(std::chrono::seconds(10));
  repeat(400, [](int i) { return open_and_reset(i + 400); });
  client_.settle();
  EXPECT_FALSE(client_.goaway());
}

// The router's resets count as the client's do, or it would be made to do the attack's work.
TEST_F(Http2Abuse, StreamsThatTheClientHasUsResetCountToo) {
  for (int i = 0; i < 600; ++i) {
    const std::int32_t id = client_.request(Http2Client::get("/v1/files"), "", true);
    // A window of more than 2^31 - 1 is an error of its stream (RFC 9113, 6.9.1).
    client_.send_raw(Http2Client::frame(NGHTTP2_WINDOW_UPDATE, 0, static_cast<std::uint32_t>(id),
                                        number(0x7fffffff)));
    if (i % 50 == 49) client_.settle();
  }
  expect_ended("rapid_reset");
}

TEST_F(Http2Abuse, SettingsFloodIsEnded) {
  repeat(200, [](int) { return Http2Client::frame(NGHTTP2_SETTINGS, 0, 0, ""); });
  expect_ended("settings_flood");
}

TEST_F(Http2Abuse, OneFrameOfManySettingsIsEnded) {
  std::string entries;
  for (int i = 0; i < 40; ++i) entries += std::string("\0\x4\0\1\0\0", 6);
  send(Http2Client::frame(NGHTTP2_SETTINGS, 0, 0, entries));
  expect_ended("flood");
}

TEST_F(Http2Abuse, PingFloodIsEnded) {
  repeat(2000, [](int) { return Http2Client::frame(NGHTTP2_PING, 0, 0, "12345678"); });
  expect_ended("ping_flood");
}

TEST_F(Http2Abuse, PingsAreAnswered) {
  for (int i = 0; i < 50; ++i) {
    nghttp2_submit_ping(client_.session(), NGHTTP2_FLAG_NONE, nullptr);
  }
  EXPECT_TRUE(client_.until([&] { return client_.pings_answered() == 50; }));
  expect_alive();
}

TEST_F(Http2Abuse, AcknowledgementsNobodyReadsAreBounded) {
  client_.stop_reading();
  repeat(2000, [](int) { return Http2Client::frame(NGHTTP2_PING, 0, 0, "12345678"); });
  client_.settle();
  proxy_.advance(std::chrono::seconds(3));
  EXPECT_TRUE(proxy_.until([&] { return proxy_.connections() == 0; }));
}

TEST_F(Http2Abuse, ContinuationFloodIsEnded) {
  std::string all = Http2Client::frame(kHeaders, 0x1, 1, kGet);
  for (int i = 0; i < 100; ++i) all += Http2Client::frame(kContinuation, 0, 1, "");
  send(all);
  expect_ended("continuation_flood");
}

TEST_F(Http2Abuse, AHeadInAFewContinuationsIsRead) {
  std::string all = Http2Client::frame(kHeaders, 0x1, 1, kGet.substr(0, 3));
  for (std::size_t i = 3; i < 9; ++i) {
    all += Http2Client::frame(kContinuation, 0, 1, kGet.substr(i, 1));
  }
  send(all + Http2Client::frame(kContinuation, 0x4, 1, kGet.substr(9)));
  StepSocket replica;
  EXPECT_TRUE(proxy_.asked(listener_, replica));
}

TEST_F(Http2Abuse, AHeadThatDoesNotEndTimesOut) {
  send(Http2Client::frame(kHeaders, 0x1, 1, kGet));
  client_.settle();
  proxy_.advance(std::chrono::seconds(11));
  EXPECT_TRUE(client_.over());
  EXPECT_EQ(proxy_.metrics().in_flight.value(), 0);
}

TEST_F(Http2Abuse, AHeaderBombIsEnded) {
  // One entry of 4,000 bytes in the table, then one byte for each time that it is named.
  std::string block = kGet + std::string("\x40\x01x\x7f\xa1\x1e", 6) + std::string(4000, 'a');
  block += std::string(10'000, '\xbe');
  std::string all = Http2Client::frame(kHeaders, 0x5, 1, block);
  send(all);
  expect_ended("header_bomb");
}

TEST_F(Http2Abuse, ATableThatIsTooLargeIsACompressionError) {
  // Dynamic table size update to 1 MiB (RFC 7541, 6.3).
  send(Http2Client::frame(kHeaders, 0x5, 1, std::string("\x3f\xe1\xff\x3f", 4) + kGet));
  EXPECT_TRUE(client_.over());
  EXPECT_EQ(client_.goaway(), NGHTTP2_COMPRESSION_ERROR);
}

TEST_F(Http2Abuse, PriorityFloodIsEnded) {
  repeat(2000, [](int i) {
    return Http2Client::frame(NGHTTP2_PRIORITY, 0, static_cast<std::uint32_t>(2 * i + 1),
                              number(0) + "\x10");
  });
  expect_ended("priority_flood");
}

TEST_F(Http2Abuse, WindowUpdateFloodIsEnded) {
  repeat(2000, [](int) { return Http2Client::frame(NGHTTP2_WINDOW_UPDATE, 0, 0, number(1)); });
  expect_ended("window_update_flood");
}

TEST_F(Http2Abuse, EmptyDataFramesAreEnded) {
  std::string all = Http2Client::frame(kHeaders, 0x4, 1, kGet);
  for (int i = 0; i < 2000; ++i) all += Http2Client::frame(kData, 0, 1, "");
  send(all);
  expect_ended("empty_frames");
}

TEST_F(Http2Abuse, FramesThatNobodyKnowsArePassedOver) {
  repeat(2000, [](int) { return Http2Client::frame(0x77, 0, 0, "?"); });
  expect_alive();
}

TEST_F(Http2Abuse, NoMoreStreamsThanAnnouncedAreServed) {
  const auto most = static_cast<int>(Http2Connection::kMaxStreams);
  repeat(most, [](int i) {
    return Http2Client::frame(kHeaders, 0x5, static_cast<std::uint32_t>(2 * i + 1), kGet);
  });
  EXPECT_TRUE(client_.until([&] { return proxy_.in_flight() == most; }));
  send(Http2Client::frame(kHeaders, 0x5, static_cast<std::uint32_t>(2 * most + 1), kGet));
  client_.settle();
  EXPECT_LE(proxy_.in_flight(), most);
}

TEST_F(Http2Abuse, DataForAStreamThatIsOverChangesNothing) {
  const std::int32_t id = client_.request(Http2Client::get("/nowhere"));
  ASSERT_TRUE(client_.answered(id));
  // More than the connection's window in all: what nobody reads gives it back.
  repeat(600, [](int) { return Http2Client::frame(kData, 0, 1, std::string(16'000, 'x')); });
  expect_alive();
}

TEST_F(Http2Abuse, MoreDataThanTheWindowAllowsIsAFlowControlError) {
  std::string all = Http2Client::frame(kHeaders, 0x4, 1, kGet);
  for (int i = 0; i < 300; ++i) all += Http2Client::frame(kData, 0, 1, std::string(16'384, 'x'));
  // The proxy reads them all before any of it is taken.
  client_.send_raw(all);
  EXPECT_TRUE(client_.until([&] { return client_.sent() || client_.socket().over(); }));
  client_.settle();
  EXPECT_LE(proxy_.held_bytes(), std::size_t{64} << 20);
}

TEST_F(Http2Abuse, AWindowThatOpensByteByByteIsEnded) {
  Http2Client tiny(proxy_, {.stream_window = 0, .auto_window = false});
  StepSocket replica;
  const std::int32_t id = tiny.request(Http2Client::get("/v1/files"));
  ASSERT_TRUE(tiny.until([&] {
    if (!replica.open()) replica = listener_.accept();
    replica.receive();
    return read_message(replica.in()).has_value();
  }));
  replica.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + std::string(50'000, 'x'));
  ASSERT_TRUE(tiny.until([&] { return !tiny.answer(id).fields.empty(); }));
  ASSERT_TRUE(tiny.until([&] {
    tiny.send_raw(Http2Client::frame(NGHTTP2_WINDOW_UPDATE, 0, 1, number(1)));
    return tiny.socket().over();
  }));
  EXPECT_EQ(tiny.goaway(), NGHTTP2_ENHANCE_YOUR_CALM);
  EXPECT_LT(tiny.answer(id).data.size(), 1100U);
}

TEST_F(Http2Abuse, ANoiseOfBytesIsNoHttp2) {
  send(std::string(100, '\xff'));
  EXPECT_TRUE(client_.over());
  client_.socket().close();
  EXPECT_TRUE(proxy_.until([&] { return proxy_.connections() == 0; }));
}

}  // namespace
}  // namespace pointsman::test
