"""Secrets are recognised by the names of variables, by their values and by their shape; prose stays as it is."""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haytham import CheckpointManager
from haytham.agents.base import Reply
from haytham.engine.invoke import RunOptions
from haytham.redact import environment_secrets, redact, redact_values
from support import hostile_inputs, paid_agents
from support.cli_runner import IDEA, haytham, session_folder, workflow
from support.fake_agents import AGENT_FILE, WORKFLOW, Desk

HUNTER = "hunter2-hunter2"
PEM = "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n"
LINES = [
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7",
    "VJTUt9Us8cKjMzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictGeurT8jNb",
]


# The environment.


@pytest.mark.parametrize(
    "name",
    [
        "DB_PASS",
        "GITHUB_PAT",
        "MY_API_KEY_PROD",
        "STRIPE_SK",
        "GOOGLE_CREDENTIALS",
        "NPM_AUTH",
        "AZURE_CONN",
        "OPENAI_API_KEY",
        "fake_token",
        "MY_SECRET",
        "AUTHORIZATION",
        "PGPASSWORD",
        "MYSQL_PWD",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "GH_TOKEN_2",
        "SENTRY_DSN",
        "SESSION_COOKIE",
        "apiKey",
        "OPENAIKEY",
        "PASSPHRASE",
    ],
)
def test_a_variable_is_a_secret_by_a_part_of_its_name(name):
    """Wherever the part stands that says it, the value of the variable is a secret."""
    assert environment_secrets({name: HUNTER}) == (HUNTER,)


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "HOME",
        "TERM",
        "MAX_TOKENS",
        "AUTH_METHOD",
        "KEYBOARD",
        "PUBLIC_KEY",
        "COMPASS",
        "PATTERN",
        "SKIN",
        "AUTHOR",
    ],
)
def test_a_variable_without_such_a_part_is_none(name):
    """A part is a whole word: what merely begins like one, or is a setting, is not hidden."""
    assert environment_secrets({name: HUNTER}) == ()


