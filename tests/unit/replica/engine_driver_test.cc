#include "replica/engine_driver.h"

#include <gtest/gtest.h>

#include "replica/prompt.h"

namespace pointsman {
namespace {

TEST(EngineDriver, TellsOfTheCacheAlsoWhereNoStepIsToCome) {
  asio::io_context io;
  EngineDriver driver(io, sim::EngineConfig{}, 1'000, [](const sim::EngineEvent&) {});
  int told = 0;
  driver.watch_cache([&](std::span<const sim::ChainRun>) { ++told; });
  const std::vector<sim::ChainRun> chain = block_chain(TokenIds(32, 7), 0);
  driver.pause(true);
  driver.submit({.id = 1, .prompt_tokens = 32, .output_tokens = 1, .chain = chain});
  EXPECT_TRUE(driver.cancel(1));
  EXPECT_EQ(told, 1);
  // With a step under way, its end tells.
  driver.pause(false);
  driver.submit({.id = 2, .prompt_tokens = 32, .output_tokens = 1, .chain = chain});
  EXPECT_TRUE(driver.cancel(2));
  EXPECT_EQ(told, 1);
  io.run();
  EXPECT_EQ(told, 2);
}

}  // namespace
}  // namespace pointsman
