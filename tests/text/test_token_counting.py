from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.growth_texts import TOKEN_UNITS
from langmem_tiers import (
    CharCounter,
    ContentAwareCounter,
    InvalidConfigError,
    Message,
    MessageDraft,
    MessageToolCall,
    Role,
    TiktokenCounter,
    TokenCounter,
)
from langmem_tiers.text import ContentType, count_messages, tiktoken_or_estimate, token_counting
from langmem_tiers.text.token_counting import count_draft

if TYPE_CHECKING:
    from pathlib import Path

COUNTERS = [CharCounter(), ContentAwareCounter(), TiktokenCounter()]
PROSE = (
    "We decided to move the message queue to the database because the server ran out of memory twice. "
    "Please tell Jonas before Friday and update the deployment documentation."
)
CODE = '''def total(items: list[Item]) -> int:
    """Sum of all prices."""
    result = 0
    for item in items:
        if item.price is None:
            raise ValueError(f"no price for {item.name!r}")
        result += item.price * item.count
    return result
'''
HTML = (
    '<div class="ticket-list"><ul><li class="slot" data-id="17"><a href="/slots/17">10:20</a></li>'
    '<li class="slot full"><span class="label">Sold out</span></li></ul></div>'
)

JSON = json.dumps({"bookings": [{"id": n, "slot": f"10:{n}0", "paid": True, "ref": None} for n in range(5)]})


@pytest.mark.parametrize(("length", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2), (400, 100), (401, 101)])
def test_the_quick_estimate_is_a_quarter_of_the_length_rounded_up(length: int, tokens: int) -> None:
    assert CharCounter().count("x" * length) == tokens


@pytest.mark.parametrize(
    ("content_type", "tokens"),
    [(ContentType.TEXT, 25), (ContentType.CODE, 29), (ContentType.JSON, 34), (ContentType.HTML, 40)],
)
def test_characters_per_token_follow_the_content_type(content_type: ContentType, tokens: int) -> None:
    estimate = ContentAwareCounter().estimate("x" * 100, content_type)
    assert (estimate.tokens, estimate.content_type, estimate.confidence) == (tokens, content_type, 1.0)


@pytest.mark.parametrize(
    ("text", "content_type"),
    [
        (PROSE, ContentType.TEXT),
        ("ok", ContentType.TEXT),
        ("Is 3 < 5 and 7 > 2?", ContentType.TEXT),
        ("The list [1] says: see note.\nSecond line, more prose.\nThird one.", ContentType.TEXT),
        (CODE, ContentType.CODE),
        ("const a = 1;\nlet b = () => a + 1;\nconsole.log(b());", ContentType.CODE),
        (f"```python\n{CODE}```", ContentType.CODE),
        ("SELECT id FROM slots WHERE day = '2025-04-26';", ContentType.CODE),
        (JSON, ContentType.JSON),
        ("  [1, 2, 3]\n", ContentType.JSON),
        (json.dumps([{"key": "value" * 10}] * 2000), ContentType.JSON),  # too long to parse
        (HTML, ContentType.HTML),
        ("<!DOCTYPE html><title>x</title>", ContentType.HTML),
    ],
)
def test_the_content_type_is_found(text: str, content_type: ContentType) -> None:
    estimate = ContentAwareCounter().estimate(text)
    assert estimate.content_type is content_type
    assert 0.5 <= estimate.confidence <= 1.0


@pytest.mark.parametrize("piece", TOKEN_UNITS)
def test_ten_times_as_many_repetitions_count_ten_times_as_many_tokens(piece: str) -> None:
    counter = ContentAwareCounter()
    assert counter.count(piece * 4_000) == pytest.approx(10 * counter.count(piece * 400), rel=0.01)


@pytest.mark.parametrize("text", ["{not json at all}", "<b>x</b> " + PROSE, PROSE + "\nx = 1\n" + PROSE])
def test_mixed_content_lowers_the_confidence(text: str) -> None:
    assert ContentAwareCounter().estimate(text).confidence < 1.0


