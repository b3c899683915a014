"""Reads the layers of settings that hold for a session or a workspace, each from where it is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haytham.config.settings import (
    FILE,
    LARGEST,
    combine,
    environment_layer,
    flag_layer,
    manifest_layer,
    workflow_layer,
    workspace_layer,
)

if TYPE_CHECKING:
    from haytham.config.settings import Layer, Settings
    from haytham.config.workflow import Workflow
    from haytham.session.models import SessionManifest
    from haytham.storage.base import SessionStore


def read_settings(
    store: SessionStore,
    workflow: Workflow | None = None,
    manifest: SessionManifest | None = None,
    *,
    flags: frozenset[str] = frozenset(),
    environment: bool = True,
) -> Settings:
    """Return what holds in a workspace, for a workflow, or for a session of one.

    `flags` are the settings that a flag of this process has stored in the manifest. Without `environment` only what
    is stored counts, whatever the variables say.
    """
    layers = [environment_layer()] if environment else []
    if manifest is not None:
        cost = None if manifest.max_cost is None else float(manifest.max_cost)
        stored = manifest_layer(manifest.model, cost, manifest.max_tokens)
        layers = [flag_layer(stored, flags), *layers, stored]
    if workflow is not None:
        layers.append(workflow_layer(workflow))
    return combine(*layers, _read_workspace(store))


def _read_workspace(store: SessionStore) -> Layer:
    try:
        data = store.read(FILE, limit=LARGEST + 1)
    except FileNotFoundError:
        data = b""
    return workspace_layer(data)
