#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "access/key_set.h"
#include "base/api.h"
#include "base/error.h"
#include "base/intrusive.h"
#include "base/time.h"
#include "core/decision.h"
#include "core/router.h"
#include "features/request_facts.h"
#include "http/head_parser.h"
#include "net/reactor.h"
#include "net/resolver.h"
#include "net/stream.h"
#include "net/upstream_pool.h"
#include "proxy/answer_observer.h"
#include "proxy/client_connection.h"
#include "proxy/path_table.h"
#include "proxy/request_body.h"
#include "proxy/response_body.h"
#include "proxy/retry_rules.h"
#include "proxy/token_pool.h"
#include "runtime/health.h"

namespace pointsman {

struct OwnError;
class ProxyShard;

// One request and its response.
//
//   state        waits for                event ─▶ next state
//   kReading     the request's body       complete, or too large to hold ─▶ kChoosing
//   kChoosing    model lists asked again, they are in, or nothing to ask ─▶ kConnecting
//                a long prompt's ids      likewise
//   kConnecting  a name, a connection     connected ─▶ kAwaiting; failed ─▶ next try
//   kAwaiting    the response             its first bytes may go out ─▶ kRelaying
//                                         lost, or an answer that may be retried ─▶ next try
//   kRelaying    the response's rest      end ─▶ kDone; lost, silent ─▶ cut, kDone
//   kTunnel      bytes of either side     either side ends ─▶ kDone
//
// The request is sent while in kAwaiting, or later where a body streams through. A next try is
// another decision without the replicas that failed, and only while the client has been sent
// nothing; with none left, or none allowed, the last failure is the answer. From any state: client
// gone ─▶ kDone, the replica's connection closed at once.
//
// Every path ends in finish(), which gives the charge back. Nothing of the exchange may be touched
// after that call: the object serves another request then.
//
// Objects are pooled by the shard and keep their memory: a warm exchange allocates nothing.
class alignas(64) Exchange final : public Stream::Events, public ListLink<Exchange> {
 public:
  explicit Exchange(ProxyShard& shard);
  ~Exchange();

  [[nodiscard]] RequestHeadParser& parser() { return request_parser_; }

  // --- the client's side, told by its connection ----------------------------------------------
  // The head is complete; it stays where it is, at the start of the connection's input.
  void begin(ClientConnection& client);
  void on_client_readable();
  void on_client_drained();
  void on_client_gone();
  void on_client_stalled();
  void on_body_timeout();

  // --- the replicas, told by the shard ----------------------------------------------------------
  [[nodiscard]] ReplicaIndex replica() const { return replica_; }
  void on_replica_gone();
  // The router stops and waits no longer.
  void cut_for_shutdown();

  // The prompt's ids have been made, told by the shard.
  void on_ids();

  // Back to its first state.
  void reset();

 private:
  enum class State : std::uint8_t {
    kReading,
    kChoosing,
    kConnecting,
    kAwaiting,
    kRelaying,
    kTunnel,
    kDone,
  };
  // What the time-out that is armed is for.
  enum class Wait : std::uint8_t { kModels, kIds, kConnect, kUpload, kFirstByte, kGap };
  // Why the answer in hand is not sent on yet.
  enum class Hold : std::uint8_t {
    kNone,
    kEventStream,  // a stream's head, until its first body byte
    kRetryable,    // an answer that another replica might spare the client
  };

  // exchange.cc: the request up to the choice, and the end
  void route();
  [[nodiscard]] bool body_too_large() const;
  void read_body();
  void body_progress(RequestBody::Progress progress);
  void expect_body();
  void body_came(std::uint64_t bytes);
  void read_features();
  [[nodiscard]] std::string_view session_header() const;
  [[nodiscard]] std::string_view payload();
  void check_model();
  void check_model_again();
  void make_ids();
  void go_on_without_ids(std::string_view why);
  void drop_token_job();
  void prompt_known();
  void choose();
  [[nodiscard]] bool request_consumed() const;
  [[nodiscard]] std::size_t consumed_input() const;
  [[nodiscard]] std::string_view input_body() const;
  [[nodiscard]] std::string_view request_id() const;
  [[nodiscard]] bool client_sent(const IoResult& got);
  void read_ahead();
  void release_charge(Feedback::Event event);
  void release_charge(Feedback::Event event, TimePoint now);
  void finish(ClientConnection::Ending ending);
  void finish(ClientConnection::Ending ending, TimePoint now);
  void note_length(bool stream, TimePoint now);
  void wait(Wait what, Duration limit);
  void on_timeout();

  // exchange_access.cc: who may ask, and what is believed
  void judge_steering();
  [[nodiscard]] bool admitted();
  void refuse_key(bool shown);
  void refuse_for_limit();

  // exchange_log.cc: its lines in the logs
  // What the records of both logs have.
  template <typename Record>
  void fill(Record& record, TimePoint now) const;
  void write_log(TimePoint now);
  void log_decision(TimePoint now);

  // exchange_own.cc: what the router answers by itself
  void answer_ready(bool alive_only);
  void answer_models();
  void refuse_path();
  void refuse_unserved();
  void refuse_body();
  void refuse_bad_body();
  void refuse_model();
  void reply_own(const OwnError& error);
  void reply_document(int status, std::string_view content_type, std::string_view body);

