#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/result.h"
#include "net/http_server.h"
#include "net/reactor.h"
#include "replica/completion_request.h"
#include "replica/engine_driver.h"
#include "replica/fault.h"
#include "replica/kv_journal.h"
#include "replica/kv_publisher.h"
#include "replica/metrics_page.h"
#include "replica/replica_options.h"

namespace pointsman {

struct ReplicaStats {
  std::uint64_t received = 0;   // requests, but for /health, /ping, /metrics and the tests' own
  std::uint64_t completed = 0;  // answered to the end by the engine
  std::uint64_t cancelled = 0;  // the client left before the end
  std::uint64_t faults = 0;
  std::size_t in_flight = 0;  // received, and neither answered nor given up
};

// A simulated vLLM server: an OpenAI-like API before the engine model, in real time.
//
// /v1/chat/completions, /v1/completions, /tokenize, /v1/models, /reset_prefix_cache, /health,
// /ping, /version, /metrics, and for tests: POST /fault adds a Fault (see fault.h), DELETE /fault
// forgets all, POST /state changes what lasts ({"health_status": 503, "paused": true, "asleep":
// true, "refuse_s": 2, "reset_all": true, "lose_kv_batches": 2}), GET /debug/requests has the
// counts of what came in, and GET /debug/last the last request as it came: method and target,
// headers, body (de-chunked).
//
// The answer's length is `min_tokens` where that is given and not 0 (this model ends as soon as it
// may), else the token limit, else drawn from the prompt. A stream's head leaves at once; the event
// with the role leaves with the first token.
//
// Where told to, it publishes what its KV cache stores and drops, after each step and before the
// step's answers leave.
//
// For the reactor's thread; the destructor also after the reactor has stopped.
class Replica {
 public:
  Replica(Reactor& reactor, ReplicaOptions options);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // Port 0: any free one, see port().
  Result<void> listen(std::string_view address, std::uint16_t port);
  [[nodiscard]] std::uint16_t port() const { return server_.port(); }
  // Its cache events, where they are on.
  [[nodiscard]] const KvPublisher* kv_publisher() const { return kv_publisher_.get(); }

  // RST on every connection and refuse new ones: what clients see when the process is killed.
  void kill() { server_.cut_all(); }

  void add_fault(Fault fault) { faults_.add(std::move(fault)); }

  [[nodiscard]] ReplicaStats stats() const;
  [[nodiscard]] const HttpRequest& last_request() const { return *last_request_; }
  [[nodiscard]] sim::EngineState engine_state() const { return driver_.engine().state(); }
  [[nodiscard]] const EngineDriver& driver() const { return driver_; }

 private:
  struct Part;
  struct Exchange;
  using ExchangePtr = std::shared_ptr<Exchange>;
  using RequestPtr = std::shared_ptr<const HttpRequest>;

  void handle(HttpRequest request, const HttpResponse& response);
  // Requests from tests to the replica itself. False: not one of them.
  bool handle_control(const HttpRequest& request, const HttpResponse& response);
  void answer_page(const HttpRequest& request, const HttpResponse& response) const;
  void handle_api(const RequestPtr& request, const HttpResponse& response,
                  const std::optional<Fault>& fault);
  void complete(const HttpRequest& request, CompletionApi api, const HttpResponse& response,
                const std::optional<Fault>& fault);
  void tokenize(const HttpRequest& request, const HttpResponse& response);
  [[nodiscard]] std::optional<ApiError> refusal(const CompletionRequest& request);
  void reset_prefix_cache(const HttpResponse& response);
  void submit(const ExchangePtr& exchange, const CompletionRequest& request);

  void on_event(const sim::EngineEvent& event);
  void on_first_token(const ExchangePtr& exchange, std::size_t index,
                      const sim::EngineEvent& event);
  void on_finished(const ExchangePtr& exchange, const sim::EngineEvent& event);
  void send_event(const ExchangePtr& exchange, std::string_view event);
  // The part's request is over.
  void leave_cache(const Part& part);
  // Takes the exchange's requests out of the engine. Its answer is not touched.
  void drop(const ExchangePtr& exchange);

  void change_state(std::string_view body, const HttpResponse& response);
  void answer_with(const Fault& fault, const HttpResponse& response);
  void write_pieces(const std::shared_ptr<const std::string>& bytes, std::size_t from,
                    const Fault& fault, const HttpResponse& response);
  void break_off(FaultEnd how, const HttpResponse& response);
  // Keeps an answer open and counts its client's leaving, until let_go().
  std::uint64_t hold(const HttpResponse& response);
  void let_go(std::uint64_t held);
  void after(Duration delay, std::function<void()> task);

  [[nodiscard]] std::string debug_page() const;
  [[nodiscard]] std::string last_request_bytes() const;
  [[nodiscard]] HttpHeaders answer_headers(const HttpRequest& request, bool stream) const;
  [[nodiscard]] std::uint64_t max_model_len() const;

  Reactor& reactor_;
  const ReplicaOptions options_;
  const std::int64_t started_;  // seconds since 1970
  EngineDriver driver_;
  KvJournal kv_journal_;                       // only with a publisher
  std::unique_ptr<KvPublisher> kv_publisher_;  // null: no cache events
  HttpServer server_;
  std::string address_;  // listened on, to do it again after a refusal
  FaultQueue faults_;
  ReplicaCounts counts_;
  ReplicaStats stats_;
  RequestPtr last_request_ = std::make_shared<const HttpRequest>();
  int health_status_ = 200;
  bool asleep_ = false;

  std::uint64_t next_id_ = 1;
  // Requests in the engine, with their place in the exchange.
  std::unordered_map<sim::RequestId, std::pair<ExchangePtr, std::size_t>> running_;
  std::unordered_set<ExchangePtr> exchanges_;
  std::unordered_map<std::uint64_t, HttpResponse> held_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace pointsman
