#include "features/chat_request.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "base/ascii.h"
#include "features/block_hash.h"
#include "features/json_read.h"
#include "features/session_key.h"

namespace pointsman {
namespace {

// Parsers keep their buffers for the next body; those of a body beyond this are given back.
constexpr std::size_t kKeptCapacity = std::size_t{1} << 20;

// The fields that hold a prompt, in the order in which engines put their content together.
enum ContentField : std::uint8_t {
  kSystem,
  kInstructions,
  kTools,
  kMessages,
  kPrompt,
  kInput,
  kQuery,
  kDocuments,
  kTextOne,
  kTextTwo,
  kText,
  kInputs,
  kContentFields,
};

constexpr std::array<std::string_view, kContentFields> kContentNames = {
    "system", "instructions", "tools",  "messages", "prompt", "input",
    "query",  "documents",    "text_1", "text_2",   "text",   "inputs"};

// Kinds of pieces, for PromptContent::mark.
constexpr char kMarkSystem = 'S';
constexpr char kMarkTools = 'T';
constexpr char kMarkMessage = 'M';
constexpr char kMarkRole = 'r';
constexpr char kMarkContent = 'c';
constexpr char kMarkPart = 'p';
constexpr char kMarkMedium = 'i';
constexpr char kMarkField = 'k';
constexpr char kMarkPrompt = 'P';

// Fields of a content part that hold pictures, sounds or files, as bytes or as an address.
bool is_medium(std::string_view key) {
  constexpr std::array<std::string_view, 9> kMedia = {"image_url", "source",    "input_audio",
                                                      "video_url", "audio_url", "image",
                                                      "file_data", "file",      "image_embeds"};
  return std::find(kMedia.begin(), kMedia.end(), key) != kMedia.end();
}

// What the pass over the top-level fields finds.
struct TopLevel {
  static constexpr int kNone = -1;

  std::optional<std::uint32_t> max_completion_tokens;
  std::optional<std::uint32_t> max_output_tokens;
  std::optional<std::uint32_t> max_tokens;
  std::string_view model;
  std::string_view prompt_cache_key;
  std::string_view conversation;
  std::string_view user;
  std::string_view previous_response_id;
  std::string_view cache_salt;
  bool store = false;
  bool background = false;
  std::array<int, kContentFields> content_at;  // which field of the object it is

  TopLevel() { content_at.fill(kNone); }
};

std::string_view text_or_empty(json::od::value& value) {
  return json::string(value).value_or(std::string_view());
}

void read_model(json::od::value& value, TopLevel& top, RequestFacts& facts) {
  const std::optional<std::string_view> name = json::string(value);
  top.model = name.value_or(std::string_view());
  if (name) {
    facts.model_field = RequestFacts::Model::kNamed;
  } else if (json::is_null(value)) {
    facts.model_field = RequestFacts::Model::kNull;
  } else {
    facts.model_field = RequestFacts::Model::kOther;
  }
}

// False: the document is broken.
bool read_conversation(json::od::value& value, std::string_view& id) {
  json::od::json_type type{};
  if (value.type().get(type) != simdjson::SUCCESS) return false;
  id = {};
  if (type != json::od::json_type::object) {
    id = text_or_empty(value);
    return true;
  }
  json::od::object object;
  if (value.get_object().get(object) != simdjson::SUCCESS) return false;
  return json::for_each_field(object, [&](std::string_view key, json::od::value& inner) {
    if (key == "id") id = text_or_empty(inner);
    return true;
  });
}

// False: the document is broken.
bool read_field(std::string_view key, json::od::value& value, int index, TopLevel& top,
                RequestFacts& facts) {
  for (std::size_t i = 0; i < kContentNames.size(); ++i) {
    if (key == kContentNames[i]) {
      top.content_at[i] = index;
      return true;
    }
  }
  if (key == "model") {
    read_model(value, top, facts);
  } else if (key == "stream") {
    facts.stream = json::is_true(value);
  } else if (key == "max_completion_tokens") {
    top.max_completion_tokens = json::count(value);
  } else if (key == "max_output_tokens") {
    top.max_output_tokens = json::count(value);
  } else if (key == "max_tokens") {
    top.max_tokens = json::count(value);
  } else if (key == "prompt_cache_key") {
    top.prompt_cache_key = text_or_empty(value);
  } else if (key == "conversation") {
    return read_conversation(value, top.conversation);
  } else if (key == "user") {
    top.user = text_or_empty(value);
  } else if (key == "previous_response_id") {
    top.previous_response_id = text_or_empty(value);
  } else if (key == "cache_salt") {
    top.cache_salt = text_or_empty(value);
  } else if (key == "store") {
    top.store = json::is_true(value);
  } else if (key == "background") {
    top.background = json::is_true(value);
  } else if (key == "priority") {
    std::int64_t priority = 0;
    facts.priority = 0;
    if (value.get_int64().get(priority) == simdjson::SUCCESS) {
      facts.priority =
          static_cast<std::int32_t>(std::clamp<std::int64_t>(priority, INT32_MIN, INT32_MAX));
    }
  }
  return true;
}

// Reads the content fields into a PromptContent. Where the document proves broken, reading stops:
// its values may not be touched any more.
class ContentReader {
 public:
  ContentReader(Api api, PromptContent& content) : api_(api), content_(content) {}

