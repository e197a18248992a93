#include "config/config_page.h"

#include <cstddef>
#include <string_view>
#include <vector>

#include "config/schema.h"

namespace pointsman {
namespace {

std::string cell(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) {
    text.insert(at, "\\");
  }
  return text;
}

template <typename Owner>
void append_table(const std::vector<Key<Owner>>& keys, std::string_view section, std::string& out) {
  out += "| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n";
  const Owner defaults{};
  for (const Key<Owner>& key : keys) {
    const std::size_t point = key.path.find('.');
    const std::string_view own = point == std::string::npos
                                     ? std::string_view()
                                     : std::string_view(key.path).substr(0, point);
    if (own != section) continue;
    const std::string text = key.text(defaults);
    out += "| `" + key.path + "` | " + key.type + " | " +
           (text == "\"\"" ? "none" : "`" + cell(text) + "`") + " | " + cell(key.allowed) + " | " +
           cell(key.help) + " |\n";
  }
}

}  // namespace

std::string config_markdown() {
  std::string out = R"(<!-- Made by `pointsman check --markdown`; a test holds the two equal. -->
# Configuration

One YAML file, given with `-c`. Three lines are enough:

```yaml
replicas:
  - http://10.0.0.1:8000
  - http://10.0.0.2:8000
```

`pointsman check -c FILE` says what is wrong with a file, warns of what is doubtful, and shows every
value that is in effect and where it came from. Unknown keys, keys that come twice and values out of
range are errors with file and line.

Values:

* durations carry their unit: `250ms`, `5s`, `10m`, `2h`; a plain `0` is allowed;
* sizes are bytes, or carry their unit: `64KiB`, `16MiB`, `1GiB`;
* `${NAME}` anywhere in a value stands for an environment variable, which must be set. A key
  may stand in the file as it is, but is better kept in the environment.

## Top level

)";
  append_table(config_keys(), "", out);
  out +=
      R"(| `policy` | policy | `least_work` | a name, or a map | How replicas are chosen, see below. |
| `replicas` | list of replicas | none | | The replicas of one pool with purpose general; in place of `pools`, never beside it. |
| `pools` | list of pools | none | | Several pools, see below. |
| `tokenizers` | list of tokenizers | none | | Models whose prompts become token ids, see below. |

## Replicas

An entry of `replicas` is a URL, or a map with these keys:

)";
  append_table(replica_keys(), "", out);
  out += R"(
## Tokenizers

Prompts of these models are known by their token ids, of all others by their text. See
[tokens.md](tokens.md).

```yaml
tokenizers:
  - models: [llama-3-8b]
    adapters: [support-adapter]
    path: /models/llama-3-8b
```

)";
  append_table(tokenizer_keys(), "", out);
  out += R"(
## Pools

A pool holds replicas with the same purpose. One must be `general`, the others are optional; a
request whose own pool has no usable replica goes to the general one.

```yaml
pools:
  - name: general
    replicas: [http://10.0.0.1:8000, http://10.0.0.2:8000]
  - name: long
    purpose: long_context
    policy: {preset: least_kv}
    replicas: [{url: http://10.0.1.1:8000, weight: 2}]
```

| key | type | default | allowed | meaning |
|---|---|---|---|---|
| `name` | word | `general` | each once | In metrics and on the admin port. |
| `purpose` | word | `general` | general \| long_context \| long_generation; each once | Which requests it is for. |
| `policy` | policy | the one at the top | a name, or a map | How its replicas are chosen. |
| `replicas` | list of replicas | none | | |

## Policy

Either a preset with options, or stages spelled out. [policies.md](policies.md) has all presets,
stages and options.

```yaml
policy: least_kv                     # a preset as it is
```

```yaml
policy:
  preset: least_work
  choices: 2                         # any option of the preset
```

```yaml
policy:
  sampler: {type: sample, choices: 2} # a map with type and options, or the type alone
  scorers:
    - {type: kv_headroom, weight: 2}  # weight: of a normalised score in the sum
    - queue_room
```

| key | type | meaning |
|---|---|---|
| `preset` | word | A named policy. Every further key is one of its options. |
| `filters` | list of stages | Instead of a preset: what removes candidates, in this order. |
| `sampler` | stage | What bounds how many are compared. |
| `scorers` | list of stages | What they are compared by: normalised scores with weights, or one cost. |
| `picker` | stage | What makes an order of it. |
)";
  for (const auto& [section, help] : config_sections()) {
    out.append("\n## `").append(section).append("`\n\n").append(help).append("\n\n");
    append_table(config_keys(), section, out);
    if (section == "signals") {
      out +=
          "| `signals.names` | map | none | signal: name or name{label=\"value\"} | Names of your "
          "own, tried before the known engines'. |\n";
    }
  }
  return out;
}

}  // namespace pointsman
