#include "net/tls_error.h"

#include <cerrno>
#include <string>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

namespace pointsman {
namespace {

// Values of the category: OpenSSL's packed codes are above 2^23, an errno is far below all three.
constexpr int kHandshakeCut = 1 << 16;
constexpr int kTruncated = kHandshakeCut + 1;
constexpr int kVerification = 1 << 17;  // and X509_V_ERR_… added
constexpr int kVerificationEnd = kVerification + 1000;

class TlsCategory final : public std::error_category {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "tls"; }
  [[nodiscard]] std::string message(int value) const override {
    if (value == kHandshakeCut) return "the connection ended within the TLS handshake";
    if (value == kTruncated) return "the TLS connection was cut without a close_notify";
    if (value >= kVerification && value < kVerificationEnd) {
      return X509_verify_cert_error_string(value - kVerification);
    }
    const char* const reason = ERR_reason_error_string(static_cast<unsigned long>(value));
    return reason != nullptr ? reason : "TLS error " + std::to_string(value);
  }
};

// Alerts that the other side sent: OpenSSL gives them reasons from here on.
constexpr int kAlertReasons = SSL_AD_REASON_OFFSET;

}  // namespace

const std::error_category& tls_category() {
  static const TlsCategory category;
  return category;
}

std::error_code tls_handshake_cut() {
  return {kHandshakeCut, tls_category()};
}

std::error_code tls_truncated() {
  return {kTruncated, tls_category()};
}

std::error_code last_tls_error(const SSL* connection) {
  const unsigned long code = ERR_peek_error();
  if (ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) == SSL_R_CERTIFICATE_VERIFY_FAILED) {
    const long verification = SSL_get_verify_result(connection);
    if (verification != X509_V_OK) {
      return {kVerification + static_cast<int>(verification), tls_category()};
    }
  }
  if (code == 0 || ERR_SYSTEM_ERROR(code)) return tls_handshake_cut();
  return {static_cast<int>(code), tls_category()};
}

bool is_plain_http(const std::error_code& error) {
  return error.category() == tls_category() &&
         ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_HTTP_REQUEST &&
         ERR_GET_LIB(static_cast<unsigned long>(error.value())) == ERR_LIB_SSL;
}

std::string_view tls_failure_word(const std::error_code& error) {
  if (error.category() != tls_category()) return error.value() == ETIMEDOUT ? "timeout" : "closed";
  const int value = error.value();
  if (value == kHandshakeCut || value == kTruncated) return "closed";
  if (value >= kVerification && value < kVerificationEnd) return "certificate";
  const auto code = static_cast<unsigned long>(value);
  if (ERR_GET_LIB(code) != ERR_LIB_SSL) return "other";
  const int reason = ERR_GET_REASON(code);
  switch (reason) {
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
      return "plain_http";
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_UNKNOWN_PROTOCOL:
    case SSL_R_UNEXPECTED_MESSAGE:
    case SSL_R_BAD_RECORD_TYPE:
    case SSL_R_LENGTH_MISMATCH:
    case SSL_R_LENGTH_TOO_SHORT:
    case SSL_R_BAD_LENGTH:
    case SSL_R_RECORD_LENGTH_MISMATCH:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_ENCRYPTED_LENGTH_TOO_LONG:
    case SSL_R_DATA_LENGTH_TOO_LONG:
    case SSL_R_EXCESSIVE_MESSAGE_SIZE:
    case SSL_R_RECORD_TOO_SMALL:
      return "not_tls";
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
    case SSL_R_VERSION_TOO_HIGH:
    case SSL_R_UNSUPPORTED_SSL_VERSION:
      return "version";
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
    case SSL_R_NO_SUITABLE_GROUPS:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS:
    case SSL_R_NO_APPLICATION_PROTOCOL:
      return "cipher";
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
      return "certificate";
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
      return "closed";
    default:
      return reason > kAlertReasons ? "alert" : "other";
  }
}

std::string last_tls_file_error() {
  const unsigned long code = ERR_peek_last_error();
  const char* const reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : "unknown error";
}

}  // namespace pointsman
