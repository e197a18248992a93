#include "features/content_reader.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "base/ascii.h"

namespace pointsman {
namespace {

std::string_view text_or_empty(json::od::value& value) {
  return json::string(value).value_or(std::string_view());
}

// Kinds of pieces, for PromptContent::mark.
constexpr char kMarkSystem = 'S';
constexpr char kMarkTools = 'T';
constexpr char kMarkMessage = PromptContent::kMessage;
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

// Where the document proves broken, reading stops: its values may not be touched any more.
class ContentReader {
 public:
  ContentReader(Api api, PromptContent& content, bool session_only)
      : api_(api), content_(content), session_only_(session_only) {}

  [[nodiscard]] bool has_enough() const { return session_only_ && !content_.reads_bytes(); }

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
          return !broken_ && !has_enough();
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
      return !broken_ && !has_enough();
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
  bool session_only_;
  bool broken_ = false;
};

}  // namespace

bool read_content(Api api, ContentField field, json::od::value& value, bool session_only,
                  PromptContent& content) {
  return ContentReader(api, content, session_only).field(field, value);
}

}  // namespace pointsman
