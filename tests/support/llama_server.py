"""One llama.cpp server, as `xllamacpp` carries it: python llama_server.py MODEL.gguf

Prints `listening on http://127.0.0.1:PORT` once it is ready to answer, and serves until it is ended.
The cache is one prefix per slot; host memory for evicted prompts is off, so that a hit means that
the request came to the replica that holds its session.
"""

import signal
import sys

import xllamacpp

SLOTS = 8  # All sessions of a test fit on one replica, however they are hashed.
TOKENS_PER_SLOT = 4096


def main():
    parameters = xllamacpp.CommonParams()
    parameters.model.path = sys.argv[1]
    parameters.model_alias = ["tiny"]
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = SLOTS * TOKENS_PER_SLOT
    parameters.n_parallel = SLOTS
    parameters.cache_ram_mib = 0
    parameters.cpuparams.n_threads = 1
    parameters.cpuparams_batch.n_threads = 1
    parameters.endpoint_metrics = True
    parameters.endpoint_slots = True
    parameters.verbosity = 0
    server = xllamacpp.Server(parameters)
    print(f"listening on {server.listening_address}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
