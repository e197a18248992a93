#include "policies/register.h"

#include "policies/best.h"
#include "policies/bounded_hash.h"
#include "policies/in_flight.h"
#include "policies/in_order.h"
#include "policies/kv_headroom.h"
#include "policies/least_kv.h"
#include "policies/least_work.h"
#include "policies/not_full.h"
#include "policies/peak_ewma.h"
#include "policies/prefix_hit.h"
#include "policies/prefix_holders.h"
#include "policies/queue_room.h"
#include "policies/random.h"
#include "policies/round_robin.h"
#include "policies/sample.h"
#include "policies/session_home.h"

namespace pointsman {

Registry make_registry() {
  Registry registry;
  registry.add<NotFull>();

  registry.add<Sample>();
  registry.add<SessionHome>();
  registry.add<PrefixHolders>();
  registry.add<Ring>();
  registry.add<Maglev>();

  registry.add<PrefixHit>();
  registry.add<KvHeadroom>();
  registry.add<QueueRoom>();

  registry.add<InFlight>();
  registry.add<PeakEwma>();
  registry.add<LeastKv>();
  registry.add<LeastWork>();

  registry.add<Best>();
  registry.add<InOrder>();
  registry.add<RoundRobin>();
  registry.add<Random>();

  add_presets(registry);
  return registry;
}

}  // namespace pointsman
