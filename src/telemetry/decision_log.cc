#include "telemetry/decision_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "base/log.h"
#include "base/utc_time.h"
#include "telemetry/rotated_file.h"

namespace pointsman {
namespace {

constexpr std::size_t kMaxText = 256;
// Lines are gathered up to here before they are written.
constexpr std::size_t kGathered = std::size_t{256} << 10;
// Block hashes of one generation of the memory.
constexpr std::size_t kGeneration = std::size_t{1} << 19;

// A record between its thread and the writing one: this, then the texts in this order without
// anything between, then the hashes.
enum Text : std::uint8_t { kModel, kPool, kReplica, kReason, kError, kTexts };
struct Packed {
  std::int64_t arrived_ns;
  std::int64_t ttft_ns;
  std::int64_t whole_ns;
  std::int64_t prompt_tokens;
  std::int64_t cached_tokens;
  std::int64_t output_tokens;
  std::uint64_t session;
  std::uint32_t estimated_tokens;
  std::uint32_t max_tokens;
  std::uint32_t expected_output_tokens;
  std::uint32_t block_tokens;
  std::uint32_t predicted_cached;
  std::uint32_t tries;
  std::int32_t status;
  std::uint32_t output_events;
  std::uint32_t blocks;
  std::array<std::uint16_t, kTexts> text_bytes;
  bool stream;
};

struct Unpacked {
  Packed fixed;
  std::array<std::string_view, kTexts> texts;
  std::vector<BlockHash> blocks;

  // Takes one record off the front.
  void take(std::string_view& bytes) {
    const auto next = [&bytes](std::size_t count) {
      const std::string_view part = bytes.substr(0, count);
      bytes.remove_prefix(part.size());
      return part;
    };
    std::memcpy(&fixed, next(sizeof fixed).data(), sizeof fixed);
    for (std::size_t i = 0; i < kTexts; ++i) texts[i] = next(fixed.text_bytes[i]);
    blocks.resize(fixed.blocks);
    const std::string_view hashes = next(blocks.size() * sizeof(BlockHash));
    if (!blocks.empty()) std::memcpy(blocks.data(), hashes.data(), hashes.size());
  }
};

// Which request of the file listed a block first. Old entries are forgotten, half of all at a time;
// what is asked for stays.
class BlockMemory {
 public:
  // How many leading blocks were listed, and the request that listed the last of them.
  struct Known {
    std::size_t blocks = 0;
    std::uint32_t request = 0;
  };
  Known find(const std::vector<BlockHash>& blocks) {
    // A hash stands for all before it, so the last known one tells. Those before it may have been
    // forgotten.
    for (std::size_t count = blocks.size(); count > 0; --count) {
      if (const auto found = young_.find(blocks[count - 1]); found != young_.end()) {
        return {count, found->second};
      }
      if (const auto found = old_.find(blocks[count - 1]); found != old_.end()) {
        const std::uint32_t request = found->second;
        put(blocks[count - 1], request);
        return {count, request};
      }
    }
    return {};
  }
  void put(BlockHash block, std::uint32_t request) {
    if (young_.size() >= kGeneration) {
      old_.swap(young_);
      young_.clear();
    }
    young_.try_emplace(block, request);
  }
  void clear() {
    young_.clear();
    old_.clear();
  }

 private:
  // Hashes need no further hashing.
  struct AsItIs {
    std::size_t operator()(BlockHash hash) const { return hash; }
  };
  using Map = std::unordered_map<BlockHash, std::uint32_t, AsItIs>;
  Map young_;
  Map old_;
};

class Line {
 public:
  explicit Line(std::string& out) : out_(out) {}

  void text(std::string_view key, std::string_view value) {
    if (value.empty()) return;
    out_ += key;
    append_json_string(out_, value);
  }
  template <typename Number>
  void number(std::string_view key, Number value) {
    std::array<char, 24> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    out_ += key;
    out_.append(digits.data(), end);
  }
  // With so many digits after the point, of 10^-9.
  void decimal(std::string_view key, std::int64_t billionths, int digits) {
    std::int64_t unit = 1;
    for (int i = digits; i < 9; ++i) unit *= 10;
    std::int64_t scale = 1;
    for (int i = 0; i < digits; ++i) scale *= 10;
    const std::int64_t rounded = (std::max<std::int64_t>(billionths, 0) + unit / 2) / unit;
    number(key, rounded / scale);
    const std::string rest = std::to_string(scale + rounded % scale);
    out_ += '.';
    out_.append(rest, 1);
  }
  void hash(std::uint64_t value) {
    constexpr char kDigits[] = "0123456789abcdef";
    for (int shift = 60; shift >= 0; shift -= 4) out_ += kDigits[value >> shift & 15];
  }
  void plain(std::string_view piece) { out_ += piece; }

