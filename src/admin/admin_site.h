#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "admin/metrics_page.h"
#include "config/load.h"
#include "net/http_server.h"

namespace pointsman {

// What the admin and observe ports answer, for every host.
//
//   both ports   GET /healthz             200 while the process lives
//                GET /readyz              200 or 503: whether a request could be served now
//                GET /metrics             Prometheus text
//   admin only   GET /v1/replicas         all that is known of each replica
//                POST /v1/replicas        {"url", "pool", "weight", …}: add one
//                GET /v1/replicas/R       one of them
//                DELETE /v1/replicas/R    take one out; its running exchanges end in peace
//                POST /v1/replicas/R/drain, …/undrain
//                GET /v1/config           every value in effect and where it came from
//                POST /v1/signals         a report that is pushed (feeds/pushed_signals.h)
// R is a replica's number, its HOST:PORT, or its URL, percent-encoded.
//
// Calls that change something need Content-Type application/json and a Host header that is an
// address, localhost or a configured name; no CORS header is ever sent. Where a key is configured,
// everything but /healthz and /readyz needs it as a bearer token.
class AdminSite {
 public:
  struct Options {
    bool admin = true;  // else: the observe port
    std::string key;    // empty: none
    std::vector<std::string> hosts;
    Duration report_max_age = std::chrono::seconds(3);  // of pushed reports
  };
  // What only the program can do.
  struct Actions {
    // Turns a replica as configured into one that the fleet takes, and adds it.
    std::function<Result<ReplicaIndex>(const ReplicaConfig& replica, const std::string& pool)> add;
    // Appends the configuration in effect as JSON.
    std::function<void(std::string& out)> append_config;
    // For the checks of a replica's keys.
    ConfigContext config;
    // Seconds since 1970, for pushed time stamps.
    std::function<double()> unix_time;
  };

  AdminSite(Options options, Actions actions, ShownState state)
      : options_(std::move(options)), actions_(std::move(actions)), state_(std::move(state)) {}

  struct Reply {
    int status = 200;
    std::string_view content_type;
    std::string body;
    HttpHeaders headers;
  };
  [[nodiscard]] Reply answer(const HttpRequest& request);

  // As the handler of an HttpServer.
  void operator()(const HttpRequest& request, const HttpResponse& response) {
    const Reply reply = answer(request);
    response.send(reply.status, reply.content_type, reply.body, reply.headers);
  }

 private:
  Reply answer_admin(const HttpRequest& request);
  Reply list_replicas() const;
  Reply add_replica(const HttpRequest& request);
  Reply one_replica(const HttpRequest& request, std::string_view rest);
  Reply push_signals(const HttpRequest& request);
  [[nodiscard]] std::optional<ReplicaStatus> find_replica(std::string_view name) const;

  const Options options_;
  const Actions actions_;
  const ShownState state_;
};

}  // namespace pointsman
