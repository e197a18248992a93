"""`pointsman tokenize`: the ids are those of the engine and of the reference library."""

import json
import pathlib
import random
import subprocess
import unicodedata

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers
from support import tokenizers_at_hand
from support.processes import POINTSMAN, ROOT

MODEL = ROOT / "tests/data/tokens"
BUILT = ", with token ids" in subprocess.run(
    [POINTSMAN, "--version"], capture_output=True, text=True
).stdout
needs_token_ids = pytest.mark.skipif(not BUILT, reason="this build has no token ids")


def tokenize(*flags, lines):
    """The answers, and the finished process."""
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    words = [POINTSMAN, "tokenize", *map(str, flags)]
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=300)
    return [json.loads(line) for line in done.stdout.splitlines()], done


def ids_of(*flags, lines):
    answers, done = tokenize(*flags, lines=lines)
    assert done.returncode == 0, done.stderr
    return [answer["ids"] for answer in answers]


@needs_token_ids
def test_a_request_to_an_engines_tokenize_is_a_line():
    vectors = json.loads((MODEL / "vectors-vllm.json").read_text())
    rest = {"model": "tiny", "return_token_strs": True, "mm_processor_kwargs": None}
    chats = [{**rest, "chat_template": None, **chat["request"]} for chat in vectors["chats"]]
    texts = [{**rest, "prompt": vector["text"]} for vector in vectors["texts"]]
    wanted = [vector["ids"] for vector in vectors["chats"] + vectors["texts"]]
    assert ids_of("--model", MODEL, lines=chats + texts) == wanted


@needs_token_ids
def test_what_would_change_the_ids_and_is_not_known_is_refused_by_name():
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    picture = {"type": "image_url", "image_url": {"url": "http://a.test/b.png"}}
    lines = [
        {**chat, "chat_template": "{{ 1 }}"},
        {"text": "Hi", "prompt": "Hi"},
        {**chat, "truncate_prompt_tokens": 3},
    ]
    answers, _ = tokenize("--model", MODEL, lines=lines)
    for answer, named in zip(answers, ("chat_template", "prompt", "truncate_prompt_tokens"), strict=True):
        assert named in answer["error"]
    (answer,), _ = tokenize("--model", MODEL, lines=[{"messages": [{"role": "user", "content": [picture]}]}])
    assert "error" in answer


@needs_token_ids
def test_texts_and_chats_have_the_ids_of_the_engine():
    vectors = json.loads((MODEL / "vectors-vllm.json").read_text())
    texts = [{"text": vector["text"]} for vector in vectors["texts"]]
    assert ids_of("--model", MODEL, lines=texts) == [vector["ids"] for vector in vectors["texts"]]
    chats = []
    for vector in vectors["chats"]:
        known = ("messages", "tools", "add_generation_prompt")
        chats.append({name: vector["request"][name] for name in known if name in vector["request"]})
    assert ids_of("--model", MODEL, lines=chats) == [vector["ids"] for vector in vectors["chats"]]
    assert len(texts) == 102 and len(chats) == 28


@needs_token_ids
def test_a_bad_line_is_named_and_the_others_are_answered():
    lines = [
        {"text": "Hi"},
        "{",
        {"text": 1},
        {"neither": 1},
        {"text": "a", "messages": []},
        {"messages": [{"role": "alien", "content": "Hi"}]},
        {"text": "Hi"},
    ]
    answers, done = tokenize("--model", MODEL, lines=lines)
    assert done.returncode == 1
    assert answers[0] == answers[6] and "ids" in answers[0]
    assert [list(answer) for answer in answers[1:6]] == [["error"]] * 5
    errors = done.stderr.splitlines()
    assert [error.split(":")[0] for error in errors] == [f"line {number}" for number in range(2, 7)]
    assert "unknown role: alien" in errors[4]


@needs_token_ids
def test_a_tokenizer_alone_has_no_template():
    flags = ["--tokenizer", MODEL / "tokenizer.json"]
    assert ids_of(*flags, lines=[{"text": "<|im_end|>"}]) == [[3]]
    answers, done = tokenize(*flags, lines=[{"messages": []}])
    assert done.returncode == 1 and "--model" in answers[0]["error"]


def test_errors_have_an_exit_status():
    _, done = tokenize(lines=[])
    assert done.returncode == 2
    _, done = tokenize("--model", MODEL, "--tokenizer", MODEL, lines=[])
    assert done.returncode == 2
    _, done = tokenize("--model", "/nowhere", lines=[])
    assert done.returncode == 1
    assert ("/nowhere" if BUILT else "Rust toolchain") in done.stderr


def agreed(character):
    """Whether the character is as old as the tables of any library. (Unicode has changed this one.)"""
    return unicodedata.ucd_3_2_0.category(character) not in ("Cn", "Cs") and character != "\u166d"


def any_character(character):
    return unicodedata.category(character) != "Cs"


