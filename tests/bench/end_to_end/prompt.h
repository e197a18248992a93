#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace pointsman::bench {

struct Prompts {
  std::size_t bytes = 1050;  // of a request's body
  int families = 0;          // 0: one common system message, then a question that is new each time;
                             // else as many texts in turn, each with a new question at its end
  bool stream = false;
};

// The chat completion number `number`, head and body.
inline std::string make_request(const Prompts& prompts, long number) {
  static const std::string words = [&prompts] {
    std::string text;
    while (text.size() < prompts.bytes) text += "which river runs past the old town and how long ";
    return text;
  }();
  std::string body = R"({"model":"m1",)";
  if (prompts.stream) body += R"("stream":true,)";
  body +=
      R"("max_tokens":64,"messages":[{"role":"system","content":"You answer short questions about )"
      R"(rivers, cities and numbers in one sentence, and say so when you do not know."},)"
      R"({"role":"user","content":")";
  const std::string question = "Question " + std::to_string(number) + ": ";
  std::string tail = R"("}]})";
  if (prompts.families == 0) {
    body += question;
  } else {
    body += "Text " + std::to_string(number % prompts.families) + ": ";
    tail = " " + question + tail;
  }
  body.append(words, 0, prompts.bytes - std::min(prompts.bytes, tail.size() + body.size()));
  body += tail;
  return "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench_load\r\n"
         "Accept: */*\r\nContent-Type: application/json\r\nAuthorization: Bearer none\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace pointsman::bench
