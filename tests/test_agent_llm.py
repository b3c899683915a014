"""Language models: what they are asked and answer, what a person is told where they do not; no network but our own."""

from __future__ import annotations

import asyncio
import gc
import json
import pickle
import subprocess
import sys
import threading
import time
import traceback
import warnings
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haytham.agents.base import Task
from haytham.agents.llm import build_agent, estimate, open_agent, price_of
from haytham.agents.llm_errors import CallTarget, explain
from haytham.agents.registry import load_agent
from haytham.config.agent_spec import AgentSpec
from haytham.errors import AgentError, InvalidArgument
from haytham.redact import redact, strip_url_credentials
from haytham.usage import Usage
from support.cli_runner import IDEA, environment
from support.fake_agents import Desk

SECRET = "sk-FAKE-SECRET-123456"  # noqa: S105 - nobody's
PASSWORD = "correct-horse-battery"  # noqa: S105 - nobody's
MODEL = "openai-chat:gpt-4o"  # a model with a price, and a server that is not its provider's


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    """No test may reach a provider; keys in this environment are nobody's business."""
    from pydantic_ai import models

    monkeypatch.setattr(models, "ALLOW_MODEL_REQUESTS", False)
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def task(prompt="Say hello.", tell=None):
    return Task("a", "", 1, "One", 1, IDEA, prompt=prompt, on_text=tell)


def ask(agent, prompt="Say hello.", tell=None, **ours):
    """The reply of an agent, asked as the runner asks it."""
    return asyncio.run(agent(task(prompt, tell), AgentSpec("a", **ours)))


def failing(agent, **ours):
    """How an agent fails."""
    with pytest.raises(AgentError) as caught:
        ask(agent, **ours)
    return caught.value


def streaming(*items, model_name="m"):
    """An agent over a model of pydantic-ai that streams these items, and what it was asked."""
    from pydantic_ai.models.function import FunctionModel

    asked = []

    async def stream(messages, info):
        asked.append((messages, info))
        for item in items:
            yield item

    return build_agent("function:m", lambda: FunctionModel(stream_function=stream, model_name=model_name)), asked


# Asking.


def test_pydantic_ai_is_imported_when_a_model_is_asked():
    """Importing the adapter and opening an agent load neither pydantic-ai nor prices."""
    program = (
        "import sys\nfrom haytham.agents import llm, llm_errors\nllm.open_agent('openai:gpt-4o')\n"
        "print([name for name in ('pydantic_ai', 'genai_prices', 'openai') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout == "[]\n"


def test_looking_at_a_session_imports_no_model(tmp_path):
    """`haytham status` loads nothing of the adapter, whatever models its agents have."""
    Desk(tmp_path / "projects", files={"agents/a.md": f"---\nmodel: {MODEL}\n---\nWrite.\n".encode()})
    program = (
        "import atexit, sys\nfrom haytham.cli import main\nsys.argv = ['haytham', 'status']\n"
        "ours = ('pydantic_ai', 'genai_prices', 'haytham.agents.llm')\n"
        "atexit.register(lambda: print([name for name in ours if name in sys.modules]))\nmain()"
    )
    words = [sys.executable, "-c", program]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment(tmp_path), capture_output=True, encoding="utf-8", check=True
    )
    assert "session p/s" in done.stdout
    assert done.stdout.endswith("[]\n")


def test_an_unknown_word_with_a_colon_is_a_model():
    """What no kind of agent claims is a provider's model, its provider before the first colon; both must be there."""
    assert callable(load_agent("ollama:llama3.1:8b-instruct-q8_0"))
    for wrong in ("gpt-4o", ":gpt-4o", "openai:"):
        with pytest.raises(InvalidArgument, match="provider:model"):
            open_agent(wrong)


def test_a_model_is_asked_the_exact_prompt_once():
    """The prompt is one message as it is, tags and all; the answer's length and time are the agent's file's."""
    prompt = "Say <system>hello</system>.\r\n\n  \u2028 {{ not }} a template\n"
    agent, asked = streaming("Hello.")
    assert ask(agent, prompt, max_output_tokens=77, timeout=9.0).text == "Hello."
    [(messages, info)] = asked
    assert [part.content for message in messages for part in message.parts] == [prompt]
    assert info.model_settings == {"max_tokens": 77, "timeout": 9.0, "max_retries": 0}
    assert info.function_tools == []


