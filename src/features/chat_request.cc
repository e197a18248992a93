#include "features/chat_request.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/ascii.h"
#include "features/body_fields.h"
#include "features/content_reader.h"
#include "features/json_read.h"
#include "features/partial_json.h"
#include "features/session_key.h"

namespace pointsman {
namespace {

// Parsers keep their buffers for the next body; those of a body beyond this are given back.
constexpr std::size_t kKeptCapacity = std::size_t{1} << 20;

// Whether a completion's prompt, as it is written, is a list of ids or of such lists.
bool is_of_ids(std::string_view written) {
  const std::size_t first = written.find_first_not_of(" \t\r\n", 1);
  if (written.front() != '[' || first == std::string_view::npos) return false;
  return written[first] == '[' || is_digit(written[first]);
}

std::uint32_t to_tokens(std::uint64_t count) {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(count, std::numeric_limits<std::uint32_t>::max()));
}

// What vLLM takes for a wish for them: with `echo`, a completion's logprobs are the prompt's as
// well, and a chat's always.
bool wants_prompt_logprobs(const BodyFields& fields) {
  const bool chat = fields.content_at[kMessages] != BodyFields::kNone;
  return fields.prompt_logprobs || (fields.echo && (fields.logprobs || chat));
}

// Whether the JSON holds more than `most` objects; braces in text count too.
bool has_more_objects(std::string_view json, std::size_t most) {
  std::size_t objects = 0;
  for (std::size_t at = json.find('{'); at != std::string_view::npos; at = json.find('{', at + 1)) {
    if (++objects > most) return true;
  }
  return false;
}

}  // namespace

struct ChatRequestReader::Json {
  simdjson::ondemand::parser parser;
  simdjson::ondemand::parser prompt_parser;  // of the prompt alone, as it is written
};

// A body that is being read.
struct ChatRequestReader::Body {
  Body(Api of, std::string_view whole_text, std::size_t readable)
      : api(of), text(whole_text), capacity(readable) {}

  const Api api;
  const std::string_view text;
  const std::size_t capacity;
  json::od::document document;
  json::od::object object;
  BodyFields fields;
  bool sound = true;  // no value was found broken
  bool whole = true;  // the object has an end
};

ChatRequestReader::ChatRequestReader(const FeatureOptions& options, const ReaderDependencies& deps)
    : options_(options),
      deps_(deps),
      chain_(options.chain_secret),
      content_(options.block_bytes, options.block_ids, chain_),
      json_(std::make_unique<Json>()) {
  if (deps.models != nullptr && !deps.models->empty()) {
    tokens_ = std::make_unique<PromptTokens>(deps.models->cache(), options.chain_secret,
                                             options.block_ids);
  }
}

ChatRequestReader::~ChatRequestReader() = default;

double ChatRequestReader::bytes_per_token(std::string_view model) const {
  return deps_.estimates == nullptr ? options_.bytes_per_token
                                    : deps_.estimates->bytes_per_token(model);
}

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
  close_partial_json(text);
  read_as_text(api, text, text.size(), session_header, needs, "not_whole", facts);
  facts.parsed = false;
  TokenCount whole;
  whole.add_bytes(beginning.size());
  facts.prompt_tokens = std::max(facts.prompt_tokens, whole.tokens(bytes_per_token(facts.model)));
  facts.text_bytes = 0;
}

void ChatRequestReader::read(Api api, std::string_view body, std::size_t capacity,
                             std::string_view session_header, Needs needs, RequestFacts& facts) {
  read_body(api, body, capacity, session_header, needs, {}, facts);
}

void ChatRequestReader::read_as_text(Api api, std::string_view body, std::size_t capacity,
                                     std::string_view session_header, Needs needs,
                                     std::string_view why, RequestFacts& facts) {
  read_body(api, body, capacity, session_header, needs, why, facts);
}

