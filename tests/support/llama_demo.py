"""`./dev demo --engine llama.cpp`: four real llama.cpp servers behind pointsman, policy by policy."""

import argparse
import pathlib
import sys

# Run as a script, the package's parent is not on the path by itself.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from support import llama_fleet  # noqa: E402
from support.router import Router  # noqa: E402

POLICIES = ["round_robin", "session_affinity", "least_work"]


def main():
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__)
    parser.add_argument("--engine", choices=["llama.cpp"], required=True)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--concurrency", type=int, default=2)
    arguments = parser.parse_args()

    print(
        f"{arguments.replicas} llama.cpp servers, {llama_fleet.SESSIONS} sessions of "
        f"{llama_fleet.TURNS} turns by the official client, {arguments.concurrency} at a time"
    )
    rows = []
    with llama_fleet.fleet(arguments.replicas) as engines:
        for seed, policy in enumerate(POLICIES):
            with Router(engines, policy=policy) as router:
                outcome = llama_fleet.run_sessions(
                    lambda session, turn, url=router.url: url,
                    seed,
                    arguments.concurrency,
                    lambda turn, policy=policy: print(
                        f"\r{policy:18} turn {turn} of {llama_fleet.TURNS}", end="", flush=True
                    ),
                )
            print()
            rows.append((policy, outcome))
    base = rows[0][1]
    print("\npolicy             prefix hit rate   TTFT of turns 2-4, median   against round robin")
    for policy, outcome in rows:
        ttft = outcome.later_turn_ttft_ms
        print(
            f"{policy:18} {outcome.hit_ratio:>15.0%}   {ttft:>23.0f} ms   "
            f"{base.later_turn_ttft_ms / ttft:>17.1f}x"
        )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
