#include "replica/answer_writer.h"

#include "base/json_text.h"

namespace pointsman {
namespace {

// Texts of the simulated model need no escaping.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  return out.append(text).append("\"");
}

std::string usage_json(const TokenUsage& usage) {
  return R"({"prompt_tokens":)" + std::to_string(usage.prompt_tokens) + R"(,"total_tokens":)" +
         std::to_string(usage.prompt_tokens + usage.completion_tokens) +
         R"(,"completion_tokens":)" + std::to_string(usage.completion_tokens) +
         R"(,"prompt_tokens_details":{"cached_tokens":)" + std::to_string(usage.cached_tokens) +
         "}}";
}

}  // namespace

AnswerWriter::AnswerWriter(CompletionApi api, std::string_view id, std::string_view model,
                           std::int64_t created)
    : chat_(api == CompletionApi::kChat), model_(json_string(model)), created_(created) {
  id_ = json_string((chat_ ? "chatcmpl-" : "cmpl-") + std::string(id));
  event_head_ = "data: " + head(chat_ ? "chat.completion.chunk" : "text_completion");
}

std::string AnswerWriter::head(std::string_view object) const {
  return R"({"id":)" + id_ + R"(,"object":)" + quoted(object) + R"(,"created":)" +
         std::to_string(created_) + R"(,"model":)" + model_ + R"(,"choices":[)";
}

std::string AnswerWriter::role_event(std::size_t index) const {
  if (!chat_) return {};
  return event_head_ + R"({"index":)" + std::to_string(index) +
         R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})" +
         "\n\n";
}

std::string AnswerWriter::text_event(std::size_t index, std::string_view text,
                                     std::string_view finish_reason) const {
  std::string event;
  event.reserve(event_head_.size() + text.size() + 160);
  event.append(event_head_).append(R"({"index":)").append(std::to_string(index));
  event.append(chat_ ? R"(,"delta":{"content":")" : R"(,"text":")").append(text);
  event.append(chat_ ? R"("},"logprobs":null,"finish_reason":)"
                     : R"(","logprobs":null,"finish_reason":)");
  event.append(finish_reason.empty() ? "null" : quoted(finish_reason));
  event.append(chat_ ? R"(,"token_ids":null}]})"
                     : R"(,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]})");
  event.append("\n\n");
  return event;
}

std::string AnswerWriter::usage_event(const TokenUsage& usage) const {
  return event_head_ + R"(],"usage":)" + usage_json(usage) + "}\n\n";
}

std::string AnswerWriter::whole(const std::vector<AnswerChoice>& choices,
                                const TokenUsage& usage) const {
  std::string out = head(chat_ ? "chat.completion" : "text_completion");
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) out.push_back(',');
    out.append(R"({"index":)").append(std::to_string(i));
    if (chat_) {
      out.append(R"(,"message":{"role":"assistant","content":)").append(quoted(choices[i].text));
      out.append(R"(,"refusal":null},"logprobs":null,"finish_reason":)");
    } else {
      out.append(R"(,"text":)").append(quoted(choices[i].text));
      out.append(R"(,"logprobs":null,"finish_reason":)");
    }
    out.append(choices[i].stopped ? "\"stop\"" : "\"length\"");
    out.append(R"(,"stop_reason":null,"token_ids":null})");
  }
  out.append(R"(],"usage":)").append(usage_json(usage)).append("}");
  return out;
}

}  // namespace pointsman
