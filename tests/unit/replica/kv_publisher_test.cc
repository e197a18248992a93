#include "replica/kv_publisher.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pointsman {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::string_view kEnd = "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF";

std::string number_frame(std::uint64_t number) {
  std::string frame(8, '\0');
  for (std::size_t i = 8; i-- > 0; number >>= 8) frame[i] = static_cast<char>(number & 0xFF);
  return frame;
}

// A publisher on loopback, and somebody who asks it.
class AskedPublisher : public ::testing::Test {
 protected:
  AskedPublisher() {
    EXPECT_TRUE(publisher_.start().ok());
    EXPECT_TRUE(asker_.connect(publisher_.replay_endpoint()).ok());
  }

  void publish(std::size_t batches, std::size_t tokens = 16) {
    const KvChanges changes{
        .cleared = false,
        .removed = {},
        .stored = {{.blocks = {1}, .parent = {}, .tokens = TokenIds(tokens, 100'000), .salt = {}}}};
    for (std::size_t i = 0; i < batches; ++i) publisher_.publish(changes);
  }

  void send(const std::vector<std::string_view>& frames) {
    ASSERT_TRUE(in_time([&] { return asker_.send(frames); }));
  }

  // The numbers of the batches that come until the end mark, which is not among them.
  std::vector<std::string> numbers_until_end() {
    std::vector<std::string> numbers;
    std::vector<std::string> frames;
    for (;;) {
      if (!in_time([&] { return asker_.receive(frames); })) return {"no answer"};
      if (frames.size() != 4) return {"frames without topic"};
      if (frames[2] == kEnd) return numbers;
      numbers.push_back(frames[2]);
    }
  }

  std::vector<std::string> ask(std::uint64_t from) {
    send({"", number_frame(from)});
    return numbers_until_end();
  }

 private:
  template <typename Condition>
  bool in_time(Condition&& condition) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > limit) return false;
      io_.run_one_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  asio::io_context io_;
  KvPublisher publisher_{
      io_, {.events = "tcp://127.0.0.1:*", .replay = "tcp://127.0.0.1:*", .topic = "t"}};
  ZmqContext context_;
  ZmqSocket asker_{context_, ZmqSocket::Kind::kDealer};
};

TEST_F(AskedPublisher, AnswersWithTheBatchesFromANumberOn) {
  publish(3);
  EXPECT_THAT(ask(1), ElementsAre(number_frame(1), number_frame(2)));
  EXPECT_THAT(ask(3), IsEmpty());
  EXPECT_THAT(ask(UINT64_MAX), IsEmpty());
}

TEST_F(AskedPublisher, KeepsSoManyBatches) {
  publish(KvPublisher::kKeptBatches + 2);
  const std::vector<std::string> numbers = ask(0);
  ASSERT_THAT(numbers, SizeIs(KvPublisher::kKeptBatches));
  EXPECT_EQ(numbers.front(), number_frame(2));
}

TEST_F(AskedPublisher, KeepsSoManyBytes) {
  // Five bytes for each token, and some hundred for the rest.
  const std::size_t tokens = 400'000;
  const std::size_t fit = KvPublisher::kKeptBytes / (5 * tokens + 200);
  publish(fit + 5, tokens);
  const std::vector<std::string> numbers = ask(0);
  ASSERT_THAT(numbers, SizeIs(fit));
  EXPECT_EQ(numbers.front(), number_frame(5));
}

TEST_F(AskedPublisher, LetsGoOfABatchThatIsLargerThanAllThatIsKept) {
  publish(2, KvPublisher::kKeptBytes / 5);
  publish(1);
  EXPECT_THAT(ask(0), ElementsAre(number_frame(2)));
}

TEST_F(AskedPublisher, PassesOverWhatIsNoQuestion) {
  publish(1);
  for (int i = 0; i < 20; ++i) {
    send({number_frame(0)});
    send({"", "0"});
    send({"", number_frame(0), ""});
    send({"no empty frame", number_frame(0)});
  }
  EXPECT_THAT(ask(0), ElementsAre(number_frame(0)));
}

TEST_F(AskedPublisher, AnswersManyQuestionsInTheirOrder) {
  publish(20);
  for (std::uint64_t from = 0; from < 20; ++from) send({"", number_frame(from)});
  for (std::uint64_t from = 0; from < 20; ++from) {
    EXPECT_THAT(numbers_until_end(), SizeIs(20 - from));
  }
}

}  // namespace
}  // namespace pointsman
