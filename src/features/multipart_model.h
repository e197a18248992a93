#pragma once

#include <optional>
#include <string_view>

namespace pointsman {

// The value of the form field "model" in a multipart/form-data body (RFC 7578), as audio
// transcriptions have it. Nothing where the body is no such form, has no such field, or is cut
// before its end. The body is never changed; the view lies in it.
std::optional<std::string_view> multipart_model(std::string_view content_type,
                                                std::string_view body);

// Whether a Content-Type is multipart/form-data.
bool is_multipart_form(std::string_view content_type);

}  // namespace pointsman
