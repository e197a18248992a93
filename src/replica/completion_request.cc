#include "replica/completion_request.h"

#include <algorithm>

#include <simdjson.h>

#include "base/json_text.h"

namespace pointsman {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::element_type;

ApiError validation_error(std::string_view kind, std::string_view place, std::string_view text) {
  std::string message = "1 validation error:\n  {'type': '";
  message.append(kind).append("', 'loc': '").append(place).append("', 'msg': '");
  message.append(text).append("'}");
  return {400, "Bad Request", std::move(message), std::string(place)};
}

ApiError bad_request(std::string message, std::string_view param) {
  return {400, "BadRequestError", std::move(message), std::string(param)};
}

// Content of a message: a string, parts (text as it is, all else as its JSON), or nothing.
std::string content_text(const element& content) {
  std::string_view text;
  if (content.get(text) == simdjson::SUCCESS) return std::string(text);
  array parts;
  if (content.get(parts) != simdjson::SUCCESS) return {};
  std::string joined;
  for (const element part : parts) {
    if (part["text"].get(text) == simdjson::SUCCESS) {
      joined.append(text);
    } else {
      joined.append(simdjson::minify(part));
    }
  }
  return joined;
}

std::optional<ApiError> read_messages(const element& root, CompletionRequest& request) {
  array messages;
  if (root["messages"].get(messages) != simdjson::SUCCESS) {
    return validation_error("missing", "body.messages", "Field required");
  }
  ChatTemplate chat;
  element tools;
  if (root["tools"].get(tools) == simdjson::SUCCESS && !tools.is_null()) {
    chat.add("tools", simdjson::minify(tools));
  }
  for (const element message : messages) {
    std::string_view role;
    if (message["role"].get(role) != simdjson::SUCCESS) {
      return validation_error("missing", "body.messages.role", "Field required");
    }
    std::string content;
    element field;
    if (message["content"].get(field) == simdjson::SUCCESS) content = content_text(field);
    if (message["tool_calls"].get(field) == simdjson::SUCCESS && !field.is_null()) {
      content.append(simdjson::minify(field));
    }
    chat.add(role, content);
  }
  bool generation_prompt = true;
  if (root["add_generation_prompt"].get(generation_prompt) != simdjson::SUCCESS) {
    generation_prompt = true;
  }
  request.prompts.push_back(tokens_of(chat.finish(generation_prompt)));
  return std::nullopt;
}

bool read_ids(const array& ids, TokenIds& tokens) {
  for (const element id : ids) {
    std::uint64_t value = 0;
    if (id.get(value) != simdjson::SUCCESS || value > UINT32_MAX) return false;
    tokens.push_back(static_cast<std::uint32_t>(value));
  }
  return true;
}

// A string, token ids, or an array of either.
std::optional<ApiError> read_prompt(const element& root, CompletionRequest& request) {
  element prompt;
  if (root["prompt"].get(prompt) != simdjson::SUCCESS) {
    return validation_error("missing", "body.prompt", "Field required");
  }
  const auto malformed = [] {
    return validation_error("type_error", "body.prompt",
                            "Input should be a string, token ids, or an array of these");
  };
  std::string_view text;
  if (prompt.get(text) == simdjson::SUCCESS) {
    request.prompts.push_back(tokens_of(text));
    return std::nullopt;
  }
  array items;
  if (prompt.get(items) != simdjson::SUCCESS || items.size() == 0) return malformed();
  if (items.at(0).is_uint64() || items.at(0).is_int64()) {
    TokenIds tokens;
    if (!read_ids(items, tokens)) return malformed();
    request.prompts.push_back(std::move(tokens));
    return std::nullopt;
  }
  for (const element item : items) {
    TokenIds tokens;
    array ids;
    if (item.get(text) == simdjson::SUCCESS) {
      tokens = tokens_of(text);
    } else if (item.get(ids) != simdjson::SUCCESS || !read_ids(ids, tokens)) {
      return malformed();
    }
    request.prompts.push_back(std::move(tokens));
  }
  return std::nullopt;
}

std::optional<ApiError> read_limit(const element& root, const char* name,
                                   std::optional<std::uint32_t>& limit) {
  element field;
  if (root[name].get(field) != simdjson::SUCCESS || field.is_null()) return std::nullopt;
  std::int64_t value = 0;
  if (field.get(value) != simdjson::SUCCESS) {
    return validation_error("int_type", std::string("body.") + name,
                            "Input should be a valid integer");
  }
  if (value < 1) {
    return bad_request(std::string(name) + " must be at least 1, got " + std::to_string(value) +
                           ". (parameter=" + name + ", value=" + std::to_string(value) + ")",
                       name);
  }
  limit = static_cast<std::uint32_t>(std::min<std::int64_t>(value, UINT32_MAX));
  return std::nullopt;
}

std::optional<ApiError> read_options(const element& root, CompletionRequest& request) {
  std::string_view text;
  if (root["model"].get(text) == simdjson::SUCCESS) request.model = text;
  if (root["request_id"].get(text) == simdjson::SUCCESS) request.request_id = text;
  if (root["cache_salt"].get(text) == simdjson::SUCCESS) request.cache_salt = text;
  bool flag = false;
  if (root["stream"].get(flag) == simdjson::SUCCESS) request.stream = flag;
  element options;
  if (root["stream_options"].get(options) == simdjson::SUCCESS && !options.is_null()) {
    if (!request.stream) {
      return bad_request(
          "Stream options can only be defined when `stream=True`. (parameter=stream_options)",
          "stream_options");
    }
    if (options["include_usage"].get(flag) == simdjson::SUCCESS) request.include_usage = flag;
  }
  if (auto error = read_limit(root, "max_tokens", request.max_tokens)) return error;
  if (auto error = read_limit(root, "max_completion_tokens", request.max_tokens)) return error;
  std::uint64_t minimum = 0;
  if (root["min_tokens"].get(minimum) == simdjson::SUCCESS) {
    request.min_tokens = static_cast<std::uint32_t>(std::min<std::uint64_t>(minimum, UINT32_MAX));
    if (request.max_tokens && request.min_tokens > *request.max_tokens) {
      return bad_request("min_tokens must be less than or equal to max_tokens", "min_tokens");
    }
  }
  return std::nullopt;
}

}  // namespace

