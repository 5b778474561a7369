"""The tutorial and the how-tos, done as they are written: files written, commands typed, outputs compared."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.docs.conftest import Studied


def test_the_tutorial_shows_what_happens(studied: Studied) -> None:
    if studied.wrong:
        pytest.fail(studied.wrong, pytrace=False)


@pytest.mark.parametrize("page", ["add-a-strategy", "add-a-template", "add-problems", "judge-programs", "sandboxes"])
def test_a_how_to_shows_what_happens(page: str, follow: Callable[..., None]) -> None:
    follow(f"how-to/{page}.md")


@pytest.mark.parametrize("page", ["resume-and-grow", "read-a-run", "replay"])
def test_a_how_to_about_runs_goes_on_after_the_tutorial(
    page: str, follow: Callable[..., None], studied: Studied
) -> None:
    follow(f"how-to/{page}.md", after=studied)
