"""Settings: which value counts, where each is said, and what is refused."""

from __future__ import annotations

import json

import pytest

from haytham import CheckpointManager, History, Phase, Workflow, Workspace
from haytham.app.settings import RunSettings
from haytham.config.settings import environment_layer, setting_keys, variable_name, workspace_layer
from haytham.errors import HistoryDisabled, InvalidArgument, InvalidDocument, SessionNotFound
from support.cli_runner import haytham
from support.history_workers import new_session, past

MODEL, COST, AUTO = "model", "budget.max_cost", "snapshots.auto"


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    for key in setting_keys():
        monkeypatch.delenv(variable_name(key), raising=False)
    monkeypatch.setenv("HAYTHAM_USER", "ann")


def workflow(**groups):
    return Workflow("offer", phases=[Phase("Concept", agents=["worksheet"], review="none")], **groups)


def say(workspace, text):
    """Write the settings of a workspace."""
    workspace.folder.mkdir(exist_ok=True)
    (workspace.folder / "haytham.toml").write_text(text, encoding="utf-8")


def setting(workspace, key):
    """The value of a setting of the only session, and who says so."""
    [found] = workspace.settings(key).settings
    return found.value, found.source, found.place


def test_the_first_that_says_something_counts(tmp_path, monkeypatch):
    """Default, haytham.toml, workflow.yaml, manifest, environment, flag: each wins over those before it."""
    workspace = Workspace(tmp_path)
    assert setting(workspace, COST) == (None, "default", "")
    say(workspace, "[budget]\nmax_cost = 1\n")
    assert setting(workspace, COST) == (1, "workspace", "haytham.toml:2")
    started = workspace.start("Barrels", workflow=workflow(limits={"max_cost": 2}))
    assert setting(workspace, COST)[:2] == (2, "workflow")
    started.prepare(settings=RunSettings.of(max_cost=3))
    assert setting(workspace, COST) == (3, "manifest", "")
    monkeypatch.setenv("HAYTHAM_BUDGET_MAX_COST", "4")
    assert setting(workspace, COST) == (4, "environment", "HAYTHAM_BUDGET_MAX_COST")
    assert started.status().spending.limits.max_cost == 3  # the flag of this process
    assert workspace.session().status().spending.limits.max_cost == 4


def test_each_key_counts_by_itself(tmp_path):
    """A workflow that sets one key of a group leaves the others to the workspace; retention is no exception."""
    workspace = Workspace(tmp_path)
    say(workspace, "[snapshots]\nfrequency = 9\nretention = {routine = {keep_last = 4}}\n")
    own = {"auto": "every", "retention": {"phase": {"keep_last": 2}}}
    policy = workspace.start("Barrels", workflow=workflow(snapshots=own)).history.policy
    assert (policy.auto, policy.frequency) == ("every", 9)
    assert (policy.retention["routine"].keep_last, policy.retention["phase"].keep_last) == (4, 2)


def test_a_place_is_the_line_of_a_file(tmp_path):
    """Of workflow.yaml, by either of two names of the snapshots, and of haytham.toml."""
    workspace, session = Workspace(tmp_path), new_session(tmp_path, "{auto: every}")
    assert setting(workspace, AUTO)[1:] == ("workflow", f"p/workflows/{digest(session)}/workflow.yaml:9")
    say(workspace, "# ours\n\n[checkpointing]\n  frequency = 3\n[drift]\ncycles = 2\n")
    assert setting(workspace, "snapshots.frequency") == (3, "workspace", "haytham.toml:4")
    assert setting(workspace, "drift.cycles") == (2, "workspace", "haytham.toml:6")


def digest(session):
    [name] = session.store.folders("p/workflows/")
    return name