void ChatRequestReader::pad(std::string_view& body, std::size_t& capacity) {
  if (capacity >= body.size() + kPadding) return;
  copy_.assign(body);
  copy_.append(kPadding, ' ');
  body = std::string_view(copy_).substr(0, body.size());
  capacity = copy_.size();
}

void ChatRequestReader::give_memory_back() {
  if (json_->parser.capacity() > kKeptCapacity) json_ = std::make_unique<Json>();
  if (copy_.capacity() > kKeptCapacity) std::string().swap(copy_);
}

void ChatRequestReader::read_body(Api api, std::string_view body, std::size_t capacity,
                                  std::string_view session_header, Needs needs,
                                  std::string_view why_text, RequestFacts& facts) {
  read_none(session_header, facts);
  pad(body, capacity);
  Body reading(api, body, capacity);
  read_object(reading, session_header, needs, why_text, facts);
  give_memory_back();
}

void ChatRequestReader::read_object(Body& body, std::string_view session_header, Needs needs,
                                    std::string_view why_text, RequestFacts& facts) {
  BodyFields& fields = body.fields;
  const bool ids_wanted = tokens_ != nullptr && needs.blocks;
  fields.keep_written = ids_wanted && why_text.empty();
  if (!open(body)) return;
  if (!read_fields(body, facts) && fields.keep_written) {
    // Only what can be parsed becomes ids. Of the rest is kept what stands before the break.
    fields = BodyFields{};
    why_text = "not_whole";
    if (!open(body)) return;
    read_fields(body, facts);
  }
  facts.parsed = body.sound && body.whole;
  facts.model = fields.model;
  facts.max_output_tokens = fields.max_completion_tokens.value_or(
      fields.max_output_tokens.value_or(fields.max_tokens.value_or(0)));
  facts.stored = fields.store || fields.background;
  facts.computes_all = wants_prompt_logprobs(fields);
  facts.response_id = response_key(fields.previous_response_id);
  const std::uint64_t named = session_key({.header = session_header,
                                           .prompt_cache_key = fields.prompt_cache_key,
                                           .conversation = fields.conversation,
                                           .user = fields.user,
                                           .content = 0});
  const bool want_session = needs.session && named == 0;
  PromptModels::Found model{nullptr, facts.model};
  if (deps_.models != nullptr) model = deps_.models->find(facts.model);
  bool by_ids = false;
  if (ids_wanted && model.entry != nullptr) {
    facts.no_ids = why_text;
    by_ids = why_text.empty() && prepare_ids(body, *model.entry, model.world, facts);
  }
  content_.start(model.world, fields.cache_salt, needs.blocks && !by_ids ? &facts.blocks : nullptr,
                 want_session);
  // From here on the texts of `fields` are gone: the parser's buffer is used again.
  if (!by_ids) {
    visit_content(body, /*session_only=*/false);
    count_content(facts);
  } else if (want_session) {
    visit_content(body, /*session_only=*/true);
  }
  facts.session_key = named != 0 ? named : content_.session();
  if (by_ids && !facts.ids_pending) take_ids(body, prompt_, facts);
  if (deps_.estimates != nullptr) {
    facts.expected_output_tokens =
        deps_.estimates->expected_output(facts.model, facts.max_output_tokens);
  }
}

bool ChatRequestReader::open(Body& body) {
  return json::open_object(json_->parser, body.text, body.capacity, body.document, body.object);
}

// The pass over the top-level fields. False: the body is broken.
bool ChatRequestReader::read_fields(Body& body, RequestFacts& facts) {
  int index = 0;
  body.sound = true;
  body.whole = json::for_each_field(body.object, [&](std::string_view key, json::od::value& value) {
    body.sound = read_body_field(key, value, index++, body.fields, facts);
    return body.sound;
  });
  return body.sound && body.whole;
}

