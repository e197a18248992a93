#include <CLI/CLI.hpp>

#include "commands.h"

int main(int argc, char** argv) {
  CLI::App app{"pointsman: a load balancer and router for LLM inference", "pointsman"};
  app.set_version_flag("--version", "pointsman " POINTSMAN_VERSION);
  app.require_subcommand(1);
  pointsman::add_serve_command(app);
  pointsman::add_check_command(app);
  pointsman::add_demo_command(app);
  pointsman::add_policies_command(app);
  pointsman::add_replica_command(app);
  CLI11_PARSE(app, argc, argv);
  return 0;
}
