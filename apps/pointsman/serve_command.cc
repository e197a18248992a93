#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include <malloc.h>
#include <sched.h>
#include <sys/resource.h>

#include "access/key_table.h"
#include "admin/admin_site.h"
#include "base/json_writer.h"
#include "certificate_watch.h"
#include "commands.h"
#include "config_flags.h"
#include "feeds/feeds.h"
#include "feeds/orca_reports.h"
#include "http/url.h"
#include "listen_address.h"
#include "net/http_server.h"
#include "policies/register.h"
#include "proxy/proxy_server.h"
#include "serve_options.h"
#include "telemetry/decision_log.h"
#include "telemetry/log_sink.h"

namespace pointsman {
namespace {

// Between looks at the key file.
constexpr Duration kLookAtKeys = std::chrono::seconds(1);

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  throw CLI::RuntimeError(1);
}

std::size_t usable_cores() {
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return static_cast<std::size_t>(std::max(1, CPU_COUNT(&cores)));
}

// Each request needs two descriptors. The soft limit is a default of the system, the hard one its
// will.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Held request bodies are large and of every size. From the heap they would leave holes that never
// go back to the system: glibc raises both thresholds each time that a large block is freed, up to
// 32 MiB. Fixed ones keep large blocks in mappings of their own, which end when they are freed, and
// small rests at the heap's end are given back.
void give_memory_back() {
  ::mallopt(M_MMAP_THRESHOLD, 256 * 1024);
  ::mallopt(M_TRIM_THRESHOLD, 1024 * 1024);
}

std::vector<std::unique_ptr<Pipeline>> build_pipelines(const Config& config,
                                                       const Registry& registry) {
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  for (const PoolConfig& pool : config.pools) {
    auto built = registry.build(pool.policy ? *pool.policy : config.policy);
    if (!built) fail("policy: " + built.error().message);
    pipelines.push_back(std::move(*built));
  }
  return pipelines;
}

std::vector<Fleet::PoolSpec> pool_specs(const Config& config) {
  std::vector<Fleet::PoolSpec> specs;
  for (const PoolConfig& pool : config.pools) {
    specs.push_back({pool.name, pool_purpose(pool.purpose)});
  }
  return specs;
}

std::uint64_t chosen_seed(const Config& config) {
  if (config.seed != 0) return config.seed;
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The router as a process. The main thread runs the housekeeping reactor with feeds, admin and
// observe ports; the proxy has threads of its own.
class Serve {
 public:
  Serve(LoadedConfig loaded, const Registry& registry)
      : loaded_(std::move(loaded)),
        registry_(registry),
        seed_(chosen_seed(config())),
        threads_(config().threads == 0 ? usable_cores() : config().threads),
        router_(router_options(config(), seed_), build_pipelines(config(), registry)),
        fleet_(pool_specs(config()), health_options(config()), Reactor::steady_clock()),
        metrics_(threads_),
        orca_(router_, config().signals.interval),
        signals_(housekeeping_.io(), SIGINT, SIGTERM),
        hangups_(housekeeping_.io(), SIGHUP),
        key_timer_([this] { look_at_keys(); }),
        last_resort_([this] { housekeeping_.stop(); }) {
    if (std::optional<KvEventFeed::Options> events = kv_event_options(config(), seed_)) {
      kv_events_ = std::make_unique<KvEventFeed>(fleet_, router_, token_chain_, std::move(*events));
    }
    fleet_.add_listener({.gone =
                             [this](ReplicaIndex replica) {
                               if (kv_events_) kv_events_->gone(replica);
                             },
                         .forget = [this](ReplicaIndex replica) { forget(replica); }});
    for (const PoolConfig& pool : config().pools) {
      for (const ReplicaConfig& replica : pool.replicas) {
        const Result<ReplicaIndex> added = add_replica(replica, pool.name);
        if (!added) fail("replica " + replica.url + ": " + added.error().message);
      }
    }
  }

  void run() {
    open_access_log();
    open_decision_log();
    load_keys();
    start_kv_events();
    load_tokenizers();
    load_certificates();
    start_proxy();
    feeds_ = std::make_unique<Feeds>(
        housekeeping_, resolver_, fleet_, router_, feeds_options(config(), seed_),
        [this](ReplicaIndex replica) { return activity_.last_delivered(replica); },
        kv_events_.get());
    open_site(config().admin, true, admin_server_, "admin");
    open_site(config().observe, false, observe_server_, "observe");
    feeds_->when_probed(std::chrono::seconds(1), [this] { open_data_port(); });
    wait_for_signal();
    wait_for_hangup();
    housekeeping_.run();

    // From here on only this thread runs what is left.
    proxy_->stop();
    admin_server_.reset();
    observe_server_.reset();
    feeds_.reset();
    resolver_.close();
    proxy_.reset();
  }

 private:
  [[nodiscard]] const Config& config() const { return loaded_.config; }

  Result<ReplicaIndex> add_replica(const ReplicaConfig& replica, const std::string& pool) {
    Result<ReplicaSpec> spec = replica_spec(replica, pool, config(), tls_clients_);
    if (!spec) return spec.error();
    return fleet_.add(std::move(*spec));
  }

  // The replica was removed, or came back after it had been away.
  void forget(ReplicaIndex replica) {
    router_.with([replica](Router& router) { router.forget(replica); });
    if (kv_events_) kv_events_->forgot(replica);
    if (fleet_.spec(replica) == nullptr) {
      metrics_.forget_replica(replica);
      activity_.forget(replica);
    }
  }

  void open_access_log() {
    if (config().log.access == "off") return;
    Result<std::unique_ptr<AccessLog>> opened = AccessLog::open(config().log.access);
    if (!opened) fail(opened.error().message);
    access_log_ = std::move(*opened);
  }

  void open_decision_log() {
    const DecisionLogConfig& wanted = config().decision_log;
    if (wanted.path == "off") return;
    Result<std::unique_ptr<DecisionLog>> opened =
        DecisionLog::open({.path = wanted.path,
                           .sample = wanted.sample,
                           .max_bytes = wanted.max_bytes,
                           .keep = wanted.keep,
                           .key = wanted.key,
                           .block_tokens = text_block_tokens(config())},
                          Reactor::steady_clock().now(), std::chrono::system_clock::now());
    if (!opened) fail(opened.error().message);
    decision_log_ = std::move(*opened);
  }

  void load_keys() {
    if (config().access.key_file == "off") return;
    keys_ = std::make_unique<KeyTable>(config().access.key_file, config().access.concurrent);
    const Result<void> loaded = keys_->load();
    if (!loaded) fail("access.key_file: " + loaded.error().message);
    housekeeping_.arm(key_timer_, kLookAtKeys);
  }

  void look_at_keys() {
    keys_->look();
    housekeeping_.arm(key_timer_, kLookAtKeys);
  }

  void start_kv_events() {
    if (!kv_events_) return;
    const Result<void> started = kv_events_->start();
    if (!started) fail("kv_events.bind: " + started.error().message);
  }

  void load_tokenizers() {
    std::vector<std::string> warnings;
    Result<std::unique_ptr<PromptModels>> models = prompt_models(loaded_, seed_, warnings);
    if (!models) fail(models.error().message);
    for (const std::string& warning : warnings) log_warning(warning);
    models_ = std::move(*models);
  }

  void load_certificates() {
    Result<std::unique_ptr<TlsServer>> server = tls_server(config());
    if (!server) fail(server.error().message);
    tls_ = std::move(*server);
    certificate_watch_ = std::make_unique<CertificateWatch>(
        housekeeping_, [this](const std::function<void(const std::string&, TlsContext&)>& look) {
          if (tls_) look("listen_tls", *tls_);
          for (const auto& client : tls_clients_.all()) look("replica_tls", *client);
        });
  }

  // Binds the data port, so that a port in use is told before anything else happens.
  void start_proxy() {
    ProxyOptions options = proxy_options(config(), seed_);
    const Result<ListenAddress> address = parse_listen_address(config().listen);
    if (!address) fail("listen: " + address.error().message);
    options.listen_address = address->host;
    options.listen_port = address->port;
    options.threads = threads_;
    listen_address_ = address->host;
    ProxyDependencies dependencies{.fleet = fleet_,
                                   .router = router_,
                                   .activity = activity_,
                                   .resolver = resolver_,
                                   .metrics = metrics_,
                                   .tls = tls_.get(),
                                   .access_log = access_log_.get(),
                                   .decision_log = decision_log_.get(),
                                   .keys = keys_.get(),
                                   .append_models = {},
                                   .refresh_models = {},
                                   .orca_report = {},
                                   .models = models_.get()};
    // The feeds are made after the proxy and go before it; its threads run only in between.
    dependencies.append_models = [this](std::string& out) { feeds_->models().append_merged(out); };
    dependencies.refresh_models = [this](Reactor& reactor, std::function<void()> done) {
      feeds_->models().refresh(reactor, std::move(done));
    };
    dependencies.orca_report = [this](ReplicaIndex replica, std::string_view value) {
      orca_.report(replica, value, Reactor::steady_clock().now());
    };
    proxy_ = std::make_unique<ProxyServer>(options, dependencies);
    const Result<void> bound = proxy_->bind();
    if (!bound) fail("listen: " + bound.error().message + in_use_remedy("listen"));
  }

  static std::string in_use_remedy(const std::string& what) {
    return " (choose another with --" + what + " or `" + what + ":` in the file)";
  }

  void open_data_port() {
    if (draining_) return;
    const Result<void> started = proxy_->start();
    if (!started) fail("listen: " + started.error().message + in_use_remedy("listen"));
    serving_ = true;
    std::printf("listening on %s://%s\n", tls_ ? "https" : "http",
                authority_of(listen_address_, proxy_->port()).c_str());
    std::fflush(stdout);
  }

  void open_site(const std::string& where, bool admin, std::unique_ptr<HttpServer>& server,
                 const std::string& name) {
    if (where == "off") return;
    const Result<ListenAddress> address = parse_listen_address(where);
    if (!address) fail(name + ": " + address.error().message);
    const ShownState state{.fleet = fleet_,
                           .router = router_,
                           .metrics = metrics_,
                           .scraper = &feeds_->scraper(),
                           .kv_events = kv_events_.get(),
                           .access_log = access_log_.get(),
                           .decision_log = decision_log_.get(),
                           .tls = tls_.get(),
                           .tls_clients = &tls_clients_,
                           .keys = keys_.get(),
                           .ready = [this] { return serving_ && proxy_->ready(); },
                           .clock = Reactor::steady_clock(),
                           .version = POINTSMAN_VERSION};
    AdminSite::Options options;
    options.admin = admin;
    options.key = config().admin_access.key;
    options.hosts = config().admin_access.hosts;
    options.report_max_age = 3 * config().signals.interval;
    AdminSite::Actions actions;
    actions.add = [this](const ReplicaConfig& replica, const std::string& pool) {
      return add_replica(replica, pool.empty() ? general_pool() : pool);
    };
    actions.append_config = [this](std::string& out) { append_config(out); };
    actions.config = config_context(registry_);
    actions.unix_time = &unix_time;
    HttpServer::Options server_options;
    server_options.max_body = 64 * 1024;
    server_options.max_connections = 256;
    server =
        std::make_unique<HttpServer>(housekeeping_, server_options,
                                     [site = std::make_shared<AdminSite>(options, actions, state)](
                                         const HttpRequest& request, const HttpResponse& response) {
                                       (*site)(request, response);
                                     });
    const Result<void> listening = server->listen(address->host, address->port);
    if (!listening) fail(name + ": " + listening.error().message + in_use_remedy(name));
    std::printf("%s on http://%s\n", name.c_str(),
                authority_of(address->host, server->port()).c_str());
    std::fflush(stdout);
  }

  [[nodiscard]] std::string general_pool() const {
    for (const PoolConfig& pool : config().pools) {
      if (pool.purpose == "general") return pool.name;
    }
    return "general";
  }

  void append_config(std::string& out) const {
    JsonWriter json;
    json.begin_object().key("values").begin_array();
    for (const EffectiveValue& value : effective_values(loaded_)) {
      json.begin_object().key("key").string(value.key).key("value").string(value.value);
      json.key("origin").string(value.origin).end_object();
    }
    json.end_array().end_object();
    out += json.take();
    out += '\n';
  }

  void wait_for_signal() {
    signals_.async_wait([this](std::error_code error, int) {
      if (!error) on_signal();
    });
  }

  // Files that are read again when they change are read again now.
  void wait_for_hangup() {
    hangups_.async_wait([this](std::error_code error, int) {
      if (error) return;
      log_info("SIGHUP: certificates and keys are read again");
      if (keys_) keys_->reload();
      certificate_watch_->read_now();
      wait_for_hangup();
    });
  }

  // The first signal drains, the second cuts.
  void on_signal() {
    if (!serving_) {
      housekeeping_.stop();
      return;
    }
    if (!draining_) {
      draining_ = true;
      log_info("shutting down: running requests may finish; a second signal cuts them");
      proxy_->drain([this] { housekeeping_.stop(); });
      wait_for_signal();
      return;
    }
    log_warning("cutting what still runs");
    proxy_->cut();
    housekeeping_.arm(last_resort_, std::chrono::seconds(1));
  }

  const LoadedConfig loaded_;
  const Registry& registry_;
  const std::uint64_t seed_;
  const std::size_t threads_;
  TlsClients tls_clients_;
  SharedRouter router_;
  Fleet fleet_;
  const TokenChain token_chain_{chain_secret(seed_)};
  std::unique_ptr<KvEventFeed> kv_events_;  // none where no events are asked for
  ProxyMetrics metrics_;
  ReplicaActivity activity_;
  OrcaReports orca_;
  std::unique_ptr<PromptModels> models_;
  std::unique_ptr<AccessLog> access_log_;
  std::unique_ptr<DecisionLog> decision_log_;
  Reactor housekeeping_;
  asio::signal_set signals_;
  asio::signal_set hangups_;
  std::unique_ptr<KeyTable> keys_;  // none where clients need no key
  Timer key_timer_;
  Timer last_resort_;
  Resolver resolver_;
  std::unique_ptr<TlsServer> tls_;
  std::unique_ptr<CertificateWatch> certificate_watch_;
  std::unique_ptr<ProxyServer> proxy_;
  std::unique_ptr<Feeds> feeds_;
  std::unique_ptr<HttpServer> admin_server_;
  std::unique_ptr<HttpServer> observe_server_;
  std::string listen_address_;
  bool serving_ = false;
  bool draining_ = false;
};

void run_serve(const ConfigFlags& flags) {
  const Registry registry = make_registry();
  Result<LoadedConfig> loaded = effective_config(flags, registry);
  if (!loaded) fail(loaded.error().message);
  // All replicas may be added later, on the admin port.
  if (loaded->config.pools.empty()) loaded->config.pools.emplace_back();

  const Result<LogLevel> level = parse_log_level(loaded->config.log.level);
  if (!level) fail("log.level: " + level.error().message);
  install_log_sink(*level);
  for (const std::string& warning : config_warnings(loaded->config)) log_warning(warning);
  for (const std::string& warning : own_port_warnings(loaded->config)) log_warning(warning);
  for (const std::string& warning : certificate_warnings(loaded->config)) log_warning(warning);

  give_memory_back();
  raise_descriptor_limit();
  std::signal(SIGPIPE, SIG_IGN);
  Serve(std::move(*loaded), registry).run();
}

}  // namespace

void add_serve_command(CLI::App& app) {
  const auto flags = std::make_shared<ConfigFlags>();
  CLI::App* command = app.add_subcommand("serve", "Route requests to replicas");
  add_config_flags(*command, *flags);
  command->callback([flags] { run_serve(*flags); });
}

}  // namespace pointsman
