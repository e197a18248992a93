#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/content.h"
#include "sim/trace_request.h"

namespace pointsman::sim {

// The first line of a decision log (docs/decision_log.md).
struct DecisionLogHeader {
  int version = 0;
  double start_s = 0;  // Unix time from which the lines count
  std::uint32_t block_tokens = 16;

  // Whether the line is meant to be one.
  [[nodiscard]] static bool is_one(std::string_view line);
  // Sets what is wrong, as the end of "the line …", where nothing is returned.
  [[nodiscard]] static std::optional<DecisionLogHeader> read(std::string_view line,
                                                             std::string& problem);
};

// The requests of a decision log. The log is in the order in which they ended, so all of them are
// held, with about a hundred bytes each and none of their hashes, and given in the order in which
// they came. Several files may be put one behind the other.
//
// What of the prompts is shared: a line says which request of its file listed the same leading
// blocks first, so that prompts form a tree, each with a part of its own behind what it shares.
//
// - Blocks are of text, and their tokens an estimate. Where the engine said how many tokens the
//   prompt had, its part of the tree is stretched to that; so a boundary lies between the engine's
//   blocks, and the engine shares those before it.
// - A request whose prompt goes on where all blocks of an earlier one of its session end, and is
//   long enough, is taken to repeat that one's answer too, as chats do.
// - What sessions share and what belongs to one alone is told by which sessions have it.
class DecisionLogTrace {
 public:
  // What is wrong with the line, as the end of "the line …"; empty: nothing.
  [[nodiscard]] std::string add(std::string_view line);
  // To be called behind the last line.
  void finish();
  // Requests so far that got no answer, and will be left out.
  [[nodiscard]] std::size_t unserved() const { return unserved_; }

  // The requests that were served, by arrival; nothing at the end. `at` counts from the first.
  [[nodiscard]] bool next(TraceRequest& request);
  // From the first request to the last, once finished.
  [[nodiscard]] double length_s() const;

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  // A request, or a part of one: what it has in the tree lies behind `shared_blocks` of `base`.
  struct Node {
    double at_s = 0;
    double block_tokens = 16;  // that one of its own blocks has, by the engine's count
    std::uint64_t session = 0;
    std::uint32_t base = kNone;
    std::uint32_t shared_blocks = 0;  // leading blocks that are the base's
    std::uint32_t blocks = 0;         // with those
    std::uint32_t block_begin = 0;    // tokens in front of its own blocks
    std::uint32_t begin = 0;          // and of its own text: behind the base's answer, perhaps
    std::uint32_t prompt_tokens = 0;
    std::uint32_t output_tokens = 0;
    std::uint32_t max_tokens = 0;
    std::uint32_t common_end = 0;  // tokens up to here are another session's as well
    bool served = false;
  };

  struct Fields;

  [[nodiscard]] std::string add_request(const Fields& fields);
  [[nodiscard]] std::uint32_t node_of(std::uint32_t number);
  void place(Node& node, std::uint32_t estimated_tokens, std::uint32_t block_tokens) const;
  void mark_common(const Node& node);
  [[nodiscard]] std::uint32_t tokens_at(std::uint32_t node, std::uint32_t blocks) const;
  void append_content(const Node& node, std::uint32_t index, Content& content);

  std::optional<DecisionLogHeader> header_;
  std::vector<Node> nodes_;
  std::size_t unserved_ = 0;
  // Of the present file: by number in it.
  std::unordered_map<std::uint32_t, std::uint32_t> by_number_;
  std::vector<std::uint32_t> order_;  // those served, by arrival
  std::size_t next_ = 0;
};

}  // namespace pointsman::sim