@pytest.mark.parametrize("key", setting_keys())
def test_every_setting_has_a_variable_and_a_place_in_the_file(tmp_path, key):
    """A value that differs from the default counts in both, and the policy that is used has it."""
    value, text = example(key)
    workspace = Workspace(tmp_path)
    say(workspace, f"{key} = {text}\n")
    assert setting(workspace, key) == (value, "workspace", "haytham.toml:1")
    assert environment_layer({variable_name(key): text.strip('"')}).values == {key: value}


def example(key):
    """A value of a setting that is no default, and how it is written."""
    words = {MODEL: "human", AUTO: "every", "memory.store": "a:B", "snapshots.storage_type": "sqlite"}
    words |= {"snapshots.storage_path": "there", "drift.action": "warn"}
    if key in words:
        return words[key], f'"{words[key]}"'
    switches = {"memory.enabled": False, "snapshots.enabled": False, "snapshots.compress": False}
    switches |= {"snapshots.auto_resume_on_failure": True}
    if key in switches:
        return switches[key], json.dumps(switches[key])
    shares = {"budget.warn_at": 0.25, "drift.error_rate": 0.25}
    value = shares.get(key, 11)
    return value, str(value)


@pytest.mark.parametrize("key", setting_keys())
def test_a_value_that_is_not_allowed_is_refused_with_its_place(tmp_path, key):
    """For every setting: with the line of haytham.toml, and with the name of the variable."""
    wrong = "[1]"
    say(Workspace(tmp_path), f"\n{key} = {wrong}\n")
    with pytest.raises(InvalidDocument, match=rf"haytham\.toml:2: {key}: found "):
        Workspace(tmp_path).settings()
    group = key.partition(".")[0]
    facts = {f"snapshots.{name}": wrong for name in ("storage_type", "storage_path")}
    if key not in facts and key not in (MODEL, "memory.store"):  # those take any text
        with pytest.raises(InvalidArgument, match=rf"{variable_name(key)}: found '\[1\]'; allowed: "):
            environment_layer({variable_name(key): wrong})
    with pytest.raises(InvalidDocument, match=r"unknown key"):
        workspace_layer(f'{group}s = {{}}\n"{key}".x = 1\n'.encode())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[snapshots]\nauot = 'every'", "haytham.toml:2: snapshots.auot: unknown key; did you mean auto?"),
        ("snapshots = {auot = 1}", "haytham.toml:1: snapshots.auot: unknown key"),
        ("\nuser = 'ann'", "haytham.toml:2: user: unknown key"),
        ("[snapshots.retention.weekly]\nkeep_last = 1", "haytham.toml:1: snapshots.retention.weekly: unknown key"),
        (
            "[snapshots]\nretention.routine.keep_last = 0",
            "haytham.toml:2: snapshots.retention.routine.keep_last: found 0",
        ),
        ("[drift]\ncycles = nan", "haytham.toml:2: drift.cycles: found nan"),
        ("a = = 1", "haytham.toml:1: is not valid TOML"),
        ("[snapshots]\nauto = 1\n[checkpointing]\nauto = 1", "haytham.toml:3: checkpointing: unknown key"),
    ],
)
def test_a_fault_in_the_file_is_told_with_its_line(tmp_path, text, said):
    """By every command that needs it, with exit 6, and by `validate`."""
    workspace = Workspace(tmp_path / "projects")
    workspace.start("Barrels", workflow=workflow())
    say(workspace, text)
    for command in ("config", "status", "resume", "validate", "approve"):
        answer = haytham(command, cwd=tmp_path)
        assert (answer.code, said in answer.err + answer.out.replace("projects/", "")) == (6, True), command