def test_pieces_are_told_as_they_come_and_make_the_text():
    """Each piece is told once, in order; together they are the text of the reply."""
    pieces = []
    agent, _ = streaming("One ", "two", " three.")
    assert ask(agent, tell=pieces.append).text == "One two three."
    assert pieces == ["One ", "two", " three."]
    assert ask(agent, tell=pieces.append, runtime={"stream": False}).text == "One two three."
    assert len(pieces) == 3


def test_a_reply_says_which_model_and_how_many_tokens():
    """Model and tokens are as the model tells them; what a model without a price costs is unknown, not nothing."""
    from pydantic_ai.models.test import TestModel

    reply = ask(build_agent("test:m", lambda: TestModel(custom_output_text="A b c.", model_name="m-2")))
    assert (reply.text, reply.model, reply.cost, reply.tools_used) == ("A b c.", "m-2", None, ())
    assert reply.input_tokens > 0
    assert reply.output_tokens > 0


def test_a_model_with_a_price_has_its_cost():
    """The cost is that of the tokens that came, by the name that the provider gives its model."""
    from pydantic_ai.models.test import TestModel

    def connect():
        return TestModel(custom_output_text="A b c.", model_name="gpt-4o-2024-08-06")

    reply = ask(build_agent("openai:an-alias", connect))
    assert reply.cost == pytest.approx(price_of("openai:gpt-4o", reply.input_tokens, reply.output_tokens))
    assert reply.cost > 0


def test_a_model_without_a_name_is_called_as_it_was_asked_for():
    """Where a provider gives no name that fits one line, the reply has the one of the agent's file."""
    agent, _ = streaming("Hello.", model_name="a\nb")
    assert ask(agent).model == "function:m"


def test_tools_of_the_provider_are_told_and_begin_a_paragraph():
    """A search that the provider made is among the tools used; thoughts and searches are no text."""
    from pydantic_ai.messages import NativeToolCallPart, NativeToolReturnPart
    from pydantic_ai.models.function import DeltaThinkingPart

    call = NativeToolCallPart("web_search", {"query": "rain"}, tool_call_id="1")
    found = NativeToolReturnPart("web_search", "wet", tool_call_id="1")
    pieces = []
    agent, asked = streaming(
        {0: DeltaThinkingPart(content="Hm.")}, "I look it up.", {1: call}, {2: found}, {3: call}, "", "It rains."
    )
    reply = ask(agent, tell=pieces.append, tools=("WebSearch", "Read", "Bash(ls:*)"))
    assert reply.tools_used == ("web_search",)
    assert reply.text == "".join(pieces)
    assert "Hm." not in reply.text
    [given] = asked[0][1].model_request_parameters.native_tools
    assert given.kind == "web_search"


def test_tools_of_other_programs_are_left_alone():
    """Names of tools that an agent's file has for other programs are given to nobody, and are no fault."""
    agent, asked = streaming("Hello.")
    assert ask(agent, tools=("Read", "Grep", "mcp__x__y")).tools_used == ()
    parameters = asked[0][1].model_request_parameters
    assert (parameters.native_tools, parameters.function_tools) == ([], [])


