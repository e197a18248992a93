#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/record.h"

namespace pointsman::sim {

// A column of the table on the screen.
struct Column {
  std::string key;    // of the rows
  std::string title;  // with the unit
  int digits = 0;     // after the point, of numbers that are not whole
  double scale = 1;   // 100 shows a share in per cent
};

// Some rows of a report as they are shown on the screen.
struct Table {
  std::string title;  // above it; may be empty
  std::vector<Column> columns;
  // The report's tables share out its rows in their order; 0: all that are left.
  std::size_t rows = 0;
  bool again = false;  // other columns of the rows that the table before has shown
};

// What an experiment found. The files carry all of it, the screen what its tables show.
struct Report {
  std::string experiment;  // the name of the command
  std::string title;       // one line: what is shown
  Record scenario;         // all that was run: with the program, enough to run it again
  int seeds = 1;
  std::uint64_t first_seed = 1;  // as the command was told
  std::vector<Record> rows;
  std::vector<Table> tables;
  std::vector<std::string> notes;  // below the tables: what a reader must know to read them
};

// "1 replica", "2 replicas": a noun whose plural has an s.
[[nodiscard]] std::string counted(std::uint64_t count, std::string_view noun);

// {"experiment", "title", "seeds", "first_seed", "scenario": {…}, "rows": [{…}, …], "definitions":
// {…}, "tables": […], "notes": […]}, one row a line. "definitions" says what each key of the rows
// is (experiments/definitions.h). "tables" says how the rows are shown: the title, the first row
// and the number of rows, and of each column the key, title, digits and scale. The same report
// gives the same bytes.
[[nodiscard]] std::string report_json(const Report& report);

// One line a row, with the union of the rows' keys in order of first appearance. "<key>_ci95"
// becomes the two columns "<key>_ci95_low" and "<key>_ci95_high", empty where it is null; other
// lists and objects, which have no place in a table, are left to the JSON file. RFC 4180.
[[nodiscard]] std::string report_csv(const Report& report);

// The tables, with intervals in brackets, and the notes. Control characters of names are escaped.
[[nodiscard]] std::string report_text(const Report& report);

}  // namespace pointsman::sim
