#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/api.h"

namespace pointsman {

// An error that the router itself answers with, never one of an engine (those pass through as they
// came). The form is OpenAI's: {"error":{"message","type","param","code"}}.
struct OwnError {
  int status = 500;               // 400, 401, 404, 413, 429, 431, 500, 502, 503, 504, 505
  std::string_view type = {};     // OpenAI's type; base/error.h has one for each kind
  std::string_view message = {};  // for a person
  std::string_view kind = {};   // of the x-pointsman-error header: a fixed word, like "no_replica"
  std::string_view code = {};   // empty: null
  std::string_view param = {};  // the field at fault; empty: null
  std::uint32_t retry_after_s = 0;  // 0: no Retry-After header
};

// "404" → "Not Found"; empty for a number without a usual phrase.
std::string_view reason_phrase(int status);

// The JSON body alone.
void append_error_body(const OwnError& error, std::string& out);

// The whole answer, head and body. With `keep_alive` false the answer announces the close. Answers
// to HEAD (`head_only`) carry the body's length but no body.
void append_error_response(const OwnError& error, std::string_view request_id, bool keep_alive,
                           bool head_only, std::string& out);

// An answer of the router's own with any body: health, models.
void append_own_response(int status, std::string_view content_type, std::string_view body,
                         std::string_view request_id, bool keep_alive, bool head_only,
                         std::string& out);

// The error as one server-sent event in the form that the path's clients understand:
//   chat, completions, others  data: {"error":{...}}
//   messages                   event: error, data: {"type":"error","error":{"type","message"}}
//   responses                  event: error, data: {"type":"error","code","message","param",...}
// To be put in between two events only; the caller adds chunk framing where the stream has any.
void append_error_event(Api api, const OwnError& error, std::string& out);

}  // namespace pointsman
