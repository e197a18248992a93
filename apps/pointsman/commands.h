#pragma once

#include <CLI/CLI.hpp>

namespace pointsman {

// One function per subcommand, each in a file of its own. It adds the subcommand with its options
// to `app`, and a callback that runs it. The callback returns after a good end, and throws
// CLI::RuntimeError with the exit status, 1, after it has said on standard error what went wrong.
void add_check_command(CLI::App& app);
void add_demo_command(CLI::App& app);
void add_key_command(CLI::App& app);
void add_policies_command(CLI::App& app);
void add_replica_command(CLI::App& app);
void add_serve_command(CLI::App& app);
void add_simulate_command(CLI::App& app);
void add_tokenize_command(CLI::App& app);

}  // namespace pointsman
