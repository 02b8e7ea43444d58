"""The report's page in a browser: what the first screen says, filters, links, keys, both widths and themes, axe."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import missing, require_tool
from made_results import IMPLEMENTATIONS, made_result

from kfuzz.conformance import report
from kfuzz.conformance.judge.compare import cases_of
from kfuzz.conformance.judge.harm import HARMS, RANK
from kfuzz.vectors.kinds import KINDS
from kfuzz.vectors.model import load_suite

GLOBS = (
    "records/v2/count/*", "records/v2/bomb/*", "records/v1/message/*", "stream/sequence/*", "messages/counts/fetch*",
    "messages/text/*", "primitives/varints/*",
)  # fmt: skip
# Two of the made-up implementations fail it.
VECTOR = "records/v2/count/negative-two"
WIDE, NARROW = 1280, 400
OPEN_TIMEOUT_MS = 30_000
POLL_MS = 20


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return made_result(cases_of(load_suite(GLOBS, kinds=KINDS)))


@pytest.fixture(scope="module")
def places(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page in both forms."""
    run = report.from_json(document, load_suite("*", kinds=KINDS))
    folder = tmp_path_factory.mktemp("page")
    (folder / "page.html").write_text(report.to_html(run))
    report.write_site(run, folder / "site")
    return {"file": folder / "page.html", "site": folder / "site" / "index.html"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright", "pip install -e .[test]")
    program = require_tool("chromium", "apt-get install chromium")
    with sync_playwright() as driver:
        # Chromium's sandbox refuses to work for root.
        running = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


Opener = Callable[..., Any]


@pytest.fixture
def show(browser: Any, places: dict[str, Path]) -> Iterator[Opener]:
    """Opens the page. At the end there must be no error in a console, and no request to anywhere but the disk."""
    problems: list[str] = []
    contexts = []

    def opened(
        fragment: str = "", *, form: str = "file", width: int = WIDE, theme: str = "light", scripts: bool = True
    ) -> Any:
        size = {"width": width, "height": 800}
        context = browser.new_context(viewport=size, color_scheme=theme, java_script_enabled=scripts)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(OPEN_TIMEOUT_MS)
        page.on("console", lambda said: problems.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith("file:") else problems.append(asked.url))
        page.goto(f"{places[form].as_uri()}{fragment}")
        if scripts:
            page.wait_for_selector("html[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


def visible(page: Any, selector: str) -> list[str]:
    """The texts of the visible elements, on one line each."""
    texts = page.eval_on_selector_all(
        selector, "all => all.filter(one => one.checkVisibility()).map(one => one.textContent)"
    )
    return [re.sub(r"\s+", " ", text).strip() for text in texts]


def until(page: Any, expression: str, given: Any = None) -> None:
    """Wait until the expression is true. The driver's own function for this needs eval, which the page forbids."""
    for _ in range(OPEN_TIMEOUT_MS // POLL_MS):
        if page.evaluate(expression, given):
            return
        page.wait_for_timeout(POLL_MS)
    raise AssertionError(f"never true: {expression}")


def close_panel(page: Any) -> None:
    page.keyboard.press("Escape")
    page.wait_for_selector("#panel", state="hidden")


def squares(page: Any) -> dict[tuple[str, str], list[str]]:
    """Class, link and title of each square of the matrix, by implementation and family; the title says both."""
    found = page.eval_on_selector_all(
        "#matrix td:not(.n)",
        """all => all.map(one => { const there = one.querySelector("a") || one;
           return [one.className, one.textContent.trim(), there.getAttribute("href") || "", there.title]; })""",
    )
    return {tuple(title.partition(":")[0].split(", ")): [kind, text, link, title] for kind, text, link, title in found}


def total(page: Any, tab: str) -> int:
    """The number that the tab shows: all, or those that pass the filters."""
    return int(page.inner_text(f"#tab-{tab} small").split(" of ")[0].replace(",", ""))


def answers(document: dict[str, Any]) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Each answer: id, role, implementation, cell."""
    return [
        (case["id"], case["role"], label, cell) for case in document["cases"] for label, cell in case["cells"].items()
    ]


# ----------------------------------------------------------------------------------------------------- the first screen


@pytest.mark.parametrize("form", ["file", pytest.param("site", marks=pytest.mark.full)])
def test_the_first_screen_says_who_fails_what_and_how_badly(show: Opener, document: dict[str, Any], form: str) -> None:
    page = show(form=form)
    assert "3 of 4 implementations give wrong answers" in page.inner_text(".lead")
    shown = squares(page)
    assert {name for name, _ in shown} == set(IMPLEMENTATIONS)
    for (label, family), (kind, text, *_) in shown.items():
        own = [cell for id, _, one, cell in answers(document) if one == label and id.startswith(f"{family}/")]
        harms = [cell["harm"] for cell in own if "harm" in cell]
        if harms:
            worst = min(harms, key=RANK.__getitem__)
            assert kind == f"h-{worst[0].upper()}"
            # The letter says without a colour what the colour says.
            assert re.sub(r"\s+", " ", text).startswith(f"{worst[0].upper()} {harms.count(worst)}")
        else:
            assert kind in ("h-ok", "h-none")
    rows = [text.split()[0] for text in page.locator("#matrix tbody tr").all_inner_texts()]
    assert {*rows[1:3]} == {"alpha", "beta"}, "failures first"
    assert [rows[0], *rows[3:]] == ["decoders", "perfect", "whole", "alpha-client"]
    box = page.locator("#matrix").bounding_box()
    assert box["y"] + box["height"] < 800, "the matrix is on the first screen"


@pytest.mark.full
def test_causes_come_worst_first_and_say_what_they_mean_for_a_user(show: Opener) -> None:
    page = show()
    titles = [re.sub(r"^. | \d+ causes?$", "", text) for text in visible(page, "#causes h3")]
    assert titles == [harm.title for harm in HARMS if harm.title in titles]
    assert len(titles) > 5
    whys = {text for harm in HARMS for text in (harm.to_readers, harm.to_brokers)}
    said = {text[:1].lower() + text[1:].rstrip(".") for text in visible(page, "#causes .why")}
    assert said <= whys
    assert len(said) > 5


@pytest.mark.full
def test_the_script_draws_the_matrix_that_stands_in_the_page(show: Opener) -> None:
    without = show(scripts=False)
    assert without.is_visible("#causes")
    assert squares(show()) == squares(without)


# -------------------------------------------------------------------------------------------------------------- filters


@pytest.mark.full
def test_filters_keep_what_they_say_and_count_it(show: Opener, document: dict[str, Any]) -> None:
    page = show("#tab=questions")
    everything = answers(document)

    def kept(test: Callable[[str, str, str, dict[str, Any]], bool]) -> int:
        return len({(id, role) for id, role, label, cell in everything if test(id, role, label, cell)})

    assert total(page, "questions") == len(document["cases"])
    page.select_option("#role", "broker")
    assert total(page, "questions") == kept(lambda id, role, label, cell: role == "broker")
    page.select_option("#role", "")
    page.select_option("#family", "records/v2/count")
    assert total(page, "questions") == kept(lambda id, role, label, cell: id.startswith("records/v2/count/"))
    page.select_option("#harm", "loses")
    assert total(page, "questions") == kept(
        lambda id, role, label, cell: id.startswith("records/v2/count/") and cell.get("harm") == "loses"
    )
    page.click("#clear")
    page.select_option("#impl", "beta@2.0+more")
    page.select_option("#show", "wrong")
    assert total(page, "questions") == kept(lambda id, role, label, cell: label == "beta@2.0+more" and "harm" in cell)
    page.select_option("#impl", "")
    page.select_option("#show", "new")
    assert total(page, "questions") == kept(lambda id, role, label, cell: cell["standing"] == "unexpected")
    page.select_option("#show", "differ")
    assert 0 < total(page, "questions") < len(document["cases"])
    page.click("#clear")
    assert total(page, "questions") == len(document["cases"])


@pytest.mark.full
def test_filters_change_the_causes_and_the_matrix_too(show: Opener) -> None:
    page = show()
    every = total(page, "causes")
    page.select_option("#impl", "alpha@1.0")
    assert 0 < total(page, "causes") < every
    assert set(visible(page, "#causes .who")) == {"alpha@1.0", "alpha@1.0, alpha-client@1.0"}
    page.select_option("#impl", "")
    page.select_option("#role", "broker")
    assert squares(page)["alpha@1.0", "primitives"][1:] == ["–no question", "", "alpha@1.0, primitives: no question"]
    page.select_option("#role", "")
    page.click(".harms [data-harm=hangs]")
    assert {kind for kind, *_ in squares(page).values()} == {"h-H", "h-none"}
    assert visible(page, "#causes h3")[0].startswith("H hangs or stalls")
    page.click("#matrix thead a:has-text('v2')")
    assert "records/v2" in page.inner_text("#matrix-about")
    assert {family for _, family in squares(page)} == {"records/v2/bomb", "records/v2/count"}


@pytest.mark.full
def test_a_search_finds_ids_summaries_findings_flags_and_causes(show: Opener) -> None:
    page = show("#tab=questions")
    for words, found in {
        "negative-one count gzip": "records/v2/count/negative-one-gzip",
        "the crc is right": VECTOR,
        "record-count-negative": VECTOR,
        "RB-COUNT-1": VECTOR,
        "RecordCountNegative": VECTOR,
    }.items():
        page.fill("#q", words)
        until(page, "words => location.hash.includes(encodeURIComponent(words))", words)
        while page.locator(".alike button").count():
            page.locator(".alike button").first.click()
        assert any(text.startswith(found) for text in visible(page, "#questions .id")), words
    page.fill("#q", "nothing has these words")
    page.wait_for_selector("#empty:not([hidden])")
    page.click("#tab-causes")
    page.fill("#q", "alpha wild pointer")
    page.wait_for_selector("#empty", state="hidden")
    assert set(visible(page, "#causes .who")) == {"alpha@1.0, alpha-client@1.0"}


# ---------------------------------------------------------------------------------------------------------------- links


@pytest.mark.full
def test_every_state_has_an_address_that_gives_it_again(show: Opener, document: dict[str, Any]) -> None:
    page = show()
    page.select_option("#impl", "beta@2.0+more")
    page.select_option("#role", "consumer")
    page.click("#tab-questions")
    page.fill("#q", "count 100%")
    page.fill("#q", "count")
    until(page, "location.hash.startsWith('#q=count&')")
    page.locator("#questions .row").nth(2).click()
    page.wait_for_selector("#panel[open] .answers")
    fragment = page.evaluate("location.hash")
    head, _, name = fragment.rpartition("=")
    assert head == "#q=count&impl=beta@2.0%2Bmore&role=consumer&tab=questions&v"
    assert name in {case["id"] for case in document["cases"]}
    again = show(fragment, form="site")
    again.wait_for_selector("#panel[open] .answers")
    for selector in ("#panel", "#questions ol", "#matrix-about"):
        assert again.text_content(selector) == page.text_content(selector)
    assert again.input_value("#impl") == "beta@2.0+more"
    assert again.input_value("#q") == "count"


@pytest.mark.full
def test_an_id_alone_is_an_address_and_back_closes_what_a_click_opened(show: Opener) -> None:
    page = show(f"#{VECTOR}")
    page.wait_for_selector("#panel[open]")
    assert page.inner_text("#panel-title") == VECTOR
    close_panel(page)
    assert VECTOR not in page.url
    page.select_option("#harm", "kills")
    page.locator("#causes li:not([hidden]) .row").first.click()
    page.wait_for_selector("#panel[open]")
    page.go_back()
    page.wait_for_selector("#panel", state="hidden")
    assert page.evaluate("location.hash") == "#harm=kills"
    page.go_forward()
    page.wait_for_selector("#panel[open]")
    close_panel(page)
    page.go_forward()
    page.wait_for_selector("#panel[open]")


@pytest.mark.full
def test_closing_a_linked_vector_stays_on_the_page(show: Opener) -> None:
    """There is nothing in the page to go back to, also after a step to another vector."""
    page = show(f"#tab=questions&v={VECTOR}")
    page.wait_for_selector("#panel[open]")
    page.keyboard.press("j")
    until(page, "name => !location.hash.includes(name)", VECTOR)
    close_panel(page)
    assert page.evaluate("location.hash") == "#tab=questions"


@pytest.mark.full
def test_an_address_that_leads_nowhere_says_so(show: Opener) -> None:
    page = show("#v=records/v9/none&q=%E0%A4%A&what=else")
    page.wait_for_selector("#panel[open]")
    assert "The result has no question records/v9/none" in page.inner_text("#panel")


# ------------------------------------------------------------------------------------------------------------ the panel


@pytest.mark.parametrize("form", ["file", pytest.param("site", marks=pytest.mark.full)])
def test_a_vector_shows_its_trap_its_expectation_all_answers_and_its_threads(
    show: Opener, document: dict[str, Any], form: str
) -> None:
    page = show(f"#v={VECTOR}", form=form)
    page.wait_for_selector("#panel[open] .answers")
    trap = page.locator(".parts .trap")
    assert trap.count() == 1
    assert re.sub(r"\s+", " ", trap.text_content()).startswith(
        "0039ff ff ff ferecord_count: -2◀ trap; record-count-negative at 0x39"
    )
    expected = page.inner_text(".expected")
    assert "Refuse." in expected
    assert "The record count is N; it must be 0 or more." in expected
    assert "Apache Kafka 4.4.0: rejected" in expected
    cells = next(case["cells"] for case in document["cases"] if case["id"] == VECTOR and case["role"] == "consumer")
    answered = page.inner_text(".answered")
    for label, cell in cells.items():
        assert label in page.text_content(".answered")
        if "harm" in cell:
            assert cell["text"] in answered
    links = page.eval_on_selector_all(".more-about a", "all => all.map(one => [one.textContent, one.href])")
    assert ["sarama #2658", "https://github.com/IBM/sarama/issues/2658"] in links
    assert "The record count is not negative." in page.inner_text("#panel")


@pytest.mark.full
def test_a_trap_after_many_bytes_is_in_view(show: Opener) -> None:
    page = show("#v=records/v2/count/one-too-low", width=NARROW)
    page.wait_for_selector("#panel[open] .trap")
    assert page.evaluate("document.querySelector('.parts').scrollTop") > 0
    parts, trap = (page.locator(one).first.bounding_box() for one in (".parts", ".trap"))
    assert parts["y"] <= trap["y"]
    assert trap["y"] + trap["height"] <= parts["y"] + parts["height"]


@pytest.mark.full
def test_reasons_link_to_the_threads_that_they_name(show: Opener, document: dict[str, Any]) -> None:
    faulty = [id for id, role, _, cell in answers(document) if role == "consumer" and "harm" in cell]
    page = show(f"#v={faulty[0]}")
    page.wait_for_selector("#panel[open] .answers")
    links = page.eval_on_selector_all(".answers a[rel]", "all => all.map(one => one.href)")
    assert {"https://example.org/issues/7", "https://issues.apache.org/jira/browse/KAFKA-5031"} <= set(links)


@pytest.mark.full
def test_a_bomb_has_a_recipe_and_no_bytes(show: Opener) -> None:
    page = show("#v=records/v2/bomb/gzip-value-96mib")
    page.wait_for_selector("#panel[open]")
    assert "634,335 bytes, too many for a page" in page.inner_text(".bytes")
    assert page.locator(".parts").count() == 0


@pytest.mark.full
def test_a_vector_in_several_roles_leads_from_one_to_the_other(show: Opener) -> None:
    page = show("#v=stream/sequence/gap-of-one:broker")
    page.wait_for_selector("#panel[open] .parts")
    assert "step 2: batch[0]" in page.inner_text(".parts")
    page = show("#v=records/v1/message/wrapper-crc-wrong:broker")
    page.wait_for_selector("#panel[open] .roles")
    assert visible(page, ".roles [aria-current]")[0].endswith("broker")
    page.click(".roles a:has-text('log')")
    until(page, "location.hash.endsWith(':log')")
    until(page, "document.querySelector('.expected h3').textContent === 'Expected as log'")
    close_panel(page)


@pytest.mark.full
def test_texts_of_implementations_are_never_markup(browser: Any, document: dict[str, Any], tmp_path: Path) -> None:
    evil = "<img src=x onerror=\"document.title='evil'\"></script><script>document.title='evil'</script>"
    told = json.loads(json.dumps(document))
    for case in told["cases"]:
        for cell in case["cells"].values():
            if "text" in cell:
                cell["text"] = cell["reason"] = evil
    file = tmp_path / "page.html"
    file.write_text(report.to_html(report.from_json(told, load_suite("*", kinds=KINDS))))
    page = browser.new_page()
    page.goto(f"{file.as_uri()}#v={VECTOR}")
    page.wait_for_selector("#panel[open] .answers")
    assert "onerror" in page.inner_text("#panel")
    assert page.title().startswith("kfuzz conformance")
    assert page.locator("img").count() == 0
    page.close()


# ----------------------------------------------------------------------------------------------------------------- keys


@pytest.mark.full
def test_the_page_can_be_read_with_keys_alone(show: Opener) -> None:
    page = show()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.type("jk?")
    assert page.input_value("#q") == "jk?", "keys are letters while a field has the focus"
    until(page, "location.hash !== ''")
    page.keyboard.press("Escape")
    until(page, "!location.hash.includes('q=')")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("q")
    page.wait_for_selector("#questions:not([hidden])")
    rows = page.locator("#questions .row")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.textContent") == rows.first.text_content()
    page.keyboard.press("Enter")
    page.wait_for_selector("#panel[open] .answers")
    first = page.inner_text("#panel-title")
    assert page.evaluate("document.activeElement.id") == "panel-title"
    page.keyboard.press("j")
    until(page, "title => document.getElementById('panel-title').innerText !== title", first)
    page.keyboard.press("k")
    until(page, "title => document.getElementById('panel-title').innerText === title", first)
    close_panel(page)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("?")
    assert page.is_visible("#help")
    page.keyboard.press("Escape")
    assert not page.is_visible("#help")
    page.keyboard.press("c")
    page.wait_for_selector("#causes:not([hidden])")
    page.keyboard.press("t")
    assert page.get_attribute("html", "data-theme") == "dark"


@pytest.mark.full
def test_the_focus_returns_to_the_row_that_was_opened(show: Opener) -> None:
    page = show("#tab=questions")
    page.locator("#questions .row").nth(3).focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#panel[open]")
    close_panel(page)
    assert page.evaluate("document.activeElement.textContent") == page.locator("#questions .row").nth(3).text_content()


# ---------------------------------------------------------------------------------------------------------------- lists


@pytest.mark.full
def test_rows_are_drawn_as_they_are_read(show: Opener, document: dict[str, Any]) -> None:
    page = show("#tab=questions")
    drawn = page.locator("#questions .row").count()
    assert drawn <= 60
    page.locator("#questions .more").scroll_into_view_if_needed()
    until(page, "drawn => document.querySelectorAll('#questions .row').length > drawn", drawn)


@pytest.mark.full
def test_questions_are_failures_first_and_those_answered_alike_are_one_row(show: Opener) -> None:
    page = show("#tab=questions&family=primitives/varints")
    letters = [text[0] for text in visible(page, "#questions .gave")]
    order = [harm.name[0].upper() for harm in HARMS] + ["✓"]
    assert [order.index(letter) for letter in letters] == sorted(order.index(letter) for letter in letters)
    button = page.locator(".alike button").first
    more = int(button.inner_text().split()[0])
    before = page.locator("#questions .row").count()
    button.click()
    assert page.locator("#questions .row").count() == before + more


# -------------------------------------------------------------------------------------------------- widths, themes, axe

# Whether the open panel can be scrolled sideways.
SCROLLS_SIDEWAYS = "[...document.querySelectorAll('dialog[open]')].some(one => one.scrollWidth > one.clientWidth)"
STATES = {
    "causes": "",
    "questions": "#tab=questions",
    "filtered": "#impl=alpha@1.0&harm=kills&family=records/v2",
    "vector": f"#v={VECTOR}",
    "help": "",
}


@pytest.mark.full
@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_barrier_and_nothing_is_wider_than_the_screen(show: Opener, width: int, theme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    for name, fragment in STATES.items():
        page = show(fragment, width=width, theme=theme)
        if "v=" in fragment:
            page.wait_for_selector("#panel[open] .answers")
        if name == "help":
            page.click("#help-open")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert not page.evaluate(SCROLLS_SIDEWAYS), name
        # axe hands its script to the page past the page's own policy.
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


@pytest.mark.full
def test_the_theme_is_that_of_the_system_until_a_reader_chooses(show: Opener) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    light, dark = show(theme="light"), show(theme="dark")
    of_light, of_dark = light.evaluate(colour), dark.evaluate(colour)
    assert of_light != of_dark
    light.click("#theme")
    assert light.evaluate(colour) == of_dark
    light.click("#theme")
    assert light.evaluate(colour) == of_light
    light.click("#theme")
    light.reload()
    assert light.evaluate(colour) == of_dark, "the choice is kept"


@pytest.mark.full
def test_a_site_that_lacks_a_file_says_which(browser: Any, places: dict[str, Path], tmp_path: Path) -> None:
    import shutil

    site = shutil.copytree(places["site"].parent, tmp_path / "site")
    for file in (site / "data").glob("theme-*.js"):
        file.unlink()
    page = browser.new_page()
    page.goto(f"{(site / 'index.html').as_uri()}#v={VECTOR}")
    page.wait_for_selector("#panel[open] [role=alert]")
    assert re.search(r"Data/theme-\d+\.js cannot be loaded; copy the whole folder", page.inner_text("#panel"))
    page.close()


# ----------------------------------------------------------------------------------------------------- the whole matrix


@pytest.mark.nightly
def test_the_page_of_the_whole_matrix_is_small_and_draws_little_at_first(browser: Any, tmp_path: Path) -> None:
    suite = load_suite("*", kinds=KINDS)
    labels = [f"implementation-{number}@{number}.0" for number in range(17)]
    run = report.from_json(made_result(cases_of(suite), labels), suite)
    text = report.to_html(run)
    assert len(text.encode()) < 3_000_000
    file = tmp_path / "page.html"
    file.write_text(text)
    page = browser.new_page()
    page.goto(f"{file.as_uri()}#tab=questions")
    page.wait_for_selector("html[data-ready]")
    assert page.locator("#matrix tbody tr").count() == len(labels)
    assert page.locator("#questions .row").count() <= 60
    # Nothing but the lists' pack is opened before somebody opens a vector.
    assert page.evaluate("document.querySelectorAll('script[id^=pack-]').length") > 40
    assert page.locator("#panel *").count() == 0
    page.set_viewport_size({"width": NARROW, "height": 800})
    page.select_option("#family", "records/v2")
    assert page.locator("#matrix thead th").count() > 20
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
    page.close()
