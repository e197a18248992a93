#include "replica/fault.h"

#include <simdjson.h>

namespace pointsman {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

Error malformed(std::string_view key, std::string_view wanted) {
  return {ErrorKind::kClient,
          std::string("fault: ") + std::string(key) + ": expected " + std::string(wanted)};
}

template <typename T>
bool read(const element& value, T& out) {
  return value.get(out) == simdjson::SUCCESS;
}

bool read_text(const element& value, std::string& out) {
  std::string_view text;
  if (!read(value, text)) return false;
  out = text;
  return true;
}

bool read_number(const element& value, std::uint64_t& out) {
  return value.get(out) == simdjson::SUCCESS && out <= 1'000'000'000;
}

bool read_seconds(const element& value, Duration& out) {
  double seconds = 0;
  if (value.get(seconds) != simdjson::SUCCESS || !(seconds >= 0 && seconds <= 86'400)) return false;
  out = from_seconds(seconds);
  return true;
}

Result<void> read_field(std::string_view key, const element& value, Fault& fault) {
  std::uint64_t number = 0;
  std::string text;
  if (key == "path") {
    if (!read_text(value, fault.path)) return malformed(key, "a string");
  } else if (key == "count") {
    if (!read_number(value, number)) return malformed(key, "a count");
    fault.count = static_cast<std::uint32_t>(number);
  } else if (key == "delay_s") {
    if (!read_seconds(value, fault.delay)) return malformed(key, "seconds");
  } else if (key == "status") {
    if (!read_number(value, number) || number < 200 || number > 599) {
      return malformed(key, "a status from 200 to 599");
    }
    fault.status = static_cast<int>(number);
  } else if (key == "body") {
    if (!read_text(value, text)) return malformed(key, "a string");
    fault.body = std::move(text);
  } else if (key == "content_type") {
    if (!read_text(value, fault.content_type)) return malformed(key, "a string");
  } else if (key == "headers") {
    object headers;
    if (!read(value, headers)) return malformed(key, "an object of strings");
    for (const auto& [name, field] : headers) {
      if (!read_text(field, text)) return malformed(key, "an object of strings");
      fault.headers.emplace_back(name, text);
    }
  } else if (key == "no_content_length") {
    if (!read(value, fault.no_content_length)) return malformed(key, "true or false");
  } else if (key == "raw") {
    if (!read_text(value, text)) return malformed(key, "a string");
    fault.raw = std::move(text);
  } else if (key == "piece_bytes") {
    if (!read_number(value, number)) return malformed(key, "a number of bytes");
    fault.piece_bytes = number;
  } else if (key == "piece_s") {
    if (!read_seconds(value, fault.piece_interval)) return malformed(key, "seconds");
  } else if (key == "before_head") {
    if (!read(value, fault.before_head)) return malformed(key, "true or false");
  } else if (key == "after_head") {
    if (!read(value, fault.after_head)) return malformed(key, "true or false");
  } else if (key == "after_events") {
    if (!read_number(value, number)) return malformed(key, "a count");
    fault.after_events = static_cast<std::uint32_t>(number);
  } else if (key == "in_event") {
    if (!read(value, fault.in_event)) return malformed(key, "true or false");
  } else if (key == "then") {
    if (!read_text(value, text)) return malformed(key, "close, reset or hang");
    if (text == "close") {
      fault.then = FaultEnd::kClose;
    } else if (text == "reset") {
      fault.then = FaultEnd::kReset;
    } else if (text == "hang") {
      fault.then = FaultEnd::kHang;
    } else {
      return malformed(key, "close, reset or hang");
    }
  } else {
    return Error{ErrorKind::kClient, "fault: unknown key '" + std::string(key) + "'"};
  }
  return {};
}

}  // namespace

Result<Fault> parse_fault(std::string_view json) {
  simdjson::dom::parser parser;
  object root;
  if (parser.parse(simdjson::padded_string(json)).get(root) != simdjson::SUCCESS) {
    return Error{ErrorKind::kClient, "fault: expected a JSON object"};
  }
  Fault fault;
  for (const auto& [key, value] : root) {
    if (Result<void> read = read_field(key, value, fault); !read) return read.error();
  }
  return fault;
}

std::optional<Fault> FaultQueue::take(std::string_view path, bool named) {
  for (auto it = faults_.begin(); it != faults_.end(); ++it) {
    if (!path.starts_with(it->path) || (named && it->path.empty())) continue;
    Fault fault = *it;
    if (it->count == 1) {
      faults_.erase(it);
    } else if (it->count > 1) {
      --it->count;
    }
    return fault;
  }
  return std::nullopt;
}

}  // namespace pointsman
