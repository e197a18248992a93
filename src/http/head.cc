#include "http/head.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/ascii.h"

namespace pointsman {

namespace {

constexpr std::uint64_t word_of(const char (&text)[9]) {
  std::uint64_t word = 0;
  for (std::size_t i = 8; i-- > 0;) {
    word = (word << 8) | static_cast<unsigned char>(text[i]);
  }
  return word;
}

static_assert(std::endian::native == std::endian::little, "names are compared as words");

}  // namespace

bool is_steering(std::string_view name) {
  // Most names are told by their first eight letters.
  if (name.size() < 8) return false;
  std::uint64_t start;
  std::memcpy(&start, name.data(), 8);
  switch (start | 0x2020202020202020ULL) {
    case word_of("x-points"):
      return istarts_with(name, "x-pointsman-");
    case word_of("x-gatewa"):
      return istarts_with(name, "x-gateway-destination-endpoint") ||
             istarts_with(name, "x-gateway-inference-") ||
             iequals(name, "x-gateway-model-name-rewrite");
    case word_of("x-llm-d-"):
      return true;
    case word_of("x-prefil"):
      return iequals(name, "x-prefiller-host-port");
    case word_of("x-encode"):
      return iequals(name, "x-encoder-hosts-ports");
    case word_of("x-data-p"):
      return iequals(name, "x-data-parallel-host-port");
    case word_of("x-kv-cac"):
      return iequals(name, "x-kv-cache-source-host-port");
    case word_of("x-smg-ta"):
      return iequals(name, "x-smg-target-worker");
    case word_of("x-envoy-"):
      return iequals(name, "x-envoy-original-dst-host");
    default:
      return false;
  }
}

namespace {

HeaderId named(std::string_view name) {
  // Every header of every message comes by here. The bit that parts capitals from small letters is
  // set in all bytes at once, and the rest is comparisons of fixed length. Of the characters
  // that a name may have it makes none a letter or a hyphen that was not one before.
  constexpr std::size_t kLongest = 24;
  if (name.size() > kLongest) return HeaderId::kOther;
  std::array<std::uint64_t, kLongest / 8> words{};
  std::memcpy(words.data(), name.data(), name.size());
  for (std::uint64_t& word : words) word |= 0x2020202020202020ULL;
  const char* const lower = reinterpret_cast<const char*>(words.data());
  const auto is = [lower]<std::size_t kSize>(const char(&known)[kSize]) {
    return std::memcmp(lower, known, kSize - 1) == 0;
  };
  switch (name.size()) {
    case 2:
      return is("te") ? HeaderId::kTe : HeaderId::kOther;
    case 4:
      return is("host") ? HeaderId::kHost : HeaderId::kOther;
    case 6:
      return is("expect") ? HeaderId::kExpect : HeaderId::kOther;
    case 7:
      return is("upgrade") ? HeaderId::kUpgrade : HeaderId::kOther;
    case 9:
      return is("x-api-key") ? HeaderId::kXApiKey : HeaderId::kOther;
    case 10:
      if (is("keep-alive")) return HeaderId::kKeepAlive;
      return is("connection") ? HeaderId::kConnection : HeaderId::kOther;
    case 12:
      if (is("x-request-id")) return HeaderId::kXRequestId;
      return is("content-type") ? HeaderId::kContentType : HeaderId::kOther;
    case 13:
      return is("authorization") ? HeaderId::kAuthorization : HeaderId::kOther;
    case 14:
      return is("content-length") ? HeaderId::kContentLength : HeaderId::kOther;
    case 16:
      if (is("content-encoding")) return HeaderId::kContentEncoding;
      return is("proxy-connection") ? HeaderId::kProxyConnection : HeaderId::kOther;
    case 17:
      return is("transfer-encoding") ? HeaderId::kTransferEncoding : HeaderId::kOther;
    case 18:
      return is("proxy-authenticate") ? HeaderId::kProxyAuthenticate : HeaderId::kOther;
    case 19:
      return is("proxy-authorization") ? HeaderId::kProxyAuthorization : HeaderId::kOther;
    default:
      return HeaderId::kOther;
  }
}

}  // namespace

HeaderId header_id(std::string_view name) {
  const HeaderId id = named(name);
  if (id == HeaderId::kOther && is_steering(name)) return HeaderId::kSteering;
  return id;
}

std::optional<std::string_view> Head::find(std::string_view name) const {
  for (const Line& line : lines_) {
    if (steering_hidden_ && line.id == HeaderId::kSteering) continue;
    if (line.name_size == name.size() && iequals(text(line.name_at, line.name_size), name)) {
      return text(line.value);
    }
  }
  return std::nullopt;
}

std::optional<std::string_view> Head::find(HeaderId id) const {
  for (const Line& line : lines_) {
    if (line.id == id) return text(line.value);
  }
  return std::nullopt;
}

bool Head::is_hop_by_hop(const Header& header) const {
  switch (header.id) {
    case HeaderId::kConnection:
    case HeaderId::kKeepAlive:
    case HeaderId::kProxyAuthenticate:
    case HeaderId::kProxyAuthorization:
    case HeaderId::kProxyConnection:
    case HeaderId::kTe:
    case HeaderId::kTransferEncoding:
    case HeaderId::kUpgrade:
      return true;
    case HeaderId::kContentLength:
    case HeaderId::kHost:
      return false;
    case HeaderId::kSteering:
      if (steering_hidden_) return true;
      break;
    default:
      break;
  }
  if (!connection_names_headers_) return false;
  bool named = false;
  for (const Line& line : lines_) {
    if (line.id != HeaderId::kConnection) continue;
    for_each_element(text(line.value), [&](std::string_view option) {
      named = named || iequals(option, header.name);
    });
  }
  return named;
}

void Head::clear() {
  base_ = "";
  size_ = 0;
  content_length_ = 0;
  lines_.clear();
  if (lines_.capacity() > kUsualHeaders) {
    std::vector<Line>().swap(lines_);
    lines_.reserve(kUsualHeaders);
  }
  version_minor_ = 1;
  has_content_length_ = chunked_ = connection_names_headers_ = false;
  steers_ = steering_hidden_ = false;
  keep_alive_ = true;
  upgrade_ = content_type_ = content_encoding_ = request_id_ = HeadSpan{};
}

void RequestHead::clear() {
  Head::clear();
  method_ = target_ = path_ = query_ = host_ = HeadSpan{};
  expect_continue_ = false;
}

void ResponseHead::clear() {
  Head::clear();
  reason_ = HeadSpan{};
  status_ = 0;
}

bool ResponseHead::event_stream() const {
  const std::string_view type = content_type();
  return iequals(trim(type.substr(0, type.find(';'))), "text/event-stream");
}

}  // namespace pointsman
