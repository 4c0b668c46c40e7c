"""Made-up runs as browser agents write them, held out: weights of loop detection were not tuned on them."""

# ruff: noqa: D103 - the name of a maker says which sort of run it writes

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from benchmarks.loop_runs import Maker, Move

SHOP, FORM, WIKI = "http://shop.test", "http://desk.test/now/nav/ui/incident.do", "http://wiki.test"


def _id(chance: random.Random) -> str:
    return f"{chance.choice(['', 'a'])}{chance.randint(20, 1999)}"


def _start(chance: random.Random, url: str, least: int = 2, most: int = 6) -> list[Move]:
    """Steps that get somewhere."""
    many = chance.randint(least, most)
    return [(f"click('{_id(chance)}')", f"{url}/{at}", f"start {url} {at}") for at in range(many)]


def _answer(url: str) -> list[Move]:
    return [("send_msg_to_user('The answer is 42.')", url, "answered")]


# ---- Held out: loops -----------------------------------------------------------------------------------


def one_button_again_and_again(chance: random.Random) -> list[Move]:
    click = (f"click('{_id(chance)}')", f"{SHOP}/cart", "cart")
    return _start(chance, SHOP) + [click] * chance.randint(4, 15)


def fill_and_enter_again(chance: random.Random) -> list[Move]:
    field = _id(chance)
    pair = [(f"fill('{field}', 'blue lamp')", SHOP, "home"), (f"press('{field}', 'Enter')", SHOP, "home")]
    return _start(chance, SHOP) + pair * chance.randint(3, 8)


def three_tries_then_given_up(chance: random.Random) -> list[Move]:
    click = (f"click('{_id(chance)}')", f"{SHOP}/sort", "sorted list")
    return [*_start(chance, SHOP), *[click] * 4, ("report_infeasible('It cannot be sorted.')", SHOP, "end")]


def search_reworded(chance: random.Random) -> list[Move]:
    words = ["red shoes", "red shoes women", "shoes red", "red running shoes", "red shoes sale", "shoes, red"]
    field, go = _id(chance), _id(chance)
    moves = _start(chance, SHOP)
    for at, query in enumerate(words * 2):
        url = f"{SHOP}/search?q={query.replace(' ', '+')}"
        moves += [
            (f"fill('{field}', '{query}')", url, f"none found {at % 2}"),
            (f"click('{go}')", url, "none found"),
        ]
    return moves[: chance.randint(14, 18)]


def between_two_tabs(chance: random.Random) -> list[Move]:
    pair = [("tab_focus(0)", WIKI, "left"), ("tab_focus(1)", f"{WIKI}/map", "right")]
    return _start(chance, WIKI) + pair * chance.randint(5, 9)


def scrolls_for_ever(chance: random.Random) -> list[Move]:
    return _start(chance, WIKI) + [("scroll(0, 500)", f"{WIKI}/long", "long")] * chance.randint(10, 22)


def scrolls_up_and_down(chance: random.Random) -> list[Move]:
    pair = [("scroll(0, 600)", f"{WIKI}/long", "low"), ("scroll(0, -600)", f"{WIKI}/long", "high")]
    return _start(chance, WIKI) + pair * chance.randint(4, 8)


def between_two_addresses(chance: random.Random) -> list[Move]:
    pair = [(f"goto('{WIKI}/a')", f"{WIKI}/b", "b"), (f"goto('{WIKI}/b')", f"{WIKI}/a", "a")]
    return _start(chance, WIKI, 1, 3) + pair * chance.randint(3, 6)


def opens_and_shuts_with_new_ids(chance: random.Random) -> list[Move]:
    moves = _start(chance, SHOP)
    for at in range(chance.randint(5, 9)):
        moves += [
            (f"click('{300 + 7 * at}')", SHOP, "shut"),
            (f"click('{304 + 7 * at}')", f"{SHOP}/menu", "open"),
        ]
    return moves


def the_same_item_again(chance: random.Random) -> list[Move]:
    item = _id(chance)
    turn = [
        (f"click('{item}')", f"{SHOP}/list", "list"),
        ("scroll(0, 300)", f"{SHOP}/item/7", "item"),
        ("go_back()", f"{SHOP}/item/7", "item"),
    ]
    return _start(chance, SHOP) + turn * chance.randint(3, 7)


