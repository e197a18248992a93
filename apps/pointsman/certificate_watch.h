#pragma once

#include <functional>
#include <string>

#include "net/reactor.h"
#include "net/tls_context.h"

namespace pointsman {

// Looks each second, on the housekeeping reactor, whether certificates have changed, and has them
// read again. What happens is logged.
class CertificateWatch {
 public:
  // Calls its argument with each context that is in use now, and the section of the configuration
  // that it comes from.
  using Contexts =
      std::function<void(const std::function<void(const std::string& name, TlsContext& context)>&)>;

  CertificateWatch(Reactor& reactor, Contexts contexts);

  // All files are read again, changed or not.
  void read_now() { look(true); }

 private:
  void look(bool at_once);

  Reactor& reactor_;
  const Contexts contexts_;
  Timer timer_;
};

}  // namespace pointsman
