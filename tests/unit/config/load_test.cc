#include "config/load.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config_page.h"
#include "config/schema.h"
#include "core/response_pins.h"
#include "core/router.h"

namespace pointsman {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// A scorer and a picker, so that policies can be read without the real ones.
class FlatScorer final : public Scorer {
 public:
  static constexpr std::string_view kType = "flat";
  static constexpr std::string_view kSummary = "The same for all.";
  struct Options {
    double level = 0.5;
    int choices = 2;
    bool live = true;
    static constexpr auto fields() {
      return std::tuple{Field<Options, double>{"level", &Options::level, 0.0, 1.0, "the value"},
                        Field<Options, int>{"choices", &Options::choices, 0, 64, "how many"},
                        Field{"live", &Options::live, "whether"}};
    }
  };
  explicit FlatScorer(const Options&) {}
  void score(const Context&, std::span<const ReplicaIndex>, std::span<float> out) override {
    std::fill(out.begin(), out.end(), 0.5F);
  }
};

class FirstPicker final : public Picker {
 public:
  static constexpr std::string_view kType = "best";
  static constexpr std::string_view kSummary = "The first.";
  struct Options {
    bool any = true;
    static constexpr auto fields() { return std::tuple{Field{"any", &Options::any, "whether"}}; }
  };
  explicit FirstPicker(const Options&) {}
  std::size_t pick(Context&, std::span<const ReplicaIndex> candidates, const Ranking&,
                   std::span<ReplicaIndex> order) override {
    order[0] = candidates[0];
    return 1;
  }
};

class LoadConfig : public testing::Test {
 protected:
  LoadConfig() {
    registry_.add<FlatScorer>();
    registry_.add<FirstPicker>();
    for (const char* name : {"least_work", "least_kv"}) {
      PolicySpec spec;
      spec.scorers.push_back({"flat", 1.0, {}});
      registry_.add_preset(name, "", Stability::kStable, spec);
    }
    context_.registry = &registry_;
    context_.environment = [this](const std::string& name) -> std::optional<std::string> {
      const auto found = environment_.find(name);
      if (found == environment_.end()) return std::nullopt;
      return found->second;
    };
    context_.check_url = [](std::string_view url) -> Result<void> {
      if (url.starts_with("http://")) return {};
      return Error{ErrorKind::kClient, "'" + std::string(url) + "' is no http URL"};
    };
  }

  Result<LoadedConfig> load(std::string_view text) {
    return load_config(text, "pointsman.yaml", context_);
  }
  Config good(std::string_view text) {
    const auto loaded = load(text);
    EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message);
    return loaded.ok() ? loaded->config : Config{};
  }
  std::string fault(std::string_view text) {
    const auto loaded = load(text);
    EXPECT_FALSE(loaded.ok()) << text;
    return loaded.ok() ? "" : loaded.error().message;
  }

  Registry registry_;
  std::map<std::string, std::string> environment_;
  ConfigContext context_;
};

TEST_F(LoadConfig, ALoneUrlIsShownAsAList) {
  EXPECT_EQ(fault("replicas: http://a:1\n"),
            "pointsman.yaml:1: replicas: is not a list of URLs (write [http://a:1])");
}

// 1MB is nearly 1MiB, but that is more than the key takes.
TEST_F(LoadConfig, AHintIsSomethingThatIsAllowed) {
  EXPECT_THAT(fault("limits: {head: 1MB}\n"), Not(HasSubstr("write")));
  EXPECT_THAT(fault("limits: {head: 16kb}\n"), HasSubstr("write 16KiB"));
  EXPECT_THAT(fault("health: {timeout: 5}\n"), HasSubstr("write 5s"));
  EXPECT_THAT(fault("health: {timeout: 5000}\n"), Not(HasSubstr("write")));
}

TEST_F(LoadConfig, ATabBeforeTheTextIsCalledOne) {
  for (const char* text :
       {"policy:\n\tpreset: least_kv\n", "policy:\n  preset: x\n  \tchoices: 2\n"}) {
    EXPECT_THAT(fault(text), EndsWith(": a tab before the text: YAML is indented with spaces"));
  }
}

TEST_F(LoadConfig, ThreeLinesAreEnough) {
  const Config config = good(
      "replicas:\n"
      "  - http://10.0.0.1:8000\n"
      "  - http://10.0.0.2:8000\n");
  ASSERT_EQ(config.pools.size(), 1U);
  EXPECT_EQ(config.pools[0].purpose, "general");
  ASSERT_EQ(config.pools[0].replicas.size(), 2U);
  EXPECT_EQ(config.pools[0].replicas[1].url, "http://10.0.0.2:8000");
  EXPECT_EQ(config.listen, "0.0.0.0:8080");
  EXPECT_EQ(config.policy.preset, "least_work");
}

