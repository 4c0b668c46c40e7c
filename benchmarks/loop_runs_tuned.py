"""The made-up runs on which the weights of loop detection were tuned: other tools and forms than those held out."""

# ruff: noqa: D103 - the name of a maker says which sort of run it writes

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from benchmarks.loop_runs import Maker, Move

FORUM, MAPS, REPO = "http://forum.test/f/books", "http://maps.test/search", "/testbed"


def _call(tool: str, **parameters: object) -> str:
    return json.dumps({"action": tool, **parameters})


def _opening(chance: random.Random, url: str, least: int = 2, most: int = 6) -> list[Move]:
    many = chance.randint(least, most)
    return [
        (f"click [{chance.randint(20, 3000)}]", f"{url}/o{at}", f"opening {url} {at}") for at in range(many)
    ]


def _stop(url: str) -> list[Move]:
    return [("stop [42 books]", url, "stopped")]


# ---- Loops ---------------------------------------------------------------------------------------------


def like_button(chance: random.Random) -> list[Move]:
    click = (f"click [{chance.randint(20, 3000)}]", FORUM, "thread")
    return _opening(chance, FORUM) + [click] * chance.randint(3, 9)


def like_button_then_stops(chance: random.Random) -> list[Move]:
    click = (f"click [{chance.randint(20, 3000)}]", FORUM, "thread")
    return _opening(chance, FORUM) + [click] * chance.randint(4, 6) + _stop(FORUM)


def types_the_same_search(chance: random.Random) -> list[Move]:
    typed = (f"type [{chance.randint(20, 999)}] [coffee near station] [1]", MAPS, "map")
    return _opening(chance, MAPS, 1, 3) + [typed] * chance.randint(3, 8)


def types_varied_search(chance: random.Random) -> list[Move]:
    queries = ["coffee near station", "coffee station", "coffee near the station", "station coffee shop near"]
    return _opening(chance, MAPS, 1, 3) + [
        (f"type [164] [{query}] [1]", f"{MAPS}?q={at}", f"nothing {at % 2}")
        for at, query in enumerate(queries * 2)
    ]


def scrolls_down_to_the_limit(chance: random.Random) -> list[Move]:
    return _opening(chance, FORUM) + [("scroll [down]", FORUM, "end of page")] * chance.randint(8, 20)


def scrolls_both_ways(chance: random.Random) -> list[Move]:
    pair: list[Move] = [("scroll [down]", FORUM, "low"), ("scroll [up]", FORUM, "high")]
    return _opening(chance, FORUM, 1, 4) + pair * chance.randint(4, 7)


def thread_and_back(chance: random.Random) -> list[Move]:
    pair: list[Move] = [
        (f"click [{chance.randint(20, 999)}]", FORUM, "list"),
        ("go_back", f"{FORUM}/9", "thread"),
    ]
    return _opening(chance, FORUM) + pair * chance.randint(3, 8)


def three_pages_round(chance: random.Random) -> list[Move]:
    turn: list[Move] = [
        (_call("click", element=chance.randint(1, 99)), f"{FORUM}/{at}", f"place {at}") for at in range(3)
    ]
    return _opening(chance, FORUM, 1, 3) + turn * chance.randint(3, 6)


def failing_command(chance: random.Random) -> list[Move]:
    run = ("python -m pytest tests/test_io.py", "", "error: no module named pandas")
    return [("ls", "", "files"), ("cat setup.py", "", "setup"), *[run] * chance.randint(3, 6)]


def same_query_of_an_api(chance: random.Random) -> list[Move]:
    call = (_call("search_flights", origin="JFK", date="2024-05-20"), "", "two flights")
    return [(_call("get_user", id="mia"), "", "user"), *[call] * chance.randint(3, 6)]


def edits_and_undoes(chance: random.Random) -> list[Move]:
    pair: list[Move] = [("sed -i s/a/b/ core.py", "", "core b"), ("git checkout core.py", "", "core a")]
    return [("ls", "", "files"), ("cat core.py", "", "core a"), *pair * chance.randint(3, 5)]


def adds_the_same_again(chance: random.Random) -> list[Move]:
    cart, item = "http://shop.test/cart", "http://shop.test/item/9"
    turn: list[Move] = [
        ("click [88]", item, "item"),
        ("click [12]", item, "item added"),
        ("goto [shop.test]", cart, "cart"),
    ]
    return _opening(chance, item) + turn * chance.randint(3, 5)


def other_elements_same_error(chance: random.Random) -> list[Move]:
    return _opening(chance, MAPS) + [
        (f"click [{600 + 3 * (at % 2)}]", MAPS, "error: element is covered")
        for at in range(chance.randint(6, 9))
    ]


def long_wander(chance: random.Random) -> list[Move]:
    places: list[Move] = [(f"click [{100 + at}]", f"{FORUM}/w{at}", f"wander {at}") for at in range(6)]
    return _opening(chance, FORUM) + [chance.choice(places) for _ in range(chance.randint(20, 26))]


# ---- No loops ------------------------------------------------------------------------------------------


