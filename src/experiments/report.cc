#include "experiments/report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <span>
#include <string_view>
#include <utility>

#include "base/printable.h"
#include "experiments/definitions.h"

namespace pointsman::sim {
namespace {

constexpr std::string_view kInterval = "_ci95";

std::string record_json(const Record& record) {
  JsonWriter json;
  write_record(record, json);
  return json.take();
}

// The shortest decimal that reads back as the same double.
std::string exact(double number) {
  if (!std::isfinite(number)) return {};
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

std::string quoted_csv(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string cell_csv(const Value& value) {
  if (const bool* flag = value.as<bool>()) return *flag ? "true" : "false";
  if (const auto* whole = value.as<std::int64_t>()) return std::to_string(*whole);
  if (const double* number = value.as<double>()) return exact(*number);
  if (const std::string* text = value.as<std::string>()) return quoted_csv(*text);
  return {};
}

// One table cell, or two for an interval, known or not, or none.
std::vector<Entry> flat(const Entry& entry) {
  const auto* list = entry.value.as<Value::List>();
  if (entry.key.ends_with(kInterval)) {
    const bool known = list != nullptr && list->size() == 2;
    return {{entry.key + "_low", known ? (*list)[0] : Value()},
            {entry.key + "_high", known ? (*list)[1] : Value()}};
  }
  if (list != nullptr || entry.value.as<Record>() != nullptr) return {};
  return {entry};
}

// Characters as a terminal counts them: bytes that do not continue a UTF-8 sequence.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }));
}

std::string rounded(double number, const Column& column) {
  if (!std::isfinite(number)) return "-";
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", column.digits, number * column.scale);
  return text;
}

std::string cell_text(const Record& row, const Column& column) {
  const Value* value = row.find(column.key);
  if (value == nullptr) return "-";
  if (const std::string* text = value->as<std::string>()) return printable(*text);
  if (const bool* flag = value->as<bool>()) return *flag ? "yes" : "no";
  if (const auto* whole = value->as<std::int64_t>(); whole != nullptr && column.scale == 1) {
    return std::to_string(*whole);
  }
  if (!value->is_number()) return "-";
  std::string text = rounded(value->number(), column);
  // No interval of a single run, and none of what was set and not measured.
  const Estimate estimate = row.estimate(column.key);
  if ((std::isfinite(estimate.low) || std::isfinite(estimate.high)) &&
      estimate.low != estimate.high) {
    text += " [" + rounded(estimate.low, column) + ", " + rounded(estimate.high, column) + "]";
  }
  return text;
}

void append_table(const std::vector<Column>& columns, std::span<const Record> rows,
                  std::string& text) {
  std::vector<std::vector<std::string>> lines(1);
  std::vector<bool> is_text(columns.size(), true);
  std::vector<std::size_t> widths;
  for (const Column& column : columns) {
    lines[0].push_back(column.title);
    widths.push_back(width(column.title));
  }
  for (const Record& row : rows) {
    std::vector<std::string>& line = lines.emplace_back();
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const Value* value = row.find(columns[i].key);
      if (value != nullptr && value->is_number()) is_text[i] = false;
      line.push_back(cell_text(row, columns[i]));
      widths[i] = std::max(widths[i], width(line[i]));
    }
  }
  for (const std::vector<std::string>& line : lines) {
    std::string out;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string padding(widths[i] - width(line[i]), ' ');
      if (i > 0) out += "  ";
      out += is_text[i] ? line[i] + padding : padding + line[i];
    }
    out.erase(out.find_last_not_of(' ') + 1);
    text += out + '\n';
  }
}

// Which rows a table shows.
struct Shown {
  std::size_t first = 0;
  std::size_t count = 0;
};

std::vector<Shown> shown_rows(const Report& report) {
  std::vector<Shown> shown;
  std::size_t next = 0;
  for (const Table& table : report.tables) {
    if (table.again && !shown.empty()) {
      shown.push_back(shown.back());
      continue;
    }
    const std::size_t left = report.rows.size() - next;
    shown.push_back({next, table.rows == 0 ? left : std::min(table.rows, left)});
    next += shown.back().count;
  }
  return shown;
}

Record table_record(const Table& table, const Shown& shown) {
  Value::List columns;
  for (const Column& column : table.columns) {
    columns.emplace_back(Record()
                             .set("key", column.key)
                             .set("title", column.title)
                             .set("digits", column.digits)
                             .set("scale", column.scale));
  }
  return Record()
      .set("title", table.title)
      .set("first", shown.first)
      .set("rows", shown.count)
      .set("columns", std::move(columns));
}

// What each key of the rows is, in the order of their first appearance.
Record definitions(const Report& report) {
  Record meanings;
  for (const Record& row : report.rows) {
    for (const Entry& entry : row.entries()) {
      if (entry.key.ends_with(kInterval) || meanings.find(entry.key) != nullptr) continue;
      if (const auto meaning = definition_of(entry.key)) meanings.set(entry.key, *meaning);
    }
  }
  return meanings;
}

}  // namespace