def test_a_file_that_is_no_text_is_refused(tmp_path):
    """Bytes that are not UTF-8, and a file of a megabyte, are errors of one line."""
    for data, said in ((b"\xff", "is not UTF-8"), (b"#" * 300_000, "has 262,145 bytes")):
        (tmp_path / "haytham.toml").write_bytes(data)
        with pytest.raises(InvalidDocument, match=said):
            Workspace(tmp_path).settings()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("HAYTHAM_SNAPSHOTS_AUTO", "often", "HAYTHAM_SNAPSHOTS_AUTO: found 'often'; allowed: phase, every, off"),
        ("HAYTHAM_SNAPSHOTS_ENABLED", "maybe", "HAYTHAM_SNAPSHOTS_ENABLED: found 'maybe'; allowed: true, false"),
        ("HAYTHAM_SNAPSHOTS_AUOT", "every", "allowed: HAYTHAM_SNAPSHOTS_AUTO"),
        ("HAYTHAM_DRIFT_CYCLES", "9" * 400, "HAYTHAM_DRIFT_CYCLES: found "),
        ("HAYTHAM_MODEL", "gpt", "HAYTHAM_MODEL names what cannot be used"),
    ],
)
def test_a_variable_that_cannot_be_used_is_refused(tmp_path, name, value, said):
    """The sentence names the variable, and the exit code is 2."""
    Workspace(tmp_path / "projects").start("Barrels", workflow=workflow())
    answer = haytham("resume", cwd=tmp_path, **{name: value})
    assert (answer.code, said in answer.err) == (2, True)


@pytest.mark.parametrize(("text", "value"), [("yes", True), ("ON", True), ("1", True), ("no", False), ("Off", False)])
def test_a_switch_is_said_in_several_words(text, value):
    """True, yes, on and 1, or false, no, off and 0; `auto` is switched off by the same words."""
    assert environment_layer({"HAYTHAM_SNAPSHOTS_ENABLED": text}).values == {"snapshots.enabled": value}
    if not value:
        assert environment_layer({"HAYTHAM_SNAPSHOTS_AUTO": text}).values == {AUTO: "off"}


def test_an_empty_variable_says_nothing():
    """As if it were not there."""
    assert environment_layer({"HAYTHAM_SNAPSHOTS_AUTO": " ", "HAYTHAM_MODEL": ""}).values == {}


# Models.


def test_the_environment_wins_over_the_file_for_a_model(tmp_path, monkeypatch):
    """The session's model is that of haytham.toml, else; the manifest wins over the file."""
    workspace = Workspace(tmp_path)
    say(workspace, 'model = "human"\n')
    session = workspace.start("Barrels", workflow=workflow())
    assert session.documents.read().settings.model == "human"
    session.prepare(settings=RunSettings.of(model="worksheet"))
    assert Workspace(tmp_path).session().documents.read().settings.model == "worksheet"
    monkeypatch.setenv("HAYTHAM_MODEL", "human")
    assert Workspace(tmp_path).session().documents.read().settings.model == "human"


def test_a_model_that_does_not_exist_is_refused_with_its_line(tmp_path):
    """Before anything is written, and before a run."""
    workspace = Workspace(tmp_path)
    say(workspace, '\nmodel = "gpt"\n')
    for _ in range(2):
        with pytest.raises(InvalidDocument, match=r"haytham\.toml:2: model: found 'gpt'"):
            workspace.start("Barrels", workflow=workflow())
    assert workspace.folders() == []


def test_code_in_the_file_needs_trust_and_code_in_the_environment_has_it(tmp_path, monkeypatch):
    """A store that haytham.toml names is opened only in a trusted session; one that a variable names always is."""
    session = new_session(tmp_path)
    store = "support.history_workers:OwnStore"
    monkeypatch.setenv("HAYTHAM_SNAPSHOTS_STORAGE_TYPE", store)
    assert Workspace(tmp_path).session().history.take().number == 1
    monkeypatch.delenv("HAYTHAM_SNAPSHOTS_STORAGE_TYPE")
    say(Workspace(tmp_path), f'[snapshots]\nstorage_type = "{store}"\n')
    with pytest.raises(InvalidArgument, match="not trusted"):
        Workspace(tmp_path).session().history.take()
    with pytest.raises(InvalidDocument, match=r"haytham\.toml:2: .*cannot be opened"):
        History(session).check_store()


