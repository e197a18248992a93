#include "sim/decision_log_trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/json_line.h"
#include "base/utc_time.h"

namespace pointsman::sim {
namespace {

constexpr std::string_view kMark = R"({"pointsman_decision_log":)";
constexpr int kVersion = 1;
constexpr double kMostTokens = 1e8;
constexpr double kMostRequests = 4e9;
constexpr double kMostSeconds = 1e10;
constexpr std::size_t kHashDigits = 16;

bool is_count(double value, double most) {
  return value >= 0 && value <= most && value == std::floor(value);
}

}  // namespace

bool DecisionLogHeader::is_one(std::string_view line) {
  return line.starts_with(kMark);
}

std::optional<DecisionLogHeader> DecisionLogHeader::read(std::string_view line,
                                                         std::string& problem) {
  DecisionLogHeader header;
  double version = 0;
  double block_tokens = header.block_tokens;
  std::optional<double> start;
  JsonLine fields(line);
  while (const std::optional<JsonLine::Field> field = fields.next()) {
    if (field->key == "pointsman_decision_log") version = field->number;
    if (field->key == "block_tokens") block_tokens = field->number;
    if (field->key == "start") start = read_utc_time(field->text);
  }
  problem = fields.problem();
  if (!problem.empty()) return std::nullopt;
  if (version != kVersion) {
    problem = "begins a decision log of another version (known: " + std::to_string(kVersion) + ")";
  } else if (!start) {
    problem = "has no time \"start\"";
  } else if (!is_count(block_tokens, kMostTokens) || block_tokens < 1) {
    problem = "has no number of \"block_tokens\"";
  }
  if (!problem.empty()) return std::nullopt;
  header.version = kVersion;
  header.start_s = *start;
  header.block_tokens = static_cast<std::uint32_t>(block_tokens);
  return header;
}

// What a line says; numbers that it does not say are below zero.
struct DecisionLogTrace::Fields {
  double n = -1;
  double t = -1;
  double estimated_tokens = -1;
  double prompt_tokens = -1;
  double max_tokens = -1;
  double blocks = -1;
  double block_tokens = -1;
  double status = -1;
  double output_tokens = -1;
  double output_events = -1;
  double base = -1;
  double shared = -1;
  std::uint64_t session = 0;
  std::size_t hash_digits = 0;
  std::string problem;

  explicit Fields(std::string_view line) {
    JsonLine fields(line);
    while (const std::optional<JsonLine::Field> field = fields.next()) take(*field);
    if (!fields.problem().empty()) problem = fields.problem();
    if (problem.empty()) check();
  }

 private:
  struct Number {
    std::string_view key;
    double Fields::* value;
    double most;
    bool needed;
  };
  static constexpr std::array<Number, 10> kNumbers = {
      {{"n", &Fields::n, kMostRequests, true},
       {"estimated_tokens", &Fields::estimated_tokens, kMostTokens, true},
       {"status", &Fields::status, 999, true},
       {"prompt_tokens", &Fields::prompt_tokens, kMostTokens, false},
       {"max_tokens", &Fields::max_tokens, kMostTokens * 10, false},
       {"blocks", &Fields::blocks, kMostTokens, false},
       {"block_tokens", &Fields::block_tokens, kMostTokens, false},
       {"output_tokens", &Fields::output_tokens, kMostTokens, false},
       {"output_events", &Fields::output_events, kMostTokens, false},
       {"t", &Fields::t, 0, false}}};

  void take(const JsonLine::Field& field) {
    if (field.kind == JsonLine::Kind::kNumber) {
      for (const Number& number : kNumbers) {
        if (field.key == number.key) this->*number.value = field.number;
      }
    } else if (field.key == "session") {
      const char* const end = field.text.data() + field.text.size();
      const auto read = std::from_chars(field.text.data(), end, session, 16);
      if (read.ec != std::errc() || read.ptr != end) problem = "has a \"session\" that is no hash";
    } else if (field.key == "hashes") {
      hash_digits = field.text.size();
    } else if (field.key == "prefix") {
      JsonNumbers numbers(field.text);
      base = numbers.next().value_or(-1);
      shared = numbers.next().value_or(-1);
      if (!is_count(base, kMostRequests) || !is_count(shared, kMostTokens)) {
        problem = "has a \"prefix\" that is no [request, blocks]";
      }
    }
  }