  // exchange_upstream.cc: a try on one replica
  void on_readable() override;
  void on_writable() override;
  void call_for_relay() const;
  void connect();
  void connect_to(Resolver::Endpoints addresses);
  void connect_to_next();
  void note_connect_error(const std::error_code& error);
  void on_connected();
  void send_request();
  void continue_sending();
  void request_sent();
  void await_first_byte();
  void pump_body();
  void upstream_ended(const std::error_code& error);
  void try_failed(RetryReason reason, std::optional<RequestFailure> report);
  void bad_answer(std::string_view problem);
  void judge_and_retry(RetryReason reason);
  [[nodiscard]] bool another_candidate();
  [[nodiscard]] bool pool_serves();
  void give_up();
  void drop_upstream();

  // exchange_response.cc: the answer
  void on_response_bytes(std::string_view in);
  void pass_interim_on();
  void on_response_head(std::string_view head_bytes, std::string_view rest);
  void take_body(std::string_view in);
  void on_head_hold_over();
  bool write_client_head(std::string& out);
  void send_head_and(std::string_view body);
  void forward(std::string_view bytes);
  void observed(int outputs);
  [[nodiscard]] bool answer_is_good() const;
  void first_byte_of_other();
  void learn_response(TimePoint now);
  void learn_usage();
  void drop_request();
  void keep_upstream();
  void complete();
  void retry_answer();
  void retry_part_of_answer();
  void report_unwilling(int status, bool draining);
  [[nodiscard]] bool may_be_retried(int status);
  void lose_answer(std::string_view message);
  void cut(CutReason reason, ErrorKind kind, std::string_view message);
  void await_more();
  void start_tunnel(std::string_view rest);
  void tunnel_from_client();
  void tunnel_to_upstream();

  ProxyShard& shard_;
  ClientConnection* client_ = nullptr;
  State state_ = State::kReading;

  // --- the relay: all that a piece of the answer touches, in neighbouring cache lines. A stream
  // that was silent for some milliseconds finds none of it in the cache; see call_for_relay().
  Wait waiting_for_ = Wait::kConnect;
  Hold hold_ = Hold::kNone;
  bool head_sent_ = false;
  bool any_byte_ = false;  // of the response
  bool event_stream_ = false;
  bool first_token_seen_ = false;
  bool response_learnt_ = false;
  bool fully_sent_ = false;
  bool send_broken_ = false;  // the replica takes no more, but may have answered
  ReplicaIndex replica_ = kNoReplica;
  std::uint32_t output_events_ = 0;  // of a stream
  UpstreamConnectionPtr upstream_;
  TimePoint last_output_at_{};
  std::uint64_t response_bytes_ = 0;
  ResponseBody response_body_;
  Timer timer_;
  AnswerObserver observer_;

  // --- the request
  RequestHeadParser request_parser_;
  RequestBody body_;
  PathRule rule_;
  RequestFacts facts_;
  std::shared_ptr<TokenJob> token_job_;  // while the prompt's ids are being made elsewhere
  std::string path_;                     // decoded, for the log
  std::string method_;
  std::string request_id_;
  bool http10_ = false;
  bool keep_alive_ = true;
  KeyLease key_;                // of the client, where clients have keys
  bool has_request_ = true;     // its bytes are still in the input
  bool input_overrun_ = false;  // bytes of a next request came where they could not be kept
  TimePoint started_{};
  Duration body_patience_{};  // how long its body may still be waited for
  TimePoint body_awaited_since_{};

  // --- the choice
  Charge charge_;
  Reason reason_ = Reason::kPolicy;
  bool pinned_ = false;
  bool logged_ = false;  // it belongs into the decision log
  PoolIndex pool_ = 0;
  std::uint32_t predicted_cached_ = 0;
  std::vector<ReplicaIndex> failed_;  // replicas that failed this request
  std::uint32_t tries_ = 0;
  std::uint32_t retries_ = 0;
  std::uint32_t retries_after_sent_ = 0;
  RetryReason last_failure_ = RetryReason::kRefused;
  std::string_view bad_answer_;  // where that is kBadAnswer: what is wrong with the answer
  std::uint64_t ticket_ = 0;     // of the question that is open; tells late answers from this one's

  // --- the try
  std::string upstream_unsent_;  // of the head, or of what streams through
  std::size_t upstream_unsent_at_ = 0;
  std::size_t body_sent_ = 0;  // of the held body
  bool pumping_ = false;       // the held part is sent, the rest of the body streams through
  bool stale_resent_ = false;
  Resolver::Endpoints addresses_;  // of the replica, where a connection is opened
  std::size_t next_address_ = 0;
  std::error_code connect_error_;
  TimePoint sent_at_{};
  TimePoint tried_at_{};

  // --- the answer
  ResponseHeadParser response_parser_;
  std::string response_head_;  // the head's bytes, where it came in pieces or is held
  std::string held_;           // of the body, to be sent with the head
  bool reuse_upstream_ = false;
  bool client_keeps_ = true;  // the client's connection stays open after this answer
  TimePoint first_token_at_{};
  int status_ = 0;  // sent to the client
  std::string_view error_word_;

  // The last answer that was held back for a retry, ready to be sent should that come to nothing.
  std::string saved_answer_;
  int saved_status_ = 0;
  bool saved_keeps_ = false;

  // --- the tunnel
  std::string tunnel_unsent_;  // towards the replica

  Timer hold_timer_;
};

}  // namespace pointsman
