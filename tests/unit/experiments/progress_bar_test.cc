#include "experiments/progress_bar.h"

#include <gtest/gtest.h>

namespace pointsman::sim {
namespace {

TEST(ProgressText, TellsTheTimeLeftFromTheShareThatIsDone) {
  EXPECT_EQ(progress_text("theory", 8, 32, 10),
            "theory [######..................] 8 of 32, 30 s left");
  EXPECT_EQ(progress_text("theory", 30, 60, 600),
            "theory [############............] 30 of 60, 10 min left");
}

TEST(ProgressText, GuessesNothingAtTheStart) {
  EXPECT_EQ(progress_text("x", 0, 100, 1), "x [........................] 0 of 100");
}

}  // namespace
}  // namespace pointsman::sim