def test_a_model_without_web_search_says_so(monkeypatch):
    """An agent that is to search the web fails at once where its model cannot, and says what to do."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    error = failing(open_agent("openai-chat:gpt-4o"), tools=("web_search",))
    assert str(error) == (
        "openai-chat:gpt-4o has no web search of its own; "
        "take web_search off the agent's tools, or name a model that has it"
    )
    assert (error.retry, error.input_tokens, error.cost) == (False, 0, 0.0)


def test_halves_of_a_character_are_put_together():
    """A character that comes in two halves is whole in the text; a half alone is shown as a replacement."""
    agent, _ = streaming("Smile \ud83d", "\ude00 and \ud83d.")
    pieces = []
    assert ask(agent, tell=pieces.append).text == "Smile \U0001f600 and \ufffd."
    assert "".join(pieces).encode()


def test_an_error_of_who_is_told_is_not_the_models():
    """What fails while a piece is shown is passed on as it is."""

    def broken(piece):
        raise BrokenPipeError(piece)

    agent, _ = streaming("One ", "two.")
    with pytest.raises(BrokenPipeError, match="One"):
        ask(agent, tell=broken)


# Answers that are none.


def test_no_text_is_no_answer():
    """An answer without text fails, and what it took is known."""
    from pydantic_ai.models.test import TestModel

    error = failing(build_agent("test:m", lambda: TestModel(custom_output_text="  ")))
    assert str(error) == "test:m answered with an empty text; run it again, or name another model"
    assert error.retry
    assert error.input_tokens is not None


def test_a_call_of_a_tool_it_does_not_have_is_no_answer():
    """A model that only asks for tools it was not given fails with their names."""
    from pydantic_ai.models.function import DeltaToolCall

    agent, _ = streaming({0: DeltaToolCall(name="Read", json_args="{}", tool_call_id="1")})
    assert "asked for tools that it was not given (Read)" in str(failing(agent))


# A server of our own, which speaks as OpenAI does.


class Server(ThreadingHTTPServer):
    """Answers every request with one function, and remembers what it was sent."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.bodies, self.over = answer, [], threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.server.answer(self)
        self.close_connection = True

    def log_message(self, *words):
        """Say nothing."""

    def begin(self, status=200, kind="text/event-stream", **headers):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def send(self, **chunk):
        """Send a chunk of an answer, in the frame that HTTP has for them."""
        shown = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o", "choices": [], **chunk}
        data = f"data: {json.dumps(shown)}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) if self.chunked else data)
        self.wfile.flush()

    chunked = False

    def say(self, *pieces, end="stop", usage=None):
        """Send an answer: its pieces, how it ended, and what it took."""
        for piece in pieces:
            self.send(choices=[{"index": 0, "delta": {"content": piece}, "finish_reason": None}])
        if end:
            self.send(choices=[{"index": 0, "delta": {}, "finish_reason": end}])
        if usage:
            self.send(usage=dict(zip(("prompt_tokens", "completion_tokens", "total_tokens"), usage, strict=True)))

    def refuse(self, status, words="", **facts):
        """Refuse, and echo every header that came: some providers do just that."""
        echo = f"{words} key {SECRET} headers {dict(self.headers)}"
        data = json.dumps({"error": {"message": echo, "type": "x", "code": None, **facts}}).encode()
        self.begin(status, "application/json", Content_Length=str(len(data)), Retry_After="7")
        self.wfile.write(data)


@contextmanager
def serving(answer, monkeypatch, key=SECRET, login=""):
    """A server that answers like this, and an environment that names it and holds a key."""
    from pydantic_ai.models import (
        openai,  # noqa: F401 - a second that no time-out of a test shall count
        override_allow_model_requests,
    )

    server = Server(answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("OPENAI_BASE_URL", server.url.replace("://", f"://{login}"))
    monkeypatch.setenv("OPENAI_API_KEY", key)
    try:
        with override_allow_model_requests(True):
            yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
        with warnings.catch_warnings():  # a provider's package keeps its connection beyond the loop it was made in
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def hello(handler):
    handler.begin()
    handler.say("Hel", "lo.", usage=(11, 3, 14))


def test_a_server_of_ones_own_is_asked_over_the_wire(monkeypatch):
    """Through the provider's own package: the prompt, the longest answer, a stream; tokens are as the server says.

    What a server of one's own costs is unknown, however its model is called.
    """
    prompt = "Say <system>hello</system>.\n"
    pieces = []
    with serving(hello, monkeypatch) as server:
        reply = ask(open_agent(MODEL), prompt, pieces.append, max_output_tokens=77)
    assert (reply.text, reply.model, reply.input_tokens, reply.output_tokens) == ("Hello.", "gpt-4o", 11, 3)
    assert reply.cost is None
    assert pieces == ["Hel", "lo."]
    [body] = server.bodies
    assert body["messages"] == [{"role": "user", "content": prompt}]
    assert (body["model"], body["stream"], body["max_completion_tokens"]) == ("gpt-4o", True, 77)


def test_a_server_that_counts_nothing_leaves_the_tokens_unknown(monkeypatch):
    """Without usage there are no tokens, rather than none."""

    def answer(handler):
        handler.begin()
        handler.say("Hello.")

    with serving(answer, monkeypatch):
        reply = ask(open_agent(MODEL))
    assert (reply.text, reply.input_tokens, reply.output_tokens, reply.cost) == ("Hello.", None, None, None)


def anthropic(*blocks, end="end_turn", over=True):
    """An answer in the manner of Anthropic: text and searches, why it ends, and that it is over."""

    def answer(handler):
        usage = {"input_tokens": 11, "output_tokens": 3}
        shown = {"id": "m", "type": "message", "role": "assistant", "model": "claude-x", "content": []}
        events = [{"type": "message_start", "message": {**shown, "usage": usage}}]
        for index, block in enumerate(blocks):
            events.append({"type": "content_block_start", "index": index, "content_block": block})
            events.append({"type": "content_block_stop", "index": index})
        if over:
            events.append({"type": "message_delta", "delta": {"stop_reason": end}, "usage": usage})
            events.append({"type": "message_stop"})
        handler.begin(Connection="close")
        for event in events:
            handler.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    return answer


SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "rain"}}


