"""The program as a person meets it: commands, messages, and documents that must agree with it."""

import json
import pathlib
import re
import socket
import subprocess

import pytest
from support.certificates import Authority
from support.processes import POINTSMAN, ROOT, Listening, until
from support.router import Router
from support.wire import Client, Replica

ENVIRONMENT = {"ENGINE_KEY": "k-1", "PATH": "/usr/bin:/bin"}


def run(*words, environment=None):
    return subprocess.run(
        [POINTSMAN, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment if environment is not None else ENVIRONMENT,
    )


TINY = ROOT / "tests/data/tokens"
TOKEN_IDS = ", with token ids" in run("--version").stdout
needs_token_ids = pytest.mark.skipif(not TOKEN_IDS, reason="this build has no token ids")


@pytest.mark.parametrize("page, command", [("config", "check"), ("policies", "policies")])
def test_the_page_is_what_the_program_prints(page, command):
    assert run(command, "--markdown").stdout == (ROOT / f"docs/{page}.md").read_text()


def test_the_list_of_metrics_is_what_the_program_shows(start, tmp_path):
    log = tmp_path / "access.log"
    words = ["serve", "--replicas", "http://127.0.0.1:9", "--listen", "127.0.0.1:0"]
    words += ["--admin", "127.0.0.1:0", "--threads", "1", "--access-log", log]
    words += ["--decision-log", tmp_path / "decisions.log"]
    (tmp_path / "keys").write_text(run("key", "alice").stdout.split("line: ")[1])
    (tmp_path / "access.yaml").write_text(f"access: {{key_file: {tmp_path / 'keys'}}}\n")
    words += ["-c", tmp_path / "access.yaml"]
    router = start(Listening([POINTSMAN, *words], ports=("listening", "admin")))
    with Client(router.urls["admin"]) as client:
        text = client.get("/metrics").body.decode()
    families = re.findall(r"# HELP (\S+) (.*)\n# TYPE \S+ (\S+)\n", text)
    rows = [f"| `{name}` | {kind} | {meaning} |" for name, meaning, kind in families]
    page = (ROOT / "docs/metrics.md").read_text()
    assert rows == [row for row in page.splitlines() if row.startswith("| `")]


def test_the_access_log_has_what_the_router_answers_itself(start, tmp_path):
    log = tmp_path / "access.log"
    router = start(Router(["http://127.0.0.1:9"], log={"access": str(log)}))
    with router.client() as client:
        body = client.get("/nothing/k-secret?q=k-query").body
    host, port = router.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        raw.sendall(b"GET /k-path HTTP/1.1\r\nk-header without a colon\r\n\r\n")
        answer = b""
        while part := raw.recv(65536):
            answer += part
    until(lambda: log.read_text().count("\n") == 2, what="two lines")
    first, second = map(json.loads, log.read_text().splitlines())
    assert (first["status"], first["error"]) == (404, "not_found")
    assert first["response_bytes"] == len(body) > 0
    assert (second["status"], second["error"]) == (400, "bad_head")
    assert second["response_bytes"] == len(answer.partition(b"\r\n\r\n")[2]) > 0
    assert f"x-request-id: {second['request_id']}".encode() in answer.lower()
    for hidden in ("k-query", "k-path", "k-header"):
        assert hidden not in log.read_text()


def test_what_is_configured_of_a_replica_reaches_the_router(start, tmp_path):
    config = tmp_path / "pointsman.yaml"
    config.write_text(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n"
        "replicas: [{url: http://127.0.0.1:9, weight: 2.5, kv_capacity_tokens: 5000}]\n"
    )
    router = start(Listening([POINTSMAN, "serve", "-c", config], ports=("listening", "admin")))
    with Client(router.urls["admin"]) as client:
        (replica,) = client.get("/v1/replicas").json["replicas"]
    assert (replica["weight"], replica["kv_capacity_tokens"]) == (2.5, 5000)


def test_what_clients_invent_never_makes_a_series(start):
    router = start(Router([start(Replica())]))
    router.wait_models()

    def send(number):
        with router.client() as client:
            client.chat(model=f"invented-{number}").response()
            client.get(f"/v1/invented-{number}", fields=[("x-session-id", f"s-{number}")])

    send(0)
    before = router.metrics().keys()
    for number in range(1, 30):
        send(number)
    assert router.metrics().keys() == before


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.name)
def test_every_example_is_valid(path):
    result = run("check", path)
    assert result.returncode == 0, result.stderr
    assert "the configuration is valid" in result.stdout
    assert "k-1" not in result.stdout


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    # These have scenarios of the simulator, no configurations of the router.
    if page.name != "scenario.md" and page.parent.name != "experiments"
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), re.S))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_configuration_in_the_documents_is_valid(block, tmp_path):
    path = tmp_path / "p.yaml"
    if "/etc/pointsman/" in block:
        authority = Authority(tmp_path)
        made_here = {"tls": authority.server(), "client": authority.client()}
        for name, made in made_here.items():
            made.certificate.rename(tmp_path / f"{name}.crt")
            made.key.rename(tmp_path / f"{name}.key")
        run("key", "alice", "--append", tmp_path / "keys")
    if "/models/" in block and not TOKEN_IDS:
        pytest.skip("this build has no token ids")
    block = re.sub(r"/models/[\w.-]+", str(TINY), block)
    path.write_text(block.replace("/etc/pointsman/", f"{tmp_path}/"))
    result = run("check", path)
    assert result.returncode == 0, result.stderr