def test_snapshots_of_the_file_are_no_documents(tmp_path):
    """A `storage_path` in the workspace is used by all its sessions, and `validate` leaves it alone."""
    workspace, session = Workspace(tmp_path), new_session(tmp_path)
    say(workspace, '[snapshots]\nstorage_path = "kept"\n')
    past(session, may_run_code=True).take()
    assert (tmp_path / "kept" / "p" / "history").is_dir()
    assert workspace.validate().problems == ()


def test_a_fault_in_the_settings_costs_no_save(tmp_path, caplog):
    """A program that saves through the manager goes on; the log says why there is no snapshot."""
    new_session(tmp_path)
    say(Workspace(tmp_path), "[snapshots]\nauto = 1\n")
    CheckpointManager(tmp_path).save_agent_output("p", "s", 1, "a", "Text.")
    assert CheckpointManager(tmp_path).get_phase_outputs("p", "s", [1]) == {1: {"a": "Text."}}
    assert "haytham.toml:2" in caplog.text


# To look at them.


def test_config_lists_all_settings_a_group_or_one(tmp_path):
    """Each with its value and place; one that there is not is refused with the nearest name."""
    Workspace(tmp_path / "projects").start("Barrels", workflow=workflow(snapshots={"auto": "every"}))
    lines = haytham("config", cwd=tmp_path).out.splitlines()
    assert [line.split()[0] for line in lines] == list(setting_keys())
    assert haytham("config", "memory", cwd=tmp_path).out.split()[:3] == ["memory.enabled", "true", "default"]
    [row] = haytham("config", AUTO, "--json", cwd=tmp_path).json["settings"]
    assert (row["value"], row["source"], row["variable"]) == ("every", "workflow", "HAYTHAM_SNAPSHOTS_AUTO")
    refused = haytham("config", "snapshots.auot", cwd=tmp_path)
    assert (refused.code, "snapshots.auto" in refused.err) == (2, True)


def test_settings_of_an_unknown_session_are_refused(tmp_path):
    """As by every command."""
    Workspace(tmp_path).start("Barrels", workflow=workflow())
    with pytest.raises(SessionNotFound):
        Workspace(tmp_path).settings(session="nowhere")


@pytest.mark.parametrize(("variable", "place"), [(True, "HAYTHAM_SNAPSHOTS_ENABLED"), (False, r"haytham\.toml:2")])
def test_snapshots_are_switched_off_for_a_process_or_a_workspace(tmp_path, monkeypatch, variable, place):
    """No snapshot is taken by policy, and one by hand is refused with the place of the setting."""
    workspace = Workspace(tmp_path)
    if variable:
        monkeypatch.setenv("HAYTHAM_SNAPSHOTS_ENABLED", "no")
    else:
        say(workspace, "[snapshots]\nenabled = false\n")
    session = workspace.start("Barrels", workflow=workflow())
    assert (session.run().status, session.history.list()) == ("completed", [])
    with pytest.raises(HistoryDisabled, match=f"enabled: true in {place}"):
        session.history.take()


def test_variables_change_the_policy(tmp_path, monkeypatch):
    """The settings of a snapshot store, of ages and of retries have variables that change the policy."""
    for name, value in (("AUTO_RESUME_ON_FAILURE", "yes"), ("CLEANUP_AFTER_DAYS", "2"), ("STORAGE_TYPE", "sqlite")):
        monkeypatch.setenv(f"HAYTHAM_SNAPSHOTS_{name}", value)
    monkeypatch.setenv("HAYTHAM_SNAPSHOTS_STORAGE_PATH", str(tmp_path / "elsewhere.db"))
    workspace = Workspace(tmp_path / "projects")
    session = workspace.start("Barrels", workflow=workflow())
    policy = session.history.policy
    assert (policy.auto_resume_on_failure, policy.retention["recovery"].cleanup_after_days) == (True, 2)
    session.run()
    assert (tmp_path / "elsewhere.db").exists()