def test_a_provider_that_pauses_is_asked_to_go_on(monkeypatch):
    """A long search may pause: the answer goes on with the next request, and both are counted."""
    first = anthropic({"type": "text", "text": "I look it up."}, SEARCH, end="pause_turn")
    then = anthropic({"type": "text", "text": "It rains."})

    def answer(handler):
        (first if len(server.bodies) == 1 else then)(handler)

    with serving(answer, monkeypatch) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url.removesuffix("/v1"))
        monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
        reply = ask(open_agent("anthropic:claude-x"), tools=("web_search",))
    assert (reply.text, reply.model, reply.tools_used) == ("I look it up.\n\nIt rains.", "claude-x", ("web_search",))
    assert (reply.input_tokens, reply.output_tokens, reply.cost) == (22, 6, None)
    assert [message["role"] for message in server.bodies[1]["messages"]] == ["user", "assistant"]
    assert server.bodies[0]["tools"][0]["name"] == "web_search"


def test_an_answer_of_another_provider_breaks_off_too(monkeypatch):
    """Where no end is told the answer is not whole, and of what was counted by then nobody knows whether it is all."""
    with serving(anthropic({"type": "text", "text": "Hello"}, over=False), monkeypatch) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url.removesuffix("/v1"))
        monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
        error = failing(open_agent("anthropic:claude-x"))
    assert "broke off in the middle of its answer, after 5 characters" in str(error)
    assert (error.text, error.input_tokens) == ("Hello", None)


def llama(text, output_tokens):
    """An answer in the manner of llama.cpp's responses API, which is "completed" however it ended."""

    def answer(handler):
        said = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
        item = {"type": "message", "status": "completed", "id": "m", "role": "assistant", "content": [said]}
        usage = {"input_tokens": 35, "output_tokens": output_tokens, "total_tokens": 35 + output_tokens}
        usage["input_tokens_details"] = {"cached_tokens": 0}
        begun = {"id": "r", "object": "response", "status": "in_progress"}
        whole = {**begun, "status": "completed", "created_at": 1, "model": "smol", "output": [item], "usage": usage}
        events = [
            {"type": "response.created", "response": begun},
            {"type": "response.output_item.added", "item": {**item, "status": "in_progress", "content": []}},
            {"type": "response.content_part.added", "item_id": "m", "part": {"type": "output_text", "text": ""}},
            *({"type": "response.output_text.delta", "item_id": "m", "delta": word} for word in text.split("|")),
            {"type": "response.output_item.done", "item": item},
            {"type": "response.completed", "response": whole},
        ]
        handler.begin(Connection="close")
        for event in events:
            handler.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    return answer


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Once upon| a time", "was cut off at its 8 output tokens"),
        ("", "used up its 8 output tokens before it wrote any text"),
    ],
)
def test_an_answer_as_long_as_it_may_be_is_cut_off_whatever_its_server_says(text, said, monkeypatch):
    """Where output tokens are just those allowed the answer was stopped there, although it is called completed."""
    with serving(llama(text, 8), monkeypatch):
        error = failing(open_agent("openai:gpt-4o"), max_output_tokens=8)
    assert said in str(error)
    assert (error.text, error.cut_off, error.output_tokens) == (text.replace("|", ""), bool(text), 8)


@pytest.mark.parametrize("tokens", [7, 9])
def test_an_answer_that_ends_elsewhere_than_at_its_limit_is_whole(tokens, monkeypatch):
    """A shorter answer is whole, and so is one of a server that does not keep the limit."""
    with serving(llama("Once upon| a time", tokens), monkeypatch):
        reply = ask(open_agent("openai:gpt-4o"), max_output_tokens=8)
    assert (reply.text, reply.output_tokens) == ("Once upon a time", tokens)


def reaching(status, words="", **facts):
    """An answer that refuses."""
    return lambda handler: handler.refuse(status, words, **facts)


