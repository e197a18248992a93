#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pointsman {

// One entry of a replica's GET /v1/models.
struct ModelEntry {
  std::string id;
  std::string object;  // the entry's JSON as it came, every field of it
  std::optional<std::uint64_t> max_model_len;
  std::string parent;  // of an adapter (LoRA), the base model; empty: it is one itself
};

struct ModelsList {
  std::vector<ModelEntry> entries;
  // False for an engine that serves whatever name it is given (llama.cpp): its list says nothing of
  // what it would refuse.
  bool binding = true;

  [[nodiscard]] std::vector<std::string> ids() const;
  // The first name of the base model; empty where there is none.
  [[nodiscard]] std::string base_model() const;
};

// Nothing where the body is no such list. Entries without an id are left out.
std::optional<ModelsList> parse_models_list(std::string_view body);

// Appends the answer to GET /v1/models for several replicas: each id once, in order of appearance,
// as one of the replicas said it. Where they differ on max_model_len, it is the entry with the
// smallest, since a request must fit wherever it is sent.
void append_merged_models(std::string& out, const std::vector<const ModelsList*>& lists);

}  // namespace pointsman