  // False: the document is broken.
  bool field(ContentField field, json::od::value& value) {
    switch (field) {
      case kSystem:
      case kInstructions:
        content_.mark(kMarkSystem);
        parts(value);
        content_.end_message("system");
        break;
      case kTools:
        content_.mark(kMarkTools);
        as_written(value);
        content_.end_message("");  // what a client offers does not name its session
        break;
      case kMessages:
      case kPrompt:
      case kInput:
        prompt(value);
        break;
      default:
        content_.mark(kMarkField);
        content_.start_prompt();
        as_written(value);
        break;
    }
    return !broken_;
  }

 private:
  using Type = json::od::json_type;

  Type type_of(json::od::value& value) {
    Type type = Type::null;
    if (value.type().get(type) != simdjson::SUCCESS) broken_ = true;
    return type;
  }

  template <typename Each>
  void fields(json::od::value& value, Each&& each) {
    json::od::object object;
    broken_ = broken_ || value.get_object().get(object) != simdjson::SUCCESS;
    if (broken_) return;
    const bool whole =
        json::for_each_field(object, [&](std::string_view key, json::od::value& inner) {
          each(key, inner);
          return !broken_;
        });
    broken_ = broken_ || !whole;
  }

  template <typename Each>
  void elements(json::od::value& value, Each&& each) {
    json::od::array array;
    broken_ = broken_ || value.get_array().get(array) != simdjson::SUCCESS;
    if (broken_) return;
    const bool whole = json::for_each_element(array, [&](json::od::value& element) {
      each(element);
      return !broken_;
    });
    broken_ = broken_ || !whole;
  }

  std::string_view written(json::od::value& value) {
    const std::optional<std::string_view> text = json::raw(value);
    broken_ = broken_ || !text;
    return text.value_or(std::string_view());
  }

  void as_written(json::od::value& value) { content_.text(written(value)); }

  // Where only the size counts, escapes are counted as they are written.
  void text(json::od::value& value) {
    if (content_.reads_bytes()) return content_.text(text_or_empty(value));
    const std::string_view quoted = written(value);
    content_.text(quoted.substr(0, quoted.size() - std::min<std::size_t>(quoted.size(), 2)));
  }

  // Content that is text, null, or a list of parts.
  void parts(json::od::value& value) {
    switch (type_of(value)) {
      case Type::string:
        return text(value);
      case Type::null:
        return;
      case Type::array:
        return elements(value, [&](json::od::value& element) {
          content_.mark(kMarkPart);
          part(element);
        });
      default:
        return as_written(value);
    }
  }

  void part(json::od::value& value) {
    const Type type = type_of(value);
    if (type == Type::string) return text(value);
    if (type != Type::object) return as_written(value);
    fields(value, [&](std::string_view key, json::od::value& inner) {
      if (key == "type" || key == "cache_control") return;
      if (is_medium(key)) {
        content_.mark(kMarkMedium);
        content_.medium(written(inner));
      } else if (key == "text" && type_of(inner) == Type::string) {
        text(inner);
      } else {
        other(key, inner);
      }
    });
  }

  // A field that is part of the prompt, as it is written.
  void other(std::string_view key, json::od::value& value) {
    content_.mark(kMarkField);
    content_.text(key);
    content_.mark(kMarkContent);
    as_written(value);
  }

  void message(json::od::value& value) {
    content_.mark(kMarkMessage);
    bool system = false;
    bool user = true;  // an item without a role is a turn's input
    fields(value, [&](std::string_view key, json::od::value& inner) {
      if (key == "role") {
        const std::string_view role = text_or_empty(inner);
        system = role == "system" || role == "developer";
        user = role == "user";
        content_.mark(kMarkRole);
        content_.text(role);
      } else if (key == "content") {
        content_.mark(kMarkContent);
        parts(inner);
      } else if (key != "cache_control") {
        other(key, inner);
      }
    });
    content_.end_message(user ? "user" : system ? "system" : "");
  }