def random_texts(seed, count, specials, wanted=agreed):
    """Texts that are hard to cut: runs of spaces, letters of all scripts, marks, pieces of tokens."""
    rng = random.Random(seed)
    words = ["the ", " a", "It's", "DON'T", "'ll", "12345", "  ", " \n", "\r\n", "\t", "!!!", "_x", "ſ"]
    words += ["é", "e\u0301", "路由器", "한국어", "שלום", "١٢٣", "½", "ǅ", "\u00a0", "\u3000", "\u200b", "😀👩‍👩‍👧"]
    ranges = [(0, 0x7F), (0x80, 0x24F), (0x300, 0x36F), (0x370, 0x1FFF), (0x2000, 0x33FF)]
    ranges += [(0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0, 0x10FFFF)]
    for _ in range(count):
        text = []
        for _ in range(rng.choice([1, 3, 10, 40])):
            kind = rng.random()
            if kind < 0.5:
                text.append(rng.choice(words))
            elif kind < 0.6 and specials:
                special = rng.choice(specials)
                text.append(special[: rng.choice([len(special), len(special), rng.randrange(len(special) + 1)])])
            else:
                low, high = rng.choice(ranges)
                characters = (chr(rng.randint(low, high)) for _ in range(rng.choice([1, 2, 5])))
                text += filter(wanted, characters)
        yield "".join(text)


def compare_with_reference(file: pathlib.Path, count):
    reference = tokenizers.Tokenizer.from_file(str(file))
    specials = [token["content"] for token in json.loads(file.read_text())["added_tokens"]]
    texts = list(random_texts(20, count, specials))
    ours = ids_of("--tokenizer", file, lines=[{"text": text} for text in texts])
    for text, ids in zip(texts, ours, strict=True):
        assert ids == reference.encode(text).ids, repr(text)
    equal_or_refused(file, random_texts(21, count, specials, any_character))


def equal_or_refused(file, texts):
    """No ids differ from the reference library's. Gives the texts that have none."""
    reference = tokenizers.Tokenizer.from_file(str(file))
    texts = list(texts)
    answers, _ = tokenize("--tokenizer", file, lines=[{"text": text} for text in texts])
    wanted = reference.encode_batch(texts)
    refused = []
    for text, answer, encoding in zip(texts, answers, wanted, strict=True):
        if "error" in answer:
            assert "version of Unicode" in answer["error"]
            refused.append(text)
        else:
            assert answer["ids"] == encoding.ids, repr(text)
    return refused


SPECIALS = ["[UNK]", "[CLS]", "[SEP]"]


def word_piece():
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    around = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return tokenizer, trainers.WordPieceTrainer(vocab_size=1500, special_tokens=SPECIALS), around


def word_level():
    tokenizer = tokenizers.Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer, trainers.WordLevelTrainer(vocab_size=500, special_tokens=SPECIALS), None


def unigram():
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer, trainers.UnigramTrainer(vocab_size=800, unk_token="[UNK]", special_tokens=SPECIALS), None


def gpt2():
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1200, initial_alphabet=alphabet, special_tokens=SPECIALS)
    return tokenizer, trainer, processors.ByteLevel()


@needs_token_ids
@pytest.mark.parametrize("kind", [word_piece, word_level, unigram, gpt2])
def test_no_character_has_other_ids_than_in_the_reference_library(kind, tmp_path):
    tokenizer, trainer, around = kind()
    pages = [path.read_text() for path in (ROOT / "README.md", ROOT / "docs/config.md")]
    tokenizer.train_from_iterator(pages + ["日本語 мир é ñ ü"] * 3, trainer)
    if around:
        tokenizer.post_processor = around
    file = tmp_path / "tokenizer.json"
    tokenizer.save(str(file))
    compare_with_reference(file, 1000)
    # Most ideographs, Hangul and planes without characters are alike.
    ranges = [(0, 0x3500), (0xA000, 0xAC10), (0xD7A0, 0xD800), (0xF900, 0x20010), (0x2A6D0, 0x2A710)]
    ranges += [(0x2B730, 0x2B830), (0x2CEA0, 0x2CEB0), (0x31340, 0x33480), (0xE0000, 0xE0200)]
    characters = [chr(code) for low, high in ranges for code in range(low, high)]
    refused = equal_or_refused(file, [f"a{character}b{character}" for character in characters])
    # Of what is assigned to all and is no letter or mark of recent years, nothing is refused.
    assert not [text for text in refused if agreed(text[1])]


@needs_token_ids
def test_random_texts_have_the_ids_of_the_reference_library():
    compare_with_reference(MODEL / "tokenizer.json", 4000)


@needs_token_ids
@pytest.mark.parametrize("name", tokenizers_at_hand.PACKAGES)
def test_well_known_tokenizers_have_the_ids_of_the_reference_library(name):
    file = tokenizers_at_hand.tokenizer(name)
    lines, wanted = [], []
    for vector in tokenizers_at_hand.vectors(name)["vectors"]:
        lines.append({"text": vector["text"]})
        wanted.append(vector["ids"])
        if "ids_no_special" in vector:
            lines.append({"text": vector["text"], "add_special_tokens": False})
            wanted.append(vector["ids_no_special"])
    assert ids_of("--tokenizer", file, lines=lines) == wanted
    compare_with_reference(file, 1500)
