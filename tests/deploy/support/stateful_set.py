"""A model of Kubernetes with a patched StatefulSet, as far as the pages use it: which pod gets which file, and when.

A model: there is no cluster here. Source: Kubernetes, ``pkg/controller/statefulset`` (``newVersionedStatefulSetPod``,
``updateStatefulSet``, ``completeRollingUpdate``), and the API server's rules for ``updateStrategy``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any


def merged(target: Any, patch: Any) -> Any:
    """A strategic merge: null removes a key, and lists of objects with names are merged by name."""
    if isinstance(patch, Mapping):
        known = target if isinstance(target, Mapping) else {}
        changed = {key: merged(known.get(key), part) for key, part in patch.items() if part is not None}
        return {key: part for key, part in {**known, **changed}.items() if patch.get(key, part) is not None}
    if isinstance(patch, list) and all(isinstance(part, Mapping) and "name" in part for part in patch):
        by_name = {part["name"]: part for part in target or ()}
        return list({**by_name, **{part["name"]: merged(by_name.get(part["name"]), part) for part in patch}}.values())
    return patch


class StatefulSet:
    """Pods by number, each with the ConfigMap of its volume ``template``. A pod with a file of ``bad`` is never ready.

    ``starts``: pod and file, in the order in which they were started.
    """

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        self.manifest: dict[str, Any] = merged(copy.deepcopy(dict(manifest)), {})
        self.bad: set[tuple[int, str]] = set()
        self.starts: list[tuple[int, str]] = []
        self._files: dict[int, str] = {}
        self._default()
        self._current = self.wanted
        self._settle()

    @property
    def wanted(self) -> str:
        """The file that the template names: that of the update revision."""
        volumes = self.manifest["spec"]["template"]["spec"]["volumes"]
        return next(str(each["configMap"]["name"]) for each in volumes if each["name"] == "template")

    @property
    def files(self) -> list[str]:
        return [self._files[number] for number in sorted(self._files)]

    def patch(self, patch: Mapping[str, Any]) -> None:
        """`kubectl patch`."""
        self.manifest = merged(self.manifest, patch)
        self._default()
        self._settle()

    def delete(self, number: int) -> None:
        """`kubectl delete pod`, an eviction, or a lost node."""
        del self._files[number]
        self._settle()

    def _default(self) -> None:
        strategy = self.manifest["spec"].setdefault("updateStrategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
        assert strategy["type"] == "RollingUpdate" or "rollingUpdate" not in strategy, "the API server refuses that"

    def _settle(self) -> None:
        """The controller's loop, until nothing is left to do."""
        while self._step():
            pass
        rolls = self.manifest["spec"]["updateStrategy"]["type"] == "RollingUpdate"
        if rolls and all(self._ready(number) and file == self.wanted for number, file in self._files.items()):
            self._current = self.wanted

    def _step(self) -> bool:
        spec = self.manifest["spec"]
        rolling = spec["updateStrategy"].get("rollingUpdate")
        partition = 0 if rolling is None else rolling["partition"]
        in_order = spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
        for number in range(spec["replicas"]):
            if number not in self._files:
                self._files[number] = self._current if number < partition else self.wanted
                self.starts.append((number, self._files[number]))
                return True
            if in_order and not self._ready(number):
                return False
        if rolling is None:
            return False
        for number in reversed(range(partition, spec["replicas"])):
            if self._files[number] != self.wanted:
                del self._files[number]
                return True
            if not self._ready(number):
                return False
        return False

    def _ready(self, number: int) -> bool:
        return (number, self._files[number]) not in self.bad
