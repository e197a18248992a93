#pragma once

#include <string_view>

#include "base/result.h"
#include "config/yaml_tree.h"

namespace pointsman {

// Reads a JSON document into the tree that the configuration is read from, so that a replica given
// to the admin port passes the same checks as one in the file. Refused: a key twice in the same
// object, nesting deeper than 16.
Result<YamlNode> parse_json_tree(std::string_view text);

}  // namespace pointsman