// The fields that hold a prompt are visited in the order of kContentNames, again from the start for
// each that stands before the one visited last; clients usually need one pass.
void ChatRequestReader::visit_content(Body& body, bool session_only) {
  const std::array<int, kContentFields>& at = body.fields.content_at;
  const auto has_enough = [&] { return session_only && !content_.reads_bytes(); };
  std::size_t next = 0;
  const auto skip_absent = [&] {
    while (next < kContentFields && at[next] == BodyFields::kNone) ++next;
  };
  skip_absent();
  while (body.sound && next < kContentFields && !has_enough()) {
    const std::size_t before = next;
    if (body.whole) {
      body.document.rewind();
      if (body.document.get_object().get(body.object) != simdjson::SUCCESS) break;
    } else if (!open(body)) {
      break;
    }
    int index = 0;
    const bool passed =
        json::for_each_field(body.object, [&](std::string_view, json::od::value& value) {
          if (index++ == at[next]) {
            body.sound = read_content(body.api, static_cast<ContentField>(next++), value,
                                      session_only, content_);
            skip_absent();
          }
          return body.sound && next < kContentFields && !has_enough();
        });
    body.sound = body.sound && passed && next > before;
  }
}

// What the content is when it is not known by ids made here.
void ChatRequestReader::count_content(RequestFacts& facts) {
  const TokenCount& count = content_.count();
  const double ratio = bytes_per_token(facts.model);
  facts.prompt_tokens = count.tokens(ratio);
  facts.exact_tokens = count.of_ids_alone();
  // What a response continues is part of its prompt and is not here.
  const bool all_here = facts.parsed && facts.response_id == 0;
  facts.text_bytes = all_here ? count.bytes_alone() : 0;
  facts.block_tokens = options_.block_tokens(ratio);
  if (content_.chain_of_ids()) {
    facts.block_tokens = options_.block_ids;
    facts.exact_blocks = static_cast<std::uint32_t>(facts.blocks.size());
    facts.chain_tokens = to_tokens(content_.chain_tokens());
  }
}

// --- token ids of text ---------------------------------------------------------------------------

// Makes the ids of the body's prompt in prompt_, or leaves it pending. False: there are none, for
// the reason in facts.no_ids, or the prompt is of ids already.
bool ChatRequestReader::prepare_ids(Body& body, const PromptModels::Entry& entry,
                                    std::string_view world, RequestFacts& facts) {
  const BodyFields& fields = body.fields;
  const auto refuse = [&facts](std::string_view why) {
    facts.no_ids = why;
    return false;
  };
  if (body.api != Api::kChat && body.api != Api::kCompletions) return refuse("api");
  if (fields.own_prompt) return refuse("own_prompt");
  const bool chat = body.api == Api::kChat;
  const std::string_view messages = fields.written[chat ? kMessages : kPrompt];
  std::string_view tools = chat ? fields.written[kTools] : std::string_view();
  if (tools == "null") tools = {};
  if (messages.empty() || messages == "null") return refuse("no_prompt");
  const std::size_t bytes = messages.size() + tools.size();
  if (!chat && is_of_ids(messages)) return false;
  if (bytes > entry.max_prompt_bytes) return refuse("too_large");
  if (chat && !entry.model->has_template()) return refuse("no_template");

  PromptText& prompt = prompt_;
  prompt.model = entry.model.get();
  prompt.start = chain_.start(world, fields.cache_salt);
  prompt.failure = {};
  prompt.rendered = true;
  prompt.special = fields.add_special_tokens.value_or(!chat);
  if (chat) {
    const ChatPrompt written = {.messages = messages,
                                .tools = tools,
                                .variables = fields.template_variables,
                                .add_generation_prompt = fields.add_generation_prompt,
                                .continue_final_message = fields.continue_final_message};
    if (bytes > kRenderedAtOnce || has_more_objects(messages, kObjectsAtOnce) ||
        has_more_objects(tools, kObjectsAtOnce)) {
      prompt.rendered = false;
      prompt.messages = written.messages;
      prompt.tools = written.tools;
      prompt.variables = written.variables;
      prompt.add_generation_prompt = written.add_generation_prompt;
      prompt.continue_final_message = written.continue_final_message;
      return leave_pending(facts);
    }
    if (!tokens_->render(written, prompt)) return refuse(prompt.failure);
  } else {
    if (!read_texts(body, messages, prompt)) return refuse("text");
  }
  if (bytes > kRenderedAtOnce || tokens_->look_up(prompt) > kEncodedAtOnce) {
    return leave_pending(facts);
  }
  tokens_->encode(prompt);
  return prompt.failure.empty() || refuse(prompt.failure);
}