  // Text, ids, messages, or a batch of texts or of lists of ids.
  void prompt(json::od::value& value) {
    const Type type = type_of(value);
    if (type == Type::string) {
      content_.mark(kMarkPrompt);
      if (api_ != Api::kResponses) content_.start_prompt();
      text(value);
      if (api_ == Api::kResponses) content_.end_message("user");
      return;
    }
    if (type != Type::array) return as_written(value);
    if (starts_with_number(value)) {
      start_ids();
      return ids(value);
    }
    bool first = true;
    elements(value, [&](json::od::value& element) {
      item(element, first);
      first = false;
    });
  }

  void item(json::od::value& value, bool first) {
    switch (type_of(value)) {
      case Type::object:
        return message(value);
      case Type::array:
        if (first) start_ids();
        ids(value);
        return content_.end_chain();
      case Type::string:
        if (first) {
          content_.mark(kMarkPrompt);
          content_.start_prompt();
        }
        text(value);
        return content_.end_chain();
      case Type::number:
      case Type::boolean:
      case Type::null:
        return;
    }
  }

  void start_ids() {
    content_.start_prompt();
    content_.start_ids();
  }

  // The character behind an array's bracket and white space; the padding makes it readable.
  static bool starts_with_number(json::od::value& array) {
    const std::string_view bracket = array.raw_json_token();
    return is_digit(*(bracket.data() + bracket.size()));
  }

  // The numbers of a list of ids. Read by hand: lists are long, and each value taken by itself
  // costs four times as much.
  void ids(json::od::value& value) {
    std::array<std::uint32_t, 256> ids{};
    std::size_t count = 0;
    std::uint32_t id = 0;
    bool in_number = false;
    for (const char c : written(value)) {
      if (is_digit(c)) {
        id = id * 10 + static_cast<std::uint32_t>(c - '0');
        in_number = true;
      } else if (in_number) {
        ids[count++] = id;
        id = 0;
        in_number = false;
        if (count == ids.size()) {
          content_.ids(ids);
          count = 0;
        }
      }
    }
    content_.ids(std::span(ids).first(count));
  }

  Api api_;
  PromptContent& content_;
  bool broken_ = false;
};

// Closes what the end of `text` cut open, so that it can be read up to there. What stands last and
// may be incomplete (a number, a key, a top-level string) is cut off; a text deeper inside is kept.
void close_partial(std::string& text) {
  constexpr std::size_t kMaxDepth = 256;
  std::string closers;
  std::size_t string_start = 0;
  bool in_string = false;  // at the end
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      string_start = i;
      i = json::string_end(text, i);
      in_string = i == text.size();
    } else if (c == '{' || c == '[') {
      if (closers.size() == kMaxDepth) {
        text.resize(i);
        break;
      }
      closers += c == '{' ? '}' : ']';
    } else if ((c == '}' || c == ']') && !closers.empty()) {
      closers.pop_back();
    }
  }
  if (in_string && closers.size() > 1) {
    // An escape of up to six bytes, or a character of up to four, may have been cut.
    const std::size_t escape = text.rfind('\\');
    if (escape != std::string::npos && escape > string_start && text.size() - escape < 6) {
      text.resize(escape);
    }
    while (text.size() > string_start + 1 && (text.back() & 0x80) != 0) text.pop_back();
    text += '"';
  } else {
    if (in_string) text.resize(string_start);
    while (!text.empty() && text.back() != '{' && text.back() != '[' && text.back() != ',' &&
           text.back() != ':' && text.back() != '}' && text.back() != ']' && text.back() != '"') {
      text.pop_back();
    }
  }
  text.append(closers.rbegin(), closers.rend());
}

}  // namespace

struct ChatRequestReader::Json {
  simdjson::ondemand::parser parser;
};

ChatRequestReader::ChatRequestReader(const FeatureOptions& options, const ModelEstimates* estimates)
    : options_(options),
      estimates_(estimates),
      chain_(options.chain_secret),
      content_(options.block_bytes, options.block_ids, chain_),
      json_(std::make_unique<Json>()) {}

double ChatRequestReader::bytes_per_token(std::string_view model) const {
  return estimates_ == nullptr ? options_.bytes_per_token : estimates_->bytes_per_token(model);
}

ChatRequestReader::~ChatRequestReader() = default;

