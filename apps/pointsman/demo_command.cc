#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include "commands.h"
#include "demo_arm.h"
#include "demo_report.h"
#include "number_range.h"

namespace pointsman {
namespace {

struct DemoFlags {
  DemoOptions options;
  std::vector<std::string> arms;
  std::string json;
};

const std::vector<DemoArm>& all_arms() {
  static const std::vector<DemoArm> arms{
      {"round_robin", "round robin", "round_robin"},
      {"least_connections", "least connections", "least_connections"},
      {"least_kv", "least KV use, best of two", "least_kv"},
      {"affinity", "+ session affinity", "session_affinity"},
      {"segregation", "+ long-request pools 6/1/1", "session_affinity", true},
      {"least_work", "least work (the default)", "least_work"},
  };
  return arms;
}

volatile sig_atomic_t g_interrupted = 0;

// Counts up on one line of a terminal; elsewhere says so now and then in a line of its own.
class ProgressLine {
 public:
  ProgressLine(std::string title, std::size_t number, std::size_t of)
      : title_(std::move(title)), number_(number), of_(of) {}

  void show(std::uint64_t ended, std::uint64_t all) {
    const auto now = std::chrono::steady_clock::now();
    const double elapsed = std::chrono::duration<double>(now - started_).count();
    if (!terminal_ && now - shown_ < std::chrono::seconds(10)) return;
    shown_ = now;
    const double share = static_cast<double>(ended) / static_cast<double>(all);
    char left[40] = "";
    if (share > 0.05) std::snprintf(left, sizeof left, ", %.0f s left", elapsed / share - elapsed);
    static constexpr std::size_t kWidth = 24;
    const auto full = static_cast<std::size_t>(share * kWidth);
    const std::string bar = std::string(full, '#') + std::string(kWidth - full, '.');
    std::printf("%s%zu/%zu %-28s [%s] %llu of %llu requests%s%s", terminal_ ? "\r\033[K" : "",
                number_, of_, title_.c_str(), bar.c_str(), static_cast<unsigned long long>(ended),
                static_cast<unsigned long long>(all), left, terminal_ ? "" : "\n");
    std::fflush(stdout);
  }
  void clear() {
    if (terminal_) std::printf("\r\033[K");
    std::fflush(stdout);
  }

 private:
  const std::string title_;
  const std::size_t number_;
  const std::size_t of_;
  const bool terminal_ = ::isatty(STDOUT_FILENO) == 1;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point shown_;
};

// A folder for configurations and logs of the routers; kept only where something went wrong.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "pointsman-demo-XXXXXX";
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty() && !kept_) std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  std::string path_;
  bool kept_ = false;
};

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "pointsman demo: %s\n", message.c_str());
  throw CLI::RuntimeError(1);
}

std::vector<DemoArm> chosen_arms(const std::vector<std::string>& names) {
  if (names.empty()) return all_arms();
  std::vector<DemoArm> arms;
  for (const std::string& name : names) {
    for (const DemoArm& arm : all_arms()) {
      if (arm.name == name) arms.push_back(arm);
    }
  }
  return arms;
}

void print_notes(const std::vector<DemoRow>& rows) {
  std::printf(
      "\nTTFT in engine time, with the 95 %% interval of a bootstrap over conversations. One run "
      "is one sample:\nwhat long prompts do to p99 differs from seed to seed (--seed). Hit rate as "
      "the replicas counted it.\n");
  double late = 0;
  for (const DemoRow& row : rows) {
    late = std::max(late, row.result.lateness_s);
    if (row.result.load.failed > 0) {
      std::printf("%s: %s\n", row.arm.title.c_str(), row.result.load.first_failure.c_str());
    }
  }
  if (late > 0.02) {
    std::printf(
        "The machine was too slow for this speed: engine steps ended %.0f ms (engine time) late on "
        "average,\nwhich is part of every TTFT above. A lower --speed helps.\n",
        1e3 * late);
  }
}

void run_demo(const DemoFlags& flags) {
  const std::vector<DemoArm> arms = chosen_arms(flags.arms);
  struct sigaction action{};
  action.sa_handler = [](int) { g_interrupted = 1; };
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ScratchFolder folder;
  if (folder.path().empty()) fail("no folder for temporary files");

  std::printf(
      "8 simulated replicas (about a 70B model on four H100 each) at %g times real speed, the "
      "router before them, and\n%llu measured requests for each policy: conversations of 2.5 turns "
      "on average, 60 %% follow-ups, heavy tails.\n\n",
      flags.options.speed, static_cast<unsigned long long>(flags.options.requests));
  std::fflush(stdout);
  std::vector<DemoRow> rows;
  for (const DemoArm& arm : arms) {
    ProgressLine line(arm.title, rows.size() + 1, arms.size());
    Result<DemoResult> result = run_demo_arm(
        arm, flags.options, folder.path(),
        [&line](std::uint64_t ended, std::uint64_t all) { line.show(ended, all); },
        [] { return g_interrupted != 0; });
    line.clear();
    if (!result) {
      if (g_interrupted != 0) throw CLI::RuntimeError(130);
      folder.keep();
      fail(arm.name + ": " + result.error().message + "\n(see " + folder.path() + ")");
    }
    rows.push_back(make_demo_row(arm, std::move(*result), flags.options.seed));
  }
  std::printf("%s", demo_table(rows).c_str());
  print_notes(rows);
  if (flags.json.empty()) return;
  std::ofstream file(flags.json);
  file << demo_json(rows, flags.options);
  if (!file.flush()) fail("cannot write " + flags.json);
}

}  // namespace

void add_demo_command(CLI::App& app) {
  const auto flags = std::make_shared<DemoFlags>();
  CLI::App* command = app.add_subcommand(
      "demo", "Simulated replicas, the router and load in one: a table of what policies do");
  command->add_option("--requests", flags->options.requests, "Measured requests for each policy")
      ->check(CLI::Range(100, 1'000'000))
      ->capture_default_str();
  std::vector<std::string> names;
  for (const DemoArm& arm : all_arms()) names.push_back(arm.name);
  command->add_option("--arms", flags->arms, "Some policies only, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  command->add_option("--seed", flags->options.seed, "Another seed, other conversations")
      ->capture_default_str();
  command->add_option("--speed", flags->options.speed, "Engine seconds per second")
      ->check(number_range(0.1, 100.0))
      ->capture_default_str();
  command->add_option("--json", flags->json, "Write the results to this file as well");
  command->callback([flags] { run_demo(*flags); });
}

}  // namespace pointsman