bool ChatRequestReader::leave_pending(RequestFacts& facts) {
  facts.ids_pending = true;
  return true;
}

// The text or the texts of a completion. False: it has something else.
bool ChatRequestReader::read_texts(const Body& body, std::string_view written, PromptText& prompt) {
  const std::size_t at = static_cast<std::size_t>(written.data() - body.text.data());
  json::od::document document;
  const simdjson::padded_string_view padded(written.data(), written.size(), body.capacity - at);
  if (json_->prompt_parser.iterate(padded).get(document) != simdjson::SUCCESS) return false;
  json::od::json_type type{};
  if (document.type().get(type) != simdjson::SUCCESS) return false;
  prompt.texts.clear();
  std::string_view text;
  if (type == json::od::json_type::string) {
    if (document.get_string().get(text) != simdjson::SUCCESS) return false;
    prompt.texts.emplace_back(text);
  } else {
    json::od::array array;
    if (document.get_array().get(array) != simdjson::SUCCESS) return false;
    bool all = true;  // are texts
    const bool whole = json::for_each_element(array, [&](json::od::value& element) {
      json::od::json_type kind{};
      all = element.type().get(kind) == simdjson::SUCCESS && kind == json::od::json_type::string &&
            element.get_string().get(text) == simdjson::SUCCESS;
      if (all) prompt.texts.emplace_back(text);
      return all;
    });
    if (!whole || !all) return false;
  }
  if (prompt.texts.empty()) return false;
  prompt.exact_bytes = prompt.texts.front().size();
  return true;
}

void ChatRequestReader::take_ids(Body& body, PromptText& prompt, RequestFacts& facts) {
  facts.blocks.swap(prompt.blocks);
  facts.exact_blocks = static_cast<std::uint32_t>(facts.blocks.size());
  facts.block_tokens = options_.block_ids;
  facts.exact_tokens = !prompt.has_media();
  facts.encoded_bytes = prompt.encoded_bytes;
  facts.known_bytes = prompt.known_bytes;
  std::uint64_t tokens = prompt.tokens;
  if (prompt.has_media()) {
    content_.start_behind_ids(prompt.end, facts.blocks);
    visit_content(body, /*session_only=*/false);
    content_.end_behind_ids();
    const std::size_t behind = prompt.texts.front().size() - prompt.exact_bytes;
    tokens +=
        static_cast<std::uint64_t>(static_cast<double>(behind) / bytes_per_token(facts.model));
    tokens += content_.count().media_tokens();
  } else {
    for (const std::string& text : prompt.texts) facts.text_bytes += text.size();
  }
  facts.prompt_tokens = to_tokens(tokens);
  if (prompt.texts.size() > 1) facts.chain_tokens = to_tokens(prompt.first_tokens);
}

void ChatRequestReader::adopt(PromptText& prompt, Api api, std::string_view body,
                              std::size_t capacity, RequestFacts& facts) {
  facts.ids_pending = false;
  pad(body, capacity);
  Body reading(api, body, capacity);
  if (prompt.has_media() && open(reading)) read_fields(reading, facts);
  take_ids(reading, prompt, facts);
  give_memory_back();
}

}  // namespace pointsman