def fills_with_new_ids(chance: random.Random) -> list[Move]:
    moves = _start(chance, SHOP, 1, 3)
    for at in range(chance.randint(5, 8)):
        moves += [
            (f"fill('{200 + 9 * at}', 'Pittsburgh airport hotels')", f"{SHOP}/map", "map"),
            (f"click('{204 + 9 * at}')", f"{SHOP}/map/none", "nothing found"),
        ]
    return moves


def the_same_error_again(chance: random.Random) -> list[Move]:
    return _start(chance, FORM) + [(f"click('{_id(chance)}')", FORM, "error: not visible")] * chance.randint(
        3, 8
    )


def waits_for_ever(chance: random.Random) -> list[Move]:
    return _start(chance, FORM) + [("noop()", FORM, "blank")] * chance.randint(8, 20)


def comes_back_to_it_all_along(chance: random.Random) -> list[Move]:
    turn = [(f"click('{_id(chance)}')", FORM, f"form {at}") for at in range(chance.randint(3, 5))]
    return _start(chance, FORM) + turn * 5


def says_it_is_done_again(chance: random.Random) -> list[Move]:
    return _start(chance, FORM) + [("send_msg_to_user('The filter is set.')", FORM, "list")] * chance.randint(
        7, 15
    )


def date_in_many_forms(chance: random.Random) -> list[Move]:
    field, save = _id(chance), _id(chance)
    moves = _start(chance, FORM)
    for at in range(chance.randint(5, 8)):
        day = ["2024-01-02", "01/02/2024", "2 January 2024", "02-01-2024"][at % 4]
        moves += [(f"fill('{field}', '{day}')", FORM, "bad date"), (f"click('{save}')", FORM, "bad date")]
    return moves


# ---- Held out: no loops --------------------------------------------------------------------------------


def reads_a_long_page(chance: random.Random) -> list[Move]:
    many = chance.randint(3, 5)
    reading = [("scroll(0, 500)", f"{WIKI}/long", f"screen {at}") for at in range(many)]
    return _start(chance, WIKI) + reading + _answer(WIKI)


def waits_for_the_page(chance: random.Random) -> list[Move]:
    waiting = [("noop()", FORM, f"loading {at}") for at in range(chance.randint(3, 4))]
    return _start(chance, FORM) + waiting + _start(chance, f"{FORM}/ready", 3, 6)


def pages_through_results(chance: random.Random) -> list[Move]:
    following = _id(chance)
    pages = [
        (f"click('{following}')", f"{SHOP}/list?p={at}", f"page {at}") for at in range(chance.randint(4, 8))
    ]
    return _start(chance, SHOP) + pages + _answer(SHOP)


def corrects_a_field(chance: random.Random) -> list[Move]:
    field = _id(chance)
    tries = [(f"fill('{field}', '{value}')", FORM, f"form {value}") for value in ("12", "120", "1200")]
    return _start(chance, FORM) + tries + _start(chance, f"{FORM}/next")


def chooses_in_every_row(chance: random.Random) -> list[Move]:
    rows = [
        (f"select_option('a{100 + 3 * at}', 'Yes')", FORM, f"row {at}") for at in range(chance.randint(6, 14))
    ]
    return _start(chance, FORM) + rows + [(f"click('{_id(chance)}')", FORM, "sent")]


def walks_a_list(chance: random.Random) -> list[Move]:
    moves = _start(chance, SHOP, 1, 3)
    for at in range(chance.randint(4, 7)):
        item = f"{SHOP}/item/{at}"
        moves += [(f"click('{50 + 13 * at}')", f"{SHOP}/list", "list"), ("go_back()", item, f"item {at}")]
    return moves + _answer(SHOP)


def one_id_on_many_pages(chance: random.Random) -> list[Move]:
    element = _id(chance)
    moves: list[Move] = []
    for at in range(chance.randint(3, 4)):
        moves += [(f"click('{element}')", f"{WIKI}/x{at}", f"x {at}"), *_start(chance, f"{WIKI}/y{at}", 1, 3)]
    return moves + _answer(WIKI)


