#include "features/answer_reader.h"

#include <algorithm>
#include <cstring>

#include "base/ascii.h"
#include "features/json_read.h"
#include "features/session_key.h"

namespace pointsman {
namespace {

// Usage objects are small; what is longer is none.
constexpr std::size_t kMaxUsage = 4096;

std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size() &&
         (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t')) {
    ++at;
  }
  return at;
}

// Where the value of the key that ends before `at` begins; text.size() where there is no colon.
std::size_t value_after(std::string_view text, std::size_t at) {
  at = skip_space(text, at);
  if (at >= text.size() || text[at] != ':') return text.size();
  return skip_space(text, at + 1);
}

// The object that begins at `at`; empty where it does not end within kMaxUsage bytes.
std::string_view object_at(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at, kMaxUsage);
  int depth = 0;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    const char c = rest[i];
    if (c == '"') {
      i = json::string_end(rest, i);
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return rest.substr(0, i + 1);
    }
  }
  return {};
}

// Where the keys that answers tell their counts under begin for the last time.
struct CountKeys {
  static constexpr std::string_view kUsage = "\"usage\"";
  static constexpr std::string_view kTimings = "\"timings\"";  // llama.cpp's own

  std::size_t usage = std::string_view::npos;
  std::size_t timings = std::string_view::npos;
};

// Every event of every stream is searched, so both keys are looked for in one pass, eight places a
// step: a place counts where a quote stands and behind it a `u` or a `t`, which differ in their
// lowest bit alone. The test may err towards finding; the comparison settles it.
CountKeys find_count_keys(std::string_view text) {
  CountKeys keys;
  const auto look = [&](std::size_t at) {
    const std::string_view rest = text.substr(at);
    if (rest.starts_with(CountKeys::kUsage)) keys.usage = at;
    if (rest.starts_with(CountKeys::kTimings)) keys.timings = at;
  };
  constexpr std::uint64_t kOnes = 0x0101010101010101ULL;
  constexpr std::uint64_t kHighs = 0x8080808080808080ULL;
  std::size_t at = 0;
  for (; text.size() - at > 8; at += 8) {
    std::uint64_t here;
    std::uint64_t next;
    std::memcpy(&here, text.data() + at, 8);
    std::memcpy(&next, text.data() + at + 1, 8);
    here ^= '"' * kOnes;
    next = (next | kOnes) ^ 'u' * kOnes;
    const std::uint64_t found =
        (here - kOnes) & ~here & (next - kOnes) & ~next & kHighs;  // bytes that are 0 in both
    if (found == 0) continue;
    for (std::size_t i = 0; i < 8; ++i) look(at + i);
  }
  for (; at < text.size(); ++at) look(at);
  return keys;
}

// The last object under this key (with its quotes) that starts before `limit`. A key cannot occur
// within JSON text: its quotes are escaped there.
std::string_view last_object(std::string_view text, std::string_view key, std::size_t& limit) {
  while (limit > 0) {
    const std::size_t at = text.rfind(key, limit - 1);
    if (at == std::string_view::npos) break;
    limit = at;
    const std::size_t value = value_after(text, at + key.size());
    if (value < text.size() && text[value] == '{') {
      const std::string_view object = object_at(text, value);
      if (!object.empty()) return object;
    }
  }
  limit = 0;
  return {};
}

bool is_empty(json::od::value& value) {
  const std::string_view written = json::raw(value).value_or(std::string_view());
  if (written == "null" || written == "false" || written == "\"\"") return true;
  if (written.size() < 2 || (written.front() != '[' && written.front() != '{'))
    return written.empty();
  return skip_space(written, 1) == written.size() - 1;
}

bool delta_has_output(json::od::object& delta) {
  bool role = false;
  bool empty_content = false;
  bool filled = false;
  json::for_each_field(delta, [&](std::string_view key, json::od::value& value) {
    if (key == "role") {
      role = true;
    } else if (key == "content" && json::raw(value) == "\"\"") {
      empty_content = true;
    } else if (!is_empty(value)) {
      filled = true;
    }
    return true;
  });
  return filled || (empty_content && !role);
}

}  // namespace

