#include "features/multipart_model.h"

#include <string>

#include "base/ascii.h"

namespace pointsman {
namespace {

constexpr std::size_t kMaxBoundary = 70;  // RFC 2046, 5.1.1

// The value of a parameter in a header value like: form-data; name="model"; other=x
std::optional<std::string_view> parameter(std::string_view header, std::string_view name) {
  std::size_t at = header.find(';');
  while (at != std::string_view::npos) {
    std::string_view rest = trim(header.substr(at + 1));
    const std::size_t equals = rest.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view key = trim(rest.substr(0, equals));
    rest = trim(rest.substr(equals + 1));
    std::string_view value;
    if (rest.starts_with('"')) {
      const std::size_t close = rest.find('"', 1);
      if (close == std::string_view::npos) return std::nullopt;
      value = rest.substr(1, close - 1);
      rest.remove_prefix(close + 1);
    } else {
      const std::size_t end = std::min(rest.find(';'), rest.size());
      value = trim(rest.substr(0, end));
      rest.remove_prefix(end);
    }
    if (iequals(key, name)) return value;
    const std::size_t next = rest.find(';');
    if (next == std::string_view::npos) return std::nullopt;
    header = rest;
    at = next;
  }
  return std::nullopt;
}

// Whether the header lines of a part say that it is the field "model".
bool is_model_field(std::string_view lines) {
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find("\r\n"), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 2, lines.size()));
    constexpr std::string_view kName = "content-disposition:";
    if (istarts_with(line, kName)) return parameter(line.substr(kName.size()), "name") == "model";
  }
  return false;
}

}  // namespace

bool is_multipart_form(std::string_view content_type) {
  return iequals(trim(content_type.substr(0, content_type.find(';'))), "multipart/form-data");
}

std::optional<std::string_view> multipart_model(std::string_view content_type,
                                                std::string_view body) {
  if (!is_multipart_form(content_type)) return std::nullopt;
  const std::optional<std::string_view> boundary = parameter(content_type, "boundary");
  if (!boundary || boundary->empty() || boundary->size() > kMaxBoundary) return std::nullopt;
  const std::string delimiter = "\r\n--" + std::string(*boundary);

  // The first delimiter may stand at the very start; text before it means nothing.
  const std::string_view first = std::string_view(delimiter).substr(2);
  std::size_t at = body.starts_with(first) ? 0 : body.find(delimiter);
  if (at == std::string_view::npos) return std::nullopt;
  body.remove_prefix(at == 0 ? first.size() : at + delimiter.size());

  while (body.starts_with("\r\n")) {
    const std::size_t head_end = body.find("\r\n\r\n");
    if (head_end == std::string_view::npos) return std::nullopt;
    const std::string_view head = body.substr(2, head_end > 2 ? head_end - 2 : 0);
    body.remove_prefix(head_end + 4);
    at = body.find(delimiter);
    if (at == std::string_view::npos) return std::nullopt;
    if (is_model_field(head)) return body.substr(0, at);
    body.remove_prefix(at + delimiter.size());
  }
  return std::nullopt;
}

}  // namespace pointsman