 private:
  std::string& out_;
};

}  // namespace

// The file and what its lines refer to. Used by the writing thread alone, once it is open.
class DecisionLog::File {
 public:
  File(DecisionLog& log, const DecisionLogOptions& options, TimePoint now,
       std::chrono::system_clock::time_point wall)
      : log_(log),
        file_(options.path, options.max_bytes, options.keep),
        sample_(options.sample),
        block_tokens_(options.block_tokens),
        start_(now),
        wall_(wall) {}

  // A new file with its first line.
  Result<void> begin() {
    begun_ = false;
    requests_ = 0;
    memory_.clear();
    const Result<void> opened = file_.begin();
    if (!opened) return opened.error();
    Result<void> written = file_.write(header());
    begun_ = written.ok();
    return written;
  }

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      record_.take(bytes);
      if (begun_ || begin_or_complain()) write_record();
    }
    write_out();
  }

 private:
  void write_record() {
    for (BlockHash& block : record_.blocks) block = log_.opaque_(block);
    const std::size_t before = gathered_.size();
    append_line();
    if (requests_ > 0 && !file_.has_room(gathered_.size())) {
      gathered_.resize(before);
      write_out();
      if (!begin_or_complain()) return;
      append_line();
    }
    ++requests_;
    ++gathered_lines_;
    if (gathered_.size() >= kGathered) write_out();
  }

  // False: the present record is lost.
  bool begin_or_complain() {
    const Result<void> begun = begin();
    if (begun) return true;
    ++log_.lost_;
    complain(begun.error().message);
    return false;
  }

  [[nodiscard]] std::string header() const {
    std::string text;
    Line line(text);
    line.number("{\"pointsman_decision_log\":", kVersion);
    line.plain(",\"start\":\"");
    append_utc_time(text, wall_);
    line.number("\",\"block_tokens\":", block_tokens_);
    line.number(",\"sample\":", sample_);
    line.plain("}\n");
    return text;
  }

  void append_line() {
    const Packed& r = record_.fixed;
    const auto [known, base] = memory_.find(record_.blocks);
    Line line(gathered_);
    line.number("{\"n\":", requests_);
    line.decimal(",\"t\":", r.arrived_ns - start_.time_since_epoch().count(), 6);
    line.text(",\"model\":", record_.texts[kModel]);
    if (r.session != 0) {
      line.plain(",\"session\":\"");
      line.hash(log_.opaque_(r.session));
      line.plain("\"");
    }
    line.number(",\"estimated_tokens\":", r.estimated_tokens);
    if (r.max_tokens > 0) line.number(",\"max_tokens\":", r.max_tokens);
    if (r.expected_output_tokens > 0) {
      line.number(",\"expected_output_tokens\":", r.expected_output_tokens);
    }
    if (!record_.blocks.empty()) {
      line.number(",\"blocks\":", record_.blocks.size());
      if (r.block_tokens != block_tokens_) line.number(",\"block_tokens\":", r.block_tokens);
      if (known > 0) {
        line.number(",\"prefix\":[", base);
        line.number(",", known);
        line.plain("]");
      }
      if (known < record_.blocks.size()) {
        line.plain(",\"hashes\":\"");
        for (std::size_t i = known; i < record_.blocks.size(); ++i) {
          line.hash(record_.blocks[i]);
          memory_.put(record_.blocks[i], requests_);
        }
        line.plain("\"");
      }
    }
    line.text(",\"pool\":", record_.texts[kPool]);
    line.text(",\"replica\":", record_.texts[kReplica]);
    line.text(",\"reason\":", record_.texts[kReason]);
    line.number(",\"tries\":", r.tries);
    if (r.predicted_cached > 0) line.number(",\"predicted_cached\":", r.predicted_cached);
    line.number(",\"status\":", r.status);
    line.text(",\"error\":", record_.texts[kError]);
    line.plain(r.stream ? ",\"stream\":true" : ",\"stream\":false");
    if (r.prompt_tokens >= 0) line.number(",\"prompt_tokens\":", r.prompt_tokens);
    if (r.cached_tokens >= 0) line.number(",\"cached_tokens\":", r.cached_tokens);
    if (r.output_tokens >= 0) line.number(",\"output_tokens\":", r.output_tokens);
    if (r.output_events > 0) line.number(",\"output_events\":", r.output_events);
    // A nanosecond is a thousand billionths of a millisecond.
    if (r.ttft_ns > 0) line.decimal(",\"ttft_ms\":", r.ttft_ns * 1'000, 1);
    line.decimal(",\"whole_ms\":", r.whole_ns * 1'000, 1);
    line.plain("}\n");
  }

  void write_out() {
    if (gathered_.empty()) return;
    const Result<void> written = file_.write(gathered_);
    if (written) {
      complained_ = false;
    } else {
      log_.lost_ += gathered_lines_;
      // What later lines would name is not there.
      memory_.clear();
      complain(written.error().message);
    }
    gathered_.clear();
    gathered_lines_ = 0;
  }

  void complain(const std::string& what) {
    if (!std::exchange(complained_, true)) log_warning("decision_log: " + what);
  }

  DecisionLog& log_;
  RotatedFile file_;
  const double sample_;
  const std::uint32_t block_tokens_;
  const TimePoint start_;
  const std::chrono::system_clock::time_point wall_;
  bool begun_ = false;
  bool complained_ = false;
  std::uint32_t requests_ = 0;  // of this file
  BlockMemory memory_;
  Unpacked record_{};
  std::string gathered_;
  std::uint64_t gathered_lines_ = 0;
};

Result<std::unique_ptr<DecisionLog>> DecisionLog::open(const DecisionLogOptions& options,
                                                       TimePoint now,
                                                       std::chrono::system_clock::time_point wall) {
  std::unique_ptr<DecisionLog> log(new DecisionLog(options, now, wall));
  const Result<void> begun = log->file_->begin();
  if (!begun) {
    return Error{ErrorKind::kClient, "decision_log.path: " + begun.error().message};
  }
  log->queue_ = std::make_unique<LogQueue>(
      [file = log->file_.get()](std::string_view bytes) { file->write(bytes); });
  return log;
}

DecisionLog::DecisionLog(const DecisionLogOptions& options, TimePoint now,
                         std::chrono::system_clock::time_point wall)
    : opaque_(options.key),
      sample_limit_(options.sample >= 1
                        ? std::numeric_limits<std::uint64_t>::max()
                        : static_cast<std::uint64_t>(std::ldexp(options.sample, 64))),
      file_(std::make_unique<File>(*this, options, now, wall)) {}

DecisionLog::~DecisionLog() {
  queue_.reset();
}

DecisionLog::Writer::Writer(DecisionLog& log)
    : log_(log), buffer_(*log.queue_), sessionless_(++log.writers_ << 48) {}

bool DecisionLog::Writer::takes(std::uint64_t session) {
  return log_.opaque_(session != 0 ? session : ++sessionless_) <= log_.sample_limit_;
}

void DecisionLog::Writer::write(const DecisionRecord& record) {
  const std::array<std::string_view, kTexts> texts = {record.model, record.pool, record.replica,
                                                      record.reason, record.error};
  const std::span<const BlockHash> blocks =
      record.blocks.first(std::min(record.blocks.size(), kMostBlocks));
  Packed packed{.arrived_ns = record.arrived.time_since_epoch().count(),
                .ttft_ns = record.ttft.count(),
                .whole_ns = record.whole.count(),
                .prompt_tokens = record.prompt_tokens,
                .cached_tokens = record.cached_tokens,
                .output_tokens = record.output_tokens,
                .session = record.session,
                .estimated_tokens = record.estimated_tokens,
                .max_tokens = record.max_tokens,
                .expected_output_tokens = record.expected_output_tokens,
                .block_tokens = record.block_tokens,
                .predicted_cached = record.predicted_cached,
                .tries = record.tries,
                .status = record.status,
                .output_events = record.output_events,
                .blocks = static_cast<std::uint32_t>(blocks.size()),
                .text_bytes = {},
                .stream = record.stream};
  for (std::size_t i = 0; i < kTexts; ++i) {
    packed.text_bytes[i] = static_cast<std::uint16_t>(std::min(texts[i].size(), kMaxText));
  }
  std::string& bytes = buffer_.bytes();
  bytes.append(reinterpret_cast<const char*>(&packed), sizeof packed);
  for (std::size_t i = 0; i < kTexts; ++i) bytes.append(texts[i].substr(0, kMaxText));
  bytes.append(reinterpret_cast<const char*>(blocks.data()), blocks.size_bytes());
  buffer_.entry_ended();
}

}  // namespace pointsman
