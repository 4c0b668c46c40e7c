"""Sample tool results."""

from __future__ import annotations

RESULTS = [
    {
        "title": f"Lamp {number}",
        "url": f"https://shop.example/{number}",
        "snippet": f"A lamp for ${number}. " * 30,
    }
    for number in range(1, 21)
]
PAGE = """<!doctype html><html><head><title>Lamps &amp; more</title></head><body>
<nav><a href="/">Home</a> <a href="/lamps?page=2&amp;sort=price#top">Lamps</a></nav>
<form id="find"><input name="q" type="search" id="q"><select name="color"></select><button id="go">Find</button></form>
<p>The red lamp costs $49.99 until 2025-03-01. It weighs 1.2 kg.</p>
<div role="button" data-testid="cart">Cart</div><input type="submit" value="Send"></body></html>"""
TRACE = """Traceback (most recent call last):
  File "/app/run.py", line 3, in click
    page.click("#buy")
playwright._impl._errors.TimeoutError: Timeout 30000ms exceeded waiting for the page
"""
TREE = """[1] RootWebArea 'Shop'
[2] link 'Home' url: /home
[3] button 'Buy now'
[4] textbox 'Search'
- link "About" [ref=e5]:
  - /url: about.html
"""
PROSE = " ".join(
    f"Paragraph {number} tells of the harbour and the {number * 37} ships that came in the year {1800 + number}."
    for number in range(200)
)
ROWS = [{"id": number, "name": f"Item {number}", "price": number * 1.5} for number in range(100)]
FORM = [{"name": "email", "type": "email", "selector": "#email"}, {"name": "pw", "type": "password"}]