def cut(handler):
    """The server dies in the middle of its answer."""
    handler.chunked = True
    handler.begin(Transfer_Encoding="chunked")
    handler.say("Hel", "lo", end=None)


def closed(handler):
    """The connection closes in good order, and the answer has no end."""
    handler.begin(Connection="close")
    handler.say("Hel", "lo", end=None)


def stuck(handler):
    """The answer begins and never ends."""
    handler.begin()
    handler.say("Hel", "lo", end=None)
    handler.server.over.wait(20)


def ending(*pieces, **how):
    def answer(handler):
        handler.begin()
        handler.say(*pieces, usage=(11, 3, 14), **how)

    return answer


def declining(handler):
    handler.begin()
    handler.send(choices=[{"index": 0, "delta": {"refusal": f"Not that, {SECRET}."}, "finish_reason": None}])
    handler.say(usage=(11, 3, 14))


def mid_error(handler):
    """An error within a stream that had begun well."""
    handler.begin()
    handler.say("Hel", end=None)
    handler.wfile.write(f'data: {{"error": {{"message": "out of memory {SECRET}", "code": 500}}}}\n\n'.encode())


def no_answer(handler):
    """The server hangs up without a word."""


def nonsense(handler):
    handler.begin(kind="text/html")
    handler.wfile.write(f"<html>{SECRET}</html>".encode())


RETRY, NO = True, False
FREE, UNKNOWN, PAID = (0, 0, 0.0), (None, None, None), (11, 3, None)
LATER, NAME = "wait 7 s, then run it again", "or name another model"
FULL = "cannot take a prompt of this length"
REFUSALS = {
    "a refused key": (
        reaching(401), ["refused the key (HTTP 401)", "check the key in your environment"], NO, FREE, "",
    ),
    "a key without rights": (reaching(403), ["refused the key (HTTP 403)", "it may use this model"], NO, FREE, ""),
    "an unknown model": (reaching(404), ["is not known at {url} (HTTP 404)", "check the name"], NO, FREE, ""),
    "a rate limit": (reaching(429), ["is at its rate limit (HTTP 429)", LATER], RETRY, FREE, ""),
    "an empty account": (
        reaching(429, code="insufficient_quota"), ["has used up the credit", "top it up", NAME], NO, FREE, "",
    ),
    "a full context": (
        reaching(400, "The maximum context length is 8 tokens.", code="context_length_exceeded"),
        [FULL, "(The maximum context length is 8 tokens.", "a model with a larger context"], NO, FREE, "",
    ),
    "a full context in other words": (
        reaching(400, "request (9 tokens) exceeds the available context size (8 tokens)"),
        [f"{FULL} (request (9 tokens) exceeds", "shorten what it builds on"], NO, FREE, "",
    ),
    "a prompt too large": (reaching(413), [FULL, "shorten what it builds on"], NO, FREE, ""),
    "a refused request": (
        reaching(400, "no such field"), ["refused the request (HTTP 400) (no such field", NAME], NO, FREE, "",
    ),
    "a broken server": (reaching(500, "oops"), ["failed at {url} (HTTP 500) (oops", NAME], RETRY, UNKNOWN, ""),
    "an overloaded server": (reaching(503), ["is overloaded or down (HTTP 503)", LATER], RETRY, UNKNOWN, ""),
    "a dead server": (
        cut, ["broke off in the middle of its answer, after 5 characters; run it again"], RETRY, UNKNOWN, "Hello",
    ),
    "an answer without an end": (closed, ["broke off", "after 5 characters"], RETRY, UNKNOWN, "Hello"),
    "an error in the middle": (mid_error, ["failed at {url} (HTTP 500)", "out of memory"], RETRY, UNKNOWN, "Hel"),
    "a server that hangs up": (no_answer, ["lost the connection to {url}", "run it again"], RETRY, UNKNOWN, ""),
    "nonsense": (nonsense, ["run it again"], RETRY, UNKNOWN, ""),
    "an answer too late": (stuck, ["did not finish within 3 s; raise `timeout`"], RETRY, UNKNOWN, "Hello"),
    "no text": (ending(), ["answered with an empty text", NAME], RETRY, PAID, ""),
    "only thoughts": (
        ending(end="length"), ["used up its 4000 output tokens", "raise `max_output_tokens`"], NO, PAID, "",
    ),
    "an answer cut off": (
        ending("Hel", end="length"), ["was cut off at its 4000 output tokens", "write less"], NO, PAID, "Hel",
    ),
    "a filter": (
        ending("Hel", end="content_filter"), ["declined to answer (content_filter)", "reword"], RETRY, PAID, "Hel",
    ),
    "a refusal": (declining, ["declined to answer (Not that, ***)", NAME], RETRY, PAID, ""),
}  # fmt: skip


