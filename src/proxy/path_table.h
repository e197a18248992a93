#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/api.h"
#include "proxy/proxy_options.h"

namespace pointsman {

// What the data port does with a path.
enum class PathAction : std::uint8_t {
  kNotFound,  // nothing is here, and no replica is asked
  kAlive,     // /healthz: this process serves
  kReady,     // /health, /readyz: a replica could be given a request
  kModels,    // GET /v1/models: merged from what the replicas say
  kProxy,     // passed on to a replica
};

struct PathRule {
  PathAction action = PathAction::kNotFound;
  Api api = Api::kOther;
  bool stateless = false;    // a second sending leaves nothing behind
  bool needs_model = false;  // requests choose a model in their body
};

// Decides on the decoded path alone (http/path.h). Built once; a look-up of a path that is listed
// by its full name is one hash.
class PathTable {
 public:
  explicit PathTable(const ProxyOptions& options);

  [[nodiscard]] PathRule find(std::string_view method, std::string_view path) const;

 private:
  struct Hash {
    using is_transparent = void;  // NOLINT(readability-identifier-naming): the standard's name
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };
  using Paths = std::unordered_set<std::string, Hash, std::equal_to<>>;

  [[nodiscard]] bool proxied(std::string_view path) const;
  // What is the same for all methods.
  [[nodiscard]] PathRule proxy_rule(std::string_view path) const;
  // The same, if the path is in rules_; else kNotFound.
  [[nodiscard]] PathRule known_rule(std::string_view path) const;

  Paths exact_;
  std::vector<std::string> below_;  // "/v1/" for the entry "/v1/*"
  Paths refused_;
  std::vector<std::string> refused_below_;
  Paths stateless_;
  // The rules of the paths in exact_ that are not refused: nearly all requests are for one of them.
  // By length, which leaves two or three to compare with.
  struct Known {
    std::string path;
    PathRule rule;
  };
  std::vector<std::vector<Known>> rules_;
};

}  // namespace pointsman
