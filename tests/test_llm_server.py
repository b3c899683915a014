"""A real model behind whatever server OPENAI_BASE_URL names; opt-in, `make test-llm`. Prompts are short on purpose."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from haytham.agents.base import Task, call_agent
from haytham.agents.llm import estimate, open_agent
from haytham.agents.replay import Recorder
from haytham.config.agent_spec import AgentSpec
from haytham.engine.invoke import RunOptions
from haytham.errors import AgentError
from support.fake_agents import Desk

URL = os.environ.get("OPENAI_BASE_URL", "")
pytestmark = [pytest.mark.llm, pytest.mark.skipif(not URL, reason="OPENAI_BASE_URL names no server")]


@pytest.fixture(scope="module")
def model():
    """The first model that the server has."""
    request = Request(f"{URL.rstrip('/')}/models")  # noqa: S310 - an address that whoever runs this has named
    request.add_header("Authorization", f"Bearer {os.environ.get('OPENAI_API_KEY', '')}")
    with urlopen(request, timeout=20) as answer:  # noqa: S310 - the same
        return f"openai-chat:{json.load(answer)['data'][0]['id']}"


def asked(model, prompt, tell=None, **ours):
    """The reply of a model, asked as the runner asks it."""
    task = Task("a", "", 1, "One", 1, "an idea", prompt=prompt, on_text=tell)
    return asyncio.run(call_agent(open_agent(model), task, AgentSpec("a", timeout=120.0, **ours)))


def test_a_real_answer_is_streamed_and_counted(model):
    """Pieces come one by one and make the text; tokens are counted, and what they cost is unknown."""
    pieces = []
    try:
        reply = asked(model, "Count from one to ten.", pieces.append, max_output_tokens=40)
    except AgentError as cut:  # a small model goes on and on
        reply = cut
    assert "".join(pieces) == reply.text
    assert len(pieces) > 1
    assert 0 < reply.input_tokens <= estimate("openai-chat:x", "Count from one to ten.", 0).tokens
    assert 0 < reply.output_tokens <= 40
    assert reply.cost is None


def test_a_prompt_longer_than_the_context_is_told(model):
    """What does not fit is one sentence, and asking again is of no use."""
    with pytest.raises(AgentError, match="cannot take a prompt of this length") as caught:
        asked(model, "word " * 50_000, max_output_tokens=5)
    assert caught.value.retry is False


def test_a_server_that_dies_in_the_middle_is_told(model, monkeypatch):
    """One sentence, and what had come by then."""
    pieces = []
    with cutting() as (url, cut):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        with pytest.raises(AgentError, match=r"broke off in the middle of its answer, after \d+ characters") as caught:
            asked(model, "Write a long story.", lambda piece: (pieces.append(piece), cut()), max_output_tokens=400)
    assert caught.value.text == "".join(pieces)
    assert caught.value.text
    assert caught.value.input_tokens is None


@contextmanager
def cutting():
    """A way to the server that can be cut: its address, and what cuts it."""
    parts = urlsplit(URL)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        opened = []

        def cut():
            for one in opened:
                one.shutdown(socket.SHUT_RDWR)

        def carry(source, target):
            while data := source.recv(65536):
                target.sendall(data)

        def serve():
            here, _ = listening.accept()
            there = socket.create_connection((parts.hostname, parts.port or 80))
            opened.extend([here, there])
            with here, there:
                sending = threading.Thread(target=carry, args=(here, there), daemon=True)
                sending.start()
                carry(there, here)
                sending.join()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}{parts.path}", cut
        thread.join()


def test_a_real_run_is_replayed_offline(model, tmp_path, monkeypatch):
    """A session that a real model answered, run again from its recording without a server: the same texts."""
    workflow = "name: one\nphases:\n  - {number: 1, name: One, slug: one, agents: [a]}\nmodes: {all: [1]}\n"
    text = f"---\nmodel: {model}\nhaytham: {{retries: 0, max_output_tokens: 60}}\n---\nSay hello.\n"
    files = {"agents/a.md": text.encode()}
    real, again = Desk(tmp_path / "real", workflow, files), Desk(tmp_path / "again", workflow, files)
    came = real.resume(options=RunOptions(backoff=0, recorder=Recorder(tmp_path / "kept")))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert again.resume(options=RunOptions(backoff=0, model=f"replay:{tmp_path / 'kept'}")) == came
    first, second = (desk.session.read().outputs(desk.phase(1))["a"].value.to_value() for desk in (real, again))
    for name in ("text", "status", "input_tokens", "output_tokens"):
        assert first[name] == second[name]
