"""What stores and blocks are that keep all they know in an engine."""

from __future__ import annotations

import copy
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from langmem_tiers.engine import MemoryEngine  # noqa: TC001 - it is in a signature that pydantic reads
from langmem_tiers_llamaindex.engines import resolve_store_settings


class EngineBackedModel(BaseModel):
    """Names and settings around an engine. So it may be copied, written down and read again.

    Args:
        engine: Where everything is; one in memory, if left out.
        **data: The fields; a misspelled one is an error.
    """

    model_config = ConfigDict(extra="forbid")

    # What says where everything is cannot be changed: that would be another one.
    namespace: list[str] | None = Field(default=None, frozen=True)
    engine_reference: dict[str, str | None] = Field(default_factory=dict, frozen=True)
    """Where the engine is found again; without secrets."""
    _engine: MemoryEngine = PrivateAttr()
    _namespace_path: tuple[str, ...] | None = PrivateAttr()

    def __init__(self, engine: MemoryEngine | None = None, **data: Any) -> None:  # noqa: ANN401 - the fields
        found = resolve_store_settings(engine, data)
        super().__init__(**found.fields)
        self._engine, self._namespace_path = found.engine, found.namespace

    @property
    def engine(self) -> MemoryEngine:
        """Where everything is."""
        return self._engine

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return copy.copy(self)  # on the same engine: agents copy their state with all memory in it

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).model_validate, (self.model_dump(mode="json"),)