std::string counted(std::uint64_t count, std::string_view noun) {
  return std::to_string(count).append(" ").append(noun).append(count == 1 ? "" : "s");
}

std::string report_json(const Report& report) {
  std::string text = "{\"experiment\":";
  JsonWriter json;
  json.string(report.experiment).key("title").string(report.title);
  json.key("seeds").integer(report.seeds);
  json.key("first_seed").integer(static_cast<std::int64_t>(report.first_seed));
  text += json.take() + ",\n\"scenario\":" + record_json(report.scenario) + ",\n\"rows\":[";
  for (const Record& row : report.rows) {
    text += &row == report.rows.data() ? "\n" : ",\n";
    text += record_json(row);
  }
  const std::vector<Shown> shown = shown_rows(report);
  text += "\n],\n\"definitions\":" + record_json(definitions(report)) + ",\n\"tables\":[";
  for (std::size_t i = 0; i < shown.size(); ++i) {
    text += i == 0 ? "\n" : ",\n";
    text += record_json(table_record(report.tables[i], shown[i]));
  }
  JsonWriter notes;
  notes.begin_array();
  for (const std::string& note : report.notes) notes.string(note);
  notes.end_array();
  return text + "\n],\n\"notes\":" + notes.take() + "}\n";
}

std::string report_csv(const Report& report) {
  std::vector<std::string> keys;
  for (const Record& row : report.rows) {
    for (const Entry& entry : row.entries()) {
      for (const Entry& cell : flat(entry)) {
        if (std::find(keys.begin(), keys.end(), cell.key) == keys.end()) keys.push_back(cell.key);
      }
    }
  }
  std::string text;
  for (const std::string& key : keys) {
    if (&key != keys.data()) text += ',';
    text += quoted_csv(key);
  }
  text += '\n';
  for (const Record& row : report.rows) {
    Record cells;
    for (const Entry& entry : row.entries()) {
      for (Entry& cell : flat(entry)) cells.set(cell.key, std::move(cell.value));
    }
    for (const std::string& key : keys) {
      if (&key != keys.data()) text += ',';
      if (const Value* value = cells.find(key)) text += cell_csv(*value);
    }
    text += '\n';
  }
  return text;
}

std::string report_text(const Report& report) {
  std::string text = printable(report.title) + "\n\n";
  const std::vector<Shown> shown = shown_rows(report);
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const Table& table = report.tables[i];
    if (i > 0) text += '\n';
    if (!table.title.empty()) text += printable(table.title) + '\n';
    append_table(table.columns, std::span(report.rows).subspan(shown[i].first, shown[i].count),
                 text);
  }
  if (!report.notes.empty()) text += '\n';
  for (const std::string& note : report.notes) text += printable(note) + '\n';
  return text;
}

}  // namespace pointsman::sim
