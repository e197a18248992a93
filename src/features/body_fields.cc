#include "features/body_fields.h"

#include <algorithm>

namespace pointsman {
namespace {

std::string_view text_or_empty(json::od::value& value) {
  return json::string(value).value_or(std::string_view());
}

void read_model(json::od::value& value, BodyFields& fields, RequestFacts& facts) {
  const std::optional<std::string_view> name = json::string(value);
  fields.model = name.value_or(std::string_view());
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

// Fields that change the prompt, of those that are read for ids alone. False: the document is
// broken.
bool read_prompt_field(std::string_view key, json::od::value& value, BodyFields& fields) {
  if (key == "chat_template_kwargs") {
    const std::optional<std::string_view> written = json::raw(value);
    fields.template_variables = written.value_or(std::string_view());
    if (fields.template_variables == "null") fields.template_variables = {};
    return written.has_value();
  }
  if (key == "add_generation_prompt") {
    fields.add_generation_prompt = json::is_true(value) || json::is_null(value);
  } else if (key == "continue_final_message") {
    fields.continue_final_message = json::is_true(value);
  } else if (key == "add_special_tokens") {
    fields.add_special_tokens = json::is_true(value);
  } else if (key == "chat_template" || key == "documents" || key == "reasoning_effort" ||
             key == "truncate_prompt_tokens" || key == "prompt_embeds") {
    fields.own_prompt = fields.own_prompt || !json::is_null(value);
  }
  return true;
}

}  // namespace

bool read_body_field(std::string_view key, json::od::value& value, int index, BodyFields& fields,
                     RequestFacts& facts) {
  for (std::size_t i = 0; i < kContentNames.size(); ++i) {
    if (key == kContentNames[i]) {
      fields.content_at[i] = index;
      if (!fields.keep_written) return true;
      const std::optional<std::string_view> written = json::raw(value);
      fields.written[i] = written.value_or(std::string_view());
      return written.has_value();
    }
  }
  if (key == "model") {
    read_model(value, fields, facts);
  } else if (key == "stream") {
    facts.stream = json::is_true(value);
  } else if (key == "max_completion_tokens") {
    fields.max_completion_tokens = json::count(value);
  } else if (key == "max_output_tokens") {
    fields.max_output_tokens = json::count(value);
  } else if (key == "max_tokens") {
    fields.max_tokens = json::count(value);
  } else if (key == "prompt_cache_key") {
    fields.prompt_cache_key = text_or_empty(value);
  } else if (key == "conversation") {
    return read_conversation(value, fields.conversation);
  } else if (key == "user") {
    fields.user = text_or_empty(value);
  } else if (key == "previous_response_id") {
    fields.previous_response_id = text_or_empty(value);
  } else if (key == "cache_salt") {
    fields.cache_salt = text_or_empty(value);
  } else if (key == "store") {
    fields.store = json::is_true(value);
  } else if (key == "background") {
    fields.background = json::is_true(value);
  } else if (key == "echo") {
    fields.echo = json::is_true(value);
  } else if (key == "logprobs") {
    fields.logprobs = !json::is_null(value);
  } else if (key == "prompt_logprobs") {
    fields.prompt_logprobs = !json::is_null(value);
  } else if (key == "priority") {
    std::int64_t priority = 0;
    facts.priority = 0;
    if (value.get_int64().get(priority) == simdjson::SUCCESS) {
      facts.priority =
          static_cast<std::int32_t>(std::clamp<std::int64_t>(priority, INT32_MIN, INT32_MAX));
    }
  } else if (fields.keep_written) {
    return read_prompt_field(key, value, fields);
  }
  return true;
}

}  // namespace pointsman