def tests_after_each_edit(chance: random.Random) -> list[Move]:
    moves: list[Move] = [("ls", "", "files")]
    for at, file in enumerate(["core", "parser", "tokens", "lexer"][: chance.randint(3, 4)]):
        moves += [
            (f"sed -n 1,80p {file}.py", "", f"{file} text"),
            (f"edit {file}.py fix {file}", "", f"edited {file}"),
        ]
        moves += [("python -m pytest -q", "", f"{9 - at} failed, other lines of {file}")]
    return moves


def looks_up_each_booking(chance: random.Random) -> list[Move]:
    many = chance.randint(5, 9)
    return [
        (_call("get_reservation", id=f"{chance.choice('ABCDE')}{at}Q{at}X"), "", f"booking {at}")
        for at in range(many)
    ]


def reads_a_file_in_parts(chance: random.Random) -> list[Move]:
    return [
        (f"sed -n {at}00,{at}99p base.py", "", f"part {at} of the file") for at in range(chance.randint(5, 9))
    ]


def scrolls_a_little(chance: random.Random) -> list[Move]:
    down: list[Move] = [("scroll [down]", FORUM, f"screen {at}") for at in range(chance.randint(3, 4))]
    return _opening(chance, FORUM) + down + _opening(chance, f"{FORUM}/in") + _stop(FORUM)


def next_page_by_address(chance: random.Random) -> list[Move]:
    return [
        (f"goto [{FORUM}?page={at + 2}]", f"{FORUM}?page={at + 1}", f"page {at}")
        for at in range(chance.randint(5, 12))
    ] + _stop(FORUM)


def next_page_with_scrolls(chance: random.Random) -> list[Move]:
    moves: list[Move] = []
    for at in range(chance.randint(3, 5)):
        here = f"{FORUM}?page={at}"
        moves += [
            ("scroll [down]", here, f"page {at} low"),
            (f"click [{700 + 11 * at}]", here, f"page {at} end"),
        ]
    return moves + _stop(FORUM)


def votes_on_threads(chance: random.Random) -> list[Move]:
    return _opening(chance, FORUM) + [
        (f"click [{300 + 21 * at}]", FORUM, f"votes {at}") for at in range(chance.randint(6, 12))
    ]


def twice_then_another_way(chance: random.Random) -> list[Move]:
    click = (f"click [{chance.randint(20, 3000)}]", FORUM, "thread")
    return _opening(chance, FORUM) + [click] * 2 + _opening(chance, f"{FORUM}/other", 4, 8) + _stop(FORUM)


def the_home_button_now_and_then(chance: random.Random) -> list[Move]:
    moves: list[Move] = []
    for at in range(3):
        moves += [*_opening(chance, f"{FORUM}/{at}", 4, 6), ("click [17]", f"{FORUM}/{at}/end", f"end {at}")]
    return moves + _opening(chance, FORUM, 4, 6)


def opens_threads_in_turn(chance: random.Random) -> list[Move]:
    moves = _opening(chance, FORUM, 1, 3)
    for at in range(chance.randint(4, 6)):
        thread = f"{FORUM}/thread{at}"
        moves += [(f"click [{90 + 31 * at}]", FORUM, "list"), ("scroll [down]", thread, f"thread {at}")]
        moves += [("go_back", thread, f"thread {at} low")]
    return moves + _stop(FORUM)


def searches_for_several(chance: random.Random) -> list[Move]:
    names = ["museum", "pharmacy", "old bridge", "cinema", "bakery"][: chance.randint(4, 5)]
    return [
        (f"type [164] [{place_name}] [1]", f"{MAPS}?q={place_name}", f"map of {place_name}")
        for place_name in names
    ] + _stop(MAPS)


def long_and_different(chance: random.Random) -> list[Move]:
    return _opening(chance, FORUM, 25, 38)


def polls_a_job(chance: random.Random) -> list[Move]:
    polls: list[Move] = [("get_status", "", f"job at {at} of 5 parts") for at in range(chance.randint(3, 4))]
    return [
        ("start_job", "", "started"),
        *polls,
        ("fetch_result", "", "result"),
        ("save_result", "", "saved"),
        *_stop(""),
    ]


def dismisses_popups(chance: random.Random) -> list[Move]:
    moves: list[Move] = []
    for at in range(3):
        moves += [
            (_call("click", element=3), f"{MAPS}/{at}", f"popup {at}"),
            *_opening(chance, f"{MAPS}/{at}", 2, 3),
        ]
    return moves + _stop(MAPS)


TUNED: list[tuple[Maker, bool]] = [
    *(
        (build_run, True)
        for build_run in (
            like_button,
            like_button_then_stops,
            types_the_same_search,
            types_varied_search,
            scrolls_down_to_the_limit,
            scrolls_both_ways,
            thread_and_back,
            three_pages_round,
            failing_command,
            same_query_of_an_api,
            edits_and_undoes,
            adds_the_same_again,
            other_elements_same_error,
            long_wander,
        )
    ),
    *(
        (build_run, False)
        for build_run in (
            tests_after_each_edit,
            looks_up_each_booking,
            reads_a_file_in_parts,
            scrolls_a_little,
            next_page_by_address,
            next_page_with_scrolls,
            votes_on_threads,
            twice_then_another_way,
            the_home_button_now_and_then,
            opens_threads_in_turn,
            searches_for_several,
            long_and_different,
            polls_a_job,
            dismisses_popups,
        )
    ),
]