# Sentences of the same meaning; what counts is that the estimate holds outside English as well.
LANGUAGES = {
    "english": PROSE,
    "swedish": "Vi bestämde oss för att flytta kön till databasen eftersom serverns minne tog slut två gånger.",
    "french": "Nous avons décidé de déplacer la file vers la base de données, la mémoire étant épuisée.",
    "chinese": "我们决定把消息队列迁移到数据库，因为服务器的内存已经两次耗尽。请在星期五之前更新部署文档。",
    "japanese": "サーバーのメモリが二度も不足したため、メッセージキューをデータベースに移すことに決めました。",
    "korean": "서버 메모리가 두 번이나 부족했기 때문에 메시지 큐를 데이터베이스로 옮기기로 결정했습니다.",
    "russian": "Мы решили перенести очередь сообщений в базу данных, потому что дважды закончилась память.",
    "arabic": "قررنا نقل قائمة انتظار الرسائل إلى قاعدة البيانات لأن ذاكرة الخادم نفدت مرتين.",
    "hindi": "हमने संदेश कतार को डेटाबेस में ले जाने का निर्णय लिया क्योंकि मेमोरी दो बार समाप्त हो गई।",
    "emoji": "🎉🚀🔥🐙🌊🦀🧪🏊",
    "html": HTML,
    "json": JSON,
    "code": CODE,
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_content_aware_count_is_near_the_tokenizer_and_rarely_below(language: str) -> None:
    exact = TiktokenCounter().count(LANGUAGES[language])
    assert 0.75 * exact <= ContentAwareCounter().count(LANGUAGES[language]) <= 1.5 * exact


@pytest.mark.parametrize("language", ["chinese", "japanese", "korean", "emoji"])
def test_a_quarter_of_the_length_underestimates_some_languages(language: str) -> None:
    assert CharCounter().count(LANGUAGES[language]) < 0.5 * TiktokenCounter().count(LANGUAGES[language])


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda counter: counter.name)
@given(text=st.text(st.characters(codec=None), max_size=300))
def test_any_non_empty_text_has_a_positive_count(counter: TokenCounter, text: str) -> None:
    assert (counter.count(text) == 0) == (text == "")
    assert counter.count(text) == counter.count(text)


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda counter: counter.name)
def test_a_list_counts_roles_names_calls_and_schemas(counter: TokenCounter) -> None:
    plain = message("Hello")
    schema = {"name": "search", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}
    base = count_messages(counter, [plain])
    assert base > counter.count("Hello")  # role and frame
    assert count_messages(counter, [plain, plain]) - base == base - count_messages(counter, [])
    assert count_messages(counter, [message("Hello", name="Mara")]) > base
    assert (
        count_messages(counter, [message("Hello", tool_calls=(MessageToolCall("c1", "search", '{"q": 1}'),))])
        > base
    )
    assert count_messages(counter, [message("Hello", tool_call_id="call_1")]) > base
    assert count_messages(counter, [plain], [schema]) >= base + counter.count(
        json.dumps(schema, separators=(",", ":"))
    )


def test_a_stored_count_is_used_and_a_foreign_one_is_not() -> None:
    counter = CharCounter()
    ours, theirs = message("Hello", token_count=99, token_counter="chars4"), message("Hello", token_count=99)
    assert count_messages(counter, [ours]) - count_messages(counter, [theirs]) == 99 - counter.count("Hello")
    given = message("Hello", token_count=99, token_counter="caller")
    assert count_messages(counter, [given]) == count_messages(counter, [ours])


def test_tiktoken_counter_matches_tiktoken_also_for_control_words() -> None:
    assert TiktokenCounter("cl100k_base").count("Hello world") == 2
    assert TiktokenCounter("o200k_base").count("Hello world") == 2
    assert TiktokenCounter().count("<|endoftext|>") > 1


def test_the_vocabulary_is_searched_in_the_named_folder_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = next(
        place
        for place in token_counting._iter_vocabulary_folders()
        if token_counting._has_vocabulary(place, "cl100k_base")
    )
    name = token_counting._VOCABULARIES["cl100k_base"][0]
    (tmp_path / name).write_bytes((bundled / name).read_bytes())
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert next(iter(token_counting._iter_vocabulary_folders())) == tmp_path
    assert TiktokenCounter().count("Hello world") == 2
    assert os.environ["TIKTOKEN_CACHE_DIR"] == str(tmp_path)


def test_a_damaged_vocabulary_is_not_used(tmp_path: Path) -> None:
    (tmp_path / token_counting._VOCABULARIES["cl100k_base"][0]).write_bytes(b"damaged")
    with pytest.raises(InvalidConfigError, match="no vocabulary of 'cl100k_base' on this machine"):
        TiktokenCounter(cache_dir=tmp_path)
    assert list(tmp_path.iterdir())


def test_without_a_vocabulary_the_estimate_is_used_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(token_counting, "_iter_vocabulary_folders", lambda: iter(()))
    monkeypatch.setattr(token_counting, "_warned_encodings", set())
    with caplog.at_level(logging.WARNING):
        counters = [tiktoken_or_estimate() for _ in range(3)]
    assert [counter.name for counter in counters] == ["content1"] * 3
    assert len(caplog.records) == 1


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="unknown encoding 'gpt2'"):
        tiktoken_or_estimate("gpt2")


def test_count_draft_counts_only_the_text() -> None:
    assert count_draft(CharCounter(), MessageDraft("user", "Create a new file")) == 5


def message(
    content: str,
    *,
    name: str | None = None,
    tool_calls: tuple[MessageToolCall, ...] = (),
    tool_call_id: str | None = None,
    token_count: int = 0,
    token_counter: str = "other",
) -> Message:
    return Message(
        id="m",
        role=Role.USER,
        content=content,
        created_at=datetime(2025, 1, 1, tzinfo=UTC),
        token_count=token_count,
        token_counter=token_counter,
        name=name,
        tool_calls=tool_calls,
        tool_call_id=tool_call_id,
    )