def everything(error):
    """All that anybody could store of an error."""
    parts = [str(error), repr(error), repr(vars(error)), *traceback.format_exception(error)]
    return "\n".join([*parts, repr(error.__cause__), repr(error.__context__), repr(pickle.dumps(error))])


@pytest.mark.parametrize("name", REFUSALS)
def test_each_refusal_is_one_sentence_that_says_what_to_do(name, monkeypatch):
    """Whatever a server does: one sentence with what to do next, what came and what it took; and never a secret."""
    answer, said, retry, paid, text = REFUSALS[name]
    with serving(answer, monkeypatch, login=f"ann:{PASSWORD}@") as server:
        error = failing(open_agent(MODEL), timeout=3.0 if answer is stuck else 20.0)
    for words in said:
        assert words.format(url=server.url) in str(error)
    assert "\n" not in str(error)
    assert len(str(error)) < 500
    assert str(error).startswith(MODEL)
    assert (error.retry, error.text) == (retry, text)
    assert (error.input_tokens, error.output_tokens, error.cost) == paid
    assert SECRET not in everything(error)
    assert PASSWORD not in everything(error)
    assert "FAKE" not in everything(error)
    assert len(server.bodies) == 1, "a call is one request: who asks decides whether to ask again"


def test_a_header_with_a_secret_stays_secret(monkeypatch):
    """What a connection adds to its requests is not told, whatever it looks like."""
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def connect():
        client = AsyncOpenAI(default_headers={"X-Tenant": "violet-otter-lamp"})
        return OpenAIChatModel("gpt-4o", provider=OpenAIProvider(openai_client=client))

    with serving(reaching(400, "odd"), monkeypatch, key="plain words, no digits"):
        error = failing(build_agent(MODEL, connect))
    assert "odd" in str(error)
    assert "violet" not in everything(error)
    assert "plain words" not in everything(error)


@pytest.mark.parametrize("key", ["violet-otter-lamp\n", "\u201cviolet-otter-lamp\u201d"])
def test_a_key_that_was_copied_badly_is_told(key, monkeypatch):
    """A line end or a quote that came along with a key is what the sentence is about, and the key is not in it."""
    with serving(hello, monkeypatch, key=key) as server:
        error = failing(open_agent(MODEL))
    assert str(error) == (
        f"{MODEL} has a key that no header can carry; take quotes, blanks and line ends off the key in your environment"
    )
    assert (error.retry, error.cost, server.bodies) == (False, 0.0, [])
    assert "violet" not in everything(error)


@pytest.mark.parametrize(
    ("url", "shown", "why"),
    [
        (f"http://ann:{PASSWORD}@127.0.0.1:9/v1?key={SECRET}", "http://127.0.0.1:9/v1", "Connection refused"),
        (f"http://ann:{PASSWORD}@no-such-host.invalid/v1", "http://no-such-host.invalid/v1", ""),
    ],
)
def test_a_server_that_is_not_there_is_named_without_who_logs_in(url, shown, why, monkeypatch):
    """Where nothing listens or no host has the name, the address is told, and no password in it."""
    from pydantic_ai.models import override_allow_model_requests

    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with override_allow_model_requests(True):
        error = failing(open_agent(MODEL))
    assert str(error).startswith(f"{MODEL} cannot be reached at {shown} (")
    assert str(error).endswith("; start the server, or check its address")
    assert why in str(error)
    assert (error.retry, error.cost) == (True, 0.0)
    assert not {SECRET, PASSWORD} & set(everything(error).split("'"))
    assert PASSWORD not in everything(error)


