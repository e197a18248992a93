#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json_writer.h"
#include "experiments/statistics.h"

namespace pointsman::sim {

struct Entry;
class Value;

// Named values in the order in which they were set: a row of a table, or what was run. The order is
// that of the JSON and CSV files, so the same program writes the same bytes.
class Record {
 public:
  // Appends the value, or replaces the one of that name in its place.
  Record& set(std::string_view key, Value value);
  // Sets `key` to the mean and "<key>_ci95" to [low, high], or to null where both are unknown.
  Record& set(std::string_view key, const Estimate& estimate);

  // Sets both to null: a quantity with an interval that was not measured.
  Record& set_unknown(std::string_view key);

  // Null where there is none.
  [[nodiscard]] const Value* find(std::string_view key) const;
  // The number of that name, whole or not; `otherwise` where there is none.
  [[nodiscard]] double number(std::string_view key, double otherwise = 0) const;
  // What set() made of an Estimate.
  [[nodiscard]] Estimate estimate(std::string_view key) const;
  // Empty where there is none.
  [[nodiscard]] std::string text(std::string_view key) const;

  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

// What JSON can say. A number that is not finite means "unknown" and becomes null.
class Value {
 public:
  using List = std::vector<Value>;

  // A value is written as it is. NOLINTBEGIN(google-explicit-constructor)
  Value() = default;
  Value(bool value);
  Value(int value);
  Value(std::int64_t value);
  Value(std::uint32_t value);
  Value(std::uint64_t value);  // below 2^63, as counts are
  Value(double value);
  Value(std::string value);
  Value(std::string_view value);
  Value(const char* value);
  Value(List values);
  Value(Record record);
  // NOLINTEND(google-explicit-constructor)

  template <typename T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&held_);
  }
  // A number, whole or not.
  [[nodiscard]] bool is_number() const { return as<double>() || as<std::int64_t>(); }
  [[nodiscard]] double number() const;

  void write(JsonWriter& json) const;

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, List, Record> held_;
};

struct Entry {
  std::string key;
  Value value;
};

// A list of numbers, for what is plotted against time.
[[nodiscard]] Value number_list(const std::vector<double>& values);

void write_record(const Record& record, JsonWriter& json);

}  // namespace pointsman::sim
