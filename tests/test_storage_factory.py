"""A store is opened as settings say; settings that are not trusted run no code and stay in their folder."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import pytest

from haytham.errors import InvalidArgument
from haytham.storage import FileStore, MemoryStore, SqliteStore, open_store

MODULE = """
from haytham.storage import MemoryStore

class Shelf(MemoryStore):
    def __init__(self, path, colour="red"):
        super().__init__()
        self.path, self.colour = path, colour

class Half:
    def __init__(self, **options):
        self.read = self.write = self.close = print
        self.keys = None

NUMBER = 7
"""


@pytest.fixture
def base(tmp_path):
    folder = tmp_path / "base"
    folder.mkdir()
    return folder


@pytest.fixture
def _installed(tmp_path, monkeypatch):
    """A package that registers stores, and modules that cannot be imported, where Python finds them."""
    site = tmp_path / "site"
    (site / "acme-1.0.dist-info").mkdir(parents=True)
    (site / "acme_stores.py").write_text(MODULE, encoding="utf-8")
    (site / "acme_cut_off.py").write_text("def f(:", encoding="utf-8")
    (site / "acme-1.0.dist-info" / "METADATA").write_text("Name: acme\nVersion: 1.0\n", encoding="utf-8")
    points = "[haytham.stores]\nacme = acme_stores:Shelf\nacme_gone = acme_stores:Nothing\n"
    (site / "acme-1.0.dist-info" / "entry_points.txt").write_text(points, encoding="utf-8")
    monkeypatch.syspath_prepend(site)
    yield
    for name in [name for name in sys.modules if name.startswith("acme_")]:
        del sys.modules[name]


# Ours.


def test_files_are_in_the_base_or_a_path_of_it(base):
    """Without a type and a path a store is the base folder itself; a path is taken from there."""
    assert isinstance(open_store(base=base), FileStore)
    assert (open_store(base=base).base, open_store("file", path="a/b", base=base).base) == (base, base / "a/b")
    assert open_store("file", path=str(base / "c"), base=base).base == base / "c"


def test_memory_is_shared_by_who_opens_the_same(base, tmp_path):
    """Two openings of one path of one folder see the same bytes; another path, or another folder, is another store."""
    store = open_store("memory", base=base)
    store.write("a", b"1")
    assert isinstance(store, MemoryStore)
    assert open_store("memory", base=base / ".." / "base") is store
    others = [open_store("memory", base=base, path="a"), open_store("memory", base=tmp_path)]
    assert [other.keys() for other in others] == [[], []]


def test_sqlite_is_a_file_in_the_base(base):
    """A database is history.db where no path is given."""
    for path, place in ((None, base / "history.db"), ("a/b.db", base / "a/b.db")):
        with closing(open_store("sqlite", path=path, base=base)) as store:
            assert isinstance(store, SqliteStore)
            assert store.path == place
            assert place.is_file()


def test_a_path_leads_out_of_the_base_only_where_settings_are_trusted(base, tmp_path):
    """Whether by .., by a whole path or by a link: what leads out is refused, and nothing is made there."""
    (tmp_path / "outside").mkdir()
    (base / "link").symlink_to(tmp_path / "outside")
    (base / "history.db").symlink_to(tmp_path / "outside" / "x.db")
    for kind in ("file", "memory", "sqlite"):
        for path in ("../outside/x", str(tmp_path / "outside" / "x"), "link/x", "a/../../outside/x"):
            with pytest.raises(InvalidArgument, match=r"storage path: found .*; allowed: a path in .* not trusted"):
                open_store(kind, path=path, base=base)
    with pytest.raises(InvalidArgument, match="not trusted"):
        open_store("sqlite", base=base)
    assert list((tmp_path / "outside").iterdir()) == []
    with closing(open_store("sqlite", path="../outside/x.db", base=base, may_run_code=True)) as store:
        assert store.path == tmp_path / "outside" / "x.db"


@pytest.mark.parametrize("may_run_code", [False, True])
def test_a_path_within_the_base_goes_through_no_link(base, tmp_path, may_run_code):
    """A link below the base is refused as a place for history, wherever it leads and whoever is trusted."""
    for name, target in (("inward", base / "good"), ("outward", tmp_path / "outside")):
        target.mkdir()
        (base / name).symlink_to(target)
        (base / f"{name}.db").symlink_to(target / "x.db")
        for kind, path in (("file", f"{name}/x"), ("file", name), ("sqlite", f"{name}/x.db"), ("sqlite", f"{name}.db")):
            with pytest.raises(InvalidArgument, match=r"storage path: found .*; allowed: a path"):
                open_store(kind, path=path, base=base, may_run_code=may_run_code)
        assert list(target.iterdir()) == []


def test_a_type_or_path_that_is_none_is_refused(base):
    """What settings hold by mistake is told with what is allowed."""
    for kind in ("", "redis", "File", "a.b", "a:b:c", ":x", "os:", 7, None, ["file"]):
        with pytest.raises(
            InvalidArgument, match=r"storage type: found .*; allowed: file, memory, sqlite, or a trusted"
        ):
            open_store(kind, base=base, may_run_code=True)
    for path in (7, "a\0b", ["a"]):
        with pytest.raises(InvalidArgument, match=r"storage path: found .*; allowed: a path"):
            open_store("file", path=path, base=base)


# Those of others.


@pytest.mark.usefixtures("_installed")
def test_a_registered_store_is_opened_by_its_name(base):
    """A store that an installed package registers gets the path and the options, and needs no trust."""
    store = open_store("acme", base=base, path="x", options={"colour": "blue"}, may_run_code=True)
    assert (store.path, store.colour) == (str(base / "x"), "blue")
    assert open_store("acme", base=base, may_run_code=True).path == str(base)
    with pytest.raises(InvalidArgument, match="allowed: file, memory, sqlite, acme, acme_gone, or a trusted"):
        open_store("acne", base=base)


@pytest.mark.usefixtures("_installed")
def test_a_class_is_opened_by_module_and_name_where_trusted(base):
    """`package.module:Class` is imported only for settings that may run code."""
    with pytest.raises(InvalidArgument, match=r"or a trusted package\.module:Class; this one is not trusted"):
        open_store("acme_stores:Shelf", base=base)
    assert "acme_stores" not in sys.modules
    store = open_store("acme_stores:Shelf", base=base, may_run_code=True)
    assert (type(store).__name__, store.path, store.colour) == ("Shelf", str(base), "red")


@pytest.mark.usefixtures("_installed")
def test_what_cannot_be_imported_is_one_sentence(base):
    """A module or class that is not there, or is broken, is told with the reason."""
    for kind in ("acme_nowhere:Shelf", "acme_stores:Nothing", "acme_cut_off:Shelf", "acme_gone"):
        with pytest.raises(
            InvalidArgument, match=r"^storage type: found .*; allowed: one that can be imported \(.*\)$"
        ):
            open_store(kind, base=base, may_run_code=True)


@pytest.mark.usefixtures("_installed")
def test_what_lacks_a_verb_is_no_store(base):
    """What was opened has all seven verbs, else those it lacks are named."""
    with pytest.raises(InvalidArgument, match=r"it lacks append, delete, keys, ensure_folder$"):
        open_store("acme_stores:Half", base=base, may_run_code=True)


@pytest.mark.usefixtures("_installed")
def test_options_are_those_that_the_store_takes(base):
    """An option that a store does not know is told; none of them is its path."""
    for kind in ("acme", "acme_stores:NUMBER"):
        with pytest.raises(InvalidArgument, match=r"^storage options: found .*; allowed: those that acme"):
            open_store(kind, base=base, options={"size": 3}, may_run_code=True)
    assert open_store("acme", base=base, options={"path": "/elsewhere"}, may_run_code=True).path == str(base)


def test_a_database_is_loaded_only_where_one_is_opened():
    """To import the stores loads neither SQLite nor the list of installed packages."""
    look = "import sys, haytham.storage; print(sorted({'sqlite3', 'importlib.metadata'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout == "[]\n"
    assert {"SqliteStore", "open_store"} <= set(dir(sys.modules["haytham.storage"]))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = sys.modules["haytham.storage"].nothing
