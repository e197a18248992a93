#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "net/http_server.h"
#include "replica/answer_writer.h"
#include "replica/fault.h"
#include "replica/prompt.h"
#include "replica/replica.h"

namespace pointsman {

// One prompt of a request and its answer: one request of the engine.
struct Replica::Part {
  sim::RequestId id = 0;
  AnswerText answer;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t output_tokens = 0;
  bool stops = false;  // ends by itself, not at the client's limit
  std::uint32_t cached = 0;
  std::vector<std::uint64_t> blocks{};  // of prompt and answer, where their events are published
  TimePoint last_token{};
  std::string text{};  // the whole answer, or of a stream what is not yet sent
};

// One request from a client.
struct Replica::Exchange {
  HttpResponse response;
  AnswerWriter writer;
  bool stream = false;
  bool include_usage = false;
  HttpHeaders headers;
  std::optional<Fault> fault;
  TimePoint arrived;
  std::vector<Part> parts;
  std::size_t open = 0;  // parts that are not finished
  std::uint32_t events_sent = 0;
};

}  // namespace pointsman