def long_form(chance: random.Random) -> list[Move]:
    fields = [
        (f"fill('a{at}', 'value number {at * 37}')", FORM, f"field {at}")
        for at in range(chance.randint(14, 20))
    ]
    clicks = [(f"click('b{at}')", FORM, f"box {at}") for at in range(chance.randint(8, 14))]
    return fields + clicks


def adds_rows(chance: random.Random) -> list[Move]:
    add = _id(chance)
    moves = _start(chance, FORM)
    for at, name in enumerate(["bolt", "hammer", "paint brush", "ladder"][: chance.randint(3, 4)]):
        moves += [(f"click('{add}')", FORM, f"rows {at}"), (f"fill('c{at}', '{name}')", FORM, f"row {at}")]
        moves += [(f"fill('d{at}', '{at + 3}')", FORM, f"row {at} many")]
    return [*moves, (f"click('{_id(chance)}')", FORM, "saved"), *_answer(FORM)]


def short_and_good(chance: random.Random) -> list[Move]:
    return _start(chance, SHOP, 4, 7) + _answer(SHOP)


def puts_several_into_the_cart(chance: random.Random) -> list[Move]:
    field, add = _id(chance), _id(chance)
    moves: list[Move] = []
    for at, name in enumerate(["desk lamp", "garden hose", "tea pot"]):
        moves += [
            (f"fill('{field}', '{name}')", f"{SHOP}/{at}", f"home {at}"),
            *_start(chance, f"{SHOP}/{at}", 1, 2),
        ]
        moves += [(f"click('{add}')", f"{SHOP}/item/{at}", f"item {at}")]
    return moves + _answer(SHOP)


def says_it_twice(chance: random.Random) -> list[Move]:
    return _start(chance, FORM, 4, 8) + _answer(FORM) * chance.randint(2, 3)


def one_menu_for_three_sections(chance: random.Random) -> list[Move]:
    menu = _id(chance)
    moves: list[Move] = []
    for at in range(3):
        moves += [(f"click('{menu}')", f"{FORM}/s{at}", f"menu {at}"), *_start(chance, f"{FORM}/t{at}", 2, 4)]
    return moves + _answer(FORM)


def hovers_over_menus(chance: random.Random) -> list[Move]:
    hovers = [(f"hover('{30 + 5 * at}')", SHOP, f"menu {at}") for at in range(chance.randint(4, 7))]
    return hovers + _start(chance, SHOP) + _answer(SHOP)


def reads_many_sites(chance: random.Random) -> list[Move]:
    moves: list[Move] = []
    for at in range(chance.randint(5, 8)):
        site = f"http://site{at}.test/article"
        moves += [(f"goto('{site}')", f"{WIKI}/{at}", f"from {at}"), ("scroll(0, 800)", site, f"read {at}")]
    return moves + _answer(WIKI)


def sets_a_quantity(chance: random.Random) -> list[Move]:
    click = f"click('{_id(chance)}')"
    more = [(click, f"{SHOP}/item/3", f"quantity {at}") for at in range(3)]
    return _start(chance, SHOP) + more + _start(chance, f"{SHOP}/pay", 5, 9)


HELD_OUT: list[tuple[Maker, bool]] = [
    *(
        (build_run, True)
        for build_run in (
            one_button_again_and_again,
            fill_and_enter_again,
            three_tries_then_given_up,
            search_reworded,
            between_two_tabs,
            scrolls_for_ever,
            scrolls_up_and_down,
            between_two_addresses,
            opens_and_shuts_with_new_ids,
            the_same_item_again,
            fills_with_new_ids,
            the_same_error_again,
            waits_for_ever,
            comes_back_to_it_all_along,
            says_it_is_done_again,
            date_in_many_forms,
        )
    ),
    *(
        (build_run, False)
        for build_run in (
            reads_a_long_page,
            waits_for_the_page,
            pages_through_results,
            corrects_a_field,
            chooses_in_every_row,
            walks_a_list,
            one_id_on_many_pages,
            long_form,
            adds_rows,
            short_and_good,
            puts_several_into_the_cart,
            says_it_twice,
            one_menu_for_three_sections,
            hovers_over_menus,
            reads_many_sites,
            sets_a_quantity,
        )
    ),
]
