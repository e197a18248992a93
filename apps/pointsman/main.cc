#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "commands.h"
#include "core/registry.h"
#include "tokens/tokenizer.h"

namespace {

// Names the one part that a build may be without.
std::string version_text() {
  return std::string("pointsman " POINTSMAN_VERSION) +
         (pointsman::token_ids_built() ? ", with token ids" : ", without token ids");
}

// Of a command line that cannot be understood; a configuration that cannot be used is 1.
constexpr int kUsageError = 2;

const CLI::App* command_of(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

// Answers a first word that is none of the commands, and returns what to exit with; nothing where
// it is one. The parser's own text names neither the commands nor the nearest one.
std::optional<int> answer_first_word(const CLI::App& app, const std::string& word,
                                     const std::string& next) {
  if (word == "version") {
    std::puts(version_text().c_str());
    return 0;
  }
  if (word == "help") {
    const CLI::App* command = command_of(app, next);
    const std::string text = command != nullptr ? command->help(app.get_name()) : app.help();
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  if (word.starts_with('-') || command_of(app, word) != nullptr) return std::nullopt;
  std::vector<std::string> known;
  for (const CLI::App* command : app.get_subcommands({})) known.push_back(command->get_name());
  known.insert(known.end(), {"help", "version"});
  std::string text = "unknown command '" + word + "' (known: ";
  for (std::size_t i = 0; i < known.size(); ++i) text += (i == 0 ? "" : ", ") + known[i];
  const std::string nearest = pointsman::nearest_name(word, known);
  if (!nearest.empty()) text += "; nearest: " + nearest;
  std::fprintf(stderr, "%s)\n", text.c_str());
  return kUsageError;
}

// The nearest flags of the command to those that it does not have, one a line.
std::string nearest_flags(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty()) return "";
  const CLI::App* command = command_of(app, words.front());
  if (command == nullptr) return "";
  std::vector<std::string> known;
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  std::string text;
  for (const std::string& word : words) {
    const std::string flag = word.substr(0, word.find('='));
    if (!flag.starts_with("--") || std::ranges::find(known, flag) != known.end()) continue;
    const std::string nearest = pointsman::nearest_name(flag, known);
    if (!nearest.empty()) text.append(flag).append(": nearest: ").append(nearest).append("\n");
  }
  return text;
}

// The exit status, once all that was printed has been written. Until then a full disk may not show.
int with_output_written(int status) {
  errno = 0;
  std::cout.flush();
  std::fflush(stdout);
  if (std::ferror(stdout) == 0 && std::cout.good()) return status;
  const std::string reason =
      errno == 0 ? std::string() : ": " + std::generic_category().message(errno);
  std::fprintf(stderr, "pointsman: cannot write standard output%s\n", reason.c_str());
  return status != 0 ? status : 1;
}

int run(int argc, char** argv) {
  CLI::App app{"pointsman: a load balancer and router for LLM inference", "pointsman"};
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  pointsman::add_serve_command(app);
  pointsman::add_check_command(app);
  pointsman::add_demo_command(app);
  pointsman::add_key_command(app);
  pointsman::add_policies_command(app);
  pointsman::add_replica_command(app);
  pointsman::add_simulate_command(app);
  pointsman::add_tokenize_command(app);
  if (argc > 1) {
    const std::optional<int> status = answer_first_word(app, argv[1], argc > 2 ? argv[2] : "");
    if (status) return *status;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& error) {  // a command has told what is wrong
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {  // also --help and --version, which are no errors
    if (app.exit(error) == 0) return 0;
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
      const std::string text = nearest_flags(app, {argv + 1, argv + argc});
      std::fputs(text.c_str(), stderr);
    }
    return kUsageError;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return with_output_written(run(argc, argv));
}
