#pragma once

#include <string>

namespace pointsman {

// Closes what the end of a JSON `text` cut open, so that it can be read up to there. What stands
// last and may be incomplete (a number, a key, a top-level string) is cut off; a text deeper inside
// is kept.
void close_partial_json(std::string& text);

}  // namespace pointsman
