#pragma once

#include <cerrno>
#include <system_error>

namespace pointsman {

// Whether a socket failed for want of something of this process or its system: descriptors, memory,
// local ports. That says nothing about the other side.
inline bool is_own_lack(const std::error_code& error) {
  switch (error.value()) {
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
    case EADDRNOTAVAIL:
      return true;
    default:
      return false;
  }
}

}  // namespace pointsman
