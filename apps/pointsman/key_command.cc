#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>

#include "access/key_file.h"
#include "commands.h"

namespace pointsman {
namespace {

struct KeyFlags {
  std::string name;
  std::string file;
  std::uint32_t concurrent = 0;
  bool given = false;  // the key comes from standard input
};

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  throw CLI::RuntimeError(1);
}

std::string key_of_standard_input() {
  std::string key;
  std::getline(std::cin, key);
  if (key.ends_with('\r')) key.pop_back();
  // What goes into a header.
  const bool visible =
      std::all_of(key.begin(), key.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (key.empty() || !visible) {
    fail("standard input has no key: one line of visible characters is expected");
  }
  return key;
}

// Appends the line to a file that has no key of the name with another limit, and stays valid.
void append_line(const std::string& file, const std::string& line) {
  const auto close = [](std::FILE* stream) { return std::fclose(stream); };
  const std::unique_ptr<std::FILE, decltype(close)> stream(std::fopen(file.c_str(), "ab+"), close);
  const auto cannot = [&file] {
    fail(file + ": cannot be appended to: " + std::generic_category().message(errno));
  };
  if (!stream) cannot();
  std::string text;
  char part[4096];
  if (std::fseek(stream.get(), 0, SEEK_SET) != 0) cannot();
  while (const std::size_t read = std::fread(part, 1, sizeof part, stream.get())) {
    text.append(part, read);
  }
  // A last line without its end would run on into the new one.
  const std::string added = (text.empty() || text.ends_with('\n') ? "" : "\n") + line + "\n";
  if (const auto keys = parse_key_file(text + added, file); !keys) fail(keys.error().message);
  if (std::fwrite(added.data(), 1, added.size(), stream.get()) != added.size() ||
      std::fflush(stream.get()) != 0) {
    cannot();
  }
}

void run_key(const KeyFlags& flags) {
  if (!is_key_name(flags.name)) {
    fail("'" + flags.name + "' is no name: 1 to 64 letters, digits and . _ @ - are allowed");
  }
  const std::string key = flags.given ? key_of_standard_input() : make_key();
  if (key.empty()) fail("the system has no random numbers");
  const std::string line = key_line(flags.name, hash_of_key(key), flags.concurrent);
  if (flags.given && flags.file.empty()) {
    std::printf("%s\n", line.c_str());
  } else if (flags.file.empty()) {
    std::printf("key:  %s\nline: %s\n", key.c_str(), line.c_str());
  } else {
    append_line(flags.file, line);
    if (!flags.given) std::printf("%s\n", key.c_str());
  }
}

}  // namespace

void add_key_command(CLI::App& app) {
  const auto flags = std::make_shared<KeyFlags>();
  CLI::App* command =
      app.add_subcommand("key", "Make a key for a client, and its line in access.key_file");
  command->add_option("name", flags->name, "Whose it is; in the access log and in metrics")
      ->required();
  command
      ->add_option("--concurrent", flags->concurrent,
                   "Requests at a time, instead of access.concurrent")
      ->check(CLI::Range(1, 1'000'000));
  command->add_option("--append", flags->file,
                      "Append the line to this file, and print nothing but the key");
  command->add_flag("--stdin", flags->given,
                    "Take the key from standard input, of clients that have one already");
  command->callback([flags] { run_key(*flags); });
}

}  // namespace pointsman
