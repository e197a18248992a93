#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

#include "access/key_file.h"
#include "commands.h"
#include "config/config_page.h"
#include "config_flags.h"
#include "http/url.h"
#include "net/http_client.h"
#include "policies/register.h"
#include "serve_options.h"
#include "signals/prometheus_text.h"

namespace pointsman {
namespace {

struct CheckFlags {
  ConfigFlags config;
  bool markdown = false;
  std::string router;  // URL of a running one
};

// The longest answers that a running router has seen, from its page of metrics.
Result<LongestAnswers> ask_router(const std::string& url, const std::string& key) {
  const Result<ReplicaUrl> place = parse_replica_url(url);
  if (!place) return place.error();
  Reactor reactor;
  Resolver resolver;
  HttpGet get(reactor, resolver);
  HttpGetRequest request;
  request.host = place->host;
  request.port = place->port;
  request.target = place->path_prefix + "/metrics";
  request.bearer = key;
  HttpGetResult page;
  get.start(std::move(request), [&](HttpGetResult result) {
    page = std::move(result);
    reactor.stop();
  });
  reactor.run();
  LongestAnswers seen;
  bool found = false;
  const auto wanted = [](std::string_view name) {
    return name == "pointsman_longest_answer_seconds";
  };
  scan_prometheus(page.body, wanted, [&](const PrometheusSample& sample) {
    found = true;
    const double seconds = std::clamp(sample.value, 0.0, 1e9);
    (sample.label_is("kind", "stream") ? seen.stream : seen.plain) = from_seconds(seconds);
  });
  if (page.answered(200) && found) return seen;
  return Error{ErrorKind::kClient,
               url + " is no admin or observe port of a router: " +
                   (page.answered(200) ? "its metrics are another program's" : page.detail)};
}

// Whether `serve` could write the log if it were started here and by this user; a file that is not
// there is not made. Empty: it could.
std::string log_doubt(const std::string& key, const std::string& where) {
  if (where == "off" || where == "stdout") return "";
  const std::filesystem::path file(where);
  std::error_code error;
  int problem = 0;
  if (std::filesystem::is_directory(file, error)) {
    problem = EISDIR;
  } else if (::access(where.c_str(), F_OK) == 0) {
    if (::access(where.c_str(), W_OK) != 0) problem = errno;
  } else if (::access(file.parent_path().c_str(), W_OK | X_OK) != 0) {
    problem = errno;
  }
  if (problem == 0) return "";
  return key + ": '" + where + "' cannot be appended to from here (" +
         std::generic_category().message(problem) + "), and `serve` does not start without it";
}

void run_check(const CheckFlags& flags) {
  if (flags.markdown) {
    std::fputs(config_markdown().c_str(), stdout);
    return;
  }
  const Registry registry = make_registry();
  const Result<LoadedConfig> loaded = effective_config(flags.config, registry);
  if (!loaded) {
    std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    throw CLI::RuntimeError(1);
  }
  std::vector<std::string> doubts;  // of the tokenizers
  const Result<std::unique_ptr<PromptModels>> models = prompt_models(*loaded, 0, doubts);
  if (!models) {
    std::fprintf(stderr, "%s\n", models.error().message.c_str());
    throw CLI::RuntimeError(1);
  }
  LongestAnswers seen;
  if (!flags.router.empty()) {
    const Result<LongestAnswers> asked = ask_router(flags.router, loaded->config.admin_access.key);
    if (!asked) {
      std::fprintf(stderr, "--router: %s\n", asked.error().message.c_str());
      throw CLI::RuntimeError(1);
    }
    seen = *asked;
  }
  std::size_t key_width = 0;
  std::size_t value_width = 0;
  const std::vector<EffectiveValue> values = effective_values(*loaded);
  for (const EffectiveValue& value : values) {
    key_width = std::max(key_width, value.key.size());
    // A long list does not push the origins of all others off the screen.
    if (value.value.size() <= 40) value_width = std::max(value_width, value.value.size());
  }
  for (const EffectiveValue& value : values) {
    std::printf("%-*s  %-*s  %s\n", static_cast<int>(key_width), value.key.c_str(),
                static_cast<int>(value_width), value.value.c_str(), value.origin.c_str());
  }
  std::vector<std::string> warnings = config_warnings(loaded->config, seen);
  for (std::string& own : own_port_warnings(loaded->config)) warnings.push_back(std::move(own));
  for (std::string& doubt : certificate_warnings(loaded->config)) {
    warnings.push_back(std::move(doubt));
  }
  for (std::string doubt : {log_doubt("log.access", loaded->config.log.access),
                            log_doubt("decision_log.path", loaded->config.decision_log.path)}) {
    if (!doubt.empty()) warnings.push_back(std::move(doubt));
  }
  if (const std::string& file = loaded->config.access.key_file; file != "off") {
    const auto keys = read_key_file(file);
    if (!keys) {
      std::fprintf(stderr, "access.key_file: %s\n", keys.error().message.c_str());
      throw CLI::RuntimeError(1);
    }
    if (keys->empty())
      warnings.emplace_back("access.key_file: has no key: every request is refused");
  }
  for (std::string& doubt : doubts) warnings.push_back(std::move(doubt));
  for (const std::string& warning : warnings) std::printf("warning: %s\n", warning.c_str());
  std::puts("the configuration is valid");
}

}  // namespace

void add_check_command(CLI::App& app) {
  const auto flags = std::make_shared<CheckFlags>();
  CLI::App* command = app.add_subcommand(
      "check",
      "Validate a configuration; show what is in effect, where it came from, and what is "
      "doubtful");
  add_config_flags(*command, flags->config);
  command->add_option("file", flags->config.file, "The same as -c");
  command->add_option("--router", flags->router,
                      "Admin or observe port of a running router, as http://127.0.0.1:9090: limits "
                      "are compared with the longest answers that it has seen");
  command->add_flag("--markdown", flags->markdown, "Print docs/config.md instead");
  command->callback([flags] { run_check(*flags); });
}

}  // namespace pointsman