struct AnswerReader::Json {
  simdjson::ondemand::parser parser;
  std::string copy;  // of what is read, with room behind it

  bool open(std::string_view text, json::od::document& document, json::od::object& object) {
    copy.reserve(text.size() + simdjson::SIMDJSON_PADDING);
    copy.assign(text);
    return json::open_object(parser, copy, copy.capacity(), document, object);
  }
};

AnswerReader::AnswerReader() : json_(std::make_unique<Json>()) {}
AnswerReader::~AnswerReader() = default;

void AnswerReader::event(Api api, std::string_view name, std::string_view data,
                         AnswerFacts& facts) {
  if (data.empty() || data.front() != '{') return;  // [DONE], pings
  if (!facts.first_token) facts.first_token = has_output(api, name, data);
  if (api == Api::kResponses && facts.response_id == 0 && !facts.first_token) {
    if (const auto id = text_at(data, "response", "id")) facts.response_id = response_key(*id);
  }
  read_usage(data, facts);
}

void AnswerReader::plain(Api api, std::string_view beginning, std::string_view end,
                         AnswerFacts& facts) {
  if (api == Api::kResponses) {
    // The id is the first field in every known implementation; else the body must be whole.
    std::size_t at = skip_space(beginning, 0);
    if (at < beginning.size() && beginning[at] == '{') {
      at = skip_space(beginning, at + 1);
      if (beginning.substr(at, 4) == "\"id\"") {
        const std::size_t value = value_after(beginning, at + 4);
        const std::size_t close =
            value < beginning.size() ? beginning.find('"', value + 1) : std::string_view::npos;
        if (close != std::string_view::npos && beginning[value] == '"') {
          facts.response_id = response_key(beginning.substr(value + 1, close - value - 1));
        }
      } else if (const auto id = text_at(beginning, "", "id")) {
        facts.response_id = response_key(*id);
      }
    }
  }
  read_usage(end, facts);
}

bool AnswerReader::has_output(Api api, std::string_view name, std::string_view data) {
  switch (api) {
    case Api::kOther:
      return false;
    case Api::kResponses:
    case Api::kMessages: {
      std::string_view type = name;
      if (type.empty()) type = text_at(data, "", "type").value_or(std::string_view());
      return api == Api::kMessages ? type.starts_with("content_block_") : type.ends_with(".delta");
    }
    case Api::kChat:
    case Api::kCompletions:
      break;
  }
  json::od::document document;
  json::od::object object;
  if (!json_->open(data, document, object)) return false;
  bool output = false;
  json::for_each_field(object, [&](std::string_view key, json::od::value& value) {
    json::od::array choices;
    if (key != "choices" || value.get_array().get(choices) != simdjson::SUCCESS) return true;
    json::for_each_element(choices, [&](json::od::value& choice) {
      json::od::object fields;
      if (choice.get_object().get(fields) != simdjson::SUCCESS) return true;
      if (api == Api::kCompletions) {
        output = true;
        return false;
      }
      json::for_each_field(fields, [&](std::string_view field, json::od::value& inner) {
        json::od::object delta;
        if (field == "delta" && inner.get_object().get(delta) == simdjson::SUCCESS) {
          output = output || delta_has_output(delta);
        }
        return true;
      });
      return !output;
    });
    return false;
  });
  return output;
}

std::optional<std::string_view> AnswerReader::text_at(std::string_view data, std::string_view outer,
                                                      std::string_view inner) {
  json::od::document document;
  json::od::object object;
  if (!json_->open(data, document, object)) return std::nullopt;
  std::optional<std::string_view> text;
  const auto take = [&](std::string_view key, json::od::value& value) {
    if (key == inner) text = json::string(value);
    return !text;
  };
  if (outer.empty()) {
    json::for_each_field(object, take);
    return text;
  }
  json::for_each_field(object, [&](std::string_view key, json::od::value& value) {
    json::od::object fields;
    if (key != outer || value.get_object().get(fields) != simdjson::SUCCESS) return true;
    json::for_each_field(fields, take);
    return false;
  });
  return text;
}

