#include <cstdio>
#include <memory>
#include <string>

#include "base/json_writer.h"
#include "commands.h"
#include "policies/register.h"

namespace pointsman {
namespace {

struct PoliciesFlags {
  bool json = false;
  bool markdown = false;
};

std::string_view word(Stability stability) {
  return stability == Stability::kStable ? "stable" : "experimental";
}

std::string range_text(const OptionInfo& option) {
  if (option.type == "boolean") return "true or false";
  return to_text(option.low) + " to " + to_text(option.high);
}

std::string stages_text(const PolicySpec& spec) {
  std::string text;
  const auto append = [&text](std::string_view kind, const StageSpec& stage) {
    if (stage.type.empty()) return;
    if (!text.empty()) text += " → ";
    text.append(kind).append(" `").append(stage.type).append("`");
    if (stage.weight != 1.0) text += " × " + to_text(stage.weight);
  };
  for (const StageSpec& stage : spec.filters) append("filter", stage);
  append("sampler", spec.sampler);
  for (const StageSpec& stage : spec.scorers) append("scorer", stage);
  append("picker", spec.picker);
  return text;
}

void write_value(const OptionValue& value, JsonWriter& json) {
  if (const double* number = std::get_if<double>(&value)) {
    json.number(*number);
  } else if (const bool* flag = std::get_if<bool>(&value)) {
    json.boolean(*flag);
  } else {
    json.string(std::get<std::string>(value));
  }
}

void write_options(const std::vector<OptionInfo>& options, JsonWriter& json) {
  json.key("options").begin_array();
  for (const OptionInfo& option : options) {
    json.begin_object().key("name").string(option.name).key("type").string(option.type);
    write_value(option.default_value, json.key("default"));
    if (option.type != "boolean") {
      json.key("low").number(option.low).key("high").number(option.high);
    }
    json.key("help").string(option.help).end_object();
  }
  json.end_array();
}

void print_json(const Registry& registry) {
  JsonWriter json;
  json.begin_object().key("policies").begin_array();
  for (const PresetInfo& preset : registry.presets()) {
    json.begin_object().key("name").string(preset.name).key("kind").string("preset");
    json.key("summary").string(preset.summary);
    json.key("stability").string(word(preset.stability));
    write_options(preset.options, json);
    json.end_object();
  }
  for (const StageInfo& stage : registry.stages()) {
    json.begin_object().key("name").string(stage.type).key("kind").string(label(stage.kind));
    json.key("summary").string(stage.summary).key("stability").string("stable");
    write_options(stage.options, json);
    json.end_object();
  }
  json.end_array().end_object();
  std::puts(json.take().c_str());
}

void print_text(const Registry& registry) {
  for (const PresetInfo& preset : registry.presets()) {
    std::printf("%s%s\n    %s\n", preset.name.c_str(),
                preset.stability == Stability::kStable ? "" : " (experimental)",
                preset.summary.c_str());
    for (const OptionInfo& option : preset.options) {
      std::printf("    %-28s %-10s %-22s %s\n", option.name.c_str(),
                  to_text(option.default_value).c_str(), range_text(option).c_str(),
                  option.help.c_str());
    }
  }
  std::puts("\nStages, to spell a policy out (docs/policies.md):");
  for (const StageInfo& stage : registry.stages()) {
    std::printf("  %-8s %-16s %s\n", std::string(label(stage.kind)).c_str(), stage.type.c_str(),
                stage.summary.c_str());
  }
}

void print_options_table(const std::vector<OptionInfo>& options) {
  if (options.empty()) {
    std::puts("No options.\n");
    return;
  }
  std::puts("| option | default | allowed | meaning |\n|---|---|---|---|");
  for (const OptionInfo& option : options) {
    std::printf("| `%s` | `%s` | %s | %s |\n", option.name.c_str(),
                to_text(option.default_value).c_str(), range_text(option).c_str(),
                option.help.c_str());
  }
  std::puts("");
}

void print_markdown(const Registry& registry) {
  std::puts(
      "<!-- Made by `pointsman policies --markdown`; a test holds the two equal. -->\n"
      "# Policies\n\n"
      "A policy decides which replica gets a request. It is a pipeline: *filters* remove "
      "candidates "
      "(never\nthe last one), a *sampler* bounds how many are compared or names them in an order "
      "of "
      "its own,\n*scorers* give each a value, and a *picker* makes an order of it. A scorer is "
      "either *normalised*, in\n[0, 1], and may be weighted and summed, or a *cost*, which stands "
      "alone.\n\n"
      "A preset is such a pipeline with a name:\n\n"
      "```yaml\n"
      "policy: {preset: least_kv, choices: 3}\n"
      "```\n\n"
      "## Presets\n");
  for (const PresetInfo& preset : registry.presets()) {
    std::printf("### `%s`\n\n%s%s.\n\n", preset.name.c_str(),
                preset.stability == Stability::kStable ? "" : "*Experimental.* ",
                preset.summary.c_str());
    const std::string stages = stages_text(preset.spec);
    if (!stages.empty()) std::printf("Stages: %s.\n\n", stages.c_str());
    print_options_table(preset.options);
  }
  std::puts("## Stages\n");
  for (const StageInfo& stage : registry.stages()) {
    std::printf("### %s `%s`\n\n%s.\n\n", std::string(label(stage.kind)).c_str(),
                stage.type.c_str(), stage.summary.c_str());
    print_options_table(stage.options);
  }
}

void run_policies(const PoliciesFlags& flags) {
  const Registry registry = make_registry();
  if (flags.json) {
    print_json(registry);
  } else if (flags.markdown) {
    print_markdown(registry);
  } else {
    print_text(registry);
  }
}

}  // namespace

void add_policies_command(CLI::App& app) {
  const auto flags = std::make_shared<PoliciesFlags>();
  CLI::App* command = app.add_subcommand("policies", "List policies and stages with their options");
  CLI::Option* json = command->add_flag("--json", flags->json, "For programs");
  command->add_flag("--markdown", flags->markdown, "Print docs/policies.md instead")
      ->excludes(json);
  command->callback([flags] { run_policies(*flags); });
}

}  // namespace pointsman