void ChatRequestReader::read_none(std::string_view session_header, RequestFacts& facts) const {
  facts.clear();
  facts.session_key = session_key({.header = session_header,
                                   .prompt_cache_key = {},
                                   .conversation = {},
                                   .user = {},
                                   .content = 0});
}

void ChatRequestReader::read_partial(Api api, std::string_view beginning,
                                     std::string_view session_header, Needs needs,
                                     RequestFacts& facts) {
  std::string text(beginning.substr(0, kMaxPartial));
  close_partial(text);
  read(api, text, text.size(), session_header, needs, facts);
  facts.parsed = false;
  TokenCount whole;
  whole.add_bytes(beginning.size());
  facts.prompt_tokens = std::max(facts.prompt_tokens, whole.tokens(bytes_per_token(facts.model)));
  facts.text_bytes = 0;
}

void ChatRequestReader::read(Api api, std::string_view body, std::size_t capacity,
                             std::string_view session_header, Needs needs, RequestFacts& facts) {
  read_none(session_header, facts);
  if (capacity < body.size() + kPadding) {
    copy_.assign(body);
    copy_.append(kPadding, ' ');
    body = std::string_view(copy_).substr(0, body.size());
    capacity = copy_.size();
  }
  read_object(api, body, capacity, session_header, needs, facts);
  if (json_->parser.capacity() > kKeptCapacity) json_ = std::make_unique<Json>();
  if (copy_.capacity() > kKeptCapacity) std::string().swap(copy_);
}

void ChatRequestReader::read_object(Api api, std::string_view body, std::size_t capacity,
                                    std::string_view session_header, Needs needs,
                                    RequestFacts& facts) {
  json::od::document document;
  json::od::object object;
  const auto open = [&] {
    return json::open_object(json_->parser, body, capacity, document, object);
  };
  if (!open()) return;
  TopLevel top;
  int fields = 0;
  bool sound = true;  // no value was found broken
  const bool whole =
      json::for_each_field(object, [&](std::string_view key, json::od::value& value) {
        sound = read_field(key, value, fields++, top, facts);
        return sound;
      });
  facts.parsed = sound && whole;
  facts.model = top.model;
  facts.max_output_tokens = top.max_completion_tokens.value_or(
      top.max_output_tokens.value_or(top.max_tokens.value_or(0)));
  facts.stored = top.store || top.background;
  facts.response_id = response_key(top.previous_response_id);
  const std::uint64_t named = session_key({.header = session_header,
                                           .prompt_cache_key = top.prompt_cache_key,
                                           .conversation = top.conversation,
                                           .user = top.user,
                                           .content = 0});
  content_.start(facts.model, top.cache_salt, needs.blocks ? &facts.blocks : nullptr,
                 needs.session && named == 0);
  // From here on the texts of `top` are gone: the parser's buffer is used again.

  // The fields are visited in the order of kContentNames, again from the start for each that
  // stands before the one visited last; clients usually need one pass.
  ContentReader reader(api, content_);
  std::size_t next = 0;
  const auto skip_absent = [&] {
    while (next < kContentFields && top.content_at[next] == TopLevel::kNone) ++next;
  };
  skip_absent();
  while (sound && next < kContentFields) {
    const std::size_t before = next;
    if (whole) {
      document.rewind();
      if (document.get_object().get(object) != simdjson::SUCCESS) break;
    } else if (!open()) {
      break;
    }
    int index = 0;
    const bool passed = json::for_each_field(object, [&](std::string_view, json::od::value& value) {
      if (index++ == top.content_at[next]) {
        sound = reader.field(static_cast<ContentField>(next++), value);
        skip_absent();
      }
      return sound && next < kContentFields;
    });
    sound = sound && passed && next > before;
  }
  const double ratio = bytes_per_token(facts.model);
  facts.prompt_tokens = content_.count().tokens(ratio);
  facts.exact_tokens = content_.count().of_ids_alone();
  // What a response continues is part of its prompt and is not here.
  const bool all_here = facts.parsed && facts.response_id == 0;
  facts.text_bytes = all_here ? content_.count().bytes_alone() : 0;
  facts.block_tokens = options_.block_tokens(ratio);
  if (content_.chain_of_ids()) {
    facts.block_tokens = options_.block_ids;
    facts.exact_blocks = static_cast<std::uint32_t>(facts.blocks.size());
  }
  if (estimates_ != nullptr) {
    facts.expected_output_tokens =
        estimates_->expected_output(facts.model, facts.max_output_tokens);
  }
  facts.session_key = named != 0 ? named : content_.session();
}

}  // namespace pointsman