void AnswerReader::read_usage(std::string_view text, AnswerFacts& facts) {
  const CountKeys keys = find_count_keys(text);
  if (keys.usage == std::string_view::npos && keys.timings == std::string_view::npos) return;
  AnswerFacts usage;
  std::size_t limit = keys.usage + 1;  // 0 where there is none
  while (limit > 0) {
    const std::string_view object = last_object(text, CountKeys::kUsage, limit);
    if (!object.empty() && read_usage_object(object, usage)) break;
  }
  AnswerFacts timings;  // beside usage or in its place
  limit = keys.timings + 1;
  const std::string_view object = last_object(text, CountKeys::kTimings, limit);
  if (!object.empty()) read_usage_object(object, timings);

  const auto take = [](auto& into, const auto& first, const auto& second) {
    if (first) {
      into = first;
    } else if (second) {
      into = second;
    }
  };
  take(facts.prompt_tokens, usage.prompt_tokens, timings.prompt_tokens);
  take(facts.completion_tokens, usage.completion_tokens, timings.completion_tokens);
  take(facts.cached_tokens, usage.cached_tokens, timings.cached_tokens);
}

bool AnswerReader::read_usage_object(std::string_view object, AnswerFacts& facts) {
  json::od::document document;
  json::od::object fields;
  if (!json_->open(object, document, fields)) return false;
  std::optional<std::uint32_t> prompt;  // all of it
  std::optional<std::uint32_t> input;   // Responses: all of it; Messages: the uncached part
  std::optional<std::uint32_t> completion;
  std::optional<std::uint32_t> cached;
  std::optional<std::uint32_t> cache_read;  // Messages
  std::optional<std::uint32_t> cache_made;  // Messages
  std::optional<std::uint32_t> timed_cached;
  std::optional<std::uint32_t> timed_prompt;
  json::for_each_field(fields, [&](std::string_view key, json::od::value& value) {
    if (key == "prompt_tokens") {
      prompt = json::count(value);
    } else if (key == "input_tokens") {
      input = json::count(value);
    } else if (key == "completion_tokens" || key == "output_tokens" || key == "predicted_n") {
      completion = json::count(value);
    } else if (key == "cache_read_input_tokens") {
      cache_read = json::count(value);
    } else if (key == "cache_creation_input_tokens") {
      cache_made = json::count(value);
    } else if (key == "cache_n") {
      timed_cached = json::count(value);
    } else if (key == "prompt_n") {
      timed_prompt = json::count(value);
    } else if (key == "prompt_tokens_details" || key == "input_tokens_details") {
      json::od::object details;
      if (value.get_object().get(details) != simdjson::SUCCESS) return true;
      json::for_each_field(details, [&](std::string_view name, json::od::value& inner) {
        if (name == "cached_tokens") cached = json::count(inner);
        return true;
      });
    }
    return true;
  });
  if (input) prompt = *input + cache_read.value_or(0) + cache_made.value_or(0);
  if (timed_cached && timed_prompt) prompt = *timed_cached + *timed_prompt;
  if (!cached) cached = cache_read;
  if (!cached) cached = timed_cached;
  if (prompt) facts.prompt_tokens = prompt;
  if (completion) facts.completion_tokens = completion;
  if (cached) facts.cached_tokens = cached;
  return prompt || completion || cached;
}

void PlainAnswer::feed(std::string_view piece) {
  if (beginning_.size() < kBeginning) {
    beginning_ += piece.substr(0, kBeginning - beginning_.size());
  }
  if (piece.size() >= kEnd) {
    end_.assign(piece.substr(piece.size() - kEnd));
    return;
  }
  if (end_.size() + piece.size() > 2 * kEnd) end_.erase(0, end_.size() - kEnd);
  end_ += piece;
}

void PlainAnswer::clear() {
  beginning_.clear();
  end_.clear();
}

}  // namespace pointsman