def with_tokenizers(tmp_path, *paths):
    path = tmp_path / "p.yaml"
    entries = "".join(f"  - models: [m{at}]\n    path: {file}\n" for at, file in enumerate(paths))
    path.write_text(f"replicas: [http://127.0.0.1:9]\ntokenizers:\n{entries}")
    return path


@needs_token_ids
def test_check_refuses_the_tokenizers_that_serve_refuses(tmp_path):
    whole = (TINY / "tokenizer.json").read_bytes()
    truncated, garbage = tmp_path / "truncated.json", tmp_path / "garbage.json"
    truncated.write_bytes(whole[: len(whole) // 2])
    garbage.write_bytes(b"\xff\xfe" * 50)
    path = with_tokenizers(tmp_path, tmp_path / "nowhere", truncated, TINY, garbage)
    checked = run("check", path)
    served = run("serve", "-c", path, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    assert checked.returncode == served.returncode == 1
    lines = checked.stderr.splitlines()
    assert [line for line in served.stderr.splitlines() if "tokenizers[" in line] == lines
    for line, (at, file) in zip(
        lines, [(0, tmp_path / "nowhere"), (1, truncated), (3, garbage)], strict=True
    ):
        assert line.startswith(f"{path}:{4 + 2 * at}: tokenizers[{at}].path: '{file}' cannot be used")
        assert "(allowed: a model's folder with a tokenizer.json, or a tokenizer.json)" in line


@needs_token_ids
def test_check_shows_tokenizers_and_warns_of_chats_that_stay_text(tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "tokenizer.json").write_bytes((TINY / "tokenizer.json").read_bytes())
    (broken / "chat_template.jinja").write_text("{{ ")
    path = with_tokenizers(tmp_path, TINY, broken, TINY / "tokenizer.json")
    answer = run("check", path)
    assert answer.returncode == 0
    lines = [line.split() for line in answer.stdout.splitlines()]
    assert ["tokenizers[0].models", "[m0]", f"{path}:3"] in lines
    assert ["tokenizers[1].path", str(broken), f"{path}:6"] in lines
    assert ["tokenizers[2].max_prompt_bytes", "1MiB", "default"] in lines
    warnings = [line for line in answer.stdout.splitlines() if line.startswith("warning: tokenizers")]
    assert [warning.split(": ")[1] for warning in warnings] == ["tokenizers[1].path", "tokenizers[2].path"]
    assert "chats of m1 stay text" in warnings[0] and "line 1" in warnings[0]


def test_check_shows_values_with_their_origin(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("replicas: [http://a:1]\nretry: {tries: 1}\nadmin_access: {key: hidden}\n")
    result = run("check", "-c", path, "--threads", "2")
    assert result.returncode == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["retry.tries", "1", f"{path}:2"] in lines
    assert ["threads", "2", "--threads"] in lines
    assert ["timeouts.connect", "5s", "default"] in lines
    assert "hidden" not in result.stdout
    assert "warning: pool general has one replica" in result.stdout


def test_check_compares_limits_with_what_a_running_router_has_seen(start, tmp_path):
    """An answer that the limit itself broke off counts too."""
    replica = start(Replica(lambda connection, request: connection.wait_closed()))
    router = start(Router([replica], timeouts={"first_byte_plain": "1s"}))
    path = tmp_path / "p.yaml"
    path.write_text("replicas: [http://a:1, http://b:1]\ntimeouts: {first_byte_plain: 1s}\n")
    words = ["check", "-c", path, "--router", router.urls["admin"]]
    assert "has seen" not in run(*words).stdout
    with router.client() as client:
        assert client.chat().response().status == 504
    told = "warning: timeouts.first_byte_plain (1s) is below the longest answer that the router has"
    assert told in run(*words).stdout
    assert "has seen" not in run(*words[:3]).stdout
    result = run(*words[:3], "--router", start(Replica()).url)
    assert result.returncode == 1 and "is no admin or observe port" in result.stderr


def test_policies_as_json_names_kind_options_and_stability():
    policies = json.loads(run("policies", "--json").stdout)["policies"]
    presets = {entry["name"]: entry for entry in policies if entry["kind"] == "preset"}
    expected = "round_robin random least_connections least_response_time ring_hash maglev least_kv"
    expected += " global_least_kv prefix_aware weighted session_affinity least_work"
    assert set(expected.split()) <= presets.keys()
    choices = [o for o in presets["least_kv"]["options"] if o["name"] == "choices"][0]
    assert choices["default"] == 2 and choices["low"] <= 2 <= choices["high"]
    assert {entry["kind"] for entry in policies} >= {"preset", "filter", "sampler", "cost", "picker"}
    assert {entry["stability"] for entry in policies} <= {"stable", "experimental"}


def faults(*words, environment=None):
    result = run("serve", *words, environment=environment)
    assert result.returncode == 1, result
    assert result.stdout == ""
    return result.stderr


def test_what_is_wrong_is_one_line_with_file_line_and_remedy(tmp_path):
    path = tmp_path / "pointsman.yaml"
    path.write_text("replicas: [http://a:1]\npolicy:\n  preset: least_kv\n  chioces: 2\n")
    text = faults("-c", path)
    assert text.startswith(f"{path}:4: policy.chioces: unknown key (known: ")
    assert text.endswith("nearest: choices)\n") and text.count("\n") == 1
    assert "--replicas" in faults()
    assert "cannot be read" in faults("-c", tmp_path / "absent.yaml")
    assert "nearest: least_kv" in faults("--replicas", "http://a:1", "--policy", "lesat_kv")
    path.write_text("replicas: [{url: 'http://a:1', api_key: '${NO_SUCH_VARIABLE}'}]\n")
    assert "NO_SUCH_VARIABLE is not set" in faults("-c", path)


def test_a_url_without_a_scheme_is_http_and_that_is_said_D49():
    answer = run("check", "--replicas", "models.test:8000,[2001:db8::1]:8000")
    assert answer.returncode == 0
    for url in ("models.test:8000", "[2001:db8::1]:8000"):
        assert f"'{url}' has no scheme: http:// is assumed" in answer.stdout + answer.stderr


def test_blanks_around_the_urls_of_replicas_do_not_matter():
    answer = run("check", "--replicas", "http://a:1 , http://b:1")
    assert answer.returncode == 0, answer.stderr
    assert " http://a:1  " in answer.stdout and " http://b:1  " in answer.stdout


@pytest.mark.parametrize("url", ["http://1.2.3.4.5:1", "http://-x:1", "http://a:1/x/../y", "5"])
def test_what_can_be_no_replica_is_refused(url):
    assert f"'{url}' is not the URL of a replica" in faults("--replicas", url)


def test_check_says_that_the_access_log_cannot_be_written(tmp_path):
    def warned(place):
        answer = run("check", "--replicas", "http://a:1,http://b:1", "--access-log", place)
        assert answer.returncode == 0
        return "warning: log.access: " in answer.stdout

    assert warned("/nonexistent/x.log")
    assert warned(str(tmp_path) + "/")
    log = tmp_path / "access.log"
    assert not warned(str(log)) and not log.exists()


def test_a_flag_that_is_not_known_gets_the_nearest():
    result = run("serve", "--replica", "http://a:1", "--polcy=x")
    assert result.returncode == 2
    assert "--polcy: nearest: --policy\n" in result.stderr


def test_an_engine_that_the_demo_does_not_have_is_refused_with_those_it_has():
    words = [ROOT / "dev", "demo", "--engine", "foo"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and "llama.cpp" in result.stderr


@pytest.mark.parametrize("listen", ["127.0.0.1:18080", "0.0.0.0:18080"])
def test_a_replica_that_is_the_routers_own_data_port_is_told(listen):
    urls = "http://localhost:18080,http://127.0.0.1:18081"
    shown = run("check", "--replicas", urls, "--listen", listen)
    assert shown.returncode == 0
    told = [line for line in shown.stdout.splitlines() if "own data port" in line]
    assert len(told) == 1 and "http://localhost:18080 " in told[0]


@pytest.mark.parametrize("port", ["listen", "admin", "observe"])
def test_a_port_in_use_is_named_with_its_remedy(port):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        words = {"--listen": "127.0.0.1:0", "--admin": "127.0.0.1:0", f"--{port}": address}
        flags = [word for pair in words.items() for word in pair]
        result = run("serve", "--replicas", "http://127.0.0.1:9", *flags)
    assert result.returncode == 1
    lines = result.stderr.splitlines()
    assert address in lines[-1] and f"--{port}" in lines[-1], result.stderr


def test_the_version_is_told():
    assert re.fullmatch(r"pointsman \d+\.\d+\.\d+, with(out)? token ids\n", run("--version").stdout)


def test_a_command_that_is_not_known_gets_the_nearest():
    result = run("serv")
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.startswith("unknown command 'serv' (known: ")
    assert result.stderr.endswith("; nearest: serve)\n") and result.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [[], ["serve", "--no-such-flag"], ["check", "a", "b"]])
def test_a_command_line_that_makes_no_sense_exits_2(words):
    result = run(*words)
    assert result.returncode == 2 and result.stdout == "" and result.stderr != ""


def test_help_and_version_are_commands_too():
    assert run("version").stdout == run("--version").stdout
    assert run("help").stdout == run("--help").stdout
    assert run("help", "serve").stdout == run("serve", "--help").stdout
    assert "--replicas" in run("help", "serve").stdout


@pytest.mark.parametrize("other", ["http://A:80", "http://a/", "a:80"])
def test_a_replica_is_one_however_its_url_is_written(other, tmp_path):
    text = faults("--replicas", f"http://a,{other}")
    assert f"'{other}' is listed twice, first as 'http://a'" in text
    path = tmp_path / "p.yaml"
    path.write_text(f"replicas: [http://a, '{other}']\n")
    text = faults("-c", path)
    assert f"{path}:1: replicas[1]: '{other}' is listed twice, first as 'http://a'" in text


def test_the_log_tells_of_replicas_that_go_and_of_changes_by_the_admin_port(start):
    first, second = start(Replica()), start(Replica())
    health = {"interval": "50ms"}
    router = start(Router([first, second], health=health))

    def logged(text):
        until(lambda: text in router.output(), what=text)

    logged(f"info replica {first.url} is in\n")
    first.close()
    logged(f"warning replica {first.url} is out: gone: connection refused\n")
    with Client(router.urls["admin"]) as client:
        fields = [("Content-Type", "application/json")]
        client.post(f"/v1/replicas/{second.authority}/drain", b"", fields=fields)
    logged(f"info replica {second.url} was told to drain by the admin port (client 127.0.0.1)\n")
    logged(f"warning replica {second.url} is out: draining\n")
    assert router.output().count(f"{first.url} is out") == 1
