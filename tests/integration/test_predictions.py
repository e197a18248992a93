"""Predicted against actual cached tokens, with simulated replicas behind the router."""

from support.processes import POINTSMAN, Listening, until
from support.router import Router
from support.wire import Client

TEXT = " ".join(f"word{n}" for n in range(800))  # About 1,500 tokens.


def simulated(start, *flags):
    words = [POINTSMAN, "replica", "--listen", "127.0.0.1:0", "--speed", 100]
    return start(Listening([*words, *flags]))


def ask(client, text):
    body = {"model": "sim", "prompt": text, "max_tokens": 2}
    answer = client.post("/v1/completions", body).response()
    assert answer.status == 200, answer.body
    return answer.json["usage"]


def shown(router):
    with Client(router.urls["admin"]) as client:
        (replica,) = client.get("/v1/replicas").json["replicas"]
    return replica["cached_tokens"]


def of_replica(router, name, **labels):
    """The sum over the samples that have all of the labels."""
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(
        value
        for key, value in router.metrics().items()
        if key.split("{")[0] == name and all(one in key for one in wanted)
    )


def test_what_was_predicted_is_compared_with_what_was_found(start):
    router = start(Router([simulated(start)], policy="least_work"))
    with router.client() as client:
        for turn in range(5):
            usage = ask(client, TEXT + f" turn {turn}")
    cached = shown(router)
    found = usage["prompt_tokens_details"]["cached_tokens"]
    assert cached["answers"] == 5
    assert cached["last_actual"] == found > 1_000
    # Text is cut into blocks by an estimate of its tokens.
    assert abs(cached["last_predicted"] - found) < 0.1 * found
    assert cached["believed_share"] == {"sent": 1, "events": 1}
    over = of_replica(router, "pointsman_replica_overpredicted_tokens_total")
    under = of_replica(router, "pointsman_replica_underpredicted_tokens_total")
    assert over == cached["overpredicted"] and under == cached["underpredicted"]
    histogram = "pointsman_replica_cached_tokens_error"
    assert of_replica(router, histogram + "_count") == 5
    assert of_replica(router, histogram + "_sum") == over + under
    assert of_replica(router, histogram + "_bucket", le="+Inf") == 5


def test_a_replica_that_never_hits_is_not_believed(start):
    # Its metrics, which would say so, are not found.
    replica = {"url": simulated(start, "--no-prefix-caching").url, "metrics_path": "/nothing"}
    router = start(Router([replica], policy="least_work"))
    with router.client() as client:
        for turn in range(25):
            usage = ask(client, TEXT + f" turn {turn}")
            assert usage["prompt_tokens_details"]["cached_tokens"] == 0
    cached = shown(router)
    assert cached["believed_share"] == {"sent": 0, "events": 1}
    assert cached["last_predicted"] == cached["last_actual"] == 0
    assert cached["overpredicted"] > 10_000
    assert of_replica(router, "pointsman_replica_believed_share", **{"from": "sent"}) == 0


def test_an_engine_that_says_its_cache_is_off_is_not_believed_from_the_start(start):
    router = start(Router([simulated(start, "--no-prefix-caching")], policy="least_work"))
    until(lambda: shown(router)["believed_share"] == {"sent": 0, "events": 0}, what="the report")
    with router.client() as client:
        for turn in range(5):
            ask(client, TEXT + f" turn {turn}")
    assert shown(router)["overpredicted"] == 0
