#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pointsman {

// One event of a stream. The views are valid during the call that hands it over only.
struct SseEvent {
  std::string_view name;  // of the event: field; empty where there is none
  std::string_view data;  // the data: lines, joined by line feeds
};

// Reads server-sent events (WHATWG HTML, 9.2.6) out of the body bytes of a stream that passes by.
// The bytes themselves are never changed, and the events are the same however they are cut.
//
// An event with one data line that lies whole within one piece is handed over without a copy. What
// a piece leaves unfinished is kept. An event with a line, or with data, of more than `max_event`
// bytes is passed over and counted, so that at most twice that much is ever kept. Not thread-safe.
class SseScanner {
 public:
  // The first event of /v1/responses repeats the instructions and tools of the request, its last
  // one the whole answer: with agents some hundred kilobytes.
  static constexpr std::size_t kDefaultMaxEvent = 256 * 1024;

  explicit SseScanner(std::size_t max_event = kDefaultMaxEvent) : max_event_(max_event) {}

  // Calls each(const SseEvent&) for every event that ends within `piece`. Events without data
  // (comments, retry, id, a lone event name) are no events.
  template <typename Each>
  void feed(std::string_view piece, Each&& each) {
    while (!piece.empty()) {
      if (take_line(piece) && end_of_event()) {
        each(SseEvent{name_, data()});
        clear_event();
      }
    }
    keep_pending();
  }

  // Nothing of an event has been seen since the last one ended: another whole event may be put in
  // here.
  [[nodiscard]] bool at_event_boundary() const { return !in_line_ && !in_event_; }
  [[nodiscard]] std::uint64_t passed_over() const { return passed_over_; }

  void reset();

 private:
  // Takes bytes up to and with the next line end. True: that ended a line (the field, if it was
  // one, has been noted); line_was_empty_ then says whether the event is complete.
  bool take_line(std::string_view& piece);
  void note_line(std::string_view line);
  void add_data(std::string_view value);
  // At an empty line: whether there is an event to hand over; if not, its fields are forgotten.
  bool end_of_event();
  void clear_event();
  void keep_pending();
  void pass_over();
  [[nodiscard]] std::string_view data() const { return pending_ ? view_ : std::string_view(kept_); }

  // Memory that stays after an event that was kept.
  static constexpr std::size_t kSpare = 4096;

  std::size_t max_event_;
  std::string line_;  // the unfinished line
  std::string name_;
  std::string kept_;       // data of the unfinished event, from earlier pieces or several lines
  std::string_view view_;  // data of the unfinished event, still in the present piece
  std::uint64_t passed_over_ = 0;
  bool first_line_ = true;  // it may begin with a byte order mark
  bool pending_ = false;    // view_ is in use
  bool has_data_ = false;
  bool in_line_ = false;   // the unfinished line is not empty
  bool in_event_ = false;  // a field was seen since the last event ended
  bool after_cr_ = false;  // a line feed now belongs to the line end before it
  bool line_was_empty_ = false;
  bool too_long_ = false;  // the unfinished event is being passed over
};

}  // namespace pointsman
