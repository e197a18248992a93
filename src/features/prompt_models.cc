#include "features/prompt_models.h"

#include <algorithm>

namespace pointsman {

PromptModels::Found PromptModels::find(std::string_view served_name) const {
  const auto is_it = [served_name](const std::string& name) { return name == served_name; };
  // A request without a model is for the only one.
  if (served_name.empty() && entries_.size() == 1) {
    return {&entries_.front(), entries_.front().names.front()};
  }
  for (const Entry& entry : entries_) {
    if (std::any_of(entry.names.begin(), entry.names.end(), is_it)) {
      return {&entry, entry.names.front()};
    }
    const auto adapter = std::find_if(entry.adapters.begin(), entry.adapters.end(), is_it);
    if (adapter != entry.adapters.end()) return {&entry, *adapter};
  }
  return {nullptr, served_name};
}

}  // namespace pointsman
