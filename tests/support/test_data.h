#pragma once

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace pointsman {

// The bytes of a file below tests/data.
inline std::string test_data(const std::string& name) {
  std::ifstream file(std::string(POINTSMAN_TEST_DATA) + "/" + name, std::ios::binary);
  if (!file) throw std::runtime_error("no test data " + name);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace pointsman
