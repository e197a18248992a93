#pragma once

#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proxy_rig.h"

// What the tests of the data plane are written with. They stand in this namespace.
namespace pointsman::test {

using std::chrono::milliseconds;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

}  // namespace pointsman::test