std::string ApiError::body() const {
  std::string out = R"({"error":{"message":)";
  append_json_string(out, message);
  out.append(R"(,"type":)");
  append_json_string(out, type);
  out.append(R"(,"param":)");
  if (param.empty()) {
    out.append("null");
  } else {
    append_json_string(out, param);
  }
  out.append(R"(,"code":)").append(std::to_string(status)).append("}}");
  return out;
}

std::variant<CompletionRequest, ApiError> parse_completion(CompletionApi api,
                                                           std::string_view body) {
  simdjson::dom::parser parser;
  element root;
  if (parser.parse(simdjson::padded_string(body)).get(root) != simdjson::SUCCESS ||
      root.type() != element_type::OBJECT) {
    return validation_error("json_invalid", "body." + std::to_string(body.size()),
                            "JSON decode error");
  }
  CompletionRequest request;
  request.api = api;
  if (auto error = read_options(root, request)) return *std::move(error);
  // /tokenize takes either form.
  const bool chat = api == CompletionApi::kChat || (api == CompletionApi::kTokenize &&
                                                    root["prompt"].error() != simdjson::SUCCESS);
  if (auto error = chat ? read_messages(root, request) : read_prompt(root, request)) {
    return *std::move(error);
  }
  if (api == CompletionApi::kTokenize) return request;
  for (const TokenIds& prompt : request.prompts) {
    if (prompt.empty()) {
      return bad_request("The decoder prompt cannot be empty", "prompt");
    }
  }
  return request;
}

}  // namespace pointsman
