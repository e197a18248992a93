#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "commands.h"
#include "features/json_read.h"
#include "tokens/chat_template.h"
#include "tokens/tokenizer.h"

namespace pointsman {
namespace {

struct TokenizeFlags {
  std::string model;
  std::string tokenizer;
};

// A line of the input: a text or a chat, or a request to an engine's /tokenize.
struct Line {
  std::optional<std::string> text;  // "text", or "prompt" as engines call it
  std::optional<std::string> messages;
  std::string tools;
  std::string variables;
  std::optional<bool> special;
  ChatPrompt chat;  // its switches; the views are set when it is rendered
};

Error bad(std::string text) {
  return {ErrorKind::kClient, std::move(text)};
}

// Empty: null, which is the same as nothing.
std::string raw_text(json::od::value& value) {
  const std::string_view raw = json::raw(value).value_or(std::string_view());
  return std::string(raw == "null" ? std::string_view() : raw);
}

// Members of a request to an engine's /tokenize that say nothing about the ids of a text: whom it
// is for, what else is in the answer, and how pictures are read.
bool changes_no_ids(std::string_view name) {
  return name == "model" || name == "return_token_strs" || name == "media_io_kwargs" ||
         name == "mm_processor_kwargs";
}

Result<void> read_member(std::string_view name, json::od::value& value, Line& line) {
  bool* const flag = name == "add_generation_prompt"    ? &line.chat.add_generation_prompt
                     : name == "continue_final_message" ? &line.chat.continue_final_message
                     : name == "add_special_tokens"     ? &line.special.emplace()
                                                        : nullptr;
  if (flag != nullptr) {
    if (value.get_bool().get(*flag) != simdjson::SUCCESS) {
      return bad(std::string(name) + " is not true or false");
    }
  } else if (name == "text" || name == "prompt") {
    if (line.text) return bad("a line has one text or prompt");
    std::string_view text;
    if (value.get_string().get(text) != simdjson::SUCCESS) {
      return bad(std::string(name) + " is not a string of valid Unicode");
    }
    line.text.emplace(text);
  } else if (name == "messages") {
    line.messages = raw_text(value);
  } else if (name == "tools") {
    line.tools = raw_text(value);
  } else if (name == "chat_template_kwargs") {
    line.variables = raw_text(value);
  } else if (name == "chat_template") {
    if (!json::is_null(value)) {
      return bad("chat_template: a template of the line's own is not used, only the model's");
    }
  } else if (!changes_no_ids(name)) {
    return bad("unknown member '" + std::string(name) +
               "' (known: text or prompt, messages, tools, chat_template_kwargs, "
               "add_generation_prompt, continue_final_message, add_special_tokens; without effect: "
               "model, return_token_strs, media_io_kwargs, mm_processor_kwargs)");
  }
  return {};
}

Result<Line> parse_line(json::od::parser& parser, const simdjson::padded_string& padded) {
  json::od::document document;
  json::od::object object;
  if (parser.iterate(padded).get(document) != simdjson::SUCCESS ||
      document.get_object().get(object) != simdjson::SUCCESS) {
    return bad("not a JSON object");
  }
  Line line;
  for (auto member : object) {
    json::od::field field;
    std::string_view name;
    if (std::move(member).get(field) != simdjson::SUCCESS ||
        field.unescaped_key().get(name) != simdjson::SUCCESS) {
      return bad("broken JSON");
    }
    const std::string key(name);
    json::od::value value = field.value();
    Result<void> read = read_member(key, value, line);
    if (!read) return read.error();
  }
  const char* rest = nullptr;
  if (document.current_location().get(rest) == simdjson::SUCCESS) return bad("broken JSON");
  if (line.text.has_value() == line.messages.has_value()) {
    return bad("a line needs either a text (or prompt) or messages");
  }
  return line;
}

class Tokenization {
 public:
  explicit Tokenization(const TokenizeFlags& flags) {
    const std::string& path = flags.model.empty() ? flags.tokenizer : flags.model;
    Result<Tokenizer> tokenizer = Tokenizer::load(path);
    if (!tokenizer) fail(tokenizer.error().message);
    tokenizer_.emplace(std::move(*tokenizer));
    if (flags.model.empty()) return;
    // A model without a template may still encode texts.
    Result<ChatTemplate> chat = ChatTemplate::load(flags.model);
    if (chat) {
      template_.emplace(std::move(*chat));
    } else {
      no_template_ = chat.error().message;
    }
  }

  // The ids of one line of the input, as a line of JSON.
  Result<std::string> answer(const std::string& input) {
    const simdjson::padded_string padded(input);
    Result<Line> line = parse_line(parser_, padded);
    if (!line) return line.error();
    if (line->messages) {
      if (!template_) return bad("no chat template: " + no_template_);
      line->chat.messages = *line->messages;
      line->chat.tools = line->tools;
      line->chat.variables = line->variables;
      Result<RenderedChat> rendered = template_->render(line->chat);
      if (!rendered) return rendered.error();
      if (rendered->exact_bytes < rendered->text.size()) {
        return bad(
            "the messages have a picture, a sound or the like, which becomes ids in the "
            "engine alone");
      }
      line->text = std::move(rendered->text);
    }
    ids_.clear();
    const bool special = line->special.value_or(!line->messages);
    if (Result<void> done = tokenizer_->encode(*line->text, special, ids_); !done) {
      return done.error();
    }
    JsonWriter json;
    json.begin_object().key("ids").begin_array();
    for (const std::uint32_t id : ids_) json.integer(id);
    json.end_array().end_object();
    return json.take();
  }

 private:
  [[noreturn]] static void fail(const std::string& why) {
    std::fprintf(stderr, "%s\n", why.c_str());
    throw CLI::RuntimeError(1);
  }

  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  std::string no_template_ = "give the model's folder with --model";
  json::od::parser parser_;
  std::vector<std::uint32_t> ids_;
};

void run_tokenize(const TokenizeFlags& flags) {
  Tokenization tokenization(flags);
  std::string input;
  bool failed = false;
  for (std::size_t number = 1; std::getline(std::cin, input); ++number) {
    Result<std::string> answer = tokenization.answer(input);
    if (answer) {
      std::puts(answer->c_str());
      continue;
    }
    failed = true;
    std::fprintf(stderr, "line %zu: %s\n", number, answer.error().message.c_str());
    JsonWriter json;
    json.begin_object().key("error").string(answer.error().message).end_object();
    std::puts(json.take().c_str());
  }
  if (failed) throw CLI::RuntimeError(1);
}

}  // namespace

void add_tokenize_command(CLI::App& app) {
  const auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* command = app.add_subcommand(
      "tokenize",
      "Token ids of texts and chats: lines of JSON on standard input, {\"text\"} or {\"messages\", "
      "\"tools\"}, give lines {\"ids\"}; a line that cannot be used gives {\"error\"}, and exit "
      "status 1 at the end");
  CLI::App* source = command->add_option_group("source");
  source->add_option("--model", flags->model,
                     "Folder of a Hugging Face model: its tokenizer.json and chat template");
  source->add_option("--tokenizer", flags->tokenizer, "A tokenizer.json alone, for texts");
  source->require_option(1);
  command->callback([flags] { run_tokenize(*flags); });
}

}  // namespace pointsman
