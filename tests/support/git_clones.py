"""Git as tests run it: real repositories, and clones of them that diverge and are merged."""

from __future__ import annotations

import os
import shutil
import subprocess

GIT = shutil.which("git") or "git"
_WHO = {f"GIT_{role}_{fact}": f"{fact}@example" for role in ("AUTHOR", "COMMITTER") for fact in ("NAME", "EMAIL")}


def git(*words, cwd, check=True):
    """Run git with no settings of the person's own; what it says, and with `check` an error where it fails."""
    plain = {**os.environ, **_WHO, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        [GIT, *map(str, words)], cwd=cwd, env=plain, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done.stdout + done.stderr


def commit(cwd):
    """Commit all that is there, in a repository that is made where there is none."""
    if not (cwd / ".git").exists():
        git("init", "-q", "-b", "main", cwd=cwd)
    git("add", "-A", cwd=cwd)
    git("commit", "-q", "-m", "work", cwd=cwd)


def clone(origin, place, *settings):
    """Clone a repository."""
    git("clone", "-q", *(f"-c{setting}" for setting in settings), origin, place, cwd=origin)
    return place


def merge(cwd, other, *, check=True):
    """Commit what is there and merge what another clone has committed; what git says."""
    return git("pull", "-q", "--no-rebase", "--no-edit", other, "main", cwd=cwd, check=check)
