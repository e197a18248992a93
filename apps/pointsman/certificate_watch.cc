#include "certificate_watch.h"

#include <utility>

#include "base/log.h"

namespace pointsman {
namespace {

constexpr Duration kInterval = std::chrono::seconds(1);

}  // namespace

CertificateWatch::CertificateWatch(Reactor& reactor, Contexts contexts)
    : reactor_(reactor), contexts_(std::move(contexts)), timer_([this] {
        look(false);
        reactor_.arm(timer_, kInterval);
      }) {
  reactor_.arm(timer_, kInterval);
}

void CertificateWatch::look(bool at_once) {
  contexts_([at_once](const std::string& name, TlsContext& context) {
    switch (context.reload(at_once)) {
      case TlsContext::Reload::kUnchanged:
        return;
      case TlsContext::Reload::kReloaded: {
        log_info(name + ": the certificates were read again; new connections use them");
        const std::string doubt = context.doubt();
        if (!doubt.empty()) log_warning(name + ": " + doubt);
        return;
      }
      case TlsContext::Reload::kFailed:
        log_error(name + ": the files have changed and cannot be used (" + context.problem() +
                  "); those from before stay in use");
        return;
    }
  });
}

}  // namespace pointsman
