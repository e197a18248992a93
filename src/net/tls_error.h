#pragma once

#include <string>
#include <string_view>
#include <system_error>

#include <openssl/types.h>

namespace pointsman {

// What goes wrong on a TLS connection, as error codes. The values are OpenSSL's packed ones, those
// of a certificate's verification, and the two below; none is ever equal to an errno.
const std::error_category& tls_category();

// The connection ended within the handshake.
std::error_code tls_handshake_cut();
// The connection ended without the other side's close_notify: what came may not be the whole.
std::error_code tls_truncated();

// Why the last call on the connection failed, from this thread's queue of OpenSSL errors. Where a
// certificate was at fault, what is wrong with it.
std::error_code last_tls_error(const SSL* connection);

// The other side spoke HTTP and not TLS.
bool is_plain_http(const std::error_code& error);

// The failure of a handshake with a client in one word, for metrics: plain_http, not_tls, version,
// cipher, certificate, alert, closed, timeout, other.
std::string_view tls_failure_word(const std::error_code& error);

// Why a file could not be used, from the same queue.
std::string last_tls_file_error();

}  // namespace pointsman