@pytest.mark.parametrize(
    ("model", "missing", "said"),
    [
        (MODEL, "pydantic_ai.models", "needs a package that is not installed; pip install 'haytham[llm]'"),
        (MODEL, "openai", "needs a package that is not installed; pip install 'pydantic-ai-slim[openai]'"),
        ("bedrock:m", "boto3", "needs a package that is not installed; pip install 'pydantic-ai-slim[bedrock]'"),
        (MODEL, None, "has no key to use; set OPENAI_API_KEY in your environment"),
        ("anthropic:claude-sonnet-4-5", None, "has no key to use; set ANTHROPIC_API_KEY in your environment"),
        ("opemai:gpt-4o", None, "has an unknown provider; did you mean openai:gpt-4o?"),
        ("nobody:m", None, "has an unknown provider; name one as in openai:… or ollama:…"),
    ],
)
def test_what_is_missing_is_named(model, missing, said, monkeypatch):
    """A package, a key or a provider that is not there is named, with what to do; asking again is of no use."""
    if missing:
        for name in [
            name for name in sys.modules if name.startswith(("pydantic_ai.models.", "pydantic_ai.providers."))
        ]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, missing, None)
    error = failing(open_agent(model))
    assert str(error) == f"{model} {said}"
    assert (error.retry, error.input_tokens, error.output_tokens, error.cost) == (False, 0, 0, 0.0)
    assert error.__cause__ is error.__context__ is None


def test_errors_of_packages_that_are_not_here_are_known_by_name():
    """Credentials and region of Bedrock are named; whatever else is raised is told in one line, without a secret."""
    called = CallTarget("bedrock:m", secrets=("violet-otter-lamp",))
    no_key = type("NoCredentialsError", (Exception,), {})("Unable to locate credentials")
    assert "set AWS_BEARER_TOKEN_BEDROCK" in str(explain(no_key, called))
    assert "set AWS_DEFAULT_REGION" in str(explain(type("NoRegionError", (Exception,), {})(), called))
    odd = RuntimeError(f"first violet-otter-lamp\nsecond {SECRET} {'x' * 999}")
    assert str(explain(odd, called)).startswith("bedrock:m failed (RuntimeError: first *** second *** xxx")
    assert len(str(explain(odd, called))) < 300


def test_a_call_that_is_stopped_stops(monkeypatch):
    """Cancelling a call in the middle ends it at once, and closes its connection."""

    async def stop():
        heard = asyncio.Event()
        running = asyncio.ensure_future(open_agent(MODEL)(task(tell=lambda piece: heard.set()), AgentSpec("a")))
        await heard.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    begun = time.monotonic()
    with serving(stuck, monkeypatch):
        asyncio.run(stop())
    assert time.monotonic() - begun < 15


# Secrets.


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"Incorrect API key provided: {SECRET}", "Incorrect API key provided: ***"),
        (f"Authorization: Bearer {SECRET}", "Authorization: ***"),
        (f"{{'authorization': 'Bearer {SECRET}', 'host': 'h'}}", "{'authorization': '***', 'host': 'h'}"),
        (r'"{\"Authorization\": \"Basic YW5uOnB3\"}"', r'"{\"Authorization\": \"***\"}"'),
        ("Proxy-Authorization: Digest username=ann", "Proxy-Authorization: ***"),
        ("got Bearer abcdefgh.ijkl", "got Bearer ***"),
        ("http://ann:pw@host/v1?key=abc&n=1", "http://***@host/v1?key=***&n=1"),
        ("https://h/v1?api_key=abc123&n=1", "https://h/v1?api_key=***&n=1"),
        ("x-api-key: 0123abcd", "x-api-key: ***"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7", "AWS_SECRET_ACCESS_KEY=***"),
        ("key=abcd1234efgh and token: abcd1234efgh", "key=*** and token: ***"),
        ("AKIAIOSFODNN7EXAMPLE AIzaSyA1234567890abcdefgh", "*** ***"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def", "***"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text, shown):
    """Keys, headers and logins go by their look, and masking twice is masking once."""
    assert redact(text) == shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "set OPENAI_API_KEY in your environment",
        "rows = sorted(rows, key=lambda row: row[0])",
        "names.sort(key=operator.itemgetter(0))",
        "max_tokens=4000, input_tokens: 123456789, tokens: 12345678",
        "risk-management, task-force-alpha and scikit-learn",
        "the key: a good team; the secret: patience",
        "see https://example.org/a/b?page=2#top",
        "bearer of news, basic idea",
    ],
)
def test_what_is_no_secret_stays(text):
    """Programs, prose and addresses read as they were."""
    assert redact(text) == text


