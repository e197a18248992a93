#include "feeds/models_list.h"

#include <unordered_map>

#include <simdjson.h>

namespace pointsman {
namespace {

constexpr std::size_t kMostEntries = 10'000;

std::string_view trimmed(std::string_view json) {
  while (!json.empty() && static_cast<unsigned char>(json.back()) <= ' ') json.remove_suffix(1);
  return json;
}

}  // namespace

std::vector<std::string> ModelsList::ids() const {
  std::vector<std::string> all;
  all.reserve(entries.size());
  for (const ModelEntry& entry : entries) all.push_back(entry.id);
  return all;
}

std::string ModelsList::base_model() const {
  for (const ModelEntry& entry : entries) {
    if (entry.parent.empty()) return entry.id;
  }
  return {};
}

std::optional<ModelsList> parse_models_list(std::string_view body) {
  // Checked as a whole first: the second, lazy reading below would find only what it looks at.
  simdjson::dom::parser checker;
  if (checker.parse(body.data(), body.size()).error() != simdjson::SUCCESS) return std::nullopt;

  const simdjson::padded_string padded(body);
  simdjson::ondemand::parser parser;
  simdjson::ondemand::document document;
  simdjson::ondemand::array data;
  if (parser.iterate(padded).get(document) != simdjson::SUCCESS ||
      document["data"].get_array().get(data) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  ModelsList list;
  for (auto item : data) {
    simdjson::ondemand::object object;
    if (item.get_object().get(object) != simdjson::SUCCESS) continue;
    std::string_view raw;
    if (object.raw_json().get(raw) != simdjson::SUCCESS) return std::nullopt;
    simdjson::dom::element fields;
    std::string_view id;
    if (checker.parse(raw.data(), raw.size()).get(fields) != simdjson::SUCCESS ||
        fields["id"].get(id) != simdjson::SUCCESS || id.empty()) {
      continue;
    }
    ModelEntry entry;
    entry.id = id;
    entry.object = trimmed(raw);
    std::uint64_t length = 0;
    if (fields["max_model_len"].get(length) == simdjson::SUCCESS) entry.max_model_len = length;
    std::string_view parent;
    if (fields["parent"].get(parent) == simdjson::SUCCESS) entry.parent = parent;
    std::string_view owner;
    if (fields["owned_by"].get(owner) == simdjson::SUCCESS && owner == "llamacpp") {
      list.binding = false;
    }
    list.entries.push_back(std::move(entry));
    if (list.entries.size() == kMostEntries) break;
  }
  return list;
}

void append_merged_models(std::string& out, const std::vector<const ModelsList*>& lists) {
  std::vector<const ModelEntry*> merged;
  std::unordered_map<std::string_view, std::size_t> place;
  for (const ModelsList* list : lists) {
    for (const ModelEntry& entry : list->entries) {
      const auto [found, is_new] = place.try_emplace(entry.id, merged.size());
      if (is_new) {
        merged.push_back(&entry);
        continue;
      }
      const ModelEntry*& former = merged[found->second];
      if (entry.max_model_len &&
          (!former->max_model_len || *entry.max_model_len < *former->max_model_len)) {
        former = &entry;
      }
    }
  }
  out += R"({"object":"list","data":[)";
  for (std::size_t i = 0; i < merged.size(); ++i) {
    if (i > 0) out += ',';
    out += merged[i]->object;
  }
  out += "]}";
}

}  // namespace pointsman
