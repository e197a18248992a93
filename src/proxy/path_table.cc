#include "proxy/path_table.h"

#include <algorithm>

namespace pointsman {
namespace {

// Paths whose body names the model that serves it; on others its absence is no error.
bool body_names_model(std::string_view path) {
  constexpr std::string_view kPaths[] = {"/v1/chat/completions",
                                         "/v1/completions",
                                         "/v1/embeddings",
                                         "/v1/responses",
                                         "/v1/messages",
                                         "/v1/messages/count_tokens",
                                         "/v1/rerank",
                                         "/v1/score",
                                         "/v1/classify",
                                         "/v1/pooling",
                                         "/v1/audio/transcriptions",
                                         "/v1/audio/translations",
                                         "/v1/audio/speech",
                                         "/v1/images/generations",
                                         "/v1/moderations",
                                         "/rerank",
                                         "/v2/rerank",
                                         "/score",
                                         "/classify",
                                         "/pooling"};
  return std::find(std::begin(kPaths), std::end(kPaths), path) != std::end(kPaths);
}

template <typename Exact>
void add(const std::vector<std::string>& entries, Exact& exact, std::vector<std::string>& below) {
  for (const std::string& entry : entries) {
    if (entry.ends_with("/*")) {
      below.push_back(entry.substr(0, entry.size() - 1));
    } else {
      exact.insert(entry);
    }
  }
}

bool is_below(std::string_view path, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [path](const std::string& prefix) {
    return path.size() > prefix.size() && path.starts_with(prefix);
  });
}

}  // namespace

PathTable::PathTable(const ProxyOptions& options) {
  add(options.proxied_paths, exact_, below_);
  add(options.refused_paths, refused_, refused_below_);
  // The admin port's own: who has mistaken the port is told so here and not by a replica.
  for (const char* path : {"/v1/signals", "/v1/replicas", "/v1/config"}) refused_.emplace(path);
  refused_below_.emplace_back("/v1/replicas/");
  stateless_.insert(options.stateless_paths.begin(), options.stateless_paths.end());
  for (const std::string& path : exact_) {
    if (!proxied(path)) continue;
    if (rules_.size() <= path.size()) rules_.resize(path.size() + 1);
    rules_[path.size()].push_back({path, proxy_rule(path)});
  }
}

bool PathTable::proxied(std::string_view path) const {
  // A slash at the end does not make another resource of an admin path.
  std::string_view bare = path;
  while (bare.size() > 1 && bare.back() == '/') bare.remove_suffix(1);
  if (refused_.contains(bare) || is_below(bare, refused_below_)) return false;
  return exact_.contains(path) || is_below(path, below_);
}

PathRule PathTable::proxy_rule(std::string_view path) const {
  return {PathAction::kProxy, api_of(path), stateless_.contains(path), body_names_model(path)};
}

PathRule PathTable::known_rule(std::string_view path) const {
  if (path.size() >= rules_.size()) return {};
  for (const Known& known : rules_[path.size()]) {
    if (known.path == path) return known.rule;
  }
  return {};
}

PathRule PathTable::find(std::string_view method, std::string_view path) const {
  const bool reads = method == "GET" || method == "HEAD";
  if (reads) {
    if (path == "/healthz") return {PathAction::kAlive};
    if (path == "/health" || path == "/readyz") return {PathAction::kReady};
  }
  PathRule rule = known_rule(path);
  if (rule.action == PathAction::kNotFound) {
    if (!proxied(path)) return {};
    rule = proxy_rule(path);
  }
  if (reads && path == "/v1/models") return {PathAction::kModels};
  rule.needs_model = rule.needs_model && method == "POST";
  return rule;
}

}  // namespace pointsman
