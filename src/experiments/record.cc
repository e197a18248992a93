#include "experiments/record.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace pointsman::sim {
namespace {

constexpr std::string_view kInterval = "_ci95";

}  // namespace

Record& Record::set(std::string_view key, Value value) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [key](const Entry& entry) { return entry.key == key; });
  if (found != entries_.end()) {
    found->value = std::move(value);
  } else {
    entries_.push_back({std::string(key), std::move(value)});
  }
  return *this;
}

Record& Record::set(std::string_view key, const Estimate& estimate) {
  set(key, Value(estimate.mean));
  const bool known = std::isfinite(estimate.low) || std::isfinite(estimate.high);
  return set(std::string(key).append(kInterval),
             known ? Value(Value::List{estimate.low, estimate.high}) : Value());
}

Record& Record::set_unknown(std::string_view key) {
  return set(key, Value()).set(std::string(key).append(kInterval), Value());
}

const Value* Record::find(std::string_view key) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [key](const Entry& entry) { return entry.key == key; });
  return found == entries_.end() ? nullptr : &found->value;
}

double Record::number(std::string_view key, double otherwise) const {
  const Value* value = find(key);
  return value != nullptr && value->is_number() ? value->number() : otherwise;
}

Estimate Record::estimate(std::string_view key) const {
  const double mean = number(key);
  const Value* interval = find(std::string(key).append(kInterval));
  const Value::List* bounds = interval == nullptr ? nullptr : interval->as<Value::List>();
  if (bounds == nullptr || bounds->size() != 2) {
    constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
    return {mean, kUnknown, kUnknown};
  }
  return {mean, (*bounds)[0].number(), (*bounds)[1].number()};
}

std::string Record::text(std::string_view key) const {
  const Value* value = find(key);
  const std::string* text = value == nullptr ? nullptr : value->as<std::string>();
  return text == nullptr ? std::string() : *text;
}

Value::Value(bool value) : held_(value) {}
Value::Value(int value) : held_(std::int64_t{value}) {}
Value::Value(std::int64_t value) : held_(value) {}
Value::Value(std::uint32_t value) : held_(std::int64_t{value}) {}
Value::Value(std::uint64_t value) : held_(static_cast<std::int64_t>(value)) {}
Value::Value(double value) : held_(value) {}
Value::Value(std::string value) : held_(std::move(value)) {}
Value::Value(std::string_view value) : held_(std::string(value)) {}
Value::Value(const char* value) : held_(std::string(value)) {}
Value::Value(List values) : held_(std::move(values)) {}
Value::Value(Record record) : held_(std::move(record)) {}

double Value::number() const {
  if (const auto* whole = as<std::int64_t>()) return static_cast<double>(*whole);
  const double* number = as<double>();
  return number == nullptr ? 0 : *number;
}

void Value::write(JsonWriter& json) const {
  if (const bool* flag = as<bool>()) {
    json.boolean(*flag);
  } else if (const auto* whole = as<std::int64_t>()) {
    json.integer(*whole);
  } else if (const double* number = as<double>()) {
    json.number(*number);
  } else if (const std::string* text = as<std::string>()) {
    json.string(*text);
  } else if (const List* list = as<List>()) {
    json.begin_array();
    for (const Value& value : *list) value.write(json);
    json.end_array();
  } else if (const Record* record = as<Record>()) {
    write_record(*record, json);
  } else {
    json.null();
  }
}

Value number_list(const std::vector<double>& values) {
  return Value::List(values.begin(), values.end());
}

void write_record(const Record& record, JsonWriter& json) {
  json.begin_object();
  for (const Entry& entry : record.entries()) {
    json.key(entry.key);
    entry.value.write(json);
  }
  json.end_object();
}

}  // namespace pointsman::sim