def test_a_value_is_hidden_only_if_it_is_long_and_no_path(tmp_path, monkeypatch):
    """Seven characters are a word that stands everywhere; a path is what who reads an error needs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "mine").touch()
    seen = ["1234567", "", " " * 9, "/run/secrets/db_password", "~/.ssh/id_ed25519", "./keys/none.pem", "keys/mine"]
    seen += ["C:\\keys\\mine.pem", str(tmp_path), "/usr/bin:/usr/local/bin"]
    hidden = ["12345678", "/tG7hJ9kLmN2pQrStUvW/x", "swordfish", "a/b+c/d==", "pass word"]
    for value in seen:
        assert environment_secrets({"DB_PASS": value}) == (), value
    for value in hidden:
        assert environment_secrets({"DB_PASS": value}) == (value,), value


def test_a_password_in_an_address_is_a_secret_whatever_the_name():
    """DATABASE_URL and its kind: the whole address, and the password as it is written and as it is meant."""
    url = "postgres://ann:hunter2%2Fhunter2@db.example/app"
    assert set(environment_secrets({"DATABASE_URL": url})) == {url, "hunter2/hunter2", "hunter2%2Fhunter2"}
    for harmless in ("https://example.org/a@b", "https://ann@example.org", "ssh://git@github.com", "http://[bad"):
        assert environment_secrets({"DATABASE_URL": harmless}) == ()


def test_the_secret_parts_of_a_value_are_secrets_too():
    """The key within a connection string, within JSON and the lines of a key are known by themselves."""
    connection = f"DefaultEndpointsProtocol=https;AccountName=mine;AccountKey={'k3Y/' * 6}==;EndpointSuffix=core"
    assert environment_secrets({"AZURE_CONN": connection}) == (connection, f"{'k3Y/' * 6}==")
    key = PEM.format("\n".join(LINES))
    account = json.dumps({"type": "service_account", "project_id": "gardens-of-lyon", "private_key": key})
    assert set(environment_secrets({"GOOGLE_CREDENTIALS": account})) == {account, key, *LINES}
    assert set(LINES) < set(environment_secrets({"SIGNING_KEY": key}))


@pytest.mark.parametrize("value", [HUNTER, 'p/ä"ss w+rd=', "öffentlich-nicht", PEM.format(LINES[0])])
def test_a_known_value_is_found_however_it_is_written(value):
    """As it is, in JSON, in an address and in base 64; how many places there were is counted."""
    written = [value, json.dumps(value), json.dumps(value, ensure_ascii=False), quote(value, safe="")]
    written += [base64.b64encode(value.encode()).decode()]
    text, places = redact_values(f"\n{' | '.join(written)}\n", [value])
    assert (places, value in text, json.dumps(value)[1:-1] in text) == (5, False, False)
    assert redact_values("Nothing of the kind.", [value, "short", ""]) == ("Nothing of the kind.", 0)


# Shapes.

TOKENS = [
    "sk-proj-abcdEFGH1234ijkl5678",
    "sk_live_51HxYzAbCdEf",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "github_pat_11ABCDEFG0abcdefghijkl",
    "glpat-ABCdef1234567890abcd",
    "npm_abcdefghij0123456789ABCDEFGHIJ012345",
    "xoxb-123456789012-abcdefGHIJKL",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA1234567890abcdefgh",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def",
]


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("around", ["{}", "wrong: {}!", "('{}')", "\n{}\n", "a={}&b", '"{}"'])
def test_a_known_kind_of_token_is_hidden_wherever_it_stands(token, around):
    """Tokens of well-known services are told by their shape."""
    assert token not in redact(around.format(token))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (PEM.format("\n".join(LINES)), PEM.replace("\n{}", "***", 1)),
        (f"key '{PEM.format(LINES[0])!r}'", "key ''-----BEGIN PRIVATE KEY-----***\\n-----END PRIVATE KEY-----\\n''"),
        (f"-----BEGIN RSA PRIVATE KEY-----\n{LINES[0]}\n{LINES[1][:30]}", "-----BEGIN RSA PRIVATE KEY-----***"),
        ("AccountName=a;AccountKey=abc+/def==;EndpointSuffix=b", "AccountName=a;AccountKey=***;EndpointSuffix=b"),
        ("SharedAccessKeyName=root;SharedAccessKey=abc=", "SharedAccessKeyName=root;SharedAccessKey=***"),
        ("cannot reach postgres://ann:pa@ss@db/app", "cannot reach postgres://***@db/app"),
        ("redis://:swordfish@cache:6379/0", "redis://***@cache:6379/0"),
        ("https://0123456789abcdef0123@sentry.io/1", "https://***@sentry.io/1"),
        ("DB_PASS=swordfish STRIPE_SK=abcd", "DB_PASS=*** STRIPE_SK=***"),
        ("DB_PASS: swordfish\nGITHUB_PAT: 'x y z'", "DB_PASS: ***\nGITHUB_PAT: 'x y z'"),
        ("password: swordfish\nuser: ann", "password: ***\nuser: ann"),
        ('{"password": "swordfish", "apiKey": "abcdef"}', '{"password": "***", "apiKey": "***"}'),
        (r"{\"client_secret\": \"abcdef\"}", r"{\"client_secret\": \"***\"}"),
        ("Server=db;User=ann;Password=swordfish;", "Server=db;User=ann;Password=***;"),
        ("mysql --password=swordfish -u ann", "mysql --password=*** -u ann"),
        ("Cookie: id=1; session=abcdef", "Cookie: ***"),
        ("Authorization: Bearer abcdefghijklmnopqrstuv", "Authorization: ***"),
        ("https://h/x?sv=1&sig=abc%3D", "https://h/x?sv=1&sig=***"),
    ],
)
def test_a_secret_is_hidden_and_what_is_around_it_stays(text, shown):
    """The value goes; its name, and what tells a reader where to look, stay."""
    assert redact(text) == shown
    assert redact(shown) == shown


# Prose.

PROSE = """the a basic idea of bearer bonds is that key partners pass a token of trust and no secret connection to an
author with credentials makes cookies better than password managers authorization Basic research Bearer Token Key
Password Secret Authorization gardens rain barrels 14,000 2024-2025 10:30 3:1 $5.20 95% e-mail sk-learn risk-averse
https://example.org/a/b?page=2#top http://localhost:8000/@ann ann@example.org #1 (see) "quoted" 'single' a/b read/write
primary-key pass-rate: tokens: 123456789 auth. Zürich naïve 北京 — … **bold** `code` [link](https://example.org) | :---|
task_force hf_hub gh_cli eyJ AKIA PRIVATE -----BEGIN ISO-27001-certified"""
prose = st.lists(st.lists(st.sampled_from(PROSE.split()), min_size=1, max_size=12).map(" ".join), max_size=6).map(
    lambda lines: "".join(f"{line}.\n" for line in lines)
)
definitions = st.tuples(st.sampled_from(["Key", "Secret", "Token", "The key", "Pass", "Auth"]), prose).map(
    lambda pair: f"{pair[0]}: {pair[1].lstrip(chr(34) + chr(39))}"
)


@given(prose | definitions)
def test_ordinary_prose_is_unchanged(text):
    """Sentences that speak of keys, tokens and passwords hold none, and read as they were."""
    assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "Password: required",
        "password: must be at least eight characters",
        "Authorization: the person must be an adult",
        "Authorization: Basic users may read",
        "password = getpass()",
        "token = tokens[0]",
        "db.connect(key=lambda row: row[0], primary_key=True, foreign_key=customers)",
        "api_key=os.environ['OPENAI_API_KEY']",
        "max_tokens: 200000000, pass_rate: 0.95123456",
        "-----BEGIN PRIVATE KEY----- is how a private key begins, in a line of its own",
        "ssh://git@github.com/ann/barrels.git",
        "| Key partners | Pass rate: 95% |\n|:---|:---|",
    ],
)
def test_code_and_specifications_are_unchanged(text):
    """What a program or a specification says of secrets is none."""
    assert redact(text) == text


@given(hostile_inputs.texts)
def test_masking_twice_is_masking_once(text):
    """What was masked holds no more secrets, whatever it was."""
    assert redact(redact(text)) == redact(text)


ODD = [
    "key=",
    "password=a1 ",
    "password: ",
    "eyJ-",
    "eyJaaaaaaaa.",
    "sk-a.",
    "sk-1",
    "://",
    "a://b:",
    "://a@",
    "=a",
    ":a:",
]
ODD += [
    "Bearer a",
    "basic aB1",
    "authorization: digest x ",
    "-----BEGIN PRIVATE KEY-----\n",
    "A" * 20 + "\n",
    "a.b-",
    "  ",
]


@pytest.mark.parametrize("part", ODD)
def test_no_text_makes_masking_slow(part):
    """A million characters take seconds at the very most, whatever they are; quadratic work would take an hour."""
    begun = time.monotonic()
    redact(part * (1_000_000 // len(part)), [HUNTER])
    assert time.monotonic() - begun < 40


# At work.

HORSE = {"DB_PASS": "horse-battery"}

FAILING = "command:sh -c 'cat > /dev/null; echo wrong login {0} >&2; echo as {0} I cannot; exit 3'"
TELLING = "command:sh -c 'cat > /dev/null; echo The password of the garden is {0}, and {0} again.'"


def everything(folder, answer):
    """All that a command printed, and all bytes that it left behind."""
    left = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return (answer.out + answer.err).encode() + b"\n".join(left)


@pytest.mark.parametrize(
    "name", ["DB_PASS", "GITHUB_PAT", "MY_API_KEY_PROD", "STRIPE_SK", "GOOGLE_CREDENTIALS", "NPM_AUTH", "AZURE_CONN"]
)
def test_a_failing_agent_tells_no_secret(tmp_path, name):
    """What it said on standard error and wrote before it failed is printed and stored without the secret."""
    workflow(tmp_path, ["one"], model=json.dumps(FAILING.format(f"${name}")))
    answer = haytham("run", IDEA, "--workflow", "mine", "--record", "said", cwd=tmp_path, **{name: "horse-battery"})
    assert (answer.code, "wrong login ***" in answer.out) == (1, True), answer
    assert b"horse-battery" not in everything(tmp_path, answer)


def test_a_reply_with_a_secret_is_stored_redacted_and_the_gate_says_so(tmp_path):
    """The value is stored as ***, in the recording too; the run, the status and the files say that it was there."""
    workflow(tmp_path, ["one", "two"], model=json.dumps(TELLING.format("$DB_PASS")))
    words = ("run", IDEA, "--workflow", "mine", "--record", "said")
    answer = haytham(*words, cwd=tmp_path, **HORSE)
    assert answer.code == 3, answer
    said = "one: the value of a secret of your environment stood in 2 places of its reply, and is stored as ***"
    assert f"haytham: {said}\n" in answer.err
    assert b"horse-battery" not in everything(tmp_path, answer)
    (output,) = session_folder(tmp_path).glob("phase_1_one/one.md")
    assert "The password of the garden is ***, and *** again.\n" in output.read_text(encoding="utf-8")
    assert haytham("validate", cwd=tmp_path).code == 0
    assert [row["redacted"] for row in haytham("status", "--json", cwd=tmp_path).json["phases"]] == [["one"], []]
    assert "waits for review; secrets in one are stored as ***\n" in haytham("status", cwd=tmp_path).out
    events = (session_folder(tmp_path) / "events.jsonl").read_text(encoding="utf-8")
    assert '"event": "reply_redacted", "phase": 1, "agent": "one", "places": 2' in events


def test_a_reply_without_a_secret_is_stored_as_it_came(tmp_path):
    """Only values of the environment are taken out of a reply: what merely looks like a secret stays."""
    workflow(tmp_path, ["one"], model=json.dumps(TELLING.format("sk-proj-abcdEFGH1234ijkl5678")))
    answer = haytham("run", IDEA, "--workflow", "mine", cwd=tmp_path, **HORSE, SHORT_KEY="garden")
    assert (answer.code, "secret" in answer.err) == (3, False), answer
    assert "sk-proj-abcdEFGH1234ijkl5678 again" in haytham("show", "1", "one", cwd=tmp_path).out
    assert "redacted" not in (session_folder(tmp_path) / "phase_1_one" / "one.md").read_text(encoding="utf-8")


def test_the_worksheet_repeats_what_a_person_wrote(tmp_path):
    """A page made of a person's own words is not changed, whatever values the environment has."""
    haytham("run", IDEA, cwd=tmp_path, SESSION_KEY="rain barrels")
    assert "rain barrels" in haytham("show", "1", cwd=tmp_path).out


@pytest.mark.parametrize(
    "part", [{"text": HUNTER}, {"state": {"memory": {"session": {HUNTER: 1}}}}, {"tools_used": (f"curl {HUNTER}",)}]
)
def test_every_part_of_a_reply_is_redacted(tmp_path, part):
    """Text, state and tools: whatever of a reply is stored is stored without the value."""
    paid_agents.ANSWERS[:] = [Reply(**{"text": "Fine.", **part})]
    agent = AGENT_FILE.replace("support.fake_agents:write", "support.paid_agents:given")
    desk = Desk(tmp_path, WORKFLOW, {"agents/a.md": agent.encode()})
    assert desk.resume(options=RunOptions(backoff=0, secrets=(HUNTER,))) == ("waiting", 1)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and HUNTER.encode() in path.read_bytes()] == []
    assert desk.session.read().output(desk.phase(1), "a").value.redacted == 1


def test_a_program_that_saves_an_output_has_it_stored_byte_for_byte(tmp_path, monkeypatch):
    """CheckpointManager changes nothing, whatever the text holds and the environment has."""
    monkeypatch.setenv("DB_PASS", HUNTER)
    text = f"{HUNTER} sk-proj-abcdEFGH1234ijkl5678 DB_PASS={HUNTER}\r\n{PEM}"
    manager = CheckpointManager(tmp_path)
    manager.create_session("p", "s", "u")
    manager.save_agent_output("p", "s", 1, "concept_expansion", text, error_message=text)
    assert manager.get_phase_outputs("p", "s", [1]) == {1: {"concept_expansion": text}}
