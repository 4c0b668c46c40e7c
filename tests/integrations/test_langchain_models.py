"""LangChain chat models as models of the engine, and the offline embedder in LangChain."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore

from langmem_tiers import InvalidConfigError, InvalidInputError, LangmemTiersError, MemoryEngine
from langmem_tiers_langchain import LangChainModel, OfflineEmbeddings
from tests.integrations.scripted_chat import create_scripted_chat

if TYPE_CHECKING:
    from langmem_tiers import LanguageModel


def test_a_chat_model_gets_system_rules_and_a_word_limit() -> None:
    chat = create_scripted_chat("Hello.")
    model: LanguageModel = LangChainModel(chat)
    assert model.complete("Say hello.", system="Be kind.", max_tokens=100) == "Hello."
    ((rules, prompt),) = chat.prompts
    assert isinstance(rules, SystemMessage)
    assert rules.content == "Be kind.\n\nAnswer in at most 75 words."
    assert isinstance(prompt, HumanMessage)
    assert prompt.content == "Say hello."


class CallRecorder(BaseCallbackHandler):
    """Record the tags and the source of each chat model call."""

    def __init__(self) -> None:
        self.marks: list[tuple[list[str] | None, Any]] = []

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        self.marks.append((kwargs["tags"], kwargs["metadata"].get("lc_source")))


def test_each_model_call_is_tagged_as_a_call_of_memory() -> None:
    recorder = CallRecorder()
    LangChainModel(create_scripted_chat("x").with_config(callbacks=[recorder])).complete("y")
    assert recorder.marks == [(["nostream"], "langmem_tiers")]


@pytest.mark.parametrize(
    "runnable",
    [
        create_scripted_chat("Hello.") | StrOutputParser(),
        RunnableLambda(
            lambda _: AIMessage([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hello."}])
        ),
        RunnableLambda(lambda _: "Hello."),
    ],
    ids=["chain", "blocks", "text"],
)
def test_any_runnable_over_messages_works_as_a_model(runnable: Any) -> None:
    assert LangChainModel(runnable).complete("x") == "Hello."


def test_an_answer_without_text_raises() -> None:
    with pytest.raises(LangmemTiersError, match="from the model, got dict"):
        LangChainModel(RunnableLambda(lambda _: {"text": "x"})).complete("x")


@pytest.mark.parametrize("value", ["openai:gpt", None, object(), type(create_scripted_chat("x"))])
def test_a_value_that_is_not_a_model_is_rejected(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="expected a chat model"):
        LangChainModel(value)


def test_repr_does_not_show_the_model() -> None:
    assert repr(LangChainModel(create_scripted_chat("secret"))) == "LangChainModel(ScriptedChat)"


def test_a_failing_model_leaves_a_summary_of_the_messages() -> None:
    def fail(_: object) -> str:
        raise ConnectionError("https://api.example/?key=sk-hunter2")

    with MemoryEngine(embedder=None, model=LangChainModel(RunnableLambda(fail))) as engine:
        text = engine.summarize([HumanMessage("Invoice INV-20391 is paid.")])
    assert "INV-20391" in text
    assert "hunter2" not in text


def test_the_error_for_a_raw_chat_model_names_the_adapter() -> None:
    raw: Any = create_scripted_chat("x")
    with pytest.raises(InvalidConfigError, match=r"langmem_tiers_langchain\.LangChainModel\(model\)"):
        MemoryEngine(model=raw)


def test_the_error_for_raw_embeddings_names_the_adapter() -> None:
    raw: Any = DeterministicFakeEmbedding(size=8)
    with pytest.raises(InvalidConfigError, match=r"langmem_tiers_langchain\.LangChainEmbedder\(embeddings\)"):
        MemoryEngine(embedder=raw)


async def test_offline_embeddings_find_by_meaning_in_a_vector_store() -> None:
    store = InMemoryVectorStore(OfflineEmbeddings())
    store.add_documents([Document("The cat sleeps on the sofa."), Document("Shares fell on Monday.")])
    for (found,) in (
        store.similarity_search("a kitten naps", k=1),
        await store.asimilarity_search("a kitten naps", k=1),
    ):
        assert found.page_content == "The cat sleeps on the sofa."


@pytest.mark.parametrize("text", ["", " ", "日本語", "half \ud83d", "x" * 100_000])
def test_every_text_has_a_finite_vector(text: str) -> None:
    embeddings = OfflineEmbeddings()
    vector = embeddings.embed_query(text)
    assert len(vector) == 256
    assert all(map(math.isfinite, vector))
    assert embeddings.embed_documents([text]) == [vector]
    assert embeddings.embed_documents([]) == []


WITHOUT = """
import sys
class Away:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"langchain", "langchain_core", "langgraph"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Away())
import langmem_tiers_langchain
assert not {"langchain", "langchain_core", "langgraph"} & set(sys.modules)
for name in sorted(set(langmem_tiers_langchain.__all__) - {"LangChainEmbedder"}):
    try:
        getattr(langmem_tiers_langchain, name)
    except ImportError as error:
        assert "pip install 'langmem-tiers[langchain]'" in str(error), error
    else:
        raise AssertionError(name)
"""


@pytest.mark.soak
def test_a_missing_extra_raises_only_on_attribute_access() -> None:
    child = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
