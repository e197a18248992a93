#pragma once

#include "base/api.h"
#include "features/body_fields.h"
#include "features/json_read.h"
#include "features/prompt_content.h"

namespace pointsman {

// Reads one of the fields that hold a prompt into `content`. `session_only`: nothing is read behind
// what makes the session key. False: the document is broken.
bool read_content(Api api, ContentField field, json::od::value& value, bool session_only,
                  PromptContent& content);

}  // namespace pointsman
