#include "tokens/chat_template.h"

#include <utility>

#include "tokens/leaf.h"

namespace pointsman {

void ChatTemplate::FreeLeaf::operator()(Leaf* leaf) const {
  const leaf::Unseen unseen;
  pm_template_free(reinterpret_cast<pm_template*>(leaf));
}

ChatTemplate::ChatTemplate(ChatTemplate&& other) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&& other) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::load(const std::string& folder) {
  const leaf::Unseen unseen;
  std::string why;
  pm_template* leaf = pm_template_load(folder.data(), folder.size(), leaf::take_text, &why);
  if (leaf == nullptr) return Error{ErrorKind::kInternal, std::move(why)};
  ChatTemplate chat_template;
  chat_template.leaf_.reset(reinterpret_cast<Leaf*>(leaf));
  return chat_template;
}

Result<RenderedChat> ChatTemplate::render(const ChatPrompt& prompt) const {
  const pm_chat chat{
      .messages = prompt.messages.data(),
      .messages_size = prompt.messages.size(),
      .tools = prompt.tools.data(),
      .tools_size = prompt.tools.size(),
      .variables = prompt.variables.data(),
      .variables_size = prompt.variables.size(),
      .add_generation_prompt = prompt.add_generation_prompt,
      .continue_final_message = prompt.continue_final_message,
  };
  const leaf::Unseen unseen;
  RenderedChat rendered;
  std::string why;
  const pm_status status =
      pm_template_render(reinterpret_cast<const pm_template*>(leaf_.get()), &chat, leaf::take_text,
                         &rendered.text, &rendered.exact_bytes, leaf::take_text, &why);
  if (status != PM_OK) return leaf::error(status, std::move(why));
  return rendered;
}

}  // namespace pointsman