TEST_F(LoadConfig, TheOutlineOfTheDesignIsRead) {
  const Config config = good(
      "listen: 0.0.0.0:8080\n"
      "admin: 127.0.0.1:9090           # a comment\n"
      "observe: 0.0.0.0:9091\n"
      "policy: {preset: least_work}\n"
      "pools:\n"
      "  - name: general\n"
      "    purpose: general\n"
      "    replicas: [http://10.0.0.1:8000, http://10.0.0.2:8000]\n"
      "  - name: long-context\n"
      "    purpose: long_context\n"
      "    policy: least_kv\n"
      "    replicas: [{url: \"http://10.0.1.1:8000\", weight: 2}]\n"
      "segregation: {long_context_tokens: 16000, long_generation_tokens: 2000}\n");
  ASSERT_EQ(config.pools.size(), 2U);
  EXPECT_EQ(config.pools[0].replicas.size(), 2U);
  EXPECT_FALSE(config.pools[0].policy);
  EXPECT_EQ(config.pools[1].replicas[0].weight, 2.0);
  ASSERT_TRUE(config.pools[1].policy);
  EXPECT_EQ(config.pools[1].policy->preset, "least_kv");
  EXPECT_EQ(config.segregation.long_context_tokens, 16'000U);
  EXPECT_EQ(config.observe, "0.0.0.0:9091");
}

TEST_F(LoadConfig, EveryKeyOfASectionIsReadInItsUnit) {
  const Config config = good(
      "timeouts:\n  first_byte_stream: 90s\n  shutdown_grace: 0\n"
      "limits: {body_memory: 2GiB, held_answer: 65536}\n"
      "retry:\n  budget_share: 0.5\n  stateless_paths: [/v1/embeddings]\n"
      "models: {unknown: forward}\n"
      "seed: 18446744073709551615\n"
      "log: {level: debug, access: ./a.log}\n"
      "signals:\n  interval: 2s\n  names:\n    kv_usage: my_kv{rank=\"0\"}\n");
  EXPECT_EQ(config.timeouts.first_byte_stream, seconds(90));
  EXPECT_EQ(config.timeouts.shutdown_grace, Duration{0});
  EXPECT_EQ(config.limits.body_memory, std::size_t{2} << 30);
  EXPECT_EQ(config.limits.held_answer, 65'536U);
  EXPECT_EQ(config.retry.budget_share, 0.5);
  EXPECT_THAT(config.retry.stateless_paths, ElementsAre("/v1/embeddings"));
  EXPECT_TRUE(config.models.forward_unknown);
  EXPECT_EQ(config.seed, 18'446'744'073'709'551'615U);
  EXPECT_EQ(config.log.access, "./a.log");
  ASSERT_EQ(config.signals.names.size(), 1U);
  EXPECT_EQ(config.signals.names[0].signal, "kv_usage");
  EXPECT_EQ(config.signals.names[0].selector, "my_kv{rank=\"0\"}");
}

TEST_F(LoadConfig, AnUnknownKeyNamesFileLineAndTheNearestKnownOne) {
  EXPECT_EQ(fault("\n\n\n\n\npolicy:\n  preset: least_kv\n  chioces: 2\n"),
            "pointsman.yaml:8: policy.chioces: unknown key (known: level, choices, live, "
            "flat_weight; nearest: "
            "choices)");
  EXPECT_THAT(fault("litsen: 0.0.0.0:1\n"), StartsWith("pointsman.yaml:1: litsen: unknown key"));
  EXPECT_THAT(fault("litsen: 0.0.0.0:1\n"), HasSubstr("nearest: listen)"));
  EXPECT_THAT(fault("timeouts:\n  conect: 5s\n"),
              StartsWith("pointsman.yaml:2: timeouts.conect: unknown key (known: connect, "));
  EXPECT_THAT(fault("pools:\n - replicas:\n   - {url: http://a, wieght: 1}\n"),
              StartsWith("pointsman.yaml:3: pools[0].replicas[0].wieght: unknown key"));
  EXPECT_THAT(fault("pools:\n - nmae: x\n"), HasSubstr("2: pools[0].nmae: unknown key"));
}

TEST_F(LoadConfig, AKeyThatComesTwiceIsRefused) {
  EXPECT_EQ(fault("listen: 0.0.0.0:1\nadmin: off\nlisten: 0.0.0.0:2\n"),
            "pointsman.yaml:3: listen: this key comes twice (first in line 1)");
  EXPECT_THAT(fault("limits: {body_memory: 1GiB, body_memory: 1GiB}\n"), HasSubstr("comes twice"));
}

TEST_F(LoadConfig, AValueOutOfRangeSaysWhatIsAllowed) {
  EXPECT_EQ(fault("timeouts:\n  connect: 5\n"),
            "pointsman.yaml:2: timeouts.connect: '5' is not allowed (allowed: duration, 10ms to "
            "5m; write 5s)");
  EXPECT_EQ(fault("threads: 1000\n"),
            "pointsman.yaml:1: threads: '1000' is not allowed (allowed: integer, 1 to 256, or 0: "
            "one per core)");
  EXPECT_THAT(fault("health: {usable_floor: 1.5}\n"), HasSubstr("allowed: number, 0 to 1)"));
  EXPECT_THAT(fault("health: {failures_out: 2.5}\n"), HasSubstr("integer"));
  EXPECT_THAT(fault("listen: example.org:80\n"), HasSubstr("HOST:PORT"));
  EXPECT_THAT(fault("listen:\n"), HasSubstr("has no value"));
  EXPECT_THAT(fault("listen: [a]\n"), HasSubstr("is a list"));
  EXPECT_THAT(fault("paths: {proxied: /v1}\n"), HasSubstr("is not a list"));
  EXPECT_THAT(fault("replicas: [{url: http://a, weight: 0}]\n"), HasSubstr("0.001 to 1000"));
  EXPECT_THAT(fault("replicas: [{url: http://a, api_key_upstream: yes}]\n"),
              HasSubstr("true | false"));
  EXPECT_THAT(fault("policy: {preset: least_kv, level: 7}\n"),
              HasSubstr("pointsman.yaml:1: policy.level: "));
  EXPECT_EQ(good("policy: {preset: least_kv, choices: all}\n").policy.options[0].second,
            OptionValue{0.0});
  EXPECT_THAT(fault("policy: lesat_kv\n"), HasSubstr("nearest: least_kv"));
}

TEST_F(LoadConfig, AllFaultsAreToldAtOnceInTheOrderOfTheirLines) {
  EXPECT_EQ(fault("threads: x\nlisten: y\nnonsense: z\n").substr(0, 43),
            "pointsman.yaml:1: threads: 'x' is not allow");
  const std::string text = fault("threads: x\nlisten: y\nnonsense: z\n");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST_F(LoadConfig, SecretsComeFromTheEnvironment) {
  environment_["ENGINE_KEY"] = "k-1";
  const Config config = good(
      "admin_access: {key: \"pre-${ENGINE_KEY}-post\"}\n"
      "replicas:\n  - url: http://a\n    api_key: ${ENGINE_KEY}\n");
  EXPECT_EQ(config.admin_access.key, "pre-k-1-post");
  EXPECT_EQ(config.pools[0].replicas[0].api_key, "k-1");
}

TEST_F(LoadConfig, AMissingVariableIsAnErrorThatNamesIt) {
  EXPECT_EQ(fault("replicas:\n  - url: http://a\n    api_key: ${ENGINE_KEY}\n"),
            "pointsman.yaml:3: the environment variable ENGINE_KEY is not set");
  EXPECT_THAT(fault("listen: ${\n"), HasSubstr("must be followed by the name"));
  EXPECT_THAT(fault("listen: ${a b}\n"), HasSubstr("must be followed by the name"));
}

TEST_F(LoadConfig, ReplicasAreCheckedOneByOne) {
  EXPECT_EQ(fault("replicas: [https://a]\n"),
            "pointsman.yaml:1: replicas[0]: 'https://a' is no http URL");
  EXPECT_THAT(fault("replicas:\n - http://a\n - http://b\n - http://a\n"),
              HasSubstr("pointsman.yaml:4: replicas[2]: 'http://a' is listed twice"));
  EXPECT_THAT(fault("replicas:\n - {weight: 2}\n"), HasSubstr("replicas[0]: has no url"));
  EXPECT_THAT(fault("replicas:\n - [http://a]\n"), HasSubstr("neither a URL nor a map"));
  EXPECT_THAT(fault("replicas: http://a\n"), HasSubstr("is not a list"));
}

TEST_F(LoadConfig, PoolsMustMakeSenseTogether) {
  EXPECT_THAT(fault("pools:\n - {name: a, purpose: long_context, replicas: [http://a]}\n"),
              HasSubstr("no pool has the purpose general"));
  EXPECT_THAT(fault("pools:\n - {name: a}\n - {name: b}\n"), HasSubstr("the purpose general"));
  EXPECT_THAT(fault("pools:\n - {name: a}\n - {name: a, purpose: long_context}\n"),
              HasSubstr("pointsman.yaml:1: pools: two pools have the name 'a'"));
  EXPECT_THAT(fault("pools:\n - {purpose: short}\n"), HasSubstr("general | long_context"));
}

TEST_F(LoadConfig, AnAdminPortThatOthersReachNeedsAKey) {
  EXPECT_THAT(fault("admin: 0.0.0.0:9090\n"),
              StartsWith("pointsman.yaml:1: admin: '0.0.0.0:9090' is reachable"));
  EXPECT_EQ(good("admin: 0.0.0.0:9090\nadmin_access: {key: abc}\n").admin, "0.0.0.0:9090");
  EXPECT_EQ(good("admin: off\n").admin, "off");
}

TEST_F(LoadConfig, StagesMayBeSpelledOut) {
  const Config config = good(
      "policy:\n"
      "  scorers:\n"
      "    - {type: flat, weight: -2, level: 0.25, live: false}\n"
      "    - flat\n"
      "  picker: best\n");
  ASSERT_EQ(config.policy.scorers.size(), 2U);
  EXPECT_TRUE(config.policy.preset.empty());
  EXPECT_EQ(config.policy.scorers[0].weight, -2.0);
  EXPECT_EQ(config.policy.scorers[0].options.size(), 2U);
  EXPECT_THAT(fault("policy:\n  scorers: [flta]\n"), HasSubstr("nearest: flat"));
  EXPECT_THAT(fault("policy:\n  scorer: [flat]\n"), HasSubstr("2: policy.scorer: unknown key"));
  EXPECT_THAT(fault("policy:\n  scorers: flat\n"), HasSubstr("is not a list of stages"));
}

TEST_F(LoadConfig, YamlThatNoConfigurationNeedsIsRefused) {
  EXPECT_THAT(fault("a: &x 1\nb: *x\n"), HasSubstr("anchors"));
  EXPECT_THAT(fault("listen: !tag x\n"), HasSubstr("tags"));
  EXPECT_THAT(fault("? [a]\n: b\n"), HasSubstr("a key must be plain text"));
  EXPECT_THAT(fault("listen: 0.0.0.0:1\n---\nlisten: 0.0.0.0:2\n"), HasSubstr("second document"));
  EXPECT_THAT(fault("- a\n"), HasSubstr("not a map"));
  EXPECT_THAT(fault("a: [\n"), StartsWith("pointsman.yaml:"));
  EXPECT_THAT(fault(std::string("listen\0", 7)), HasSubstr("zero byte"));
  EXPECT_THAT(fault(std::string(100'000, '[')), StartsWith("pointsman.yaml:1: "));
  EXPECT_THAT(fault(std::string((std::size_t{1} << 20) + 1, ' ')), HasSubstr("1 MiB"));
}

TEST_F(LoadConfig, AnEmptyFileHasOnlyDefaults) {
  EXPECT_EQ(good("").listen, "0.0.0.0:8080");
  EXPECT_EQ(good("# nothing\n").listen, "0.0.0.0:8080");
  EXPECT_EQ(good("timeouts:\n  # connect: 1s\n").timeouts.connect, seconds(5));
}

TEST_F(LoadConfig, TellsWhereEachValueCameFrom) {
  const auto loaded = load("listen: 0.0.0.0:1\ntimeouts:\n  connect: 1s\n");
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->origins.at("timeouts.connect"), "pointsman.yaml:3");
  EXPECT_EQ(loaded->origins.at("listen"), "pointsman.yaml:1");
  EXPECT_FALSE(loaded->origins.contains("admin"));
}

TEST_F(LoadConfig, AFileThatIsNotThereIsNamed) {
  const auto loaded = load_config_file("/nonexistent/pointsman.yaml", context_);
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().message, StartsWith("/nonexistent/pointsman.yaml: "));
}

// Every default must be what the file would say for it, or `check` would show what cannot be
// written.
TEST_F(LoadConfig, EveryDefaultCanBeWrittenDown) {
  const Config defaults;
  for (const Key<Config>& key : config_keys()) {
    const std::string text = key.text(defaults);
    const std::size_t point = key.path.find('.');
    const std::string file =
        point == std::string::npos
            ? key.path + ": " + text + "\n"
            : key.path.substr(0, point) + ":\n  " + key.path.substr(point + 1) + ": " + text + "\n";
    const auto loaded = load(file);
    ASSERT_TRUE(loaded.ok()) << file << loaded.error().message;
    EXPECT_EQ(key.text(loaded->config), text) << key.path;
  }
}

TEST(ConfigDefaults, AreThoseOfTheDecisionCore) {
  const Config config;
  const Router::Options router;
  EXPECT_EQ(config.segregation.long_context_tokens, router.segregation.long_context_tokens);
  EXPECT_EQ(config.segregation.long_generation_tokens, router.segregation.long_generation_tokens);
  EXPECT_EQ(config.saturation.kv, router.saturation.kv);
  EXPECT_EQ(config.saturation.queue, router.saturation.queue);
  EXPECT_EQ(config.saturation.prefill_tokens, router.saturation.prefill_tokens);
  EXPECT_EQ(config.index.max_bytes, router.index.max_bytes);
  EXPECT_EQ(config.responses.capacity, router.pins.capacity);
  EXPECT_EQ(config.responses.max_age, router.pins.max_age);
}

// The figures of the contract, written down once more.
TEST(ConfigDefaults, AreTheStatedOnes) {
  const std::map<std::string, std::string> stated = {
      {"admin", "127.0.0.1:9090"},
      {"observe", "off"},
      {"segregation.long_context_tokens", "32000"},
      {"segregation.long_generation_tokens", "4000"},
      {"saturation.kv", "0.9"},
      {"saturation.queue", "16"},
      {"saturation.prefill_tokens", "32768"},
      {"features.max_body", "16MiB"},
      {"features.block_bytes", "64"},
      {"features.session_headers",
       "[x-session-id, x-claude-code-session-id, x-session-affinity, session-id, session_id]"},
      {"models.unknown", "reject"},
      {"timeouts.connect", "5s"},
      {"timeouts.first_byte_stream", "10m"},
      {"timeouts.first_byte_plain", "1h"},
      {"timeouts.gap", "5m"},
      {"timeouts.head_hold", "1m"},
      {"timeouts.upstream_idle", "3s"},
      {"timeouts.upstream_unacknowledged", "30s"},
      {"timeouts.client_head", "10s"},
      {"timeouts.client_body_gap", "1m"},
      {"timeouts.client_idle", "75s"},
      {"timeouts.client_stall", "5m"},
      {"timeouts.shutdown_delay", "0"},
      {"timeouts.shutdown_grace", "10m"},
      {"limits.request_body", "512MiB"},
      {"limits.body_rate", "500"},
      {"limits.head", "64KiB"},
      {"limits.headers", "256"},
      {"limits.connections", "16384"},
      {"limits.connections_per_client", "0"},
      {"limits.requests_per_connection", "100000"},
      {"access.key_file", "off"},
      {"access.concurrent", "0"},
      {"access.pass_keys", "false"},
      {"access.trusted", "[]"},
      {"limits.body_memory", "1GiB"},
      {"limits.held_answer", "64KiB"},
      {"retry.tries", "2"},
      {"retry.after_sent", "1"},
      {"retry.budget_share", "0.2"},
      {"retry.budget_min", "10"},
      {"retry.budget_window", "10s"},
      {"health.path", "/health"},
      {"health.interval", "1s"},
      {"health.timeout", "5s"},
      {"health.failures_out", "3"},
      {"health.successes_in", "1"},
      {"health.faults_out", "3"},
      {"health.own_5xx_out", "5"},
      {"health.ejection", "10s"},
      {"health.usable_floor", "0.5"},
      {"signals.interval", "1s"},
      {"responses.capacity", "100000"},
      {"responses.max_age", "1h"},
      {"paths.proxied",
       "[/v1/*, /rerank, /v2/rerank, /score, /classify, /pooling, /tokenize, /detokenize, "
       "/generate, /completion, /invocations]"},
      {"paths.refused", "[/v1/load_lora_adapter, /v1/unload_lora_adapter]"},
  };
  const Config defaults;
  std::size_t found = 0;
  for (const Key<Config>& key : config_keys()) {
    const auto expected = stated.find(key.path);
    if (expected == stated.end()) continue;
    ++found;
    EXPECT_EQ(key.text(defaults), expected->second) << key.path;
  }
  EXPECT_EQ(found, stated.size());
  EXPECT_EQ(defaults.policy.preset, "least_work");
  EXPECT_EQ(Router::Options{}.initial_prefill_rate, 5'000);
}

std::string warnings_of(const Config& config) {
  const std::vector<std::string> warnings = config_warnings(config);
  return std::accumulate(warnings.begin(), warnings.end(), std::string(),
                         [](const std::string& a, const std::string& b) { return a + b + "\n"; });
}

TEST(ConfigWarnings, NameWhatIsDoubtful) {
  Config config;
  EXPECT_THAT(warnings_of(config), HasSubstr("no replicas"));
  config.pools.emplace_back();
  config.pools[0].replicas.resize(1);
  EXPECT_THAT(warnings_of(config), HasSubstr("has one replica"));
  config.pools[0].replicas.resize(2);
  for (ReplicaConfig& replica : config.pools[0].replicas) replica.url = "http://a:1";
  EXPECT_EQ(warnings_of(config), "");
  EXPECT_EQ(replica_url_warning("a:1"), "'a:1' has no scheme: http:// is assumed");
  EXPECT_THAT(replica_url_warning("a:1/v1"),
              testing::AllOf(HasSubstr("no scheme"), HasSubstr("; 'a:1/v1' ends in /v1")));

  config.limits.longest_generation = minutes(90);
  EXPECT_THAT(warnings_of(config), HasSubstr("timeouts.first_byte_plain (1h) is below"));
  EXPECT_THAT(warnings_of(config), HasSubstr("timeouts.shutdown_grace (10m) is below"));
  config.limits.longest_generation = minutes(5);
  const std::vector<std::string> seen =
      config_warnings(config, {.plain = minutes(70), .stream = minutes(5)});
  EXPECT_THAT(seen, testing::Contains(testing::AllOf(
                        HasSubstr("timeouts.first_byte_plain (1h)"),
                        HasSubstr("the longest answer that the router has seen (70m)"))));
  EXPECT_THAT(seen, testing::Contains(HasSubstr("timeouts.shutdown_grace (10m)")));
  EXPECT_THAT(config_warnings(config, {.plain = minutes(5), .stream = minutes(20)}),
              testing::Contains(testing::AllOf(HasSubstr("timeouts.shutdown_grace (10m)"),
                                               HasSubstr("has seen (20m)"))));
  EXPECT_EQ(warnings_of(config), "");

  config.timeouts.upstream_idle = seconds(30);
  config.limits.body_memory = std::size_t{1} << 20;
  EXPECT_THAT(warnings_of(config), HasSubstr("timeouts.upstream_idle"));
  EXPECT_THAT(warnings_of(config), HasSubstr("limits.body_memory"));
  config.access.key_file = "./keys";
  EXPECT_THAT(warnings_of(config), HasSubstr("access.key_file without listen_tls.certificate"));
  config.listen_tls.certificate = "./certificate";
  EXPECT_THAT(warnings_of(config), Not(HasSubstr("access.key_file")));
}

TEST_F(LoadConfig, ReadsTokenizers) {
  const Config config = good(
      "replicas: [http://a]\n"
      "tokenizers:\n"
      "  - models: [llama-3-8b, llama]\n"
      "    adapters: [support]\n"
      "    path: /models/llama\n"
      "  - {models: [qwen], path: /models/qwen/tokenizer.json, max_prompt_bytes: 2MiB}\n");
  ASSERT_EQ(config.tokenizers.size(), 2U);
  EXPECT_THAT(config.tokenizers[0].models, ElementsAre("llama-3-8b", "llama"));
  EXPECT_THAT(config.tokenizers[0].adapters, ElementsAre("support"));
  EXPECT_EQ(config.tokenizers[0].path, "/models/llama");
  EXPECT_EQ(config.tokenizers[0].max_prompt_bytes, std::size_t{1} << 20);
  EXPECT_EQ(config.tokenizers[1].max_prompt_bytes, std::size_t{2} << 20);
}

TEST_F(LoadConfig, TokenizersThatMeanNothingAreFaults) {
  EXPECT_THAT(fault("tokenizers: llama\n"), HasSubstr("is not a list of maps"));
  EXPECT_THAT(fault("tokenizers: [llama]\n"), HasSubstr("tokenizers[0]: is not a map"));
  EXPECT_THAT(fault("tokenizers:\n - {models: [a]}\n"), HasSubstr("tokenizers[0]: has no path"));
  EXPECT_THAT(fault("tokenizers:\n - {path: /m}\n"), HasSubstr("tokenizers[0]: has no models"));
  EXPECT_THAT(fault("tokenizers:\n - {models: [a], paths: /m}\n"),
              HasSubstr("tokenizers[0].paths: unknown key"));
  EXPECT_THAT(fault("tokenizers:\n - {models: [a], path: /m, adapters: [a]}\n"),
              HasSubstr("tokenizers[0]: 'a' has a tokenizer already"));
}

TEST(ConfigDocs, AreWhatTheBinarySays) {
  std::ifstream in(POINTSMAN_SOURCE_DIR "/docs/config.md");
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_EQ(text.str(), config_markdown())
      << "docs/config.md is out of date: pointsman check --markdown > docs/config.md";
}

TEST_F(LoadConfig, TheSameReplicaInAnotherSpellingIsListedTwice) {
  context_.replica_place = [](std::string_view url) { return std::string(url.substr(0, 8)); };
  EXPECT_EQ(fault("replicas:\n - http://a:80\n - http://a/\n"),
            "pointsman.yaml:3: replicas[1]: 'http://a/' is listed twice, first as 'http://a:80'");
}

TEST_F(LoadConfig, NoTwoPortsHaveTheSameAddress) {
  EXPECT_EQ(fault("listen: 127.0.0.1:8080\nadmin: localhost:8080\nreplicas: [http://a]\n"),
            "pointsman.yaml:2: admin: 'localhost:8080' cannot be had together with `listen` "
            "('127.0.0.1:8080'); give each a port of its own");
  EXPECT_THAT(fault("replicas: [http://a]\nkv_events: {endpoint_port: 5557, bind: tcp://*:5557}\n"),
              StartsWith("pointsman.yaml:2: kv_events.bind: cannot be had together with "));
  EXPECT_THAT(fault("observe: 0.0.0.0:9090\nreplicas: [http://a]\n"),
              HasSubstr("pointsman.yaml:1: observe: '0.0.0.0:9090' cannot be had together with "
                        "`admin`"));
  EXPECT_THAT(fault("listen: 0.0.0.0:9090\nreplicas: [http://a]\n"),
              StartsWith("pointsman.yaml:1: listen: '0.0.0.0:9090' cannot be had together with "
                         "`admin` ('127.0.0.1:9090')"));
  good("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nobserve: 127.0.0.1:0\nreplicas: [http://a]\n");
}

// Cache events that could never be heard, asked for or told apart, and keys that do nothing.
TEST_F(LoadConfig, CacheEventsThatCannotBeAreRefused) {
  const auto one = [&](const std::string& events, const std::string& replica = "") {
    return fault("kv_events: {" + events + "}\nreplicas:\n  - {url: 'http://a:8000'" + replica +
                 "}\n");
  };
  const auto two = [&](const std::string& events, const std::string& a, const std::string& b) {
    return fault("kv_events: {" + events + "}\nreplicas:\n  - {url: 'http://a:8000'" + a +
                 "}\n  - {url: 'http://a:8001'" + b + "}\n");
  };
  for (const char* const endpoint :
       {"127.0.0.1:5557", "tcp://nosuchhost.invalid:5557", "tcp://127.0.0.1:0", "tcp://*:*",
        "tcp://127.0.0.1:99999", "tcp://127.0.0.1", "ipc://", "inproc://x"}) {
    EXPECT_THAT(one(std::string("bind: '") + endpoint + "'"),
                HasSubstr("pointsman.yaml:1: kv_events.bind: '" + std::string(endpoint) +
                          "' is not allowed"));
  }
  EXPECT_EQ(one("bind: 'ipc:///tmp/x', ranks: 2"),
            "pointsman.yaml:1: kv_events.bind: 'ipc:///tmp/x' has no ports for the other ranks "
            "(kv_events.ranks is 2); use tcp://ADDRESS:PORT");
  EXPECT_EQ(one("bind: 'tcp://*:8080'"),
            "pointsman.yaml:1: kv_events.bind: 'tcp://*:8080' cannot be had together with `listen` "
            "('0.0.0.0:8080'); give each a port of its own");
  EXPECT_EQ(one("endpoint_port: 65535, ranks: 4"),
            "pointsman.yaml:1: kv_events.endpoint_port: 65535 leaves no ports for kv_events.ranks "
            "(4), one above the other; allowed: 1 to 65532");
  EXPECT_THAT(one("bind: 'tcp://*:65535', ranks: 2"), HasSubstr("kv_events.bind: 65535 leaves"));
  EXPECT_THAT(one("ranks: 2", ", kv_events_port: 65535"),
              HasSubstr("pointsman.yaml:3: replicas[0].kv_events_port: 65535 leaves"));
  EXPECT_EQ(one("endpoint_port: 5557, replay_port: 5558, ranks: 4"),
            "pointsman.yaml:1: kv_events.replay_port: ports 5558 to 5561 of a cannot be for the "
            "replays of http://a:8000 and (ports 5557 to 5560) for the events of http://a:8000; "
            "give each ports of its own, one for each rank");
  EXPECT_EQ(one("endpoint_port: 5557, replay_port: 5557"),
            "pointsman.yaml:1: kv_events.replay_port: port 5557 of a cannot be for the replays of "
            "http://a:8000 and (port 5557) for the events of http://a:8000; give each ports of its "
            "own");
  EXPECT_THAT(one("endpoint_port: 8000"), HasSubstr("kv_events.endpoint_port: port 8000 of a"));
  EXPECT_THAT(one("endpoint_port: 5557", ", kv_replay_port: 8000"),
              HasSubstr("pointsman.yaml:3: replicas[0].kv_replay_port: port 8000 of a"));
  EXPECT_THAT(two("endpoint_port: 5557", "", ""),
              HasSubstr("kv_events.endpoint_port: port 5557 of a cannot be for the events of "
                        "http://a:8001 and (port 5557) for the events of http://a:8000"));
  EXPECT_THAT(two("bind: 'tcp://*:5557'", ", kv_topic: x", ", kv_topic: x"),
              HasSubstr("pointsman.yaml:4: replicas[1].kv_topic: 'x' is that of http://a:8000"));
  EXPECT_EQ(fault("replicas:\n  - {url: 'http://a', kv_topic: x}\n"),
            "pointsman.yaml:2: replicas[0].kv_topic: has no effect without kv_events.bind");
  EXPECT_THAT(one("bind: 'tcp://*:5557'", ", kv_topic: x, kv_events_port: 5558"),
              HasSubstr("replicas[0].kv_topic: has no effect beside"));
  EXPECT_THAT(one("bind: 'tcp://*:5557', topic: kv", ", kv_topic: abc"),
              HasSubstr("replicas[0].kv_topic: 'abc' is never heard"));
  EXPECT_THAT(fault("replicas:\n  - {url: 'http://a', kv_replay_port: 5}\n"),
              HasSubstr("pointsman.yaml:2: replicas[0].kv_replay_port: has no effect without"));
  for (const char* const key : {"replay_port: 5558", "topic: kv", "ranks: 2", "replay_timeout: 1s",
                                "table_max_bytes: 1GiB"}) {
    EXPECT_THAT(one(key), HasSubstr(" has no effect without kv_events.endpoint_port"));
  }
  EXPECT_THAT(fault("kv_events: {topic: x}\npools:\n  - {name: general, replicas: [http://a]}\n"
                    "  - name: long\n    purpose: long_context\n    replicas:\n"
                    "      - {url: 'http://b', kv_topic: y}\n"),
              HasSubstr("pointsman.yaml:7: pools[1].replicas[0].kv_topic: "));
}

TEST_F(LoadConfig, CacheEventsThatCanBeAreTaken) {
  good(
      "kv_events: {endpoint_port: 5557, replay_port: 5561, ranks: 4}\n"
      "replicas: [http://a:8000, http://b:8000]\n");
  good(
      "kv_events: {bind: 'tcp://[::1]:5557', replay_port: 5558, topic: kv}\n"
      "replicas:\n  - {url: 'http://a', kv_topic: kv-a}\n  - {url: 'http://b', kv_topic: kv-b}\n");
  good("kv_events: {bind: 'ipc:///tmp/events'}\nreplicas: [http://a]\n");
  good(
      "kv_events: {ranks: 2}\nreplicas:\n"
      "  - {url: 'http://a:8000', kv_events_port: 5557, kv_replay_port: 5559}\n"
      "  - {url: 'http://a:8001', kv_events_port: 5561, kv_replay_port: 5563}\n");
}

TEST_F(LoadConfig, ReplicasAndPoolsExcludeEachOther) {
  const std::string text =
      fault("replicas: [http://a]\npools:\n  - {name: general, replicas: [http://b]}\n");
  EXPECT_EQ(text,
            "pointsman.yaml:2: pools: excludes `replicas` (pointsman.yaml:1): list all replicas in "
            "the pools, or give `replicas` alone");
  EXPECT_THAT(fault("pools: [{replicas: [http://b]}]\nreplicas: [http://a]\n"),
              StartsWith("pointsman.yaml:2: replicas: excludes `pools`"));
}

TEST_F(LoadConfig, AKeyThatComesTwiceIsNamedInFull) {
  EXPECT_EQ(fault("timeouts:\n  connect: 5s\n  connect: 6s\n"),
            "pointsman.yaml:3: timeouts.connect: this key comes twice (first in line 2)");
  EXPECT_EQ(fault("pools:\n - name: a\n - name: b\n   replicas:\n    - url: http://a\n"
                  "      url: http://b\n"),
            "pointsman.yaml:6: pools[1].replicas[0].url: this key comes twice (first in line 5)");
  EXPECT_EQ(fault("seed: 1\nseed: 2\n"),
            "pointsman.yaml:2: seed: this key comes twice (first in line 1)");
}

TEST_F(LoadConfig, AMissingOrForeignUnitIsToldWithTheRightOne) {
  EXPECT_THAT(fault("timeouts: {connect: 5}\n"), HasSubstr("; write 5s)"));
  EXPECT_THAT(fault("features: {max_body: 16MB}\n"), HasSubstr("; write 16MiB)"));
  EXPECT_THAT(fault("timeouts: {connect: 9h}\n"), Not(HasSubstr("write")));
}

TEST_F(LoadConfig, AFileThatCannotBeReadIsToldWhy) {
  const auto load_fault = [this](const std::string& path) {
    const auto loaded = load_config_file(path, context_);
    return loaded.ok() ? std::string() : loaded.error().message;
  };
  const std::string folder = testing::TempDir();
  EXPECT_EQ(load_fault(folder), folder + ": cannot be read: Is a directory");
  const std::string absent = folder + "/no_such_file.yaml";
  EXPECT_EQ(load_fault(absent),
            absent + ": cannot be read: No such file or directory; is the path right?");
  const std::string empty = folder + "/empty.yaml";
  std::ofstream{empty};
  EXPECT_EQ(load_fault(empty), empty + ": is empty");
}

TEST_F(LoadConfig, AnApisBaseUrlIsDoubtful) {
  for (const char* url : {"http://a:8000/v1", "http://a/base/v1/", "a/v1"}) {
    EXPECT_THAT(replica_url_warning(url), HasSubstr("ends in /v1")) << url;
  }
  for (const char* url : {"http://a:8000", "http://v1", "http://v1/", "http://a/v10"}) {
    EXPECT_EQ(replica_url_warning(url), "") << url;
  }
  EXPECT_THAT(config_warnings(good("replicas: [http://a/v1, http://b]\n")),
              testing::Contains(HasSubstr("'http://a/v1' ends in /v1")));
}

}  // namespace
}  // namespace pointsman
