"""What the README promises to someone who starts with it."""

import re
import subprocess

import pytest

from support.processes import POINTSMAN, ROOT, Listening, until
from support.wire import Client, Replica

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def check(path):
    run = subprocess.run(
        [POINTSMAN, "check", "-c", path],
        capture_output=True,
        text=True,
        env={"ENGINE_KEY": "secret"},
    )
    return run.returncode, run.stdout + run.stderr


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_valid(path):
    code, output = check(path)
    assert code == 0, output
    assert "secret" not in output


def test_the_configuration_in_the_readme_is_valid(tmp_path):
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert blocks
    for block in blocks:
        path = tmp_path / "pointsman.yaml"
        path.write_text(block)
        code, output = check(path)
        assert code == 0, output


def test_a_wrong_key_is_named_with_the_nearest_right_one(tmp_path):
    path = tmp_path / "pointsman.yaml"
    path.write_text("lissten: 0.0.0.0:8080\nreplicas: [http://127.0.0.1:1]\n")
    code, output = check(path)
    assert code == 1
    assert "lissten" in output
    assert "listen" in output.replace("lissten", "")


def test_one_line_puts_it_before_two_servers_and_shows_why_one_is_down(start):
    up, down = start(Replica()), Replica()
    down.close()
    command = [POINTSMAN, "serve", "--replicas", f"{up.url},{down.url}"]
    command += ["--policy", "session_affinity", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    router = start(Listening(command, ports=("listening", "admin")))
    with Client(router.url) as client:
        for _ in range(5):
            assert client.chat().response().status == 200

    def why():
        with Client(router.urls["admin"]) as client:
            replicas = client.get("/v1/replicas").json["replicas"]
        states = {replica["url"]: replica for replica in replicas}
        assert states[up.url]["usable"]
        return states[down.url]["why"] if states[down.url]["state"] == "gone" else None

    assert "refuse" in until(why, what="the dead replica is seen to be gone")


def test_the_readme_names_policies_that_exist():
    listed = subprocess.run([POINTSMAN, "policies", "--json"], capture_output=True, text=True)
    assert listed.returncode == 0
    table = (ROOT / "README.md").read_text().split("| preset |")[1].split("\n\n")[0]
    names = re.findall(r"`(\w+)`", table)
    assert "least_work" in names
    for name in names:
        assert f'"{name}"' in listed.stdout


def test_help_and_version_work_without_anything_else():
    for flags in (["--help"], ["--version"], ["serve", "--help"], ["check", "--help"]):
        run = subprocess.run([POINTSMAN, *flags], capture_output=True, text=True)
        assert run.returncode == 0
        assert run.stdout
