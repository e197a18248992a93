#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "http/url.h"
#include "listen_address.h"
#include "net/reactor.h"
#include "number_range.h"
#include "replica/replica.h"
#include "sim/engine_config.h"

namespace pointsman {
namespace {

struct ReplicaFlags {
  std::string listen = "127.0.0.1:8000";
  std::string engine = "8b_a100";
  std::uint32_t blocks = 0;
  std::uint32_t max_num_seqs = 0;
  std::uint32_t max_num_batched_tokens = 0;
  bool no_prefix_caching = false;
  ReplicaOptions options;
};

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "pointsman replica: %s\n", message.c_str());
  throw CLI::RuntimeError(1);
}

std::string preset_names() {
  std::string names;
  for (const sim::EnginePreset& preset : sim::engine_presets()) {
    names.append(names.empty() ? "" : ", ").append(preset.name);
  }
  return names;
}

void run_replica(ReplicaFlags& flags) {
  const sim::EnginePreset* preset = sim::find_engine_preset(flags.engine);
  if (preset == nullptr) {
    fail("unknown engine '" + flags.engine + "' (known: " + preset_names() + ")");
  }
  ReplicaOptions& options = flags.options;
  options.engine = preset->config;
  if (flags.blocks > 0) options.engine.blocks = flags.blocks;
  if (flags.max_num_seqs > 0) options.engine.max_num_seqs = flags.max_num_seqs;
  if (flags.max_num_batched_tokens > 0) {
    options.engine.max_num_batched_tokens = flags.max_num_batched_tokens;
  }
  options.engine.prefix_caching = !flags.no_prefix_caching;
  const Result<ListenAddress> address = parse_listen_address(flags.listen);
  if (!address) fail(address.error().message);

  Reactor reactor;
  Replica replica(reactor, options);
  if (const Result<void> listening = replica.listen(address->host, address->port); !listening) {
    fail(listening.error().message);
  }
  asio::signal_set signals(reactor.io(), SIGINT, SIGTERM);
  signals.async_wait([&reactor](std::error_code, int) { reactor.stop(); });
  if (const KvPublisher* events = replica.kv_publisher()) {
    std::printf("cache events on %s\n", events->events_endpoint().c_str());
    if (const std::string replay = events->replay_endpoint(); !replay.empty()) {
      std::printf("cache events again on %s\n", replay.c_str());
    }
  }
  std::printf("listening on http://%s\n", authority_of(address->host, replica.port()).c_str());
  std::fflush(stdout);
  reactor.run();
}

template <typename Choice>
void add_choice(CLI::App& command, const std::string& flag, Choice& choice,
                const std::map<std::string, Choice>& choices, const std::string& text) {
  std::vector<std::string> words;
  for (const auto& [word, value] : choices) words.push_back(word);
  command
      .add_option_function<std::string>(
          flag, [&choice, choices](const std::string& word) { choice = choices.at(word); }, text)
      ->check(CLI::IsMember(words));
}

void add_kv_event_options(CLI::App& command, KvPublisherOptions& events) {
  command.add_option("--kv-events", events.events,
                     "Publish cache events on this ZeroMQ endpoint: one with a * or :: "
                     "(tcp://*:5557) is listened on, another one is connected to");
  command.add_option("--kv-replay", events.replay,
                     "Listen here for questions for missed events (tcp://*:5558)");
  command.add_option("--kv-topic", events.topic, "Topic of the events; default: empty");
  add_choice(command, "--kv-layout", events.layout,
             {{"map", KvLayout::kMap}, {"array", KvLayout::kArray}},
             "Of the events: map (default; vLLM's since 0.23) or array (before)");
  add_choice(command, "--kv-hashes", events.hashes,
             {{"int", KvHashes::kNumbers}, {"bytes", KvHashes::kBytes}},
             "How blocks are named: int (default) or bytes");
  for (const char* flag : {"--kv-replay", "--kv-topic", "--kv-layout", "--kv-hashes"}) {
    command.get_option(flag)->needs("--kv-events");
  }
}

}  // namespace

void add_replica_command(CLI::App& app) {
  const auto flags = std::make_shared<ReplicaFlags>();
  CLI::App* command = app.add_subcommand(
      "replica", "A simulated vLLM server on a socket: try the router without a GPU");
  command->add_option("--listen", flags->listen, "HOST:PORT; port 0: any free one")
      ->capture_default_str();
  command->add_option("--model", flags->options.model, "Name of the served model")
      ->capture_default_str();
  command->add_option("--engine", flags->engine, "Simulated hardware: " + preset_names())
      ->capture_default_str();
  command->add_option("--speed", flags->options.speed, "Engine seconds per second")
      ->check(number_range(1e-3, 1e4))
      ->capture_default_str();
  command->add_option("--blocks", flags->blocks, "KV blocks of 16 tokens; default: the engine's")
      ->check(CLI::Range(1U, 100'000'000U));
  command->add_option("--max-num-seqs", flags->max_num_seqs, "Requests that run at once")
      ->check(CLI::Range(1U, 100'000U));
  command
      ->add_option("--max-num-batched-tokens", flags->max_num_batched_tokens,
                   "Tokens computed in one step")
      ->check(CLI::Range(1U, 10'000'000U));
  command->add_flag("--no-prefix-caching", flags->no_prefix_caching,
                    "Requests find nothing of what others computed");
  command
      ->add_option("--max-model-len", flags->options.max_model_len,
                   "Longest prompt and answer together, in tokens")
      ->check(CLI::Range(2U, 100'000'000U))
      ->capture_default_str();
  command
      ->add_option("--max-num-queued-reqs", flags->options.max_num_queued_reqs,
                   "503 above so many waiting requests; 0: no limit")
      ->capture_default_str();
  command
      ->add_option("--stream-interval", flags->options.stream_interval,
                   "Tokens per event of a stream, after the first")
      ->check(CLI::Range(1U, 100'000U))
      ->capture_default_str();
  add_kv_event_options(*command, flags->options.kv_events);
  command->add_flag("--enable-request-id-headers", flags->options.request_id_headers,
                    "Return a request's x-request-id");
  command->callback([flags] { run_replica(*flags); });
}

}  // namespace pointsman
