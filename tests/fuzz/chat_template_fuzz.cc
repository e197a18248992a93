// Any bytes as the messages of a chat, as its tools and variables, and as a template of its own.
// All may be refused; none may crash, run for ever or take more memory than a rendering may.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "support/fuzz_check.h"
#include "support/model_folder.h"
#include "tokens/chat_template.h"
#include "tokens/tokenizer.h"

namespace pointsman {
namespace {

using test::check;

void render(const ChatTemplate& chat_template, const ChatPrompt& prompt) {
  const Result<RenderedChat> chat = chat_template.render(prompt);
  if (chat) check(chat->exact_bytes <= chat->text.size());
}

// An input is the messages, and after a NUL what else there is.
void fuzz_chat(std::string_view input) {
  static const Result<ChatTemplate> tiny = ChatTemplate::load(POINTSMAN_TEST_DATA "/tokens");
  check(tiny.ok());
  const std::size_t cut = input.find('\0');
  const std::string_view messages = input.substr(0, cut);
  const std::string_view rest = cut == std::string_view::npos ? "" : input.substr(cut + 1);
  render(*tiny, {.messages = messages, .tools = rest});
  render(*tiny, {.messages = messages, .variables = rest, .continue_final_message = true});
}

void fuzz_template(std::string_view source) {
  static const ModelFolder folder;
  folder.write("chat_template.jinja", std::string(source));
  const Result<ChatTemplate> chat_template = ChatTemplate::load(folder.path());
  if (!chat_template) return;
  render(
      *chat_template,
      {.messages = R"([{"role": "user", "content": "a <b> 'c'"},
                          {"role": "assistant", "content": [{"type": "text", "text": "1"}]}])",
       .tools = R"([{"type": "function", "function": {"name": "f", "parameters": {"x": 1.5}}}])"});
}

}  // namespace
}  // namespace pointsman

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (!pointsman::token_ids_built()) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  pointsman::fuzz_chat(input);
  pointsman::fuzz_template(input);
  return 0;
}
