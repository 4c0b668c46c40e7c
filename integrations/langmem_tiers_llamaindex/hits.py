"""What was recalled, in LlamaIndex's form."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from llama_index.core.schema import NodeWithScore, TextNode

from langmem_tiers.integration_kit.hit_metadata import build_hit_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langmem_tiers.recall.models import Hit

_MODEL_FIELDS = frozenset({"created_at", "role", "name"})


class MemoryNode(TextNode):
    """A memory. Whichever query found it, it is the same node to what merges or compares nodes."""

    @property
    def hash(self) -> str:
        """Names where the memory comes from and what it says; the base class's counts scores as well."""
        told = self.metadata
        identity = (told.get("namespace"), told.get("session"), told.get("kind"), self.node_id, self.text)
        return sha256(repr(identity).encode()).hexdigest()


def to_node(hit: Hit) -> NodeWithScore:
    """A memory as a node; its metadata is plain JSON, without what is not known.

    A model is shown the text with who said it and when, an embedder the text alone.
    """
    metadata = {name: _replace_surrogates(value) for name, value in build_hit_metadata(hit).items()}
    node = MemoryNode(
        id_=hit.entry.id,
        text=_replace_surrogates(hit.entry.content),
        metadata=metadata,  # type: ignore[call-arg] # the framework takes it by its alias as well
        excluded_llm_metadata_keys=[name for name in metadata if name not in _MODEL_FIELDS],
        excluded_embed_metadata_keys=list(metadata),
    )
    return NodeWithScore(node=node, score=hit.score)


def to_nodes(hits: Iterable[Hit]) -> list[NodeWithScore]:
    """Memories as nodes in the same order, each with an id of its own."""
    nodes, taken = [], set[str]()
    for hit in hits:
        found = to_node(hit)
        # Two sessions may name a message alike, and LlamaIndex drops a second node with the same id.
        while found.node.node_id in taken:
            found.node.id_ = f"{hit.session}/{found.node.node_id}"
        taken.add(found.node.node_id)
        nodes.append(found)
    return nodes


def _replace_surrogates(value: Any) -> Any:  # noqa: ANN401 - any JSON
    # Lone surrogates, which no provider of a model takes.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