def test_a_known_secret_is_masked_however_it_is_written():
    """As it is, in JSON, in an address and in base 64; one too short to be one would take words out of the text."""
    secret = 'p/ä"ss w+rd='  # noqa: S105 - nobody's
    text = f"{secret} {json.dumps(secret)} p%2F%C3%A4%22ss%20w%2Brd%3D cC/DpCJzcyB3K3JkPQ== x none"
    assert redact(text, [secret, "x", "none", ""]) == '*** "***" *** *** x none'


@given(st.text(), st.lists(st.text(min_size=8), max_size=3))
def test_no_known_secret_survives(text, secrets):
    """Whatever surrounds it, a secret that is given is gone."""
    shown = redact("".join(f"{text}{secret}" for secret in secrets), secrets)
    assert not [secret for secret in secrets if secret in shown and secret.strip("*")]


def test_masking_a_long_text_takes_no_time():
    """No text makes it slow, whoever wrote it."""
    begun = time.monotonic()
    for part in ("key=", "eyJ-", "x_", "sk-", "api_key", "Bearer ", "://", "authorization", "access_", "token:\t"):
        redact(part * (50_000 // len(part)))
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ann:pw@Host.example:8443/v1/?key=1#x", "https://host.example:8443/v1"),
        ("http://[::1]:80/", "http://[::1]:80"),
        ("http://host:port/", "an address that cannot be read"),
        ("nonsense", "an address without a host"),
    ],
)
def test_an_address_is_shown_without_credentials(url, shown):
    """User, password, query and fragment are left out."""
    assert strip_url_credentials(url) == shown


def test_what_a_failure_knows_crosses_processes():
    """Text, tokens, cost and whether to retry come whole through pickle."""
    error = AgentError("no", text="Hel", input_tokens=3, output_tokens=4, cost=0.5, retry=False)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes, of a moment ago
    assert (type(copy), str(copy), vars(copy)) == (AgentError, "no", vars(error))


# Prices.


@pytest.mark.parametrize(
    ("model", "cost"),
    [
        ("openai:gpt-4o", 0.0125),
        ("openai-chat:gpt-4o", 0.0125),
        ("gateway/openai:gpt-4o", 0.0125),
        ("azure-responses:gpt-4o", 0.0125),
        ("anthropic:claude-3-5-sonnet-20241022", 0.018),
        ("bedrock:anthropic.claude-3-5-sonnet-20241022-v2:0", 0.018),
        ("bedrock:us.anthropic.claude-3-5-sonnet-20241022-v2:0", 0.018),
        ("openrouter:deepseek/deepseek-chat:free", 0.0),
        ("ollama:llama3.1:8b", None),
        ("openai-chat:smollm2-135m-instruct", None),
        ("github-copilot:gpt-4o", None),
        ("openai:tts-1", None),
        ("nobody:m", None),
    ],
)
def test_a_price_is_known_or_none(model, cost):
    """A thousand tokens in and out, by the list; nobody's price, a plan's or that of sounds is unknown, not nothing."""
    assert price_of(model, 1000, 1000) == (None if cost is None else pytest.approx(cost))


def test_an_estimate_is_the_most_a_call_may_take():
    """Tokens of the prompt and of the longest answer, at the model's price where it has one."""
    asked = estimate("openai:gpt-4o", "Say hello.", 0).tokens
    assert 50 < asked < 60
    assert estimate("openai:gpt-4o", "Say hello.", 4000) == Usage(
        asked + 4000, pytest.approx(price_of("openai:gpt-4o", asked, 4000))
    )
    assert estimate("ollama:m", "Say hello.", 10) == Usage(asked + 10, None)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("The quick brown fox jumps over the lazy dog. " * 100, 1000),
        ("a b c d e f g h " * 50, 400),
        ("1234567890" * 30, 300),
        ("sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b " * 10, 441),
        ("这是一个关于初创公司的想法。" * 20, 480),
        ("😀🎉🚀💡" * 30, 360),
        ("|---|:-:|{}[]" * 30, 330),
    ],
)
def test_a_prompt_has_no_more_tokens_than_estimated(text, tokens):
    """Prose, short words, numbers, digests, other scripts and signs: never less than tokenizers make of them."""
    assert estimate("openai:gpt-4o", text, 0).tokens >= tokens


def test_without_the_list_every_price_is_unknown(monkeypatch):
    """Where prices are not installed, tokens are still estimated."""
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert price_of("openai:gpt-4o", 1, 1) is None
    assert estimate("openai:gpt-4o", "", 10) == Usage(60, None)