  void check() {
    for (const Number& number : kNumbers) {
      const double value = this->*number.value;
      if (number.value == &Fields::t || (value == -1 && !number.needed)) continue;
      if (is_count(value, number.most)) continue;
      problem = "has no number of \"" + std::string(number.key) + "\"";
      return;
    }
    if (!(t >= 0 && t <= kMostSeconds)) {
      problem = "has no time \"t\"";
    } else if (hash_digits != kHashDigits * static_cast<std::size_t>(
                                                std::max(blocks - std::max(shared, 0.0), 0.0)) ||
               shared > blocks) {
      problem = "has not one hash for each of its \"blocks\" behind the \"prefix\"";
    }
  }
};

std::string DecisionLogTrace::add(std::string_view line) {
  if (DecisionLogHeader::is_one(line)) {
    std::string problem;
    header_ = DecisionLogHeader::read(line, problem);
    by_number_.clear();
    return problem;
  }
  const Fields fields(line);
  if (!fields.problem.empty()) return fields.problem;
  return add_request(fields);
}

std::string DecisionLogTrace::add_request(const Fields& fields) {
  const auto count = [](double value) { return static_cast<std::uint32_t>(std::max(value, 0.0)); };
  if (nodes_.size() >= kNone - 2) return "is one too many";
  Node node;
  node.at_s = header_->start_s + fields.t;
  node.session = fields.session;
  node.blocks = count(fields.blocks);
  node.prompt_tokens =
      count(fields.prompt_tokens > 0 ? fields.prompt_tokens : fields.estimated_tokens);
  node.max_tokens = count(fields.max_tokens);
  const bool good = fields.status >= 200 && fields.status < 300;
  // An answer without tokens of its own (embeddings) takes a step all the same.
  node.output_tokens = fields.output_tokens > 0   ? count(fields.output_tokens)
                       : fields.output_events > 0 ? count(fields.output_events)
                                                  : (good ? 1 : 0);
  node.served = node.prompt_tokens > 0 && node.output_tokens > 0;
  if (!node.served) ++unserved_;
  if (fields.shared > 0) {
    node.base = node_of(count(fields.base));
    node.shared_blocks = count(fields.shared);
  }
  place(node, count(fields.estimated_tokens),
        fields.block_tokens > 0 ? count(fields.block_tokens) : header_->block_tokens);
  mark_common(node);
  by_number_.insert_or_assign(count(fields.n), static_cast<std::uint32_t>(nodes_.size()));
  nodes_.push_back(node);
  return {};
}

// Of a request that the file does not have (part of a log): all that is known is what others share
// of it.
std::uint32_t DecisionLogTrace::node_of(std::uint32_t number) {
  const auto [known, is_new] =
      by_number_.try_emplace(number, static_cast<std::uint32_t>(nodes_.size()));
  if (is_new) {
    Node& node = nodes_.emplace_back();
    node.block_tokens = header_->block_tokens;
    node.blocks = node.prompt_tokens = kNone;
  }
  return known->second;
}

// Where its own part lies.
void DecisionLogTrace::place(Node& node, std::uint32_t estimated_tokens,
                             std::uint32_t block_tokens) const {
  if (node.base != kNone) {
    const Node& base = nodes_[node.base];
    node.block_begin = node.begin =
        std::min(tokens_at(node.base, node.shared_blocks), node.prompt_tokens);
    const std::uint64_t answered = std::uint64_t{base.prompt_tokens} + base.output_tokens;
    if (node.session != 0 && node.session == base.session && node.shared_blocks == base.blocks &&
        answered <= node.prompt_tokens) {
      node.begin = static_cast<std::uint32_t>(answered);
    }
  }
  // The log rounds the tokens of a block; that the blocks fill all of the estimate but a part of
  // one block says more.
  const double whole = estimated_tokens;
  double tokens = block_tokens;
  if (node.blocks > 0) {
    tokens = std::min(tokens, whole / node.blocks);
    tokens = std::max(tokens, std::min(tokens + 0.5, whole / (node.blocks + 1.0)));
  }
  // What the estimate says of its own blocks, and the engine's count.
  const double estimated = whole - node.shared_blocks * tokens;
  const double counted = node.prompt_tokens - node.block_begin;
  node.block_tokens = tokens * (estimated > 0 ? counted / estimated : 1.0);
}

// Tokens in front of the node's block of that number.
std::uint32_t DecisionLogTrace::tokens_at(std::uint32_t at, std::uint32_t blocks) const {
  while (blocks <= nodes_[at].shared_blocks && nodes_[at].base != kNone) at = nodes_[at].base;
  const Node& node = nodes_[at];
  const double own = node.block_tokens * (static_cast<double>(blocks) - node.shared_blocks);
  return static_cast<std::uint32_t>(
      std::clamp(node.block_begin + own, 0.0, static_cast<double>(node.prompt_tokens)));
}

// What the new node shares with nodes of other sessions.
void DecisionLogTrace::mark_common(const Node& added) {
  std::uint32_t end = added.begin;
  for (std::uint32_t at = added.base; at != kNone; at = nodes_[at].base) {
    Node& node = nodes_[at];
    if (added.session == 0 || added.session != node.session) {
      node.common_end = std::max(node.common_end, end);
    }
    end = std::min(end, node.begin);
  }
}

void DecisionLogTrace::finish() {
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].served) order_.push_back(i);
  }
  std::sort(order_.begin(), order_.end(), [this](std::uint32_t a, std::uint32_t b) {
    return std::pair(nodes_[a].at_s, a) < std::pair(nodes_[b].at_s, b);
  });
}

double DecisionLogTrace::length_s() const {
  return order_.empty() ? 0 : nodes_[order_.back()].at_s - nodes_[order_.front()].at_s;
}

bool DecisionLogTrace::next(TraceRequest& request) {
  if (next_ == order_.size()) return false;
  const std::uint32_t index = order_[next_++];
  const Node& node = nodes_[index];
  request.at = Duration(std::llround((node.at_s - nodes_[order_.front()].at_s) * 1e9));
  request.prompt_tokens = node.prompt_tokens;
  request.output_tokens = node.output_tokens;
  request.max_tokens = node.max_tokens;
  request.session_key = node.session;
  append_content(node, index, request.content);
  return true;
}

// From its own part to the root, and then turned round.
void DecisionLogTrace::append_content(const Node& added, std::uint32_t index, Content& content) {
  content.clear();
  std::uint32_t end = added.prompt_tokens + added.output_tokens;
  for (std::uint32_t at = index; at != kNone; at = nodes_[at].base) {
    const Node& node = nodes_[at];
    if (end <= node.begin) continue;
    const std::uint32_t common = std::max(node.common_end, node.begin);
    if (end > common) content.push_back({conversation_run(at), end});
    if (common > node.begin) content.push_back({trace_run(at), std::min(end, common)});
    end = node.begin;
  }
  std::reverse(content.begin(), content.end());
}

}  // namespace pointsman::sim
