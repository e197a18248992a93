"""Starts `pointsman serve` before replicas of a test."""

import json
import pathlib
import re
import tempfile

from support.processes import POINTSMAN, Listening, until
from support.wire import Client


class Router(Listening):
    """`pointsman serve` with a configuration written from `settings`, on free ports.

    Probes and scrapes are as quick as the configuration allows, so that tests do not wait.
    """

    def __init__(self, replicas, policy="least_connections", environment=None, **settings):
        self._folder = tempfile.TemporaryDirectory(prefix="pointsman-")
        urls = [getattr(replica, "url", replica) for replica in replicas]
        config = {
            "listen": "127.0.0.1:0",
            "admin": "127.0.0.1:0",
            "threads": 1,
            "policy": {"preset": policy},
            "pools": [{"name": "general", "replicas": urls}],
            **settings,
        }
        # JSON is YAML.
        path = pathlib.Path(self._folder.name, "pointsman.yaml")
        path.write_text(json.dumps(config, indent=1))
        command = [POINTSMAN, "serve", "-c", path]
        super().__init__(command, ports=("listening", "admin"), environment=environment)

    def client(self, **more):
        return Client(self.url, **more)

    def wait_models(self, count=1):
        """Until the replicas' model lists are in: an unknown model is refused only then."""

        def known():
            with self.client() as client:
                return len(client.get("/v1/models").json["data"]) == count

        until(known, what="the router has the model lists")

    def metrics(self):
        """Name with labels -> value, from the admin port."""
        with Client(self.urls["admin"]) as client:
            text = client.get("/metrics").body.decode()
        samples = (re.match(r"([^#\s]\S*(?:\{.*\})?) (\S+)", line) for line in text.splitlines())
        return {found.group(1): float(found.group(2)) for found in samples if found}

    def metric(self, name):
        """The sum over all label sets."""
        return sum(v for key, v in self.metrics().items() if key.split("{")[0] == name)
