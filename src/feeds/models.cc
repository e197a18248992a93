#include "feeds/models.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "net/http_client.h"

namespace pointsman {

struct ModelsFeed::Target {
  Target(ModelsFeed& feed, ReplicaIndex its_index, std::shared_ptr<const ReplicaSpec> its_spec)
      : index(its_index), spec(std::move(its_spec)), get(feed.reactor_, feed.resolver_) {}

  const ReplicaIndex index;
  const std::shared_ptr<const ReplicaSpec> spec;
  HttpGet get;
  bool ready = false;
  TimePoint asked_at{};  // TimePoint{}: not since it became ready
  std::optional<ModelsList> list;
};

ModelsFeed::ModelsFeed(Reactor& reactor, Resolver& resolver, Fleet& fleet, const Options& options)
    : reactor_(reactor), resolver_(resolver), fleet_(fleet), options_(options) {
  publish();
}

ModelsFeed::~ModelsFeed() {
  *alive_ = false;
}

void ModelsFeed::follow(const Targets& targets) {
  follow_targets(targets_, *this, targets);
  publish();
  answer_waiting();
}

void ModelsFeed::tick() {
  const TimePoint now = reactor_.now();
  const std::shared_ptr<const FleetView> view = fleet_.view();
  for (const auto& [index, target] : targets_) {
    const bool ready = index < view->replicas.size() && view->replicas[index].usable;
    if (ready && !target->ready) target->asked_at = TimePoint{};
    target->ready = ready;
    const bool due = target->asked_at == TimePoint{} || now - target->asked_at >= options_.interval;
    if (ready && due && !target->get.running()) ask(*target);
  }
}

void ModelsFeed::ask(Target& target) {
  target.asked_at = reactor_.now();
  HttpGetRequest request = request_to(*target.spec, 0, "/v1/models");
  request.timeout = options_.timeout;
  target.get.start(std::move(request),
                   [this, &target](const HttpGetResult& result) { on_result(target, result); });
}

void ModelsFeed::on_result(Target& target, const HttpGetResult& result) {
  if (result.outcome == HttpGetResult::Outcome::kAnswered && result.status < 500) {
    target.list = result.status == 200 ? parse_models_list(result.body) : std::nullopt;
    const bool binding = target.list && target.list->binding;
    fleet_.set_models(target.index, binding ? std::optional(target.list->ids()) : std::nullopt,
                      binding ? target.list->base_model() : std::string());
    publish();
  }
  answer_waiting();
}

void ModelsFeed::refresh(Reactor& caller, std::function<void()> done) {
  reactor_.post([this, alive = alive_, waiting = Waiting{&caller, std::move(done)}]() mutable {
    if (*alive) refresh_here(std::move(waiting));
  });
}

void ModelsFeed::refresh_here(Waiting waiting) {
  waiting_.push_back(std::move(waiting));
  const TimePoint now = reactor_.now();
  const bool again =
      last_refresh_ == TimePoint{} || now - last_refresh_ >= options_.least_between_refreshes;
  if (again) {
    last_refresh_ = now;
    for (const auto& [index, target] : targets_) {
      if (target->ready && !target->get.running()) ask(*target);
    }
  }
  answer_waiting();
}

void ModelsFeed::answer_waiting() {
  if (waiting_.empty()) return;
  const bool busy =
      std::ranges::any_of(targets_, [](const auto& entry) { return entry.second->get.running(); });
  if (busy) return;
  for (Waiting& waiting : std::exchange(waiting_, {})) {
    waiting.caller->post(std::move(waiting.done));
  }
}

void ModelsFeed::publish() {
  std::vector<const ModelsList*> lists;
  for (const auto& [index, target] : targets_) {
    if (target->list) lists.push_back(&*target->list);
  }
  auto merged = std::make_shared<std::string>();
  append_merged_models(*merged, lists);
  const std::lock_guard lock(mutex_);
  merged_ = std::move(merged);
}

void ModelsFeed::append_merged(std::string& out) const {
  std::shared_ptr<const std::string> merged;
  {
    const std::lock_guard lock(mutex_);
    merged = merged_;
  }
  out += *merged;
}

}  // namespace pointsman
